"""Worker threads for plain functions: half the cost of `asyncio.to_thread`, never exhausted by a tool that hangs."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

GRACE = 10.0
"""Seconds for which a cancelled call waits for its thread: what runs in a thread cannot be stopped, only awaited."""

BRIEF = 0.0005
"""Seconds for which the event loop itself waits: most functions end sooner, and a switch of tasks costs that much."""

_MAX_IDLE = 8


class _Job:
    """A function on its way through a thread."""

    __slots__ = ("_context", "_done", "_error", "_function", "_loop", "_over", "_value")

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._context = contextvars.copy_context()
        self._loop = asyncio.get_running_loop()
        self._value: Any = None
        self._error: BaseException | None = None
        self._done = threading.Lock()  # held until the function has ended
        self._done.acquire()
        self._over: asyncio.Event | None = None  # made by a caller that has to wait for longer

    def run(self) -> None:
        """In the thread: run, and keep what came of it."""
        try:
            self._value = self._context.run(self._function)
        except BaseException as error:  # noqa: BLE001 - carried to the awaiting task, which decides
            self._error = error

    def tell(self) -> None:
        """In the thread: let the caller go on."""
        self._done.release()
        if self._over is not None:
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits any more
                self._loop.call_soon_threadsafe(self._over.set)

    async def wait(self) -> None:
        """Wait for the thread; when cancelled, for up to `GRACE` seconds more."""
        if self._done.acquire(timeout=BRIEF):
            return
        self._over = asyncio.Event()
        if self._done.acquire(blocking=False):  # it ended just now, and may not have seen the event
            return
        try:
            await self._over.wait()
        except asyncio.CancelledError:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GRACE):
                    await self._over.wait()
            raise

    def outcome(self) -> Any:
        """What the function returned. Raises what it raised."""
        error, self._error = self._error, None
        if error is None:
            return self._value
        if isinstance(error, StopIteration):  # a coroutine cannot raise it
            error = RuntimeError(f"StopIteration was raised: {error.value!r}")
        try:
            raise error
        finally:
            del error  # a traceback that holds itself would outlive the call


class _Worker:
    """One daemon thread that runs jobs one after the other."""

    def __init__(self) -> None:
        self.jobs: SimpleQueue[_Job | None] = SimpleQueue()
        threading.Thread(target=self._run, name="opensage-tool", daemon=True).start()

    def _run(self) -> None:
        while (job := self.jobs.get()) is not None:
            job.run()
            _idle(self)
            job.tell()
            del job


_free: list[_Worker] = []


def _idle(worker: _Worker) -> None:
    if len(_free) < _MAX_IDLE:
        _free.append(worker)
    else:
        worker.jobs.put(None)


async def in_thread(function: Callable[[], Any]) -> Any:
    """Run a function in a worker thread, with the caller's context variables.

    A cancelled call waits up to `GRACE` seconds for its thread before it gives up, so that a run seldom ends while one
    of its tools still acts; a second cancellation ends the wait at once.
    """
    job = _Job(function)
    try:
        worker = _free.pop()
    except IndexError:
        worker = _Worker()
    worker.jobs.put(job)
    await job.wait()
    return job.outcome()
