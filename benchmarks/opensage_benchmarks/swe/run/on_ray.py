"""Tasks on the machines of a Ray cluster. What needs Ray is here and nowhere else.

Each task is a Ray task that starts a worker on its machine; the worker's questions go to one actor, behind which the
runner answers, so that the budget is one. Results come back as an archive; the runner alone writes them down.
"""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import sys
import tarfile
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opensage_benchmarks.swe.errors import BenchError
from opensage_benchmarks.swe.run.executor import Hear, Worker, WorkerDied

INSTALL = "the executor `ray` needs Ray: pip install 'opensage[ray]'"
_POLL = 30.0
_STARTS = 3


class Relay:
    """Carries questions of workers to the runner and its answers back. Lives in an actor."""

    def __init__(self) -> None:
        self._questions: asyncio.Queue[tuple[int, str, dict[str, Any]]] = asyncio.Queue()
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._number = 0

    async def ask(self, key: str, message: dict[str, Any]) -> Any:
        """A worker's message; comes back with the answer."""
        self._number += 1
        answer = self._answers[self._number] = asyncio.get_running_loop().create_future()
        await self._questions.put((self._number, key, message))
        return await answer

    async def questions(self, seconds: float) -> list[tuple[int, str, dict[str, Any]]]:
        """What waits for an answer, at most so long after it was asked for."""
        try:
            found = [await asyncio.wait_for(self._questions.get(), seconds)]
        except TimeoutError:
            return []
        while not self._questions.empty():
            found.append(self._questions.get_nowait())
        return found

    async def answer(self, number: int, answer: Any) -> None:
        """Give an answer."""
        waiting = self._answers.pop(number, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)


class RayExecutor:
    """Runs jobs on the cluster at `RAY_ADDRESS`, or on one of this machine that ends with the run.

    Args:
        state: an existing folder for half results.
        modules: what each worker imports before its task.
    """

    name = "ray"

    def __init__(self, state: Path, modules: Sequence[str] = ()) -> None:
        try:
            import ray
        except ImportError as error:
            raise BenchError(INSTALL) from error
        self._ray, self._state, self._modules = ray, state, list(modules)
        self._owns = not ray.is_initialized()
        if self._owns:
            self._start()
        self._relay: Any = ray.remote(Relay).options(max_concurrency=1000, num_cpus=0).remote()
        self._job: Any = ray.remote(max_retries=0, max_calls=0)(on_machine)
        self._hears: dict[str, Hear] = {}
        self._running: set[Any] = set()
        self._pump: asyncio.Task[None] | None = None
        self._count = 0

    def _start(self, tries: int = _STARTS) -> None:
        """Join or start a cluster. Ray gives a node 30 seconds to come up, which a busy machine may not keep."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            self._ray.init(include_dashboard=False, log_to_driver=False, configure_logging=False, namespace="opensage")
        except Exception as error:
            self._ray.shutdown()
            if tries > 1:
                return self._start(tries - 1)
            raise BenchError(f"Ray does not start: {error}; give RAY_ADDRESS, or run with --executor local") from error

    async def run(self, job: Mapping[str, Any], hear: Hear) -> dict[str, Any]:
        """Run one job somewhere; its results are unpacked into `job["folder"]`.

        Raises:
            WorkerDied: the process or its machine went away.
        """
        if self._pump is None:
            self._pump = asyncio.create_task(self._answer())
        self._count += 1
        key = f"{job['task']['id']}#{self._count}"
        self._hears[key] = hear
        reference = self._job.remote(dict(job), key, self._relay, self._modules, sys.path)
        self._running.add(reference)
        try:
            ended, results = await reference
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, WorkerDied):
                raise error.cause from error
            raise WorkerDied(f"the task failed on its machine: {str(error.cause)[:500]}") from error
        except self._ray.exceptions.RayError as error:
            raise WorkerDied(f"the task's machine or process went away ({type(error).__name__})") from error
        finally:
            self._running.discard(reference)
            self._hears.pop(key, None)  # what a process that is given up still says is not heard
        unpack(results, Path(job["folder"]))
        return dict(ended)

    async def _answer(self) -> None:
        """Hear what workers say, in order."""
        while True:
            for number, key, message in await self._relay.questions.remote(_POLL):
                hear = self._hears.get(key)
                answer = await hear(message) if hear is not None else {"refused": "the run has given this task up"}
                self._relay.answer.remote(number, answer)

    async def close(self) -> None:
        """End what runs, and the cluster when it was started for this run."""
        for reference in self._running:
            self._ray.cancel(reference, force=True)
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
        if self._owns:
            with warnings.catch_warnings():  # it leaves processes of its own to the garbage collector
                warnings.simplefilter("ignore", ResourceWarning)
                self._ray.shutdown()
        else:
            self._ray.kill(self._relay)


def on_machine(
    job: dict[str, Any], key: str, relay: Any, modules: Sequence[str], path: Sequence[str]
) -> tuple[dict[str, Any], bytes]:
    """Runs on a machine of the cluster: one worker, one job, its results as an archive."""
    sys.path += [place for place in path if place not in sys.path]
    return asyncio.run(_on_machine(job, key, relay, modules))


async def _on_machine(
    job: dict[str, Any], key: str, relay: Any, modules: Sequence[str]
) -> tuple[dict[str, Any], bytes]:
    place = Path(tempfile.mkdtemp(prefix="opensage-bench-"))
    try:
        (place / "scratch").mkdir()
        results = place / "results"
        mine = {**job, "folder": str(results), "scratch": str(place / "scratch")}
        worker = await Worker.start(modules, place / "worker.log", mine)

        async def hear(message: dict[str, Any]) -> dict[str, Any] | None:
            answer: dict[str, Any] | None = await relay.ask.remote(key, message)
            return answer

        try:
            ended = await worker.do(mine, hear)
        finally:
            await worker.kill()
        return {**ended, "machine": os.uname().nodename}, pack(results)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def pack(folder: Path) -> bytes:
    """A folder as an archive; regular files alone."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz", compresslevel=1) as archive:
        for file in sorted(folder.rglob("*")):
            if file.is_file() and not file.is_symlink():
                archive.add(file, str(file.relative_to(folder)), recursive=False)
    return data.getvalue()


def unpack(data: bytes, folder: Path) -> None:
    """The other way round; nothing can leave the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        archive.extractall(folder, filter="data")


__all__ = ["INSTALL", "RayExecutor"]
