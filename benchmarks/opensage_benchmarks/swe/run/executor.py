"""Where tasks run: the interface of executors, and the one of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from opensage_benchmarks.swe.run.protocol import MOST_LINE, line_of, read_line

GRACE = 60.0
"""Seconds that a worker has to end a task that hangs, before it is ended itself."""
_QUIET = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
"""Else its import goes to the network."""
_MODULES = ("opensage_benchmarks.swe.run.job", "asyncio.runners")

Hear = Callable[[dict[str, Any]], Awaitable[dict[str, Any] | None]]
"""Gets what a worker says; what it gives back is the answer."""


class WorkerDied(Exception):
    """A worker went away in the middle of a task, through no fault of the agent that could be seen."""


class Executor(Protocol):
    """Runs jobs, each in a process of its own."""

    @property
    def name(self) -> str:
        """As the user chooses it."""
        ...

    async def run(self, job: Mapping[str, Any], hear: Hear) -> dict[str, Any]:
        """Run one job to its end; `job["folder"]` is filled on this machine.

        Returns:
            The worker's messages `end`, when there was one, and `gone`, in one.

        Raises:
            WorkerDied: the task may be tried again.
        """
        ...

    async def close(self) -> None:
        """End all workers and everything below them."""
        ...


class Worker:
    """One worker process of this machine."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, modules: Sequence[str], errors: Path, job: Mapping[str, Any]) -> Worker:
        """Start one that is ready for jobs like this; what it prints goes to a file."""
        command = (sys.executable, "-m", "opensage_benchmarks.swe.run.worker", str(os.getpid()))
        with errors.open("ab") as target:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=target,
                limit=MOST_LINE,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **_QUIET},
            )
        worker = cls(process)
        source = [job["source"], job["path"], job["source_options"]]
        await worker.send({"path": sys.path, "import": [*_MODULES, *modules], "source": source})
        return worker

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send a message.

        Raises:
            WorkerDied: nobody is there.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line_of(message))
            await self._process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError) as error:
            raise WorkerDied("the worker went away") from error

    async def do(self, job: Mapping[str, Any], hear: Hear) -> dict[str, Any]:
        """Run one job (see `Executor.run`)."""
        await self.send({"job": dict(job)})
        end: dict[str, Any] = {}
        seconds = job["timeout"] + GRACE if job["timeout"] else None
        try:
            async with asyncio.timeout(seconds):
                while (message := await self._read()) is not None:
                    if message["event"] == "gone":
                        return {**message, **end}
                    if message["event"] == "end":
                        end = message
                    elif (answer := await hear(message)) is not None:
                        await self.send(answer)
        except TimeoutError:
            await self.kill()
            return {"event": "gone", "code": 0, "why": "", "lost": f"the worker did not answer for {seconds:g} seconds"}
        raise WorkerDied(f"the worker ended with code {await self._process.wait()}")

    async def _read(self) -> dict[str, Any] | None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            if (message := read_line(line)) is not None:
                return message
        return None

    @property
    def alive(self) -> bool:
        """Whether it can take another job."""
        return self._process.returncode is None

    async def kill(self) -> None:
        """End it and all below: it is asked to, since it knows them, and killed when it does not."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
                self._process.send_signal(signal.SIGCONT)  # it may have been stopped
                try:
                    async with asyncio.timeout(10):
                        await self._process.wait()
                except TimeoutError:
                    self._process.kill()
        await self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        # The transport is closed now and not by the garbage collector, when the loop is gone.
        self._process._transport.close()  # type: ignore[attr-defined]


class LocalExecutor:
    """Workers of this machine, each kept for the next task.

    Args:
        state: an existing folder for what workers print.
        modules: what each worker imports before its first task.
    """

    name = "local"

    def __init__(self, state: Path, modules: Sequence[str] = ()) -> None:
        self._state, self._modules = state, modules
        self._idle: list[Worker] = []
        self._all: list[Worker] = []

    async def run(self, job: Mapping[str, Any], hear: Hear) -> dict[str, Any]:
        """Run one job on an idle worker, or on a new one."""
        worker = self._idle.pop() if self._idle else await self._start(job)
        ended = await worker.do(job, hear)
        if worker.alive:
            self._idle.append(worker)
        return ended

    async def _start(self, job: Mapping[str, Any]) -> Worker:
        worker = await Worker.start(self._modules, self._state / "workers.log", job)
        self._all.append(worker)
        return worker

    async def close(self) -> None:
        """End all workers and everything below them."""
        workers, self._all, self._idle = self._all, [], []
        await asyncio.gather(*(worker.kill() for worker in workers))
