"""Connections to a memory file: opened so that many processes can work at once, and errors that say what to do."""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from opensage_memory.errors import Damaged, ReadOnly, StoreUnavailable
from opensage_memory.store.sqlite.schema import APPLICATION, MIGRATIONS, TABLES, VERSION, statements

WAIT_SECONDS = 30.0
CHECK_SECONDS = 0.25
"""How long an opening may look for damage; a whole look is `check`."""
Answer = TypeVar("Answer")


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into ours."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        said = str(error)
        if any(word in said for word in ("malformed", "not a database", "disk image", "corrupt", "no such table")):
            raise Damaged(
                f"{path}: the file is damaged ({said}); `opensage memory check --repair` recovers what is intact"
            ) from error
        if "closed database" in said:
            raise StoreUnavailable(f"{path} was closed while it was used: open the memory again") from error
        if "readonly" in said:
            raise ReadOnly(f"{path}: cannot be written ({said})") from error
        if "locked" in said or "busy" in said:
            raise StoreUnavailable(f"{path}: another process has written to it for {WAIT_SECONDS:.0f} s") from error
        if "full" in said or "unable to open" in said or "I/O" in said:
            raise StoreUnavailable(f"{path}: {said}; look at the disk, the folder and its rights") from error
        raise


def connect(path: Path, *, read_only: bool = False, durable: bool = False) -> sqlite3.Connection:
    """A connection with our settings; it may be closed by another thread than its own."""
    uri = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}"
    link = sqlite3.connect(uri, uri=True, timeout=WAIT_SECONDS, isolation_level=None, check_same_thread=False)
    link.execute("PRAGMA foreign_keys=ON")
    link.execute("PRAGMA secure_delete=ON")  # what is removed is overwritten: forgetting is provable
    link.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
    link.execute("PRAGMA cache_size=-32768")
    link.execute("PRAGMA wal_autocheckpoint=4000")  # pages: each is copied less often, in a journal of up to 16 MiB
    return link


def patiently(step: Callable[[], Answer]) -> Answer:
    """Do what SQLite's own waiting does not cover: making a file's journal WAL while others do the same."""
    end = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            return step()
        except sqlite3.OperationalError as error:
            if not ("locked" in str(error) or "busy" in str(error)) or time.monotonic() > end:
                raise
            time.sleep(random.uniform(0.005, 0.05))


def prepare(link: sqlite3.Connection, path: Path) -> None:
    """Make the tables of a new file, or bring an older one up to date.

    Raises:
        StoreUnavailable: a newer version made it, or it is another program's.
    """
    patiently(lambda: link.execute("PRAGMA journal_mode=WAL").fetchone())
    if _number(link, "user_version") == VERSION and _number(link, "application_id") == APPLICATION:
        return
    patiently(lambda: link.execute("BEGIN IMMEDIATE"))
    try:
        version = _number(link, "user_version")
        _recognise(link, path, version)
        if version == 0:
            _run(link, TABLES)
        elif version < VERSION:
            _back_up(path, version)
            for step in range(version, VERSION):
                _run(link, MIGRATIONS[step])
        link.execute(f"PRAGMA application_id={APPLICATION}")
        link.execute(f"PRAGMA user_version={VERSION}")
        link.execute("COMMIT")
    except BaseException:
        link.execute("ROLLBACK")
        raise


def refuse_orphan_journal(path: Path) -> None:
    """A journal without its file holds writes of a file that is gone: a new file must not take it for its own.

    Raises:
        Damaged: there is one.
    """
    journal = path.with_name(path.name + "-wal")
    if not path.exists() and journal.exists() and journal.stat().st_size:
        raise Damaged(f"{path} is gone, but its journal {journal.name} is there: restore it, or move the journal away")


def looks_damaged(link: sqlite3.Connection) -> str:
    """What a short look finds wrong, or nothing."""
    end = time.monotonic() + CHECK_SECONDS
    link.set_progress_handler(lambda: time.monotonic() > end, 10_000)
    try:
        found = [str(row[0]) for row in link.execute("PRAGMA quick_check(3)")]
        return "" if found == ["ok"] else "; ".join(found)[:300]
    except sqlite3.OperationalError as error:
        return "" if "interrupted" in str(error) else str(error)
    except sqlite3.DatabaseError as error:
        return str(error)
    finally:
        link.set_progress_handler(None, 0)


def _number(link: sqlite3.Connection, pragma: str) -> int:
    return int(link.execute(f"PRAGMA {pragma}").fetchone()[0])


def _recognise(link: sqlite3.Connection, path: Path, version: int) -> None:
    if version > VERSION:
        raise StoreUnavailable(f"{path} was made by a newer OpenSage (version {version}): update this one")
    owner = _number(link, "application_id")
    strange = owner not in (0, APPLICATION)
    if version == 0 and not strange:
        strange = link.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] > 0
    if strange:
        raise StoreUnavailable(f"{path} is the database of another program: name another file for the memory")


def _back_up(path: Path, version: int) -> None:
    source = connect(path, read_only=True)
    target = sqlite3.connect(path.with_name(f"{path.name}.v{version}.bak"))
    with contextlib.closing(source), contextlib.closing(target):
        source.backup(target)


def _run(link: sqlite3.Connection, script: str) -> None:
    for statement in statements(script):
        link.execute(statement)


def private(path: Path) -> None:
    """Make the file's folder, and the file for its owner only: a memory holds what was said."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
