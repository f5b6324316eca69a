"""Where the memory of a workspace is, and whose part of it is whose."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from opensage.errors import MemoryUnavailable, OpenSageError
from opensage.memory.settings import MemorySettings

if TYPE_CHECKING:
    from opensage_memory import Memory
    from opensage_memory.store.base import Store

USER = "local"
"""Scope of the person: what holds in all projects of a store."""
PROJECT = "project"
"""Setting of a store that lies in a workspace: the scope of the project, which stays when the folder is moved."""
Answer = TypeVar("Answer")


def memory_file(workdir: Path) -> Path:
    """The memory of a workspace when no other is named."""
    return workdir / ".opensage" / "memory" / "memory.db"


def project_scope(workdir: Path) -> str:
    """Scope of a project: its folder's name, and eight digits that tell it from others of that name."""
    name = re.sub(r"[^\w.-]+", "-", workdir.name).strip("-.")[:60] or "root"
    return f"{USER}/{name}-{hashlib.sha256(os.fsencode(workdir)).hexdigest()[:8]}"


@contextlib.contextmanager
def explained(kind: type[OpenSageError] = MemoryUnavailable) -> Iterator[None]:
    """Errors of the memory as errors of the kit."""
    from opensage_memory.errors import GraphMemoryError

    try:
        yield
    except GraphMemoryError as error:
        raise kind(str(error)) from error


class MemoryPlace:
    """The memory of a workspace, opened when it is first needed, for all agents of a run.

    Args:
        settings: where it is, and what makes its vectors.
        workdir: the workspace, resolved.
    """

    def __init__(self, settings: MemorySettings, workdir: Path) -> None:
        self.settings, self.workdir = settings, workdir
        self._own = not settings.store
        self._lock = threading.RLock()
        self._memory: Memory | None = None
        self._plain: Memory | None = None
        self._scope = ""
        self._thread: ThreadPoolExecutor | None = None
        self._closed = False

    @property
    def where(self) -> str:
        """Path or address."""
        store = self.settings.store
        if self._own:
            return str(memory_file(self.workdir))
        return store if "://" in store else str(self.workdir / Path(store).expanduser())

    @property
    def exists(self) -> bool:
        """Whether there may be something to read."""
        return "://" in self.where or Path(self.where).exists()

    @property
    def memory(self) -> Memory:
        """The memory, with its embedder.

        Raises:
            MemoryUnavailable: it cannot be opened.
        """
        with self._lock, explained():
            if self._memory is None:
                from opensage_memory import Memory
                from opensage_memory.embed import open_embedder

                store = self._open_store()
                self._memory = Memory(store, embedder=open_embedder(self.settings.embedder))
            return self._memory

    @property
    def opened(self) -> Memory | None:
        """The memory if somebody needed it so far."""
        return self._memory

    @property
    def plain(self) -> Memory:
        """The same memory without the embedder: what it adds gets vectors later, in `embed`."""
        with self._lock:
            if self._plain is None:
                from opensage_memory import Memory

                embeds = self.memory.embedder is not None
                self._plain = Memory(self.memory.store) if embeds else self.memory
            return self._plain

    @property
    def project(self) -> str:
        """Scope of the project."""
        with self._lock, explained():
            if not self._scope:
                self._scope = self._known_scope() or project_scope(self.workdir)
            return self._scope

    def _known_scope(self) -> str:
        """What a file in the workspace calls the project, which may have been elsewhere then."""
        if not self._own:
            return ""
        store = self.memory.store
        with store.read() as reader:
            known = reader.meta(PROJECT)
        if known is None and store.writable:
            with store.write() as writer:
                known = writer.meta(PROJECT) or project_scope(self.workdir)
                writer.set_meta(PROJECT, known)
        return known or ""

    def _open_store(self) -> Store:
        from opensage_memory.store.opening import open_store

        if self._closed:
            raise MemoryUnavailable("the memory is closed")
        if "://" not in self.where:
            path = Path(self.where)
            if self._own and any(p.is_symlink() for p in (path, path.parent, path.parent.parent)):
                raise MemoryUnavailable(f"{path} is reached by a link: put a regular folder and file there")
            if self._own:
                _own_folder(self.workdir)
        return open_store(self.where)

    async def call(self, work: Callable[[], Answer]) -> Answer:
        """Do it beside the event loop, one thing at a time."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "opensage-memory")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        """Let go of it. Safe to call twice."""
        self._closed = True
        if self._thread is not None:
            self._thread.shutdown(wait=False)
        with self._lock:
            if self._memory is not None:
                self._memory.close()


def _own_folder(workdir: Path) -> None:
    from opensage.log.session import state_folder

    try:
        (state_folder(workdir) / "memory").mkdir(exist_ok=True)
    except OSError as error:
        raise MemoryUnavailable(f"cannot make the folder of the memory: {error.strerror}; mend that") from None
