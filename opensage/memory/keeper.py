"""Keeps the memory of a run: writes what its logs tell, beside the run, one for all its agents."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from opensage.errors import MemoryUnavailable, OpenSageError
from opensage.memory.place import MemoryPlace, explained
from opensage.secrets import Mask

if TYPE_CHECKING:
    from opensage.memory.follow import Follower
    from opensage.memory.graph import TreeFold
    from opensage.memory.write import GraphWriter

EVERY = 2.0
"""Seconds between two writings of a run at work."""
BEHIND = 0.05
"""Seconds that a writing stays behind a run at work."""
PATIENCE = 35.0
"""Seconds that the end of a run waits for its memory: a little more than a store waits for another writer."""
_LOST = "the logs have it all: `opensage memory rebuild` writes it"


class Keeper:
    """What the agents of one tree share of a memory.

    Attributes:
        place: the memory.
        trouble: what could not be written, and what to do; "" when all was.
    """

    def __init__(self, place: MemoryPlace, mask: Mask) -> None:
        self.place, self._mask = place, mask
        self.trouble = ""
        self._trail: _Trail | None = None
        self._work: asyncio.Task[None] | None = None
        self._last = 0.0
        self._closed = False

    def enter(self, folder: Path, root: str) -> None:
        """Follow this root session from now on."""
        self._trail = _Trail(self.place, folder, root, self._mask)

    def turn_ended(self) -> None:
        """Write what there is, if that was not done just now."""
        if (self._work is None or self._work.done()) and time.monotonic() - self._last > EVERY:
            self._begin(lambda: time.time() - BEHIND)

    def run_ended(self) -> None:
        """Write everything; nobody at work below writes any more."""
        self._begin(lambda: math.inf)

    def _begin(self, until: Callable[[], float]) -> None:
        self._last = time.monotonic()
        before, trail = self._work, self._trail

        async def work() -> None:
            if before is not None:
                await asyncio.wait([before])
            if trail is not None:
                try:
                    self._note(await self.place.call(lambda: trail.write(until())))
                except (OpenSageError, OSError) as error:
                    self._note(f"{error}; {_LOST}")

        self._work = asyncio.create_task(work(), name="opensage memory")

    def _note(self, trouble: str) -> None:
        if trouble and not self.trouble:
            told = " ".join(trouble.split())
            self.trouble = told if told.startswith("memory:") else f"memory: {told}"

    def failed(self, error: Exception) -> None:
        """Something could not be read."""
        self._note(str(error))

    async def settle(self) -> None:
        """Wait until what was begun is written."""
        if self._work is not None:
            done, _ = await asyncio.wait([self._work], timeout=PATIENCE)
            if not done:
                self._note(f"{self.place.where} is busy; {_LOST}")

    async def close(self) -> None:
        """Write what is left and let go of the memory. Safe to call twice."""
        if not self._closed:
            self._closed = True
            await self.settle()
            await self._embed()
            self.place.close()

    async def _embed(self) -> None:
        """Give vectors to what has none; what fails waits for `opensage memory reindex`."""
        memory = self.place.opened
        if memory is None or memory.embedder is None or not memory.store.writable:
            return
        if memory.trouble:  # vectors of another model are a person's to replace
            self._note(memory.trouble)
            return
        try:
            with explained():
                await self.place.call(memory.reindex)
        except (OpenSageError, OSError) as error:
            self._note(f"no vectors: {error}; then: opensage memory reindex")


class _Trail:
    """How far the logs of one root session were written."""

    def __init__(self, place: MemoryPlace, folder: Path, root: str, mask: Mask) -> None:
        self._place, self._folder, self._root, self._mask = place, folder, root, mask
        self._at: tuple[Follower, TreeFold, GraphWriter] | None = None

    def write(self, until: float) -> str:
        """Write what is new up to a time; returns what was refused. After an error all is written again."""
        from opensage.memory.follow import Follower
        from opensage.memory.graph import TreeFold
        from opensage.memory.write import GraphWriter

        following, fold, writer = self._at or (
            Follower(self._folder, self._root, self._mask),
            TreeFold(),
            GraphWriter(self._place),
        )
        self._at = None
        pieces = [piece for told in following.news(until) for piece in fold.apply(*told)]
        with explained():
            if pieces and not self._place.memory.store.writable:
                raise MemoryUnavailable(self._place.memory.trouble or f"{self._place.where} can only be read")
            writer.write(pieces)
        self._at = (following, fold, writer)
        return writer.refused[0] if writer.refused else ""
