"""Adds items without a model: checks, finds duplicates, names, and places in a conversation."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import Any

from opensage_memory.checking import check
from opensage_memory.errors import BadInput
from opensage_memory.item import (
    DERIVED_FROM,
    EPISODIC,
    MENTIONS,
    NEXT,
    PART_OF,
    REPLY_TO,
    Edge,
    Item,
    digest,
    instant,
    new_id,
)
from opensage_memory.scope import View
from opensage_memory.store.base import Row
from opensage_memory.store.recorder import Recorder
from opensage_memory.text import Mention, entities, index_text

LONG_TEXT = 1 << 20
"""Bytes of UTF-8 above which a text is stored as a document of chunks."""
HUGE_TEXT = 64 << 20
CHUNK = 16_000
"""Characters of a chunk at most."""
MENTIONED = 32
"""Names linked from one item; the rest is found as words."""
MAX_SOURCES = 200
NAMED = ("session", "document", "entity", "procedure", "symbol", "summary", *EPISODIC[1:])
"""Kinds of which a key names one item: the same key again is the same item."""
ASKS = re.compile("[?\uff1f\u061f\u037e]")
"""Question marks: Latin, full-width, Arabic, Greek."""
RECALLED = re.compile(r"<memory\b[^>]{0,200}>.*?</memory>\s*", re.S)
"""What `context` wrote into a prompt."""
_RECALL_ENDS = "</memory>"
When = datetime | date | str | float | None


@dataclass(frozen=True, slots=True)
class New:
    """What is to be added.

    Attributes:
        text: what it says; blank is refused.
        kind: one of `KINDS`.
        key: what it is looked up by; for kinds that are named, the same key is the same item.
        at: when it was said or began to be true.
        until: when it ended to be true.
        trust: one of `TRUSTS`.
        author: who wrote it.
        sources: ids of items or references to events.
        derived: ids of the items that it was made from; it goes, or is stale, when they do.
        session: name of the conversation it belongs to; it follows what was added there last.
        reply_to: id of what it answers; found by itself when the one before it, of another author, asks.
        data: everything else, JSON.
        link: whether names in it become entities.
    """

    text: str
    kind: str = "fact"
    key: str = ""
    at: When = None
    until: When = None
    trust: str = "agent"
    author: str = ""
    sources: Sequence[str] = ()
    derived: Sequence[str] = ()
    session: str = ""
    reply_to: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    link: bool = True


def fold(name: str) -> str:
    """What makes two spellings one name: NFKC, case, spaces."""
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def plain(text: object) -> str:
    """A text that can be stored, without what was recalled from here.

    Raises:
        BadInput: no text, blank, or over 64 MiB.
    """
    if not isinstance(text, str):
        raise BadInput(f"a text is wanted, not {type(text).__name__}")
    text = without_recalled(text)
    if not text.strip():
        raise BadInput("the text is empty: there is nothing to remember")
    if len(text) > HUGE_TEXT:
        raise BadInput(f"the text has {len(text)} characters; a memory takes {HUGE_TEXT} at once: give parts")
    return text


def without_recalled(text: str) -> str:
    """A text without what `context` wrote into it; takes time in proportion to its length, whatever is in it."""
    end = text.rfind(_RECALL_ENDS)
    if end < 0 or "<memory" not in text:
        return text
    end += len(_RECALL_ENDS)  # behind it each beginning would be followed to the end in vain
    head, rest = RECALLED.sub("", text[:end]), text[end:]
    return head + (rest if head.endswith(_RECALL_ENDS) else rest.lstrip())


class Adder:
    """Adds to one scope in one transaction."""

    def __init__(self, recorder: Recorder, scope: str, now: datetime) -> None:
        self._recorder, self._scope, self._now = recorder, scope, now
        self._view = View((scope,), now).everything()
        self._rows: dict[str, Row] = {}
        self._edges: list[Edge] = []
        self._entities: dict[str, str] = {}
        self._known: dict[tuple[str, str, bool], str] = {}
        self._sessions: dict[str, Item] = {}
        self._last: dict[str, Item | None] = {}
        self.fresh: list[Item] = []

    def add(self, new: New) -> Item:
        """Add one; returns it, or the one that was there."""
        text = plain(new.text)
        check(new)
        if len(text) > LONG_TEXT // 4 and len(text.encode("utf-8", "surrogatepass")) > LONG_TEXT:
            return self._document(new, text)
        item = self._item(new, text)
        old = self._there(item, new)
        if old is not None and old.kind == "document" and "chunks" in old.data and "chunks" not in new.data:
            self._replaced(old, ())
            return self._without_chunks(old)
        return old or self._store(item, new)

    def store(self, new: New) -> Item:
        """Add one that is known not to be there."""
        check(new)
        return self._store(self._item(new, plain(new.text)), new)

    def _item(self, new: New, text: str) -> Item:
        return Item(
            id=new_id(),
            scope=self._scope,
            kind=new.kind,
            text=text,
            hash=digest(text),
            key=new.key,
            valid_from=instant(new.at),
            valid_to=instant(new.until),
            created_at=self._now,
            sources=tuple(dict.fromkeys((*new.sources, *new.derived)))[:MAX_SOURCES],
            trust=new.trust,
            author=new.author,
            data=new.data,
        )

    def _there(self, item: Item, new: New) -> Item | None:
        """The item that this one is, if it is there: seen again, or (named, with another text) replaced."""
        named = item.kind in NAMED and item.key
        known = self._known.get(_identity(item))
        if known is not None:
            old: Item | None = self._rows[known].item
        elif named:
            view = self._view.but(kinds=(item.kind,), retired=False)
            found = self._recorder.reads.find(view, item.key, 4)
            old = next((one for one in found if one.kind == "summary" or not _apart(one, item)), None)
        else:
            old = self._recorder.reads.same(self._scope, item.kind, item.hash)
        if old is None or (old.valid_to is not None and old.valid_to <= self._now and item.kind == "fact"):
            return None
        return self._again(old, item, new)

    def _again(self, old: Item, item: Item, new: New) -> Item:
        sources = tuple(dict.fromkeys((*old.sources, *item.sources)))[:MAX_SOURCES]
        merged = ended(old, new).but(
            sources=sources,
            seen=old.seen + 1,
            trust=seen_trust(old.trust, item.trust),
            archived=False,
            stale=False,
        )
        if old.hash != item.hash:
            merged = merged.but(text=item.text, hash=item.hash, seen=old.seen, trust=item.trust)
        if item.data:
            first, last = (item, old) if _doubtful(item, old) else (old, item)
            merged = merged.but(data={**first.data, **last.data})
        if merged.but(seen=old.seen) == old and item.kind in EPISODIC:
            return old  # a log that is folded again
        tokens = index_text(merged.text)
        if old.id in self._rows:
            self._rows[old.id] = Row(merged, tokens)
        else:
            self._recorder.put([Row(merged, tokens)])
        if old.hash != item.hash:
            self._derive(merged, new)
        elif old.id not in self._rows:
            self._edges += borne_out(self._recorder, old.id, new)
        if old.hash != item.hash and new.link:
            unlink(self._recorder, merged)
            self._mention(merged)
        return merged

    def _store(self, item: Item, new: New) -> Item:
        self._rows[item.id] = Row(item, index_text(item.text))
        self._known[_identity(item)] = item.id
        self.fresh.append(item)
        if new.session:
            self._join(item, new)
        elif new.reply_to:
            self._edges.append(Edge(item.id, REPLY_TO, new.reply_to))
        self._derive(item, new)
        if new.link and item.kind != "entity":
            self._mention(item)
        return item

    def _mention(self, item: Item) -> None:
        for name, sort in named(item.text):
            self._edges.append(Edge(item.id, MENTIONS, self.entity(name, item, sort)))

    def _derive(self, item: Item, new: New) -> None:
        self._edges += [Edge(item.id, DERIVED_FROM, source) for source in new.derived]

    def entity(self, name: str, of: Item, sort: str = "") -> str:
        """Id of the entity with this name in the scope; made when it is not there."""
        key = fold(name)[:200]
        if key not in self._entities:
            view = self._view.but(kinds=("entity",), retired=False)
            old = next(iter(self._recorder.reads.find(view, key, 1)), None)
            if old is None:
                data = {"sort": sort} if sort else {}
                old = self._item(New(name[:1000], "entity", key, trust=of.trust, author=of.author, data=data), name)
                self._rows[old.id] = Row(old, index_text(name))
            elif old.trust != of.trust and of.trust == "user":
                self._recorder.put([Row(old.but(trust="user"), index_text(old.text))])
            self._entities[key] = old.id
        return self._entities[key]

    def _join(self, item: Item, new: New) -> None:
        """Put it at the end of its conversation."""
        session = self.session(new.session, item)
        last = self._last[new.session]
        self._edges.append(Edge(item.id, PART_OF, session.id))
        answered = new.reply_to
        if last is not None:
            self._edges.append(Edge(last.id, NEXT, item.id))
            if not answered and ASKS.search(last.text) and last.author != item.author:
                answered = last.id
        if answered:
            self._edges.append(Edge(item.id, REPLY_TO, answered))
        self._last[new.session] = item

    def session(self, name: str, of: Item) -> Item:
        """The session of this name; made when it is not there."""
        if name not in self._sessions:
            view = self._view.but(kinds=("session",), retired=False)
            found = next(iter(self._recorder.reads.find(view, name, 1)), None)
            if found is None:
                new = New(name, "session", name, at=of.valid_from, trust=of.trust)
                found = self._item(new, name)
                self._rows[found.id] = Row(found, "")
            last = str(found.data.get("last", ""))
            self._last[name] = self._recorder.reads.get([last]).get(last) if last else None
            self._sessions[name] = found
        return self._sessions[name]

    def _document(self, new: New, text: str) -> Item:
        """A text too long for one item: a document and its chunks, which together are the text."""
        parts = split(text)
        data = {**new.data, "hash": digest(text), "chunks": len(parts), "characters": len(text)}
        key = new.key or str(data["hash"])
        head = self.add(replace(new, text=text[:500], kind="document", key=key, data=data, link=False))
        if self._replaced(head, [digest(part) for part in parts]):
            for number, part in enumerate(parts):
                told = New(part, "chunk", f"{head.id}#{number}", new.at, new.until, new.trust, new.author, (head.id,))
                item = self._item(told, part)
                self._store(item, New(part, "chunk", link=new.link))
                self._edges.append(Edge(item.id, PART_OF, head.id))
        return head

    def _without_chunks(self, document: Item) -> Item:
        """A document that is short now."""
        data = {key: value for key, value in document.data.items() if key not in ("hash", "chunks", "characters")}
        short = document.but(data=data)
        self._recorder.put([Row(short, index_text(short.text))])
        if short.id in self._rows:
            self._rows[short.id] = Row(short, index_text(short.text))
        return short

    def _replaced(self, head: Item, hashes: Sequence[str]) -> bool:
        """Whether a document's chunks are not these; then those that were there go."""
        edges = self._recorder.reads.edges([head.id], types=(PART_OF,), direction="in")
        there = [item for item in self._recorder.reads.get(edge.source for edge in edges).values() if _of(item, head)]
        waiting = [row.item for row in self._rows.values() if _of(row.item, head)]
        old = sorted((*there, *waiting), key=lambda item: int(item.key.rpartition("#")[2]))
        if [item.hash for item in old] == hashes:
            return False
        self._recorder.remove([item.id for item in there])
        for item in waiting:
            del self._rows[item.id]
            self._known.pop(_identity(item), None)
        return True

    def finish(self) -> None:
        """Write everything."""
        for name, session in self._sessions.items():
            last = self._last[name]
            if last is None:
                continue
            moved = session.but(data={**session.data, "last": last.id})
            if session.id in self._rows:
                self._rows[session.id] = Row(moved, "")
            else:  # not part of what this operation did: what follows in a conversation moves it on
                self._recorder.raw.put([Row(moved, "")])
        self._recorder.put(list(self._rows.values()), fresh=True)
        self._recorder.put_edges(self._edges)


