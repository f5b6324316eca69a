"""Makes one item of several, and copies one into a wider scope."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from opensage_memory.errors import BadInput
from opensage_memory.facts import Claim, Facts
from opensage_memory.item import DERIVED_FROM, SUPERSEDES, Edge, Item
from opensage_memory.scope import View, check_scope
from opensage_memory.store.base import Row
from opensage_memory.store.recorder import Recorder
from opensage_memory.text import index_text
from opensage_memory.writing import MAX_SOURCES, NAMED, Adder, New, seen_trust


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
    trust = seen_trust(keep.trust, gone.trust) if keep.hash == gone.hash else keep.trust
    kept = keep.but(sources=sources, seen=keep.seen + gone.seen, trust=trust)
    merged = gone.but(retired_at=now, data={**gone.data, "merged_into": keep.id})
    edges = recorder.reads.edges([gone.id])
    recorder.remove_edges(edges)
    moved = [_moved(edge, gone.id, keep.id) for edge in edges]
    earlier = recorder.reads.get(edge.target for edge in edges if edge.type == SUPERSEDES)
    stood_for = [item for item in earlier.values() if item.data.get("merged_into") == gone.id]
    changed = [kept, merged, *(item.but(data={**item.data, "merged_into": keep.id}) for item in stood_for)]
    recorder.put([Row(item, index_text(item.text)) for item in changed])
    recorder.put_edges([edge for edge in moved if edge.source != edge.target])
    recorder.put_edges([Edge(keep.id, SUPERSEDES, gone.id)])
    return kept


def _moved(edge: Edge, old: str, new: str) -> Edge:
    source = new if edge.source == old else edge.source
    return Edge(source, edge.type, new if edge.target == old else edge.target, edge.relation, edge.weight)


def reunite(recorder: Recorder, ids: Iterable[str], now: datetime) -> None:
    """Let items that came back be one with what was stored of the same name or text in the meantime."""
    for id in ids:
        item = recorder.reads.get([id]).get(id)
        if item is None or item.retired_at is not None:
            continue
        view = View((item.scope,), now, kinds=(item.kind,), ended=True, archived=True)
        if item.kind in NAMED and item.key:
            others = recorder.reads.find(view, item.key, 4)
        else:
            others = [same] if (same := recorder.reads.same(item.scope, item.kind, item.hash)) else []
        for other in others:
            if other.id != id and (other.valid_from, other.valid_to) == (item.valid_from, item.valid_to):
                merge(recorder, other, item, now)
                break


def publish(recorder: Recorder, item: Item, to: str, now: datetime) -> Item:
    """Copy an item into a wider scope; the copy says where it comes from, and goes when the original is forgotten.

    Raises:
        BadInput: `to` is not around the item's scope.
    """
    to = check_scope(to)
    if not item.scope.startswith(f"{to}/"):
        raise BadInput(f"{to!r} is not around {item.scope!r}: an item is published to a scope that its own begins with")
    if item.retired_at is not None:
        raise BadInput("an item that was taken back cannot be published")
    data = {key: value for key, value in item.data.items() if key not in ("last", "merged_into", "published_from")}
    new = New(
        item.text,
        item.kind,
        item.key,
        item.valid_from,
        item.valid_to,
        item.trust,
        item.author,
        item.sources,
        (item.id,),
        data=data,
    )
    subject, relation, object = (str(data.get(part, "")) for part in ("subject", "relation", "object"))
    if item.kind == "fact" and subject and relation and object:
        copy = Facts(recorder, to, now).state(
            Claim(subject, relation, object, item.text, data.get("functional") is True, new)
        )
    else:
        adder = Adder(recorder, to, now)
        copy = adder.add(new)
        adder.finish()
    if recorder.reads.edges([copy.id], types=(DERIVED_FROM,), direction="out"):  # else it stands there on its own
        copy = recorder.reads.get([copy.id])[copy.id]
        copy = copy.but(data={**copy.data, "published_from": item.id})
        recorder.put([Row(copy, index_text(copy.text))])
    return copy
