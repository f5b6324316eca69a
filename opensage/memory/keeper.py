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
        self._folder, self._root = Path(), ""
        self._following: Follower | None = None
        self._fold: TreeFold | None = None
        self._writer: GraphWriter | None = None
        self._work: asyncio.Task[None] | None = None
        self._last = 0.0
        self._closed = False

    def enter(self, folder: Path, root: str) -> None:
        """Follow this root session from now on."""
        self._folder, self._root = folder, root
        self._following = None

    def turn_ended(self) -> None:
        """Write what there is, if that was not done just now."""
        if (self._work is None or self._work.done()) and time.monotonic() - self._last > EVERY:
            self._begin(lambda: time.time() - BEHIND)

    def run_ended(self) -> None:
        """Write everything; nobody at work below writes any more."""
        self._begin(lambda: math.inf)

    def _begin(self, until: Callable[[], float]) -> None:
        self._last = time.monotonic()
        before = self._work

        async def work() -> None:
            if before is not None:
                await asyncio.wait([before])
            try:
                await self.place.call(lambda: self._write(until()))
            except (OpenSageError, OSError) as error:
                self._following = None  # the next writing begins anew
                self.trouble = self.trouble or f"memory: {error}; {_LOST}"

        self._work = asyncio.create_task(work(), name="opensage memory")

    def _write(self, until: float) -> None:
        from opensage.memory.follow import Follower
        from opensage.memory.graph import TreeFold
        from opensage.memory.write import GraphWriter

        if self._following is None or self._fold is None or self._writer is None:
            self._following = Follower(self._folder, self._root, self._mask)
            self._fold, self._writer = TreeFold(), GraphWriter(self.place)
        pieces = [piece for told in self._following.news(until) for piece in self._fold.apply(*told)]
        with explained():
            if pieces and not self.place.memory.store.writable:
                raise MemoryUnavailable(self.place.memory.trouble or f"{self.place.where} can only be read")
            self._writer.write(pieces)
        if self._writer.refused and not self.trouble:
            self.trouble = f"memory: {self._writer.refused[0]}"

    def failed(self, error: Exception) -> None:
        """Something could not be read."""
        text = str(error)
        self.trouble = self.trouble or (text if text.startswith("memory:") else f"memory: {text}")

    async def settle(self) -> None:
        """Wait until what was begun is written."""
        if self._work is not None:
            done, _ = await asyncio.wait([self._work], timeout=PATIENCE)
            if not done:
                self.trouble = self.trouble or f"memory: {self.place.where} is busy; {_LOST}"

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
        try:
            with explained():
                await self.place.call(memory.reindex)
        except (OpenSageError, OSError) as error:
            self.trouble = self.trouble or f"memory: no vectors: {error}; then: opensage memory reindex"
