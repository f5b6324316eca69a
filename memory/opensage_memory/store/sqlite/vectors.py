"""Vectors of a scope as one matrix, kept and refreshed when another thread or process has written."""

from __future__ import annotations

import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Matrix = Any
KEPT_SCOPES = 32
COUNTER = "vector_changes"
"""Setting that counts removals and replacements; additions are seen by their number."""


@dataclass(slots=True)
class Block:
    """The vectors of one scope: row n is of item `ids[n]`, of length one, float32."""

    changes: int
    last: int = 0
    ids: list[str] = field(default_factory=list)
    rows: Matrix = None
    used: int = 0

    def extend(self, found: Sequence[tuple[int, str, bytes]], dimension: int) -> None:
        """Add rows; the array grows by half, so that adding one by one stays linear."""
        import numpy as np

        fresh = np.frombuffer(b"".join(data for _, _, data in found), dtype="<f4").reshape(len(found), dimension)
        if self.rows is None or self.used + len(found) > len(self.rows):
            room = np.empty((max(64, (self.used + len(found)) * 3 // 2), dimension), dtype=np.float32)
            if self.rows is not None:
                room[: self.used] = self.rows[: self.used]
            self.rows = room
        norms = np.linalg.norm(fresh, axis=1, keepdims=True)
        self.rows[self.used : self.used + len(found)] = fresh / np.maximum(norms, 1e-12)
        self.used += len(found)
        self.ids += [id for _, id, _ in found]
        self.last = found[-1][0]


class Matrices:
    """The blocks of a file, by model, scope and dimension; safe for threads."""

    def __init__(self) -> None:
        self._blocks: OrderedDict[tuple[str, str, int], Block] = OrderedDict()
        self._lock = threading.Lock()

    def best(self, link: sqlite3.Connection, model: str, scope: str, query: Matrix, k: int) -> list[tuple[str, float]]:
        """Ids of the k items of a scope with the highest cosine; `query` has length one."""
        import numpy as np

        with self._lock:
            block = self._fresh(link, model, scope, len(query))
            if not block.used:
                return []
            scores = block.rows[: block.used] @ query
            k = min(k, block.used)
            order = np.argpartition(-scores, k - 1)[:k]
            order = order[np.lexsort((order, -scores[order]))]
            return [(block.ids[place], float(scores[place])) for place in order]

    def _fresh(self, link: sqlite3.Connection, model: str, scope: str, dimension: int) -> Block:
        row = link.execute("SELECT value FROM meta WHERE name = ?", (COUNTER,)).fetchone()
        changes = int(row[0]) if row else 0
        block = self._blocks.get((model, scope, dimension))
        if block is None or block.changes != changes:
            block = self._blocks[model, scope, dimension] = Block(changes)
        self._blocks.move_to_end((model, scope, dimension))
        while len(self._blocks) > KEPT_SCOPES:
            self._blocks.popitem(last=False)
        cursor = link.execute(
            "SELECT v.number, i.id, v.data FROM vectors v CROSS JOIN items i ON i.seq = v.item "
            "WHERE v.number > ? AND v.model = ? AND i.scope = ? AND v.dimension = ? ORDER BY v.number",
            (block.last, model, scope, dimension),
        )
        while found := cursor.fetchmany(4096):
            block.extend(found, dimension)
        return block

    def forget(self) -> None:
        """Drop what is kept, as after a transaction that was rolled back."""
        with self._lock:
            self._blocks.clear()
