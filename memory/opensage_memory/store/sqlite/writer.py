"""Changes of a memory file in one transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from opensage_memory.item import Edge, to_micros
from opensage_memory.store.base import Operation, Row, Task, Tombstone, Vector
from opensage_memory.store.sqlite.filters import chunks, marks
from opensage_memory.store.sqlite.index import TextIndex
from opensage_memory.store.sqlite.reader import SqliteReader
from opensage_memory.store.sqlite.rows import COLUMNS, bind, to_row
from opensage_memory.store.sqlite.vectors import COUNTER, Matrices

_NAMES = [name.strip() for name in COLUMNS.split(",")] + ["tokens"]
_INSERT = f"INSERT INTO items({', '.join(_NAMES)}) VALUES({marks(_NAMES)})"
_UPDATE = f"UPDATE items SET {', '.join(f'{name} = ?' for name in _NAMES[1:])} WHERE id = ?"


class SqliteWriter(SqliteReader):
    """`Writer` over a connection in an immediate transaction."""

    def __init__(self, link: sqlite3.Connection, index: TextIndex, matrices: Matrices) -> None:
        super().__init__(link, index, matrices)
        self._fresh: dict[str, int] = {}
        self._with_vector: set[str] = set()

    def put(self, rows: Sequence[Row]) -> None:
        """See `Writer`."""
        self._frequencies.clear()
        latest = {row.item.id: row for row in rows}
        if self._all_new(latest):
            self._insert(list(latest.values()))
            return
        known: dict[str, tuple[int, str]] = {}
        for part in chunks(latest):
            sql = f"SELECT id, seq, tokens FROM items WHERE id IN ({marks(part)})"
            known |= {id: (seq, tokens) for id, seq, tokens in self.link.execute(sql, part)}
        if fresh := [row for id, row in latest.items() if id not in known]:
            self._insert(fresh)
        for id, (seq, before) in known.items():
            values = to_row(latest[id])
            self.link.execute(_UPDATE, (*values[1:], id))
            if before != values[-1]:
                self.index.drop(self.link, [(seq, before)])
                self.index.add(self.link, [(seq, values[-1])])

    def _all_new(self, ids: Iterable[str]) -> bool:
        """Whether all ids sort after the last one there is, as new ones do: one look instead of many."""
        row = self.link.execute("SELECT max(id) FROM items").fetchone()
        return row[0] is None or row[0] < min(ids, default="")

    def _insert(self, rows: Sequence[Row]) -> None:
        row = self.link.execute("SELECT seq FROM sqlite_sequence WHERE name = 'items'").fetchone()
        first = (row[0] if row else 0) + 1  # one writer at a time: the numbers that follow are known
        self.link.executemany(_INSERT, map(to_row, rows))
        self.index.add(self.link, [(first + place, row.tokens) for place, row in enumerate(rows)])
        self._fresh |= {row.item.id: first + place for place, row in enumerate(rows)}

    def use(self, ids: Iterable[str]) -> None:
        """See `Writer`."""
        self.link.executemany("UPDATE items SET uses = uses + 1 WHERE id = ?", [(id,) for id in ids])

    def put_edges(self, edges: Sequence[Edge]) -> None:
        """See `Writer`."""
        numbers = self._numbers({end for edge in edges for end in (edge.source, edge.target)})
        rows = [
            (numbers[edge.source], edge.type, numbers[edge.target], bind(edge.relation), edge.weight)
            for edge in edges
            if edge.source in numbers and edge.target in numbers
        ]
        self.link.executemany("INSERT OR REPLACE INTO edges VALUES(?, ?, ?, ?, ?)", rows)

    def put_vectors(self, model: str, vectors: Mapping[str, Vector]) -> None:
        """See `Writer`."""
        import numpy as np

        numbers = self._numbers(vectors)
        known: set[int] = set()
        for part in chunks(seq for id, seq in numbers.items() if id not in self._fresh):
            sql = f"SELECT item FROM vectors WHERE model = ? AND item IN ({marks(part)})"
            known.update(row[0] for row in self.link.execute(sql, [model, *part]))
        if known or any(id in self._with_vector for id in numbers):
            known |= {numbers[id] for id in numbers if id in self._with_vector}
            self._vectors_changed()
            self.link.executemany("DELETE FROM vectors WHERE model = ? AND item = ?", [(model, seq) for seq in known])
        self._with_vector |= set(numbers)
        rows = []
        for id, seq in numbers.items():
            data = np.asarray(vectors[id], dtype="<f4")
            rows.append((model, seq, len(data), data.tobytes()))
        self.link.executemany("INSERT INTO vectors(model, item, dimension, data) VALUES(?, ?, ?, ?)", rows)

    def remove(self, ids: Iterable[str]) -> None:
        """See `Writer`."""
        self._frequencies.clear()
        ids = dict.fromkeys(ids)
        for id in ids:
            self._fresh.pop(id, None)
        for part in chunks(ids):
            rows = self.link.execute(f"SELECT seq, tokens FROM items WHERE id IN ({marks(part)})", part).fetchall()
            seqs = [row[0] for row in rows]
            if self._count(f"vectors WHERE item IN ({marks(seqs)})", seqs):
                self._vectors_changed()
            self.index.drop(self.link, rows)
            self.link.execute(f"DELETE FROM items WHERE seq IN ({marks(seqs)})", seqs)

    def remove_edges(self, edges: Iterable[Edge]) -> None:
        """See `Writer`."""
        edges = list(edges)
        numbers = self._numbers(end for edge in edges for end in (edge.source, edge.target))
        self.link.executemany(
            "DELETE FROM edges WHERE source = ? AND type = ? AND target = ? AND relation = ?",
            [
                (numbers[edge.source], edge.type, numbers[edge.target], bind(edge.relation))
                for edge in edges
                if edge.source in numbers and edge.target in numbers
            ],
        )

    def remove_vectors(self, model: str) -> None:
        """See `Writer`."""
        self.link.execute("DELETE FROM vectors WHERE model = ?", (model,))
        self._vectors_changed()

    def set_meta(self, name: str, value: str | None) -> None:
        """See `Writer`."""
        if value is None:
            self.link.execute("DELETE FROM meta WHERE name = ?", (bind(name),))
        else:
            self.link.execute("INSERT OR REPLACE INTO meta VALUES(?, ?)", (bind(name), value))

    def log(self, operation: Operation) -> None:
        """See `Writer`."""
        self.link.execute(
            "INSERT INTO operations(id, name, scope, at, touched, undo) VALUES(?, ?, ?, ?, ?, ?) "
            "ON CONFLICT(id) DO UPDATE SET name = excluded.name, touched = excluded.touched, undo = excluded.undo",
            (
                operation.id,
                operation.name,
                operation.scope,
                to_micros(operation.at),
                json.dumps(operation.touched),
                operation.undo,
            ),
        )

    def forget_undo(self, before: datetime) -> int:
        """See `Writer`."""
        sql = "UPDATE operations SET undo = '' WHERE undo <> '' AND at < ?"
        return self.link.execute(sql, (to_micros(before),)).rowcount

    def bury(self, stones: Sequence[Tombstone]) -> None:
        """See `Writer`."""
        self.link.executemany(
            "INSERT OR REPLACE INTO tombstones VALUES(?, ?, ?, ?, ?)",
            [(stone.id, stone.scope, stone.kind, to_micros(stone.at), stone.operation) for stone in stones],
        )

    def unbury(self, ids: Iterable[str]) -> None:
        """See `Writer`."""
        self.link.executemany("DELETE FROM tombstones WHERE id = ?", [(id,) for id in ids])

    def put_tasks(self, tasks: Sequence[Task]) -> None:
        """See `Writer`."""
        self.link.executemany(
            "INSERT OR REPLACE INTO tasks SELECT seq, ?, ?, ? FROM items WHERE id = ?",
            [(task.work, task.tries, bind(task.error), task.item) for task in tasks],
        )

    def remove_tasks(self, work: str, ids: Iterable[str]) -> None:
        """See `Writer`."""
        sql = "DELETE FROM tasks WHERE work = ? AND item = (SELECT seq FROM items WHERE id = ?)"
        self.link.executemany(sql, [(work, id) for id in ids])

    def _numbers(self, ids: Iterable[str]) -> dict[str, int]:
        wanted = dict.fromkeys(ids)
        found = {id: self._fresh[id] for id in wanted if id in self._fresh}
        for part in chunks(id for id in wanted if id not in found):
            found |= dict(self.link.execute(f"SELECT id, seq FROM items WHERE id IN ({marks(part)})", part))
        return found

    def _vectors_changed(self) -> None:
        self.link.execute(
            "INSERT INTO meta VALUES(?, '1') ON CONFLICT(name) DO UPDATE SET value = CAST(value AS INTEGER) + 1",
            (COUNTER,),
        )
