"""The graph memory of OpenSage: what was done, what is known, and how it came to be known.

`Memory` is the way in. Nothing heavy is imported before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opensage_memory.errors import GraphMemoryError
    from opensage_memory.item import Edge, Item
    from opensage_memory.memory import Memory
    from opensage_memory.retrieval.hit import Hit
    from opensage_memory.writing import New

_PLACES = {
    "Edge": "item",
    "GraphMemoryError": "errors",
    "Hit": "retrieval.hit",
    "Item": "item",
    "Memory": "memory",
    "New": "writing",
}

__all__ = ["Edge", "GraphMemoryError", "Hit", "Item", "Memory", "New"]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'opensage_memory' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"opensage_memory.{_PLACES[name]}"), name)
