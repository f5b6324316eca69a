"""The index: definitions, calls and words of each file by the hash of its content, in a SQLite file kept up to date.

What a content holds is stored once, under its hash: a file that moves, or comes back with another branch, is not read
again. The file lives in the temporary folder of the sandbox, so it is gone with the sandbox and never part of a patch.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from .files import Listing, is_binary, list_sources, read_regular
from .languages import LANGUAGES, Language, grammar
from .source import Source, read_source

_SCHEMA = """
CREATE TABLE about (key TEXT);
CREATE TABLE content (id INTEGER PRIMARY KEY, hash BLOB, language TEXT, lines INT, broken INT, words TEXT,
  UNIQUE (hash, language));
CREATE TABLE file (path TEXT PRIMARY KEY, content INT, size INT, changed INT, checked INT);
CREATE INDEX file_content ON file (content);
CREATE TABLE symbol (id INTEGER PRIMARY KEY, content INT, name TEXT, kind TEXT, line INT, last INT, owner TEXT,
  signature TEXT, parent INT);
CREATE INDEX symbol_name ON symbol (name COLLATE NOCASE);
CREATE INDEX symbol_content ON symbol (content);
CREATE TABLE call (content INT, name TEXT, line INT, receiver TEXT, within INT);
CREATE INDEX call_name ON call (name);
CREATE INDEX call_content ON call (content);
"""
_VERSION = "1"
_SECONDS = 60.0
"""An update takes at most; what is left is done by the next."""
_SLACK = 2_000_000_000
"""Nanoseconds: a file that changed so shortly before it was read is read again."""
_LEFT_OVER = 3
"""Contents that no file has are dropped when there are so many times more than others."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """A definition in a file."""

    id: int
    path: str
    name: str
    kind: str
    line: int
    end: int
    owner: str
    signature: str
    parent: int | None
    content: int

    @property
    def full(self) -> str:
        """The name with what it is in: `Class.method`."""
        return f"{self.owner}.{self.name}" if self.owner else self.name

    def shown(self) -> dict[str, Any]:
        """As a tool returns it."""
        place = {"file": self.path, "line": self.line, "end": self.end}
        return {"name": self.full, "kind": self.kind, **place, "signature": self.signature}


@dataclass(slots=True)
class Update:
    """What an update did. `read` files were parsed, `left` are for the next; `notes` say what is left out."""

    files: int = 0
    read: int = 0
    removed: int = 0
    left: int = 0
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)


_COLUMNS = "s.id, f.path, s.name, s.kind, s.line, s.last, s.owner, s.signature, s.parent, s.content"


class Index:
    """Of one workspace."""

    def __init__(self, root: Path | str = ".", place: Path | None = None) -> None:
        """`root`: the workspace; `place`: the SQLite file, one below the temporary folder without it."""
        self.root = Path(os.path.realpath(root))
        self.place = place or _place(self.root)
        self.notes: list[str] = []
        self._db = self._opened()

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def rows(self, query: str, values: Sequence[object] = ()) -> list[Any]:
        """The rows of a query."""
        return self._db.execute(query, values).fetchall()

    def symbols(self, where: str, values: Sequence[object] = (), most: int = 10_000) -> list[Symbol]:
        """Definitions by a condition on `s` (symbol) and `f` (file), in the order of paths and lines."""
        query = f"SELECT {_COLUMNS} FROM symbol s JOIN file f ON f.content = s.content WHERE {where}"
        found = self.rows(f"{query} ORDER BY f.path, s.line, s.id LIMIT {most}", values)
        return [Symbol(*row) for row in found]

    def update(self, seconds: float = _SECONDS) -> Update:
        """Bring the index up to date with the files: only those whose size or time changed are read."""
        begun = time.monotonic()
        listing = list_sources(self.root)
        done = Update(files=len(listing.files), notes=listing.notes() + _missing(listing))
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._follow(listing, done, begun + seconds)
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        if done.left:
            done.notes.append(f"{done.left} of {done.files} files are not indexed yet: call again to go on")
        done.seconds = time.monotonic() - begun
        self.notes = done.notes
        return done

    def _follow(self, listing: Listing, done: Update, end: float) -> None:
        known = {row[0]: row[1:] for row in self.rows("SELECT path, size, changed, checked FROM file")}
        gone = [(path,) for path in known if path not in listing.files]
        self._db.executemany("DELETE FROM file WHERE path = ?", gone)
        done.removed = len(gone)
        for path, (language, status) in listing.files.items():
            size, changed, checked = known.get(path, (-1, 0, 0))
            if (size, changed) == (status.st_size, status.st_mtime_ns) and changed + _SLACK < checked:
                continue
            if grammar(language) is None:
                continue
            if time.monotonic() > end:
                done.left += 1
                continue
            done.read += self._take(path, language, status)
        if done.read or gone:
            self._drop_left_over()

    def _take(self, path: str, language: Language, status: os.stat_result) -> int:
        """Note a file's content; 1 if it had to be parsed."""
        checked = time.time_ns()
        data = read_regular(self.root, path)
        if data is None or is_binary(data):
            self._db.execute("DELETE FROM file WHERE path = ?", (path,))
            return 0
        key = hashlib.sha256(data).digest()
        row = self._db.execute(
            "SELECT id FROM content WHERE hash = ? AND language = ?", (key, language.name)
        ).fetchone()
        content = row[0] if row else self._store(key, language, read_source(data, language))
        self._db.execute(
            "INSERT OR REPLACE INTO file VALUES (?, ?, ?, ?, ?)",
            (path, content, status.st_size, status.st_mtime_ns, checked),
        )
        return 0 if row else 1

    def _store(self, key: bytes, language: Language, source: Source) -> int:
        words = f" {' '.join(sorted(source.words))} "
        row = (key, language.name, source.lines, source.broken, words)
        content = self._db.execute("INSERT INTO content VALUES (NULL, ?, ?, ?, ?, ?)", row).lastrowid
        assert content is not None
        first = self._db.execute("SELECT COALESCE(MAX(id), 0) + 1 FROM symbol").fetchone()[0]
        symbols = [
            (first + n, content, d.name, d.kind, d.line, d.end, d.owner, d.signature,
             None if d.parent is None else first + d.parent)
            for n, d in enumerate(source.definitions)
        ]  # fmt: skip
        self._db.executemany("INSERT INTO symbol VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", symbols)
        calls = [
            (content, c.name, c.line, c.receiver, None if c.within is None else first + c.within) for c in source.calls
        ]
        self._db.executemany("INSERT INTO call VALUES (?, ?, ?, ?, ?)", calls)
        return int(content)

    def _drop_left_over(self) -> None:
        count, used = self.rows("SELECT (SELECT COUNT(*) FROM content), (SELECT COUNT(DISTINCT content) FROM file)")[0]
        if count - used <= _LEFT_OVER * max(used, 20):
            return
        for table, column in (("symbol", "content"), ("call", "content"), ("content", "id")):
            self._db.execute(f"DELETE FROM {table} WHERE {column} NOT IN (SELECT content FROM file)")

    def _opened(self) -> sqlite3.Connection:
        """The database; a broken one, or one of other grammars, is made anew."""
        key = _key()
        for again in (True, False):
            try:
                return _connect(self.place, key)
            except (sqlite3.DatabaseError, _Other) as error:
                if not again or "locked" in str(error):  # another call is at work for very long
                    raise
                for suffix in ("", "-journal", "-wal", "-shm"):
                    Path(f"{self.place}{suffix}").unlink(missing_ok=True)
        raise AssertionError


