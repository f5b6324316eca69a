"""Shorthands for tests of the kit's memory."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from opensage.log.store import SessionStore
from opensage.memory import MemorySettings
from opensage.memory.place import MemoryPlace, memory_file
from opensage_memory import Item, Memory

KINDS = ("session", "run", "turn", "tool_call", "observation", "message", "summary", "procedure")


@contextlib.contextmanager
def place_of(folder: Path, store: str = "") -> Iterator[MemoryPlace]:
    with contextlib.closing(MemoryPlace(MemorySettings(store=store), folder)) as place:
        yield place


@contextlib.contextmanager
def memory_of(folder: Path, store: str = "") -> Iterator[Memory]:
    with place_of(folder, store) as place:
        yield place.memory


def items_of(folder: Path, *kinds: str, store: str = "") -> list[Item]:
    with memory_of(folder, store) as memory:
        found = memory.items("*", limit=100_000, kinds=kinds or None, ended=True, archived=True)
    return [item for _, item in found]


def graph_of(
    folder: Path, store: str = ""
) -> tuple[dict[tuple[str, str], tuple[object, ...]], Counter[tuple[str, ...]]]:
    """The execution graph without ids: what each item says by its kind and key, and the edges, names included."""
    with memory_of(folder, store) as memory:
        project = project_of(memory)
        items = [item for _, item in memory.items("*", limit=100_000, ended=True, archived=True)]
        with memory.store.read() as reader:
            edges = reader.edges([item.id for item in items], direction="out")
    named = {item.id: f"{item.kind} {item.key}" for item in items if item.kind != "fact"}
    told = {
        (item.kind, item.key): (item.scope.removeprefix(project), item.text, item.trust, item.author,
                                item.valid_from, item.sources, dict(item.data), item.seen)
        for item in items if item.kind in KINDS
    }  # fmt: skip
    ends = Counter((named[e.source], e.type, named[e.target]) for e in edges if e.source in named and e.target in named)
    return told, ends


def project_of(memory: Memory) -> str:
    with memory.store.read() as reader:
        return reader.meta("project") or ""


def sessions_of(folder: Path) -> SessionStore:
    return SessionStore(folder / ".opensage" / "sessions")


__all__ = ["graph_of", "items_of", "memory_file", "memory_of", "place_of", "sessions_of"]
