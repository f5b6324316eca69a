"""A writer that remembers how things were, so that what it did can be undone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from opensage_memory.item import Edge
from opensage_memory.store.base import Reader, Row, Tombstone, Vector, Writer
from opensage_memory.store.codec import pack, pack_edge, unpack, unpack_edge


class Recorder:
    """Wraps a `Writer` for one operation.

    Args:
        writer: of the open transaction.
        model: the embedder whose vectors are kept, or empty.
    """

    def __init__(self, writer: Writer, model: str = "") -> None:
        self.raw, self.model = writer, model
        self._items: dict[str, tuple[dict[str, Any], str] | None] = {}
        self._edges: dict[tuple[str, str, str, str], Edge | None] = {}
        self._vectors: dict[str, list[float]] = {}
        self._stones: list[str] = []

    @property
    def reads(self) -> Reader:
        """What there is now, with what this operation has written."""
        return self.raw

    @property
    def touched(self) -> tuple[str, ...]:
        """Ids of the items that were stored, replaced or removed."""
        return tuple(self._items)

    @property
    def changed_edges(self) -> bool:
        """Whether edges between items that were there were stored or removed."""
        return bool(self._edges)

    def is_fresh(self, id: str) -> bool:
        """Whether this operation made the item."""
        return self._items.get(id, ()) is None

    def put(self, rows: Sequence[Row], *, fresh: bool = False) -> None:
        """Store or replace items; `fresh` when none of them is there yet."""
        if fresh:
            self._items |= dict.fromkeys(row.item.id for row in rows)
        else:
            self._remember(row.item.id for row in rows)
        self.raw.put(rows)

    def put_edges(self, edges: Sequence[Edge]) -> None:
        """Store or replace edges."""
        old = [edge for edge in edges if not (self.is_fresh(edge.source) or self.is_fresh(edge.target))]
        if old:
            there = {edge.identity: edge for edge in self.raw.edges({edge.source for edge in old}, direction="out")}
            for edge in old:
                self._edges.setdefault(edge.identity, there.get(edge.identity))
        self.raw.put_edges(edges)

    def remove_edges(self, edges: Sequence[Edge]) -> None:
        """Remove edges."""
        for edge in edges:
            self._edges.setdefault(edge.identity, edge)
        self.raw.remove_edges(edges)

    def put_vectors(self, vectors: Mapping[str, Vector]) -> None:
        """Store vectors of new items."""
        if vectors and self.model:
            self.raw.put_vectors(self.model, vectors)

    def remove(self, ids: Iterable[str]) -> None:
        """Remove items with everything that hangs on them."""
        ids = list(ids)
        self._remember(ids)
        for edge in self.raw.edges(ids):
            self._edges.setdefault(edge.identity, edge)
        if self.model:
            self._vectors |= self.raw.vectors(self.model, ids)
        self.raw.remove(ids)

    def bury(self, stones: Sequence[Tombstone]) -> None:
        """Keep tombstones."""
        self._stones += [stone.id for stone in stones]
        self.raw.bury(stones)

    def _remember(self, ids: Iterable[str]) -> None:
        fresh = [id for id in ids if id not in self._items]
        items, tokens = self.raw.get(fresh), self.raw.tokens(fresh)
        for id in fresh:
            self._items[id] = (pack(items[id]), tokens.get(id, "")) if id in items else None

    def undo(self) -> str:
        """JSON for `undo`."""
        return json.dumps(
            {
                "items": [before for before in self._items.values() if before],
                "absent": [id for id, before in self._items.items() if before is None],
                "edges": [pack_edge(edge) for edge in self._edges.values() if edge],
                "no_edges": [[*identity, 0] for identity, edge in self._edges.items() if edge is None],
                "vectors": self._vectors,
                "stones": self._stones,
            },
            separators=(",", ":"),
        )


def undo(recorder: Recorder, payload: str, keep: Iterable[str] = ()) -> list[str]:
    """Put everything back as the payload says; items of `keep` are not removed. Returns ids of items that came back."""
    before = json.loads(payload)
    kept = set(keep)
    recorder.remove(id for id in before["absent"] if id not in kept)
    rows = [Row(unpack(item), tokens) for item, tokens in before["items"]]
    there = recorder.reads.get(row.item.id for row in rows)
    recorder.put(rows)
    recorder.put_edges([unpack_edge(edge) for edge in before["edges"]])
    recorder.put_vectors(before["vectors"])
    recorder.remove_edges([unpack_edge(edge) for edge in before["no_edges"]])
    recorder.raw.unbury(before["stones"])
    return [row.item.id for row in rows if row.item.id not in there]
