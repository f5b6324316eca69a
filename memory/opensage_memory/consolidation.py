"""Tidies without losing: near duplicates become one, sessions get summaries, what was summed up is put away."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from opensage_memory.item import DERIVED_FROM, PART_OF, SUMMARIZES, Edge, Item
from opensage_memory.merging import merge
from opensage_memory.scope import View
from opensage_memory.store.base import Row
from opensage_memory.store.recorder import Recorder
from opensage_memory.text import dates, index_text, tokens
from opensage_memory.writing import Adder, New

ALIKE = 0.9
"""Share of common tokens (Jaccard) above which two facts are near duplicates."""
ENOUGH = 8
"""Parts that a session needs before a summary saves anything."""
SUMMARY = 800
"""Characters of a summary."""
OLD = timedelta(days=180)
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s+|\n+")
NEGATIONS = frozenset(("no", "not", "never", "none", "cannot", "without", "nicht", "kein", "pas", "nunca"))
MERGED_KINDS = ("fact", "procedure")
ARCHIVED_KINDS = ("observation", "tool_call", "message", "turn")
Summarise = Callable[[Sequence[str]], str]
"""Texts in order to one short text."""


@dataclass(frozen=True, slots=True)
class Tidied:
    """What one consolidation did.

    Attributes:
        merged: pairs of ids, kept and merged.
        summaries: ids of summaries made or made anew.
        archived: ids put away.
    """

    merged: tuple[tuple[str, str], ...] = ()
    summaries: tuple[str, ...] = ()
    archived: tuple[str, ...] = ()


class Consolidation:
    """Tidies one scope in one transaction.

    Args:
        recorder: of the transaction.
        scope: where.
        now: the present.
        summarise: makes summaries; `extract` needs no model.
    """

    def __init__(self, recorder: Recorder, scope: str, now: datetime, summarise: Summarise | None = None) -> None:
        self._recorder, self._scope, self._now = recorder, scope, now
        self._summarise = summarise or extract
        self._view = View((scope,), now)

    def run(self) -> Tidied:
        """Merge, sum up, put away."""
        return Tidied(tuple(self._merge()), tuple(self._sum_up()), tuple(self._put_away()))

    def _merge(self) -> Iterable[tuple[str, str]]:
        """Near duplicates: candidates come from search, so the work does not grow with the square of the graph."""
        gone: set[str] = set()
        for item in everything(self._recorder, self._view.but(kinds=MERGED_KINDS)):
            if item.id in gone:
                continue
            terms = sorted(set(tokens(item.text)), key=len, reverse=True)[:24]
            near = self._recorder.reads.lexical(terms, self._view.but(kinds=(item.kind,)), 12)
            for other in self._recorder.reads.get(id for id, _ in near).values():
                if other.id not in gone and other.id != item.id and alike(item, other):
                    now = self._recorder.reads.get([item.id])[item.id]
                    merge(self._recorder, now, other, self._now)
                    gone.add(other.id)
                    yield item.id, other.id

    def _sum_up(self) -> Iterable[str]:
        for session in everything(self._recorder, self._view.but(kinds=("session", "run"))):
            parts = self._parts(session)
            if len(parts) < ENOUGH:
                continue
            summary = self._summary(session)
            if summary is None or summary.stale or summary.data.get("parts") != len(parts):
                yield self._write(session, parts)

    def _parts(self, session: Item) -> list[Item]:
        edges = self._recorder.reads.edges([session.id], self._view, types=(PART_OF,), direction="in")
        found = self._recorder.reads.get((edge.source for edge in edges), self._view.but(archived=True))
        parts = [item for item in found.values() if item.kind not in ("summary", "entity")]
        return sorted(parts, key=lambda item: (item.valid_from or item.created_at, item.id))

    def _summary(self, session: Item) -> Item | None:
        found = self._recorder.reads.find(self._view.but(kinds=("summary",)), f"summary of {session.id}", 1)
        return found[0] if found else None

    def _write(self, session: Item, parts: list[Item]) -> str:
        adder = Adder(self._recorder, self._scope, self._now)
        text = self._summarise([f"{item.author}: {item.text}" if item.author else item.text for item in parts])
        trust = "untrusted" if any(item.trust == "untrusted" for item in parts) else "agent"
        data = {"parts": len(parts), "of": session.id}
        new = New(text, "summary", f"summary of {session.id}", parts[0].valid_from, None, trust, data=data)
        summary = adder.add(new)
        adder.finish()
        ids = [item.id for item in parts]
        self._recorder.put_edges([Edge(summary.id, SUMMARIZES, session.id)])
        self._recorder.put_edges([Edge(summary.id, DERIVED_FROM, id) for id in ids])
        return summary.id

    def _put_away(self) -> Iterable[str]:
        """Old parts of something that has a summary, never recalled: kept, and found on request only."""
        for item in everything(self._recorder, self._view.but(kinds=ARCHIVED_KINDS)):
            known = item.valid_from or item.created_at
            if item.uses or self._now - max(known, item.created_at) < OLD or not self._is_summed_up(item):
                continue
            self._recorder.put([Row(item.but(archived=True), index_text(item.text))])
            yield item.id

    def _is_summed_up(self, item: Item) -> bool:
        return bool(self._recorder.reads.edges([item.id], self._view, types=(DERIVED_FROM,), direction="in", limit=1))


def everything(recorder: Recorder, view: View) -> Iterable[Item]:
    """All items of a view, in pages."""
    after = 0
    while page := recorder.reads.scan(view, after=after, limit=500):
        yield from (item for _, item in page)
        after = page[-1][0]


def alike(one: Item, other: Item) -> bool:
    """Whether two items say the same: nearly the same words, and the very same numbers, dates, negations and parts."""
    if one.kind != other.kind or one.key != other.key or one.valid_to != other.valid_to:
        return False
    if "subject" in one.data or "subject" in other.data:
        return False  # facts with parts are kept apart by their own rules
    if one.valid_from != other.valid_from or (one.trust == "untrusted") != (other.trust == "untrusted"):
        return False
    if _marks(one.text) != _marks(other.text):
        return False
    mine, theirs = set(tokens(one.text)), set(tokens(other.text))
    return bool(mine) and len(mine & theirs) >= ALIKE * len(mine | theirs)


def _marks(text: str) -> tuple[list[str], list[str], list[str]]:
    words = text.casefold().replace("n't", " not").replace("n’t", " not").split()
    negations = sorted(word.strip(".,;:!?\"'()") for word in words if word.strip(".,;:!?\"'()") in NEGATIONS)
    return sorted(NUMBER.findall(text)), sorted(span.name for span in dates(text)), negations


def extract(texts: Sequence[str]) -> str:
    """A summary without a model: the sentences whose words are most often said, in their order."""
    parts = (part.strip() for text in texts for part in SENTENCE_END.split(text[:4000]))
    sentences = [part[:300] for part in parts if part][:2000]
    words = [set(tokens(sentence)) for sentence in sentences]
    counts = Counter(word for group in words for word in group)
    worth = [sum(counts[word] for word in group if counts[word] > 1) / (4 + len(group)) for group in words]
    taken, size = set[int](), 0
    for place in sorted(range(len(sentences)), key=lambda place: -worth[place]):
        if size + len(sentences[place]) > SUMMARY and taken:
            break
        taken.add(place)
        size += len(sentences[place]) + 1
    return " ".join(sentences[place] for place in sorted(taken))


def rebuilt(summary: Item, parts: Sequence[Item], summarise: Summarise | None = None) -> str:
    """The text of a summary after something of it went."""
    ordered = sorted(parts, key=lambda item: (item.valid_from or item.created_at, item.id))
    return (summarise or extract)([f"{item.author}: {item.text}" if item.author else item.text for item in ordered])
