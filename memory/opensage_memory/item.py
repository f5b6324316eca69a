"""Items and edges: what the graph is made of. Plain data, no store."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

from opensage_memory.errors import BadInput

EPISODIC = ("session", "run", "turn", "tool_call", "observation", "message")
SEMANTIC = ("entity", "fact", "document", "chunk", "symbol")
KINDS = (*EPISODIC, *SEMANTIC, "procedure", "summary")
"""Every kind of item. A fixed set: stores make labels of them."""

NEXT, REPLY_TO, PART_OF, CALLED, SUMMARIZES = "NEXT", "REPLY_TO", "PART_OF", "CALLED", "SUMMARIZES"
MENTIONS, ABOUT, RELATES, SUPERSEDES = "MENTIONS", "ABOUT", "RELATES", "SUPERSEDES"
SUPPORTS, CONTRADICTS, SIMILAR = "SUPPORTS", "CONTRADICTS", "SIMILAR"
DERIVED_FROM, USED, WORKED_FOR = "DERIVED_FROM", "USED", "WORKED_FOR"
EDGE_TYPES = (
    *(NEXT, REPLY_TO, PART_OF, CALLED, SUMMARIZES, MENTIONS, ABOUT, RELATES, SUPERSEDES),
    *(SUPPORTS, CONTRADICTS, SIMILAR, DERIVED_FROM, USED, WORKED_FOR),
)
"""Every type of edge. A fixed set: a relation's own name is the property `relation`."""

TRUSTS = ("user", "agent", "tool", "untrusted")
"""Where an item's content comes from, most trusted first."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Item:
    """One node.

    Attributes:
        id: 32 lower-case hexadecimal digits for items made here; any text of 1 to 200 characters when given.
        scope: whose it is, a path like `user/project/agent`.
        kind: one of `KINDS`.
        text: what it says, verbatim.
        hash: SHA-256 of `text` in hexadecimal.
        key: what it is looked up by inside scope and kind: an entity's folded name, a fact's subject and relation, a
            turn's place in its log; empty for none.
        valid_from: when it began to be true in the world (or was said); aware UTC, None for always.
        valid_to: when it ended to be true, exclusive; None for still.
        created_at: when it became known here.
        retired_at: when it was taken back here (merged away, corrected); None for live.
        archived: kept, found only on request.
        stale: something that it was derived from has changed since.
        sources: where it comes from, in order of arrival: ids of items, or references to events of a log.
        trust: one of `TRUSTS`.
        author: the agent or person that wrote it.
        seen: how many times it was added.
        uses: how many times it was recalled.
        data: everything else, JSON.
    """

    id: str
    scope: str
    kind: str
    text: str
    hash: str
    key: str = ""
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    created_at: datetime = _EPOCH
    retired_at: datetime | None = None
    archived: bool = False
    stale: bool = False
    sources: tuple[str, ...] = ()
    trust: str = "agent"
    author: str = ""
    seen: int = 1
    uses: int = 0
    data: Mapping[str, Any] = field(default_factory=dict)

    def but(self, **changes: Any) -> Item:
        """A copy with some fields changed."""
        return replace(self, **changes)


@dataclass(frozen=True, slots=True)
class Edge:
    """A directed edge between two items; at most one for each (source, type, target, relation).

    Attributes:
        source: id of the item that it starts at.
        type: one of `EDGE_TYPES`.
        target: id of the item that it ends at.
        relation: the relation's name for RELATES, else empty.
        weight: its strength, 0 to 1.
    """

    source: str
    type: str
    target: str
    relation: str = ""
    weight: float = 1.0

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """What makes it this edge."""
        return (self.source, self.type, self.target, self.relation)


def new_id() -> str:
    """A new id; later ones sort after earlier ones, to the millisecond."""
    return f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(10)}"


def digest(text: str) -> str:
    """SHA-256 of a text in hexadecimal; half a surrogate pair counts as its escape."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def now() -> datetime:
    """The present instant, aware, UTC."""
    return datetime.now(UTC)


def instant(value: datetime | date | str | float | None) -> datetime | None:
    """One rule for times: an aware UTC instant. A naive time is taken as UTC, a date as its first moment.

    Args:
        value: a datetime, a date, ISO 8601 text, seconds since 1970, or None.

    Raises:
        BadInput: not a time.
    """
    if value is None:
        return None
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value.strip())
        elif isinstance(value, int | float):
            value = datetime.fromtimestamp(value, UTC)
        elif not isinstance(value, datetime):
            value = datetime(value.year, value.month, value.day, tzinfo=UTC)
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except (ValueError, OverflowError, OSError, AttributeError, TypeError) as error:
        raise BadInput(f"{str(value)[:60]!r} is not a time: give ISO 8601, as 2026-05-31T12:00:00+00:00") from error


def to_micros(value: datetime | None) -> int | None:
    """Microseconds since 1970 of an aware instant, the form that stores keep."""
    return None if value is None else (value - _EPOCH) // _MICROSECOND


def from_micros(value: int | None) -> datetime | None:
    """The instant of `to_micros`."""
    return None if value is None else _EPOCH + value * _MICROSECOND
