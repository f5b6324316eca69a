"""Items and edges as JSON: in exports, and in what undoes an operation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any

from opensage_memory.errors import BadInput
from opensage_memory.item import EDGE_TYPES, KINDS, TRUSTS, Edge, Item, digest, instant
from opensage_memory.scope import check_scope

_TIMES = ("valid_from", "valid_to", "created_at", "retired_at")
_FIELDS = {field.name: field.default for field in fields(Item)}


def pack(item: Item) -> dict[str, Any]:
    """An item as JSON: what has its default is left out, times are ISO 8601."""
    packed: dict[str, Any] = {}
    for name, default in _FIELDS.items():
        value = getattr(item, name)
        if isinstance(value, datetime):
            packed[name] = value.isoformat()
        elif value != default and value not in ((), {}):
            packed[name] = list(value) if isinstance(value, tuple) else value
    return packed


def unpack(packed: Mapping[str, Any]) -> Item:
    """The item of `pack`.

    Raises:
        BadInput: it is not one: a field is missing, unknown or of another type, or the hash is of another text.
    """
    try:
        values: dict[str, Any] = {n: instant(value) if n in _TIMES else value for n, value in packed.items()}
        values["sources"] = tuple(map(str, values.get("sources", ())))
        item = Item(**values)
        whole = (
            all(isinstance(part, str) for part in (item.id, item.text, item.key, item.author))
            and isinstance(item.data, Mapping)
            and item.created_at is not None
            and item.kind in KINDS
            and item.trust in TRUSTS
            and 0 < len(item.id.encode()) <= 800
            and len(item.id) <= 200
        )
        if not whole or digest(item.text) != item.hash:
            raise BadInput(f"item {str(item.id)[:40]!r}: a field is wrong, or its hash is that of another text")
        check_scope(item.scope)
    except (TypeError, AttributeError, ValueError) as error:
        raise BadInput(f"not an item: {error}") from error
    return item


def pack_edge(edge: Edge) -> list[Any]:
    """An edge as JSON."""
    return [edge.source, edge.type, edge.target, edge.relation, edge.weight]


def unpack_edge(packed: Any) -> Edge:
    """The edge of `pack_edge`.

    Raises:
        BadInput: it is not one.
    """
    try:
        source, type, target, relation, weight = packed
        edge = Edge(str(source), str(type), str(target), str(relation), float(weight))
    except (TypeError, ValueError) as error:
        raise BadInput(f"not an edge: {str(packed)[:80]}") from error
    if edge.type not in EDGE_TYPES:
        raise BadInput(f"not an edge: {edge.type!r} is none of its types")
    return edge
