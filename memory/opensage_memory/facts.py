"""Facts in time: what was true when, and what closes what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from opensage_memory.errors import BadInput
from opensage_memory.item import (
    ABOUT,
    CONTRADICTS,
    DERIVED_FROM,
    MENTIONS,
    RELATES,
    SUMMARIZES,
    SUPERSEDES,
    Edge,
    Item,
    digest,
    instant,
)
from opensage_memory.scope import View
from opensage_memory.store.base import Row
from opensage_memory.store.recorder import Recorder
from opensage_memory.text import index_text
from opensage_memory.writing import MAX_SOURCES, Adder, New, borne_out, ended, fold, plain, seen_trust, unlink

MOST = 1_000_000
"""Facts of one subject and relation that are looked at: all there can be, as the newest must be among them."""
_ALWAYS = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Claim:
    """A fact to state.

    Attributes:
        subject: what it is about.
        relation: the relation's name, as written.
        object: what stands in that relation to it.
        text: the sentence; made of the three when empty.
        functional: a subject has one object at a time, so that a newer fact closes the older.
        new: time, trust, author, sources and the rest, as for any item; its text and kind are not used.
    """

    subject: str
    relation: str
    object: str
    text: str = ""
    functional: bool = False
    new: New = field(default_factory=lambda: New(""))

    def sentence(self) -> str:
        """What is stored as the fact's text."""
        return plain(self.text or f"{self.subject} {self.relation} {self.object}")

    @property
    def key(self) -> str:
        """What facts of the same subject and relation share."""
        return fact_key(self.subject, self.relation)


def fact_key(subject: str, relation: str) -> str:
    """The key of all facts with this subject and relation."""
    return f"{fold(subject)[:400]}\x1f{fold(relation)[:400]}"


class Facts:
    """States facts in one scope in one transaction."""

    def __init__(self, recorder: Recorder, scope: str, now: datetime) -> None:
        self._recorder, self._scope, self._now = recorder, scope, now

    def state(self, claim: Claim) -> Item:
        """Add a fact where it belongs in time; returns it, or the one that already says so.

        Raises:
            BadInput: a part is empty.
        """
        for part, value in (("subject", claim.subject), ("relation", claim.relation), ("object", claim.object)):
            if not isinstance(value, str) or not value.strip():
                raise BadInput(f"the {part} of a fact is empty")
        line = self._line(claim)
        began = instant(claim.new.at) or (self._now if claim.functional else None)
        if (known := _saying(line, claim, began)) is not None:
            return self._again(known, claim)
        # An untrusted claim may not close what a person, an agent or a tool has told.
        rivals = [fact for fact in line if claim.new.trust != "untrusted" or fact.trust == "untrusted"]
        fact = self._store(claim, began, _end(rivals, began, claim) if claim.functional else instant(claim.new.until))
        if claim.functional:
            self._place(fact, line, rivals)
        return fact

    def _line(self, claim: Claim) -> list[Item]:
        """Live facts of the subject and relation, in the order of their beginning."""
        view = View((self._scope,), self._now, kinds=("fact",), ended=True, archived=True)
        return sorted(self._recorder.reads.find(view, claim.key, MOST), key=_start)

    def _again(self, known: Item, claim: Claim) -> Item:
        new = claim.new
        sources = tuple(dict.fromkeys((*known.sources, *new.sources, *new.derived)))
        again = ended(known, new).but(
            sources=sources[:MAX_SOURCES],
            seen=known.seen + 1,
            trust=seen_trust(known.trust, new.trust),
            archived=False,
            stale=False,
        )
        if again.trust != known.trust:  # a person vouches for their own words, not for those that were there
            text = claim.sentence()
            again = again.but(text=text, hash=digest(text))
            unlink(self._recorder, again)
        if again.valid_to != known.valid_to:
            mark_stale(self._recorder, [known.id])
        self._recorder.put([Row(again, index_text(again.text))])
        self._recorder.put_edges(borne_out(self._recorder, known.id, new))
        return again

    def _store(self, claim: Claim, began: datetime | None, ended: datetime | None) -> Item:
        adder = Adder(self._recorder, self._scope, self._now)
        new = claim.new
        text = claim.sentence()
        told = {"subject": claim.subject, "relation": claim.relation, "object": claim.object}
        data = {**new.data, **told, "functional": claim.functional}
        fact = adder.store(replace(new, text=text, kind="fact", key=claim.key, at=began, until=ended, data=data))
        subject, object = adder.entity(claim.subject, fact), adder.entity(claim.object, fact)
        edges = [Edge(fact.id, ABOUT, subject), Edge(fact.id, MENTIONS, object)]
        edges.append(Edge(subject, RELATES, object, claim.relation))
        adder.finish()
        self._recorder.put_edges(edges)
        return fact

    def _place(self, fact: Item, line: Sequence[Item], rivals: Sequence[Item]) -> None:
        """Close what was true when it began; say which it contradicts when it may not close it."""
        began, may_close = _start(fact), {rival.id for rival in rivals}
        edges: list[Edge] = []
        for other in line:
            if other.id not in may_close:
                edges.append(Edge(fact.id, CONTRADICTS, other.id))
            elif _start(other) == began:
                self._change(other.but(retired_at=self._now))
                edges.append(Edge(fact.id, SUPERSEDES, other.id))
            elif _start(other) < began and (other.valid_to is None or other.valid_to > began):
                self._change(other.but(valid_to=fact.valid_from))
                edges.append(Edge(fact.id, SUPERSEDES, other.id))
            elif fact.valid_to is not None and other.valid_from == fact.valid_to:
                edges.append(Edge(other.id, SUPERSEDES, fact.id))
        self._recorder.put_edges(edges)

    def _change(self, item: Item) -> None:
        self._recorder.put([Row(item, index_text(item.text))])
        mark_stale(self._recorder, [item.id])

    def supersede(self, old: Item, new: New) -> Item:
        """Put another text in the place of an item from now on (or from `new.at`)."""
        began = instant(new.at) or self._now
        adder = Adder(self._recorder, self._scope, self._now)
        fact = adder.store(replace(new, at=began))
        adder.finish()
        if old.valid_from is not None and old.valid_from >= began:
            self._change(old.but(retired_at=self._now))
        elif old.valid_to is None or old.valid_to > began:
            self._change(old.but(valid_to=began))
        self._recorder.put_edges([Edge(fact.id, SUPERSEDES, old.id)])
        return fact


