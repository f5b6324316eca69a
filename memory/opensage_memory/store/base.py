"""The protocol of stores: primitives in one transaction. What they mean is decided above, once for all stores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from opensage_memory.item import Edge, Item
from opensage_memory.scope import View

Vector = Sequence[float]


@dataclass(frozen=True, slots=True)
class Row:
    """An item to store with what is searched for it.

    Attributes:
        item: the item.
        tokens: its tokens joined by spaces (`text.index_text`), empty for nothing to search.
    """

    item: Item
    tokens: str


@dataclass(frozen=True, slots=True)
class Operation:
    """One change as the history keeps it.

    Attributes:
        id: 32 hexadecimal digits.
        name: what was done: add, supersede, merge, forget, publish, consolidate, ...
        scope: where.
        at: when.
        touched: ids of the items whose rows or edges changed.
        undo: JSON that undoes it; empty when its time is over.
    """

    id: str
    name: str
    scope: str
    at: datetime
    touched: tuple[str, ...]
    undo: str = ""


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What is left of a forgotten item: no content.

    Attributes:
        id: the item's.
        scope: where it was.
        kind: what it was.
        at: when it was forgotten.
        operation: by which operation.
    """

    id: str
    scope: str
    kind: str
    at: datetime
    operation: str


@dataclass(frozen=True, slots=True)
class Task:
    """Work that waits: an item to embed or to enrich.

    Attributes:
        item: its id.
        work: `embed` or `enrich`.
        tries: how many failed.
        error: what the last one said.
    """

    item: str
    work: str
    tries: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Counts:
    """How much there is, each counted from its own index, so that a drift shows.

    Attributes:
        items: rows.
        indexed: rows in the full-text index.
        edges: edges.
        dangling: edges with an end that is not there.
        vectors: by model, how many.
        orphans: vectors without an item.
        tombstones: forgotten items.
        kinds: rows by kind.
    """

    items: int
    indexed: int
    edges: int
    dangling: int
    vectors: Mapping[str, int] = field(default_factory=dict)
    orphans: int = 0
    tombstones: int = 0
    kinds: Mapping[str, int] = field(default_factory=dict)


RING = 40
"""Items, the best ones, whose neighbours are looked at too."""


class Outline(NamedTuple):
    """What a search looks at of an item.

    Attributes:
        id: its id.
        tokens: as they are indexed.
        author: who wrote it.
        at: microseconds since 1970 at which it was said or began to be true, None for always.
        created: microseconds at which it became known.
        uses: how many times it was recalled.
        previous: id of the item before it in its conversation, empty for none (as the following).
        next: id of the item after it.
        asked: id of the question that it answers.
        session: id of the session it is part of.
    """

    id: str
    tokens: str
    author: str
    at: int | None
    created: int
    uses: int
    previous: str = ""
    next: str = ""
    asked: str = ""
    session: str = ""


