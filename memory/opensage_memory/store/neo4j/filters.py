"""What a view shows, as a condition of Cypher. Values are parameters, always; their names are ours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from opensage_memory.item import to_micros
from opensage_memory.scope import EVERYTHING, View

CHUNK = 500
"""Rows in one query."""
Thing = TypeVar("Thing")


def shown(view: View | None, n: str = "n") -> tuple[str, dict[str, Any]]:
    """Condition for the node `n` and its parameters, the same for every `n`; always true without a view."""
    if view is None:
        return "true", {}
    clauses: list[str] = []
    values: dict[str, Any] = {}
    _scopes(view, n, clauses, values)
    for name, wanted in (("kind", view.kinds), ("trust", view.trusts)):
        if wanted is not None:
            clauses.append(f"{n}.{name} IN $view_{name}")
            values[f"view_{name}"] = list(wanted)
    if not view.retired:
        clauses.append(f"{n}.retired_at IS NULL")
    if not view.archived:
        clauses.append(f"NOT {n}.archived")
    if view.as_of is not None:
        clauses.append(f"({n}.valid_from IS NULL OR {n}.valid_from <= $view_at)")
    if view.as_of is not None or not view.ended:
        clauses.append(f"({n}.valid_to IS NULL OR {n}.valid_to > $view_at)")
        values["view_at"] = to_micros(view.as_of or view.now)
    return " AND ".join(clauses) or "true", values


def _scopes(view: View, n: str, clauses: list[str], values: dict[str, Any]) -> None:
    if EVERYTHING in view.scopes:
        return
    below = [scope[:-1] for scope in view.scopes if scope.endswith("/*")]
    values["view_scopes"] = [scope.removesuffix("/*") for scope in view.scopes]
    parts = [f"{n}.scope IN $view_scopes"]
    for place, start in enumerate(below):
        parts.append(f"{n}.scope STARTS WITH $view_below_{place}")
        values[f"view_below_{place}"] = start
    clauses.append(f"({' OR '.join(parts)})")


def chunks(values: Iterable[Thing], size: int = CHUNK) -> Iterator[list[Thing]]:
    """The values in lists of at most `size`."""
    rest = iter(values)
    while part := list(islice(rest, size)):
        yield part
