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

_Job = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", contextvars.Context, Callable[[], Any]]


class _Worker:
    """One daemon thread that runs jobs one after the other."""

    def __init__(self) -> None:
        self.jobs: SimpleQueue[_Job | None] = SimpleQueue()
        threading.Thread(target=self._run, name="opensage-tool", daemon=True).start()

    def _run(self) -> None:
        while (job := self.jobs.get()) is not None:
            loop, future, context, function = job
            outcome: tuple[Callable[..., None], asyncio.Future[Any], Any]
            try:
                outcome = (_set_result, future, context.run(function))
            except BaseException as error:  # noqa: BLE001 - carried to the awaiting task, which decides
                outcome = (_set_error, future, error)
            _idle(self)
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits any more
                loop.call_soon_threadsafe(*outcome)
            del job, loop, future, context, function, outcome


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
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    try:
        worker = _free.pop()
    except IndexError:
        worker = _Worker()
    worker.jobs.put((loop, future, contextvars.copy_context(), function))
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        future.add_done_callback(_seen)
        await asyncio.wait([future], timeout=GRACE)
        raise


def _set_result(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)


def _set_error(future: asyncio.Future[Any], error: BaseException) -> None:
    if isinstance(error, StopIteration):  # a future cannot carry it: the caller would wait for ever
        error = RuntimeError(f"StopIteration was raised: {error.value!r}")
    if not future.done():
        future.set_exception(error)


def _seen(future: asyncio.Future[Any]) -> None:
    """Look at the outcome, so that the loop does not report an error nobody fetched."""
    if not future.cancelled():
        future.exception()
