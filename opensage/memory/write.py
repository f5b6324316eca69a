"""Writes pieces of the execution graph into a memory; what is there already stays as it is."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from opensage.memory.forgotten import forgotten
from opensage.memory.graph import Link, Node, Piece, Ref
from opensage.memory.place import MemoryPlace
from opensage_memory.checking import check
from opensage_memory.errors import BadInput
from opensage_memory.item import Edge, Item, now
from opensage_memory.scope import View
from opensage_memory.writing import New, plain

if TYPE_CHECKING:
    from opensage_memory.store.base import Writer

BATCH = 400
"""Pieces of one transaction: another process waits no longer than these take."""
_KNOWN = 20_000
"""Ids that are kept in memory."""


class GraphWriter:
    """Writes into one memory. Not thread-safe."""

    def __init__(self, place: MemoryPlace) -> None:
        self._place = place
        self._ids: dict[Ref, str] = {}
        self.refused: list[str] = []

    def write(self, pieces: Sequence[Piece]) -> int:
        """Write them; returns how many items they are."""
        pieces = _once(pieces)
        for start in range(0, len(pieces), BATCH):
            self._write(pieces[start : start + BATCH])
        return sum(isinstance(piece, Node) for piece in pieces)

    def _write(self, pieces: Sequence[Piece]) -> None:
        if len(self._ids) > _KNOWN:
            self._ids.clear()  # they are found again
        memory, project = self._place.plain, self._place.project
        with memory.store.write() as writer:
            gone = forgotten(writer)
            groups: dict[str, list[New]] = {}
            for piece in pieces:
                if isinstance(piece, Node) and piece.new.key not in gone and self._sound(piece.new):
                    scope = f"{project}/{part(piece.owner)}" if piece.owner else project
                    if not self._is_there(writer, piece.new, scope):
                        groups.setdefault(scope, []).append(piece.new)
            for scope, news in groups.items():
                for new, item in zip(news, memory.add_many(news, scope), strict=True):
                    self._ids[Ref(new.kind, new.key)] = item.id
            writer.put_edges(self._edges(writer, (piece for piece in pieces if isinstance(piece, Link))))

    def _sound(self, new: New) -> bool:
        """Whether it can be stored; one that cannot must not keep the others out."""
        try:
            check(new)
            plain(new.text)
        except BadInput as error:
            self.refused.append(f"{new.key}: {error}")
            return False
        return True

    def _is_there(self, writer: Writer, new: New, scope: str) -> bool:
        """Whether a procedure or summary stands there with these words: a log that is folded again is no news."""
        if new.kind not in ("procedure", "summary"):
            return False
        view = View((scope,), now(), kinds=(new.kind,), ended=True, archived=True)
        found = writer.find(view, new.key, 1)
        if not found or found[0].text != plain(new.text) or {**found[0].data, **new.data} != found[0].data:
            return False
        self._ids[Ref(new.kind, new.key)] = found[0].id
        return True

    def _edges(self, writer: Writer, links: Iterable[Link]) -> list[Edge]:
        found = []
        for link in links:
            ends = [self._find(writer, end, link.before) for end in (link.source, link.target)]
            if ends[0] and ends[1]:
                found.append(Edge(ends[0], link.type, ends[1]))
        return found

    def _find(self, writer: Writer, ref: Ref, before: float) -> str:
        """Id of an item, or "" when it is not there (yet)."""
        if before == math.inf and ref in self._ids:
            return self._ids[ref]
        view = View((f"{self._place.project}/*",), now(), kinds=(ref.kind,), ended=True, archived=True)
        for item in writer.find(view, ref.key, 1):
            self._ids[ref] = item.id
            return item.id if _began(item) <= before else ""
        return ""


def _once(pieces: Sequence[Piece]) -> list[Piece]:
    """The pieces with each item once, as it was told last: what is read again must not go back to how it began."""
    places: dict[Ref, int] = {}
    kept: list[Piece] = []
    for piece in pieces:
        ref = Ref(piece.new.kind, piece.new.key) if isinstance(piece, Node) else None
        if isinstance(piece, Link) or ref is None or ref not in places:
            if ref is not None:
                places[ref] = len(kept)
            kept.append(piece)
            continue
        first = kept[places[ref]]
        assert isinstance(first, Node)
        new = replace(piece.new, at=first.new.at, data={**first.new.data, **piece.new.data})
        kept[places[ref]] = Node(first.owner, new)
    return kept


def _began(item: Item) -> float:
    """When it began, to the millisecond, as logs tell times."""
    at: datetime = item.valid_from or datetime.min.replace(tzinfo=UTC)
    return round(at.timestamp(), 3) if item.valid_from else -math.inf


def part(owner: str) -> str:
    """An agent's name as part of a scope: names of agents are, but a log may hold any text in their place."""
    if len(owner) <= 100 and re.fullmatch(r"[\w.-]*\w[\w.-]*", owner):
        return owner
    return re.sub(r"[^\w.-]+", "-", owner).strip("-.")[:100] or "unnamed"
