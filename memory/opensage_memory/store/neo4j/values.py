"""What goes over the wire: texts that every server keeps verbatim, items as properties, names safe in a query."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any

from opensage_memory.item import KINDS, Item, digest, from_micros, to_micros
from opensage_memory.store.base import Row

Properties = dict[str, Any]

_MARK = "\ue5a6"
# Half a surrogate pair is no text for Bolt, and ArcadeDB takes a value that begins with $ for the parameter of that
# name: such a character travels as the mark and its number, and so does the mark itself.
_ODD = re.compile(f"^[$]|[\ud800-\udfff{_MARK}]")
_ESCAPED = re.compile(f"{_MARK}([0-9a-f]{{4}})")

_FIELDS = (
    *("id", "scope", "kind", "text", "hash", "key", "valid_from", "valid_to", "created_at", "retired_at", "archived"),
    *("stale", "sources", "trust", "author", "seen", "uses", "data"),
)
ITEM = ", ".join(f"n.{name}" for name in _FIELDS)
"""What a query returns of the node `n`, for `to_item`."""

LABELS = {kind: kind.title().replace("_", "") for kind in KINDS}
"""The label of each kind, beside `Item`."""


def pack(value: Any) -> Any:
    """A parameter with every text in it as Bolt can carry it; `unpack` gives it back."""
    if isinstance(value, str):
        plain = value.isascii() and not value.startswith("$")
        return value if plain else _ODD.sub(lambda odd: f"{_MARK}{ord(odd[0]):04x}", value)
    if isinstance(value, dict):
        return {name: pack(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return list(value) if value and isinstance(value[0], float) else [pack(part) for part in value]
    return value


def unpack(value: Any) -> Any:
    """What `pack` was given."""
    if isinstance(value, str):
        return value if value.isascii() else _ESCAPED.sub(lambda odd: chr(int(odd[1], 16)), value)
    if isinstance(value, list):
        return value if value and isinstance(value[0], float) else [unpack(part) for part in value]
    return value


def to_properties(row: Row) -> Properties:
    """Every property of an item's node but its number; None for those that it must not have."""
    item = row.item
    found: Properties = {name: getattr(item, name) for name in _FIELDS}
    for name in ("valid_from", "valid_to", "created_at", "retired_at"):
        found[name] = to_micros(found[name])
    found["sources"] = list(item.sources)
    found["data"] = json.dumps(item.data, sort_keys=True)
    found["tokens"] = row.tokens
    found["key_hash"] = key_hash(item.key)
    return found


def key_hash(key: str) -> str | None:
    """What a key is looked up by: an index takes no property of any length."""
    return digest(key) if key else None


def to_item(row: Sequence[Any]) -> Item:
    """The item of `ITEM`."""
    found = dict(zip(_FIELDS, row, strict=False))
    for name in ("valid_from", "valid_to", "created_at", "retired_at"):
        found[name] = from_micros(found[name])
    found["sources"] = tuple(found["sources"] or ())
    found["data"] = json.loads(found["data"])
    return Item(**found)


def vector_name(model: str, dimension: int) -> str:
    """The property and index of vectors, for each model and dimension another: letters, digits and `_` only."""
    readable = re.sub("[^a-z0-9]+", "_", model.lower()).strip("_")[:40]
    return f"vector_{readable}_{hashlib.sha256(pack(model).encode()).hexdigest()[:8]}_{dimension}"


def literally(terms: Sequence[str]) -> str:
    """The Lucene query that finds any of these tokens, each of them literal text."""
    return " OR ".join('"' + re.sub(r'(["\\])', r"\\\1", term) + '"' for term in terms)