class Reader(Protocol):
    """Reads of one consistent state."""

    def get(self, ids: Iterable[str], view: View | None = None) -> dict[str, Item]:
        """The items of these ids that the view shows (None: all), in the order of `ids`."""

    def scan(self, view: View, *, after: int = 0, limit: int = 1000) -> list[tuple[int, Item]]:
        """Items in the order in which they were first stored, with their number; go on with the last number."""

    def find(self, view: View, key: str, limit: int = 1000) -> list[Item]:
        """Items with this key, in the order in which they were first stored."""

    def same(self, scope: str, kind: str, hash: str) -> Item | None:
        """The live item of this scope, kind and content hash: true the longest, then the first stored."""

    def lexical(self, terms: Sequence[str], view: View, k: int) -> list[tuple[str, float]]:
        """Ids of the k items that match one of the tokens best, by BM25, best first; higher is better.

        Items outside the view do not count among the k.
        """

    def nearest(self, model: str, vector: Vector, view: View, k: int) -> list[tuple[str, float]]:
        """Ids of the k items with the highest cosine, best first."""

    def edges(
        self,
        ids: Iterable[str],
        view: View | None = None,
        *,
        types: Sequence[str] | None = None,
        direction: str = "both",
        limit: int | None = None,
    ) -> list[Edge]:
        """Edges that start at ("out"), end at ("in") or touch ("both") these items.

        Both ends must be shown by the view (None: all). `limit` is how many at most of each item, strongest first.
        """

    def hop(self, ids: Iterable[str], view: View, hops: int = 2, limit: int = 200) -> dict[str, int]:
        """Items within this many edges with their distance (the given: 0), nearest first; each step inside the view."""

    def tokens(self, ids: Iterable[str]) -> dict[str, str]:
        """What is indexed for these items."""

    def outlines(self, ids: Iterable[str], view: View) -> list[Outline]:
        """What a search looks at of those items that the view shows, in the order of `ids`; then of their neighbours.

        Neighbours are what `previous`, `next` and `asked` of the first `RING` name, or what names these so.
        """

    def size(self) -> int:
        """How many items there are, or were at most: what the rarity of a word is told from."""

    def frequencies(self, terms: Iterable[str]) -> dict[str, int]:
        """In how many items each token occurs."""

    def vectors(self, model: str, ids: Iterable[str]) -> dict[str, list[float]]:
        """The vectors of these items."""

    def without_vector(self, model: str, after: int = 0, limit: int = 256) -> list[tuple[int, Item]]:
        """Live items that have text and no vector of this model, with their number."""

    def counts(self, view: View | None = None) -> Counts:
        """How much there is; with a view, items, edges and kinds of it only."""

    def scopes(self) -> dict[str, int]:
        """Every scope and how many items it has."""

    def meta(self, name: str) -> str | None:
        """A setting of the store."""

    def operations(self, limit: int = 100, touching: str | None = None) -> list[Operation]:
        """The last operations, last first; with `touching`, of the item with this id."""

    def operation(self, id: str) -> Operation | None:
        """One operation."""

    def tombstone(self, id: str) -> Tombstone | None:
        """What is left of a forgotten item."""

    def tasks(self, work: str, limit: int = 100) -> list[Task]:
        """Work that waits, fewest tries first."""


class Writer(Reader, Protocol):
    """Changes of one transaction: all of them are kept, or none. Reads see what it wrote."""

    def put(self, rows: Sequence[Row]) -> None:
        """Store or replace items by id; index and place in the order follow."""

    def use(self, ids: Iterable[str]) -> None:
        """Count a recall of these items."""

    def put_edges(self, edges: Sequence[Edge]) -> None:
        """Store or replace edges. An edge whose end is not there is left out."""

    def put_vectors(self, model: str, vectors: Mapping[str, Vector]) -> None:
        """Store or replace vectors of items; of ids that are not there: left out."""

    def remove(self, ids: Iterable[str]) -> None:
        """Remove items with their index entries, vectors, edges and tasks."""

    def remove_edges(self, edges: Iterable[Edge]) -> None:
        """Remove edges."""

    def remove_vectors(self, model: str) -> None:
        """Remove all vectors of a model."""

    def set_meta(self, name: str, value: str | None) -> None:
        """Set or (None) remove a setting."""

    def log(self, operation: Operation) -> None:
        """Keep or replace an operation."""

    def forget_undo(self, before: datetime) -> int:
        """Empty `undo` of operations older than this; returns of how many."""

    def bury(self, stones: Sequence[Tombstone]) -> None:
        """Keep tombstones."""

    def unbury(self, ids: Iterable[str]) -> None:
        """Remove tombstones: the items are back."""

    def put_tasks(self, tasks: Sequence[Task]) -> None:
        """Store or replace tasks, one for each item and work."""

    def remove_tasks(self, work: str, ids: Iterable[str]) -> None:
        """Remove tasks."""


class Store(Protocol):
    """A place for a graph. May be used by several threads, and by several processes at once."""

    name: str
    """What and where it is, for messages: `sqlite:PATH`."""

    writable: bool
    """False when it can only be read."""

    def read(self) -> AbstractContextManager[Reader]:
        """Read one state."""

    def write(self) -> AbstractContextManager[Writer]:
        """Change it in one transaction; an exception leaves everything as it was. Writers wait for each other.

        Raises:
            ReadOnly: it can only be read.
            StoreUnavailable: another writer holds it for too long, or the server is away.
        """

    def check(self) -> list[str]:
        """What is wrong with it, a line each; empty when nothing is."""

    def vacuum(self) -> None:
        """Give back space, so that no byte of what was removed is left in its files."""

    def stats(self) -> dict[str, Any]:
        """Facts about it: versions, path, bytes."""

    def close(self) -> None:
        """Let go of it. Safe to call twice."""