def named(text: str) -> list[Mention]:
    """The things that a text names and that become entities."""
    return list(dict.fromkeys(entities(text)))[:MENTIONED]


def unlink(recorder: Recorder, item: Item) -> set[str]:
    """Remove mentions of what an item's text does not name any more; returns the ids of those entities."""
    edges = recorder.reads.edges([item.id], types=(MENTIONS,), direction="out")
    still = {fold(name)[:200] for name, _ in named(item.text)} | {fold(str(item.data.get("object", "")))[:200]}
    lost = {id for id, entity in recorder.reads.get(e.target for e in edges).items() if entity.key not in still}
    recorder.remove_edges([edge for edge in edges if edge.target in lost])
    return lost


def seen_trust(old: str, new: str) -> str:
    """Trust of what was said twice: a user's word raises it; an agent that repeats a web page does not."""
    return "user" if "user" in (old, new) else old


def _of(chunk: Item, document: Item) -> bool:
    return chunk.kind == "chunk" and chunk.key.startswith(f"{document.id}#")


def _doubtful(item: Item, other: Item) -> bool:
    """Whether the one is untrusted, and the other is not: then it may not change it."""
    return item.trust == "untrusted" != other.trust


def _apart(one: Item, other: Item) -> bool:
    """Whether two of one name are two: what is untrusted does not take the place of what is not, nor does it get it."""
    return one.hash != other.hash and (_doubtful(one, other) or _doubtful(other, one))


