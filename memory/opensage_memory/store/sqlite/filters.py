"""What a view shows, as a condition of SQL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from opensage_memory.item import to_micros
from opensage_memory.scope import EVERYTHING, View
from opensage_memory.store.sqlite.rows import bind

Value = str | int | float | bytes | None
CHUNK = 500
"""Values in one IN list: under the lowest limit of SQLite (999)."""


def shown(view: View | None, item: str = "i", *, seek: bool = False) -> tuple[str, list[Value]]:
    """Condition and parameters for the row `item`; an always true one without a view.

    Rows that are found by something else must not be looked for by their scope, which may hold nearly all: only with
    `seek` may SQLite do so.
    """
    if view is None:
        return "1", []
    clauses: list[str] = []
    values: list[Value] = []
    _scopes(view, f"{item}.scope" if seek else f"+{item}.scope", clauses, values)
    for column, wanted in (("kind", view.kinds), ("trust", view.trusts)):
        if wanted is not None:
            clauses.append(f"{item}.{column} IN ({marks(wanted)})")
            values += wanted
    if not view.retired:
        clauses.append(f"{item}.retired_at IS NULL")
    if not view.archived:
        clauses.append(f"NOT {item}.archived")
    if view.as_of is not None:
        clauses.append(f"({item}.valid_from IS NULL OR {item}.valid_from <= ?)")
        clauses.append(f"({item}.valid_to IS NULL OR {item}.valid_to > ?)")
        values += [to_micros(view.as_of)] * 2
    elif not view.ended:
        clauses.append(f"({item}.valid_to IS NULL OR {item}.valid_to > ?)")
        values.append(to_micros(view.now))
    return " AND ".join(clauses) or "1", values


def _scopes(view: View, scope: str, clauses: list[str], values: list[Value]) -> None:
    if EVERYTHING in view.scopes:
        return
    parts: list[str] = []
    exact = [name for name in view.scopes if not name.endswith("/*")]
    if exact:
        parts.append(f"{scope} IN ({marks(exact)})")
        values += exact
    for name in view.scopes:
        if name.endswith("/*"):
            # A range: LIKE would take % and _ of a name for its own signs. "0" is the character after "/".
            parts.append(f"({scope} = ? OR ({scope} >= ? AND {scope} < ?))")
            values += [name[:-2], name[:-1], name[:-2] + "0"]
    clauses.append(f"({' OR '.join(parts)})")


def marks(values: Iterable[object]) -> str:
    """A question mark for each value."""
    return ",".join("?" for _ in values)


def chunks(values: Iterable[Any], size: int = CHUNK) -> Iterator[list[Any]]:
    """The values in lists of at most `size`, as SQLite takes them."""
    rest = (bind(value) if isinstance(value, str) else value for value in values)
    while part := list(islice(rest, size)):
        yield part
