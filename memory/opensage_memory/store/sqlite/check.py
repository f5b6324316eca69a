"""Looks at a whole memory file, and makes a new one of what is intact in a damaged one."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

from opensage_memory.item import digest
from opensage_memory.store.sqlite.index import TextIndex
from opensage_memory.store.sqlite.rows import to_item, unbind

COPIED = ("edges", "vectors", "operations", "tombstones", "tasks", "meta")
"""Tables that a repair copies after the items, row by row."""


def faults(link: sqlite3.Connection, index: TextIndex) -> list[str]:
    """Everything that is wrong with a file, a line each."""
    try:
        found = [str(row[0]) for row in link.execute("PRAGMA integrity_check(20)")]
        found = [] if found == ["ok"] else found
        found += [f"{row[0]}: a row refers to none of {row[2]}" for row in link.execute("PRAGMA foreign_key_check")]
        found += _items(link)
        found += index.faults(link)
        found += _counts(link, index)
    except sqlite3.DatabaseError as error:
        return [str(error)]
    return list(dict.fromkeys(found))


def _items(link: sqlite3.Connection) -> list[str]:
    found = []
    for id, text, hash, sources, data in link.execute("SELECT id, text, hash, sources, data FROM items"):
        try:
            if digest(unbind(text)) != hash.hex():
                found.append(f"item {id}: its text is not the one that was stored")
            json.loads(sources), json.loads(data)
        except ValueError:
            found.append(f"item {id}: sources or data are no JSON")
    return found


def _counts(link: sqlite3.Connection, index: TextIndex) -> list[str]:
    found = []
    items = link.execute("SELECT count(*) FROM items").fetchone()[0]
    if (indexed := index.size(link)) != items:
        found.append(f"full-text index: {indexed} items of {items}")
    for number, dimension, length in link.execute(
        "SELECT number, dimension, length(data) FROM vectors WHERE length(data) <> 4 * dimension"
    ):
        found.append(f"vector {number}: {length} bytes for {dimension} dimensions")
    for (id,) in link.execute("SELECT t.id FROM tombstones t JOIN items i ON i.id = t.id"):
        found.append(f"item {id}: forgotten, and there")
    return found


class Salvage:
    """Copies what is intact from one file into a new, empty one."""

    def __init__(self, source: sqlite3.Connection, target: sqlite3.Connection) -> None:
        self._source, self._target = source, target
        self.lost: list[str] = []
        self.saved = 0

    def run(self) -> None:
        """Copy everything that can be read and is what was stored."""
        columns = self._columns("items")
        marks = ",".join("?" for _ in columns)
        hash_at = columns.index("hash"), columns.index("text"), columns.index("id")
        for row in self._rows("items", "seq"):
            if self._intact(row, *hash_at):
                self._keep(f"INSERT OR IGNORE INTO items({', '.join(columns)}) VALUES({marks})", row, f"item {row[1]}")
                self.saved += 1
        for table in COPIED:
            names = self._columns(table)
            for row in self._rows(table, "number" if names[0] == "number" else ""):
                self._keep(f"INSERT OR IGNORE INTO {table} VALUES({','.join('?' for _ in names)})", row, table)

    def _intact(self, row: tuple[Any, ...], hash: int, text: int, id: int) -> bool:
        try:
            to_item(row[1:])
            if digest(unbind(row[text])) == row[hash].hex():
                return True
        except (ValueError, TypeError, AttributeError, AssertionError, IndexError):
            pass
        self.lost.append(f"item {row[id]}: its content is damaged")
        return False

    def _keep(self, sql: str, row: tuple[Any, ...], what: str) -> None:
        try:
            self._target.execute(sql, row)
        except sqlite3.Error as error:
            self.lost.append(f"{what}: {error}")

    def _columns(self, table: str) -> list[str]:
        return [row[1] for row in self._target.execute(f"PRAGMA table_info({table})")]

    def _rows(self, table: str, number: str) -> Iterator[tuple[Any, ...]]:
        """All rows that can be read: of a table with numbers, around damaged pages; else up to the first."""
        columns = ", ".join(self._columns(table))
        if not number:
            yield from self._read(lambda: self._source.execute(f"SELECT {columns} FROM {table}"), table)
            return
        try:
            last = self._source.execute(f"SELECT max({number}) FROM {table}").fetchone()[0] or 0
        except sqlite3.DatabaseError:
            last = self._last(table)
        yield from self._between(f"SELECT {columns} FROM {table} WHERE {number} BETWEEN ? AND ?", 1, last, table)

    def _last(self, table: str) -> int:
        row = self._source.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()
        return int(row[0]) if row else 0

    def _between(self, sql: str, first: int, last: int, table: str) -> Iterator[tuple[Any, ...]]:
        if first > last:
            return
        try:
            yield from self._source.execute(sql, (first, last)).fetchall()
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            if first == last:
                self.lost.append(f"{table} {first}: {error}")
                return
            middle = (first + last) // 2
            yield from self._between(sql, first, middle, table)
            yield from self._between(sql, middle + 1, last, table)

    def _read(self, ask: Callable[[], Any], table: str) -> Iterator[tuple[Any, ...]]:
        try:
            yield from ask()
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            self.lost.append(f"{table}: the rest, {error}")
