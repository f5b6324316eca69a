"""Forgets items so that nothing of them is left: neither in an index, nor in what was made from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from opensage_memory.item import ABOUT, DERIVED_FROM, MENTIONS, PART_OF, RELATES, SUMMARIZES, SUPERSEDES, Item, digest
from opensage_memory.store.base import Row, Tombstone
from opensage_memory.store.recorder import Recorder
from opensage_memory.text import index_text
from opensage_memory.writing import unlink

Rebuild = Callable[[Item, list[Item]], str]
"""A summary's new text from what is left of its sources."""


class Forgetter:
    """Forgets items in one transaction.

    Args:
        recorder: of the transaction.
        operation: its id, for the tombstones.
        now: the present.
        rebuild: makes the new text of a summary that has lost a source; without one the summary goes.
    """

    def __init__(self, recorder: Recorder, operation: str, now: datetime, rebuild: Rebuild | None = None) -> None:
        self._recorder, self._operation, self._now, self._rebuild = recorder, operation, now, rebuild

    def forget(self, ids: Iterable[str]) -> list[str]:
        """Forget items, their parts, copies and merged duplicates, and what only they bore out; returns all ids."""
        gone: dict[str, Item] = {}
        shrunk: dict[str, set[str]] = {}
        front = dict.fromkeys(ids)
        while front:
            found = self._recorder.reads.get(front)
            gone |= found
            front = dict.fromkeys(id for id in self._following(found, gone, shrunk) if id not in gone)
        names = self._names(gone)
        lost_relations = {str(item.data["relation"]) for item in gone.values() if "relation" in item.data}
        self._remove(gone)
        names |= self._shrink({id: lost for id, lost in shrunk.items() if id not in gone})
        orphans = self._orphans(names, lost_relations)
        self._remove(orphans)
        return [*gone, *orphans]

    def _following(self, found: dict[str, Item], gone: dict[str, Item], shrunk: dict[str, set[str]]) -> list[str]:
        """What goes with these items at once; what merely loses a source is noted in `shrunk`."""
        reads = self._recorder.reads
        inward = reads.edges(found, types=(PART_OF, DERIVED_FROM, SUMMARIZES), direction="in")
        going = [edge.source for edge in inward if edge.type == PART_OF]
        made = {edge.source: edge.target for edge in inward if edge.type != PART_OF}
        for edge in inward:
            if edge.type != PART_OF:
                shrunk.setdefault(edge.source, set()).add(edge.target)
        for id, item in reads.get(made).items():
            if self._falls(item, shrunk[id], gone):
                going.append(id)
        merges = reads.edges(found, types=(SUPERSEDES,))
        older = reads.get(edge.target for edge in merges)
        for edge in merges:
            if older[edge.target].data.get("merged_into") == edge.source:
                going += [edge.target] if edge.source in found else []
                shrunk.setdefault(edge.source, set()).add(edge.target)
        return going

    def _falls(self, item: Item, lost: set[str], gone: dict[str, Item]) -> bool:
        """Whether nothing bears an item out any more: a copy of one, a summary, or all that it was made from went."""
        left = [source for source in self._made_from(item) if source not in gone]
        if item.data.get("published_from") in lost:
            others = self._recorder.reads.get(left).values()
            return all(other.hash != item.hash for other in others)
        if item.trust == "user" and item.kind != "summary" and not lost.intersection(item.sources):
            return False  # it was joined to them later: what a person said was not made from them
        return not left or (item.kind == "summary" and self._rebuild is None)

    def _made_from(self, item: Item) -> list[str]:
        edges = self._recorder.reads.edges([item.id], types=(DERIVED_FROM, SUMMARIZES), direction="out")
        return [edge.target for edge in edges]

    def _shrink(self, shrunk: dict[str, set[str]]) -> set[str]:
        """Take lost sources out of what stays; summaries get a new text. Returns entities that it names no more."""
        reads, names = self._recorder.reads, set[str]()
        for id, item in reads.get(shrunk).items():
            kept = tuple(source for source in item.sources if source not in shrunk[id])
            changed = item.but(sources=kept)
            parts = self._made_from(item)
            if item.data.get("published_from") in shrunk[id]:
                copied = [other.id for other in reads.get(parts).values() if other.hash == item.hash]
                changed = changed.but(data={**item.data, "published_from": copied[0]})
            if item.kind == "summary" and self._rebuild is not None and parts:
                text = self._rebuild(item, list(reads.get(parts).values()))
                changed = changed.but(text=text, hash=digest(text), stale=False)
            self._recorder.put([Row(changed, index_text(changed.text))])
            names |= unlink(self._recorder, changed)
        return names

    def _names(self, gone: Iterable[str]) -> set[str]:
        edges = self._recorder.reads.edges(gone, types=(MENTIONS, ABOUT), direction="out")
        return {edge.target for edge in edges}

    def _orphans(self, names: set[str], lost: set[str]) -> dict[str, Item]:
        """Entities that nothing mentions any more; edges of the lost relations without a fact that says so go too."""
        reads = self._recorder.reads
        borne = {edge.target for edge in reads.edges(names, types=(MENTIONS, ABOUT), direction="in", limit=1)}
        relations = [edge for edge in reads.edges(names, types=(RELATES,)) if edge.relation in lost] if lost else []
        told = self._told({edge.source for edge in relations})
        self._recorder.remove_edges([e for e in relations if (e.source, e.relation, e.target) not in told])
        lone = reads.get(name for name in names if name not in borne)
        return {id: item for id, item in lone.items() if item.kind == "entity" and not item.data.get("kept")}

    def _told(self, subjects: Iterable[str]) -> set[tuple[str, str, str]]:
        """(subject, relation, object) that facts still state, by ids of entities."""
        reads = self._recorder.reads
        facts = {edge.source: edge.target for edge in reads.edges(subjects, types=(ABOUT,), direction="in")}
        items = reads.get(facts)
        told: set[tuple[str, str, str]] = set()
        for edge in reads.edges(facts, types=(MENTIONS,), direction="out"):
            told.add((facts[edge.source], str(items[edge.source].data.get("relation", "")), edge.target))
        return told

    def _remove(self, items: dict[str, Item]) -> None:
        stones = [Tombstone(id, item.scope, item.kind, self._now, self._operation) for id, item in items.items()]
        self._recorder.remove(items)
        self._recorder.bury(stones)
