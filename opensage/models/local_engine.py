"""The llama.cpp server in this process: loaded once, one generation at a time, stopped by a flag."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import secrets
import threading
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opensage.errors import ModelError

Chunk = dict[str, Any]

CACHE_MIB = 512
"""Memory for conversations put aside, so that a question beside one does not cost reading it again."""
LEAVE_SECONDS = 20.0
"""What a generation gets to end at exit: it does at its next token, which a busy machine may keep waiting."""
_one_at_a_time = threading.Lock()
_engines: dict[tuple[Path, int], Engine] = {}
_engines_lock = threading.Lock()
_jobs: set[Job] = set()


@dataclass(eq=False, slots=True)
class Job:
    """One generation: chunks go to `queue` on the event loop; `stop` ends it at the next token."""

    loop: asyncio.AbstractEventLoop
    queue: asyncio.Queue[Chunk | BaseException | None] = field(default_factory=asyncio.Queue)
    stop: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)

    def put(self, item: Chunk | BaseException | None) -> bool:
        """Hand an item to the event loop; returns whether to stop. A closed loop stops the job."""
        try:
            self.loop.call_soon_threadsafe(self.queue.put_nowait, item)
        except RuntimeError:
            self.stop.set()
        return self.stop.is_set()


class Engine:
    """One loaded model file.

    Args:
        path: a GGUF file.
        window: tokens of context to allocate.
    """

    def __init__(self, path: Path, window: int) -> None:
        self.path, self.window = path, window
        self.users = 0
        self._server: Any = None

    @property
    def loaded(self) -> bool:
        """Whether the file is in memory."""
        return self._server is not None

    async def generate(self, body: dict[str, Any]) -> AsyncGenerator[Chunk, None]:
        """Run a streaming chat completion; closing the iterator stops it.

        Raises:
            ModelError: xllamacpp is missing, or the file cannot be loaded.
        """
        job = Job(asyncio.get_running_loop())
        _jobs.add(job)
        threading.Thread(target=self._run, args=(job, body), name="opensage-llama", daemon=True).start()
        try:
            while True:
                item = await job.queue.get()
                if item is None:
                    return
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            job.stop.set()

    def _run(self, job: Job, body: dict[str, Any]) -> None:
        try:
            with _one_at_a_time:
                if not job.stop.is_set():
                    self._load()
                    self._server.handle_chat_completions({**body, "stream": True}, job.put)
        except ModelError as error:
            job.put(error)
        except Exception as error:  # noqa: BLE001 - C++ errors of any type, carried to the event loop as ours
            job.put(ModelError(f"llama.cpp refused the request: {error}"))
        finally:
            job.put(None)
            job.over.set()
            _jobs.discard(job)

    def _load(self) -> None:
        if self._server is not None:
            return
        params = parameters(self.path, self.window)
        params.api_keys = [secrets.token_hex(16)]  # it also listens on a port of the loopback; nobody else may use it
        try:
            self._server = start(params)
        except Exception as error:  # RuntimeError without a reason for a bad file, too little memory, ...
            raise ModelError(
                f"{self.path} cannot be loaded ({error}); it is damaged, no GGUF, or larger than the free memory. "
                "Remove and pull it again, or use a smaller model"
            ) from error

    def unload(self) -> None:
        """Free the memory, once no generation runs."""
        with _one_at_a_time:
            self._server = None


def parameters(path: Path, window: int) -> Any:
    """How llama.cpp runs a file here: all cores, quiet, without its pages for people.

    Raises:
        ModelError: xllamacpp is missing.
    """
    try:
        import xllamacpp
    except ImportError as error:
        raise ModelError(f"local models need llama.cpp ({error}); pip install 'opensage[local]'") from error
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx = window
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = cores()
    params.verbosity = -1  # llama.cpp writes pages to stderr otherwise
    params.cache_ram_mib = CACHE_MIB
    params.ui = False
    params.endpoint_slots = False
    return params


def start(params: Any) -> Any:
    """Load the model; whatever goes wrong is raised as llama.cpp raises it."""
    import xllamacpp

    return xllamacpp.Server(params)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def acquire(path: Path, window: int) -> Engine:
    """The process's engine for a file; models that share a file share its memory."""
    with _engines_lock:
        engine = _engines.setdefault((path, window), Engine(path, window))
        engine.users += 1
        return engine


def release(engine: Engine) -> Callable[[], None] | None:
    """Give an engine back; returns what frees it when nobody else uses it (blocking: call it in a thread)."""
    with _engines_lock:
        engine.users -= 1
        if engine.users > 0:
            return None
        _engines.pop((engine.path, engine.window), None)
        return engine.unload


def _stop_all() -> None:
    """At exit: ask running generations to end, and give them a moment, so that C++ threads do not outlive Python."""
    for job in list(_jobs):
        job.stop.set()
    for job in list(_jobs):
        job.over.wait(LEAVE_SECONDS)
    if not _jobs:
        for engine in list(_engines.values()):
            with contextlib.suppress(RuntimeError):
                engine.unload()


atexit.register(_stop_all)
