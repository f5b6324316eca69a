"""Makes one item of several, and copies one into a wider scope."""

from __future__ import annotations

from datetime import datetime

from opensage_memory.errors import BadInput
from opensage_memory.item import DERIVED_FROM, SUPERSEDES, Edge, Item
from opensage_memory.scope import check_scope
from opensage_memory.store.base import Row
from opensage_memory.store.recorder import Recorder
from opensage_memory.text import index_text
from opensage_memory.writing import MAX_SOURCES, Adder, New, seen_trust


def merge(recorder: Recorder, keep: Item, gone: Item, now: datetime) -> Item:
    """Let `keep` stand for both: it takes over edges and sources; `gone` is kept as provenance, and not found.

    Raises:
        BadInput: they are one item, of two scopes or kinds, or one is retired.
    """
    if keep.id == gone.id or (keep.scope, keep.kind) != (gone.scope, gone.kind):
        raise BadInput("only two items of one scope and kind can be merged")
    if keep.retired_at or gone.retired_at:
        raise BadInput("an item that was taken back cannot be merged")
    sources = tuple(dict.fromkeys((*keep.sources, *gone.sources, gone.id)))[:MAX_SOURCES]
    kept = keep.but(sources=sources, seen=keep.seen + gone.seen, trust=seen_trust(keep.trust, gone.trust))
    merged = gone.but(retired_at=now, data={**gone.data, "merged_into": keep.id})
    edges = recorder.reads.edges([gone.id])
    recorder.remove_edges(edges)
    moved = [_moved(edge, gone.id, keep.id) for edge in edges]
    recorder.put([Row(kept, index_text(kept.text)), Row(merged, index_text(merged.text))])
    recorder.put_edges([edge for edge in moved if edge.source != edge.target])
    recorder.put_edges([Edge(keep.id, SUPERSEDES, gone.id)])
    return kept


def _moved(edge: Edge, old: str, new: str) -> Edge:
    source = new if edge.source == old else edge.source
    return Edge(source, edge.type, new if edge.target == old else edge.target, edge.relation, edge.weight)


def publish(recorder: Recorder, item: Item, to: str, now: datetime) -> Item:
    """Copy an item into a wider scope; the copy says where it comes from, and goes when the original is forgotten.

    Raises:
        BadInput: `to` is not around the item's scope.
    """
    to = check_scope(to)
    if not item.scope.startswith(f"{to}/"):
        raise BadInput(f"{to!r} is not around {item.scope!r}: an item is published to a scope that its own begins with")
    adder = Adder(recorder, to, now)
    data = {key: value for key, value in item.data.items() if key != "last"} | {"published_from": item.id}
    copy = adder.add(
        New(
            item.text,
            item.kind,
            item.key,
            item.valid_from,
            item.valid_to,
            item.trust,
            item.author,
            (*item.sources, item.id),
            data=data,
        )
    )
    adder.finish()
    recorder.put_edges([Edge(copy.id, DERIVED_FROM, item.id)])
    return copy
