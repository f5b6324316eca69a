"""A memory in one file."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from opensage_memory.errors import ReadOnly, StoreUnavailable
from opensage_memory.store.sqlite import check
from opensage_memory.store.sqlite.connection import (
    connect,
    explained,
    looks_damaged,
    patiently,
    prepare,
    private,
    refuse_orphan_journal,
)
from opensage_memory.store.sqlite.index import TextIndex, text_index
from opensage_memory.store.sqlite.reader import SqliteReader
from opensage_memory.store.sqlite.schema import VERSION
from opensage_memory.store.sqlite.vectors import Matrices
from opensage_memory.store.sqlite.writer import SqliteWriter


class _Mine(threading.local):
    """What a thread has: its connection, and its open transaction."""

    link: sqlite3.Connection | None = None
    pid: int = 0
    open: SqliteReader | None = None


class SqliteStore:
    """`Store` in an SQLite file in WAL mode, for many threads and processes.

    Args:
        path: the file; made, with its folder, when it is not there.
        read_only: never write.
        durable: wait for the disk at each commit (a power cut loses nothing), not only at checkpoints.

    Raises:
        Damaged: it is no memory, or its journal is there without it.
        StoreUnavailable: it cannot be opened.

    A file that looks damaged opens read-only; `trouble` says why.
    """

    def __init__(self, path: str | Path, *, read_only: bool = False, durable: bool = False) -> None:
        self.path = Path(path)
        self.name = f"sqlite:{self.path}"
        self.trouble = ""
        self.writable = not read_only
        self._durable = durable
        self._mine = _Mine()
        self._writing = threading.Lock()
        self._pid = os.getpid()
        self._file: tuple[int, int] | None = None
        self._links: list[sqlite3.Connection] = []
        self._matrices = Matrices()
        self._index: TextIndex
        self._closed = False
        refuse_orphan_journal(self.path)
        with explained(self.path):
            self._open()

    def _open(self) -> None:
        if self.writable and self.path.exists() and not os.access(self.path, os.W_OK):
            self.writable, self.trouble = False, f"{self.path} cannot be written: change its rights"
        if self.writable:
            try:
                private(self.path)
            except OSError as error:
                raise StoreUnavailable(f"{self.path}: {error.strerror}; name another place for the memory") from error
        link = self._connect()
        self._file = self._there()
        self._index = text_index(link)
        if found := looks_damaged(link):
            self.writable = False
            self.trouble = (
                f"{self.path} is damaged ({found}): it opens read-only; `memory check --repair` makes a new one"
            )
        if self.writable:
            prepare(link, self.path)
            self._own_index(link)

    def _connect(self) -> sqlite3.Connection:
        if self._closed:
            raise StoreUnavailable(f"{self.name} is closed")
        if self._pid != os.getpid():  # a lock that another thread held at a fork is never let go of in the child
            self._pid, self._writing = os.getpid(), threading.Lock()
        if self._mine.link is None or self._mine.pid != os.getpid():  # a connection does not survive a fork
            link = connect(self.path, read_only=not self.writable, durable=self._durable)
            self._mine.link, self._mine.pid, self._mine.open = link, os.getpid(), None
            self._links.append(link)
        return self._mine.link

    def _there(self) -> tuple[int, int] | None:
        """Which file is at the path now: what is written to one that is gone is lost without a word."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _own_index(self, link: sqlite3.Connection) -> None:
        """Make the full-text index when it is not there, or the last writer could only write the other kind."""
        if self._last_index(link) != self._index.name:
            patiently(lambda: link.execute("BEGIN IMMEDIATE"))
            try:
                self._take_index(link)
                link.execute("COMMIT")
            except BaseException:
                link.execute("ROLLBACK")
                raise

    def _last_index(self, link: sqlite3.Connection) -> str:
        row = link.execute("SELECT value FROM meta WHERE name = 'index'").fetchone()
        return str(row[0]) if row else ""

    def _take_index(self, link: sqlite3.Connection) -> None:
        if self._last_index(link) != self._index.name:
            self._index.build(link)
            link.execute("INSERT OR REPLACE INTO meta VALUES('index', ?)", (self._index.name,))

    @contextlib.contextmanager
    def read(self) -> Iterator[SqliteReader]:
        """See `Store`. Inside a transaction of this thread it is that one."""
        link = self._connect()
        if self._mine.open is not None:
            yield self._mine.open
            return
        with explained(self.path), self._transaction(link, "BEGIN", SqliteReader) as reader:
            yield reader

    @contextlib.contextmanager
    def write(self) -> Iterator[SqliteWriter]:
        """See `Store`. Inside a writing transaction of this thread it is that one."""
        if not self.writable:
            raise ReadOnly(self.trouble or f"{self.path} was opened for reading only")
        link = self._connect()
        if isinstance(self._mine.open, SqliteWriter):
            yield self._mine.open
            return
        if self._there() != self._file:
            raise StoreUnavailable(
                f"{self.path} was removed or replaced since it was opened: nothing was written; open the memory again"
            )
        if self._mine.open is not None:
            raise StoreUnavailable("a thread that reads cannot begin to write before it has ended reading")
        with explained(self.path), self._writing, self._transaction(link, "BEGIN IMMEDIATE", SqliteWriter) as writer:
            self._take_index(link)
            yield writer

    @contextlib.contextmanager
    def _transaction(self, link: sqlite3.Connection, begin: str, kind: Callable[..., Any]) -> Iterator[Any]:
        patiently(lambda: link.execute(begin))
        self._mine.open = kind(link, self._index, self._matrices)
        try:
            yield self._mine.open
            link.execute("COMMIT")
        except BaseException:
            if link.in_transaction:
                link.execute("ROLLBACK")
            self._matrices.forget()
            raise
        finally:
            self._mine.open = None

    def check(self) -> list[str]:
        """See `Store`."""
        with explained(self.path):
            return check.faults(self._connect(), self._index)

    def vacuum(self) -> None:
        """See `Store`."""
        if not self.writable:
            raise ReadOnly(self.trouble or f"{self.path} was opened for reading only")
        link = self._connect()
        with explained(self.path), self._writing:
            self._index.compact(link)
            patiently(lambda: link.execute("VACUUM"))
            busy = patiently(lambda: link.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone())[0]
        if busy:
            raise StoreUnavailable(
                f"{self.path}: another process or thread still reads an earlier state: the journal cannot be emptied; "
                "what was forgotten is not found any more, but bytes of it are there until `vacuum` is run again"
            )

    def repair(self, target: str | Path) -> tuple[int, list[str]]:
        """Make a new file of what is intact here; this one is left as it is.

        Returns:
            How many items were saved, and what was lost, a line each.

        Raises:
            StoreUnavailable: the target exists.
        """
        target = Path(target)
        if target.exists():
            raise StoreUnavailable(f"{target} exists: name a new file for the repaired memory")
        fresh = SqliteStore(target)
        source = connect(self.path, read_only=True)
        source.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
        with contextlib.closing(source), contextlib.closing(fresh):
            link = fresh._connect()
            link.execute("BEGIN IMMEDIATE")
            salvage = check.Salvage(source, link)
            with explained(self.path):
                salvage.run()
            fresh._index.build(link)
            link.execute("INSERT OR REPLACE INTO meta VALUES('index', ?)", (fresh._index.name,))
            link.execute("COMMIT")
        return salvage.saved, salvage.lost

    def stats(self) -> dict[str, Any]:
        """See `Store`."""
        return {
            "store": self.name,
            "bytes": sum(file.stat().st_size for file in self.path.parent.glob(self.path.name + "*") if file.is_file()),
            "schema": VERSION,
            "sqlite": sqlite3.sqlite_version,
            "index": self._index.name,
            "writable": self.writable,
            "trouble": self.trouble,
        }

    def close(self) -> None:
        """See `Store`."""
        self._closed = True
        links, self._links = self._links, []
        for link in links:
            link.close()
