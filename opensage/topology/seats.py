"""How many agents may be at work at one time."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque


class Seats:
    """At most `limit` agents sit at a time. One that waits for others stands up, so nested delegation cannot deadlock.

    One event loop owns it.
    """

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.taken = 0

    async def take(self, *, again: bool = False) -> None:
        """Sit down, in turn; who sat before (`again`) is the next in turn, or those who never began would starve it.

        When cancelled the seat is taken nevertheless, so that `free` is always right after.
        """
        if self._limit is None or self.taken < self._limit:
            self.taken += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._waiting.appendleft if again else self._waiting.append)(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():  # `free` gave this seat to nobody, but may have seen that, and forgotten it, already
                with contextlib.suppress(ValueError):
                    self._waiting.remove(turn)
                self.taken += 1
            raise

    def take_now(self) -> None:
        """Sit down at once, one too many if need be: who is being cancelled must not wait."""
        self.taken += 1

    def free(self) -> None:
        """Stand up; the next one in turn sits down."""
        while self._waiting and (self._limit is None or self.taken <= self._limit):
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.taken -= 1
