"""The strongest edges of items, the same ones in every store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from opensage_memory.item import Edge


def strongest(edges: list[Edge], ids: Iterable[str], limit: int) -> list[Edge]:
    """At most `limit` edges of each item."""
    ordered = sorted(edges, key=lambda edge: (-edge.weight, edge.type, edge.target, edge.source))
    wanted, taken, kept = set(ids), Counter[str](), list[Edge]()
    for edge in ordered:
        ends = [end for end in dict.fromkeys((edge.source, edge.target)) if end in wanted and taken[end] < limit]
        if ends:
            taken.update(ends)
            kept.append(edge)
    return kept
