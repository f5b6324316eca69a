"""What a search gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from opensage_memory.item import Item


@dataclass(frozen=True, slots=True)
class Hit:
    """An item that was found.

    Attributes:
        item: the item.
        score: higher is better; comparable within one search only.
        parts: what the score is made of, by name; filled on `explain`.
        path: how the graph led to it, as `id -TYPE-> id`; filled on `explain`, empty for what words or vectors found.
    """

    item: Item
    score: float
    parts: Mapping[str, float] = field(default_factory=dict)
    path: tuple[str, ...] = ()
