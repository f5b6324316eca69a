"""Where an item comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opensage_memory.item import DERIVED_FROM, MENTIONS, PART_OF, SUMMARIZES, SUPERSEDES, SUPPORTS, Edge, Item
from opensage_memory.scope import View, covers
from opensage_memory.store.base import Operation, Reader, Tombstone

DEPTH = 4
SHOWN = 50
"""Items of one kind of origin that are shown."""
BACKWARDS = (DERIVED_FROM, SUMMARIZES, SUPERSEDES, PART_OF, SUPPORTS)


@dataclass(frozen=True, slots=True)
class Origin:
    """What is known about where an item comes from; only what the reader's scopes show.

    Attributes:
        item: the item; None when there is none, or it was forgotten.
        tombstone: what is left of it when it was forgotten.
        sources: ids of items that are shown, and references to events.
        hidden: how many of its sources are in other scopes.
        items: items that it goes back to, nearest first.
        edges: how, each from the later to the earlier.
        mentions: names in it.
        operations: what was done to it, last first.
    """

    item: Item | None
    tombstone: Tombstone | None = None
    sources: tuple[str, ...] = ()
    hidden: int = 0
    items: tuple[Item, ...] = ()
    edges: tuple[Edge, ...] = ()
    mentions: tuple[str, ...] = ()
    operations: tuple[Operation, ...] = ()


def origin(reader: Reader, id: str, view: View) -> Origin:
    """The origin of an item, as far as the view shows it."""
    item = reader.get([id], view).get(id)
    if item is None:
        stone = reader.tombstone(id)
        return Origin(None, stone if stone is not None and covers(view.scopes, stone.scope) else None)
    items, edges = _back(reader, id, view)
    named = [edge.target for edge in reader.edges([id], view, types=(MENTIONS,), direction="out")][:SHOWN]
    known = reader.get(item.sources)
    hidden = [source for source, other in known.items() if not covers(view.scopes, other.scope)]
    done = [
        Operation(op.id, op.name, op.scope, op.at, ())
        for op in reader.operations(SHOWN, touching=id)
        if covers(view.scopes, op.scope)
    ]
    return Origin(
        item,
        None,
        tuple(source for source in item.sources if source not in hidden),
        len(hidden),
        tuple(items),
        tuple(edges),
        tuple(entity.text for entity in reader.get(named, view).values()),
        tuple(done),
    )


def _back(reader: Reader, id: str, view: View) -> tuple[Sequence[Item], list[Edge]]:
    seen: dict[str, None] = {id: None}
    edges: list[Edge] = []
    front = [id]
    for _ in range(DEPTH):
        step = reader.edges(front, view, types=BACKWARDS, direction="out", limit=SHOWN)
        edges += step
        front = [edge.target for edge in step if edge.target not in seen]
        seen |= dict.fromkeys(front)
        if not front or len(seen) > 4 * SHOWN:
            break
    del seen[id]
    return list(reader.get(list(seen)[: 4 * SHOWN], view).values()), edges