def _identity(item: Item) -> tuple[str, str, bool]:
    """What makes two of one change the same item."""
    if item.kind in NAMED and item.key:
        return item.kind, item.key, item.trust == "untrusted"
    return item.kind, item.hash, False


def ended(old: Item, new: New) -> Item:
    """An item of which is told again until when it is true: the first end that is told counts."""
    end = instant(new.until)
    if end is None or old.valid_to is not None or (new.trust == "untrusted" != old.trust):
        return old
    return old if old.valid_from is not None and end < old.valid_from else old.but(valid_to=end)


def borne_out(recorder: Recorder, id: str, new: New) -> list[Edge]:
    """Edges to what an item that is told again was made from; none when it stands on its own, as it then does."""
    made = recorder.reads.edges([id], types=(DERIVED_FROM,), direction="out")
    if made and not new.derived and new.kind == "fact" and new.trust != "untrusted":
        recorder.remove_edges(made)
    return [Edge(id, DERIVED_FROM, source) for source in new.derived] if made else []


def split(text: str) -> list[str]:
    """Cut at paragraphs, lines or spaces into chunks that together are the text."""
    parts, start = [], 0
    while start < len(text):
        end = min(start + CHUNK, len(text))
        if end < len(text):
            for mark in ("\n\n", "\n", " "):
                cut = text.rfind(mark, start + CHUNK // 2, end)
                if cut > 0:
                    end = cut + len(mark)
                    break
        parts.append(text[start:end])
        start = end
    return parts
