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

_MAX_IDLE = 8


class _Job:
    """A function on its way through a thread.

    Attributes:
        future: what the caller waits for.
        over: the thread is done, and the loop knows.
        ended: for a caller that was cancelled and still waits for the thread.
    """

    __slots__ = ("_context", "_function", "ended", "future", "loop", "over")

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._context = contextvars.copy_context()
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.ended: asyncio.Future[None] | None = None
        self.over = False

    def run(self) -> tuple[Any, BaseException | None]:
        """In the thread: the value, or what was raised."""
        try:
            return self._context.run(self._function), None
        except BaseException as error:  # noqa: BLE001 - carried to the awaiting task, which decides
            return None, error

    def deliver(self, value: Any, error: BaseException | None) -> None:
        """On the loop: hand the outcome to whoever still waits."""
        self.over = True
        if self.ended is not None and not self.ended.done():
            self.ended.set_result(None)
        if self.future.done():
            return
        if isinstance(error, StopIteration):  # a future cannot carry it: the caller would wait for ever
            error = RuntimeError(f"StopIteration was raised: {error.value!r}")
        if error is None:
            self.future.set_result(value)
        else:
            self.future.set_exception(error)


class _Worker:
    """One daemon thread that runs jobs one after the other."""

    def __init__(self) -> None:
        self.jobs: SimpleQueue[_Job | None] = SimpleQueue()
        threading.Thread(target=self._run, name="opensage-tool", daemon=True).start()

    def _run(self) -> None:
        while (job := self.jobs.get()) is not None:
            outcome = job.run()
            _idle(self)
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits any more
                job.loop.call_soon_threadsafe(job.deliver, *outcome)
            del job, outcome


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
    # Handed over when the loop has nothing else ready: a thread that wakes earlier only fights it for the interpreter.
    job.loop.call_soon(worker.jobs.put, job)
    try:
        return await job.future
    except asyncio.CancelledError:
        if not job.over:
            job.ended = job.loop.create_future()
            await asyncio.wait([job.ended], timeout=GRACE)
        elif not job.future.cancelled():
            job.future.exception()  # looked at, so that the loop does not report an error nobody fetched
        raise
