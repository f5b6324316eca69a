"""Items as rows of the table, and back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from opensage_memory.item import Edge, Item, from_micros, to_micros
from opensage_memory.store.base import Row

COLUMNS = (
    "id, scope, kind, text, hash, key, valid_from, valid_to, created_at, retired_at, archived, stale, sources, trust, "
    "author, seen, uses, data"
)
SELECT = ", ".join(f"i.{name.strip()}" for name in COLUMNS.split(","))


def bind(text: str) -> str | bytes:
    """A text for SQLite: half a surrogate pair is no UTF-8 text, so such a text is kept as bytes."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def unbind(value: str | bytes) -> str:
    """The text of `bind`."""
    return value if isinstance(value, str) else value.decode("utf-8", "surrogatepass")


def to_row(row: Row) -> tuple[Any, ...]:
    """Values of COLUMNS and the tokens."""
    item = row.item
    return (
        item.id,
        item.scope,
        item.kind,
        bind(item.text),
        bytes.fromhex(item.hash),
        bind(item.key),
        to_micros(item.valid_from),
        to_micros(item.valid_to),
        to_micros(item.created_at),
        to_micros(item.retired_at),
        item.archived,
        item.stale,
        json.dumps(item.sources) if item.sources else "[]",
        item.trust,
        bind(item.author),
        item.seen,
        item.uses,
        json.dumps(item.data, sort_keys=True) if item.data else "{}",
        row.tokens,
    )


def to_item(row: Sequence[Any]) -> Item:
    """The item of COLUMNS."""
    created = from_micros(row[8])
    assert created is not None  # the column is NOT NULL
    return Item(
        row[0],
        row[1],
        row[2],
        unbind(row[3]),
        row[4].hex(),
        unbind(row[5]),
        from_micros(row[6]),
        from_micros(row[7]),
        created,
        from_micros(row[9]),
        bool(row[10]),
        bool(row[11]),
        () if row[12] == "[]" else tuple(json.loads(row[12])),
        row[13],
        unbind(row[14]),
        row[15],
        row[16],
        {} if row[17] == "{}" else json.loads(row[17]),
    )


def to_edge(row: Sequence[Any]) -> Edge:
    """The edge of source id, type, target id, relation, weight."""
    return Edge(row[0], row[1], row[2], unbind(row[3]), row[4])