class _Other(Exception):
    """The file holds something else."""


def _connect(place: Path, key: str) -> sqlite3.Connection:
    db = sqlite3.connect(place, timeout=60, isolation_level=None)
    try:
        db.execute("PRAGMA synchronous = OFF")
        db.execute("BEGIN IMMEDIATE")
        if db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0] == 0:
            for statement in filter(str.strip, _SCHEMA.split(";")):
                db.execute(statement)
            db.execute("INSERT INTO about VALUES (?)", (key,))
        if db.execute("SELECT key FROM about").fetchone() != (key,):
            raise _Other
        db.execute("COMMIT")
    except BaseException:
        db.close()
        raise
    return db


def _key() -> str:
    """What the content of an index depends on: this module's version and those of the grammars."""
    versions = []
    for package in sorted({language.package for language in LANGUAGES}):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions.append(f"{package} {metadata.version(package)}")
    queries = hashlib.sha256("".join(language.query for language in LANGUAGES).encode()).hexdigest()[:12]
    return "; ".join([_VERSION, queries, *versions])


def _place(root: Path) -> Path:
    """A file for this workspace in a folder that is this user's alone."""
    folder = Path(tempfile.gettempdir()) / f"opensage-code-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if folder.is_symlink() or status.st_uid != os.getuid() or status.st_mode & 0o022:
        folder = Path(tempfile.mkdtemp(prefix="opensage-code-"))  # somebody else's: an index of this call alone
    return folder / f"{hashlib.sha256(os.fsencode(root)).hexdigest()[:24]}.sqlite"


def _missing(listing: Listing) -> list[str]:
    """A line for each grammar that is not installed though there are files for it."""
    counts: dict[str, int] = {}
    for language, _ in listing.files.values():
        if grammar(language) is None:
            counts[language.package] = counts.get(language.package, 0) + 1
    return [f"{count} files are left out: install {package} to index them" for package, count in sorted(counts.items())]


def words_of(index: Index) -> Iterator[tuple[str, list[str]]]:
    """Path and identifiers of each file."""
    for path, words in index.rows(
        "SELECT f.path, c.words FROM file f JOIN content c ON c.id = f.content ORDER BY f.path"
    ):
        yield path, words.split()