def mark_stale(recorder: Recorder, ids: Sequence[str]) -> list[str]:
    """Mark everything that was made from these items, directly or not; returns their ids."""
    marked: dict[str, None] = {}
    front = list(ids)
    while front:
        edges = recorder.reads.edges(front, types=(DERIVED_FROM, SUMMARIZES), direction="in")
        front = [edge.source for edge in edges if edge.source not in marked and edge.source not in ids]
        marked |= dict.fromkeys(front)
    items = [item for item in recorder.reads.get(marked).values() if not item.stale]
    if items:
        tokens = recorder.reads.tokens(item.id for item in items)
        recorder.put([Row(item.but(stale=True), tokens.get(item.id, "")) for item in items])
    return list(marked)


def _start(fact: Item) -> datetime:
    return fact.valid_from or _ALWAYS


def _saying(line: Sequence[Item], claim: Claim, began: datetime | None) -> Item | None:
    """The fact that says this already for the time at which the claim begins."""
    start = began or _ALWAYS
    for fact in reversed(line):
        if fold(str(fact.data.get("object", ""))) != fold(claim.object):
            continue
        if not claim.functional and claim.new.at is None and fact.valid_to is None:
            return fact
        if _start(fact) <= start and (fact.valid_to is None or start < fact.valid_to):
            return fact
    return None


def _end(line: Sequence[Item], began: datetime | None, claim: Claim) -> datetime | None:
    """When a fact that begins then ends: as told, or as the next one begins, or as the one it stands in for ended."""
    start = began or _ALWAYS
    ends = [instant(claim.new.until)]
    ends += [_start(fact) for fact in line if _start(fact) > start][:1]
    ends += [fact.valid_to for fact in line if _start(fact) <= start and fact.valid_to and fact.valid_to > start]
    told = [end for end in ends if end is not None]
    return min(told, default=None)
