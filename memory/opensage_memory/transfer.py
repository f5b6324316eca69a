"""Takes a memory out of its store and into another: export, import, migrate."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opensage_memory.errors import BadInput
from opensage_memory.item import Edge, Item, instant, now
from opensage_memory.scope import EVERYTHING, Scopes, View, check_scope, check_scopes
from opensage_memory.store.base import Reader, Row, Store, Tombstone, Writer
from opensage_memory.store.codec import pack, pack_edge, unpack, unpack_edge
from opensage_memory.text import index_text
from opensage_memory.writing import NAMED, fold

FORMAT = 1
BATCH = 500
MOST_OPERATIONS = 100_000
LONGEST_LINE = 80 << 20
"""Characters of a line: an item has at most 64 MiB of text."""
SETTINGS = ("embedder", "project", "forgotten")
"""Settings of a store that go with a migration, beside those of its relations."""
Progress = Callable[[int], None]


@dataclass(slots=True)
class Imported:
    """What an import came to.

    Attributes:
        items: new items.
        kept: items that were there already, under their own or another id.
        forgotten: items that had been forgotten here, and stay so.
        edges: edges stored.
        tombstones: tombstones stored.
        bad: what was wrong with lines that were left out, by their number.
    """

    items: int = 0
    kept: int = 0
    forgotten: int = 0
    edges: int = 0
    tombstones: int = 0
    bad: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Migrated:
    """What a migration came to.

    Attributes:
        items: items copied.
        edges: edges copied.
        vectors: vectors copied.
        digest: SHA-256 over all items and edges as they are now in the target, the same as in the source.
    """

    items: int
    edges: int
    vectors: int
    digest: str


# --- export ----------------------------------------------------------------------------------------------------


def export(store: Store, scope: Scopes = EVERYTHING, progress: Progress | None = None) -> Iterator[str]:
    """A memory as JSON Lines: a head, then items, edges and tombstones; vectors are left out.

    The lines are of one consistent state.
    """
    view = _everything(scope)
    with store.read() as reader:
        yield _json({"opensage_memory": FORMAT})
        done = 0
        for page in _pages(reader, view):
            yield from (_json({"item": pack(item)}) for item in page)
            done += len(page)
            if progress is not None:
                progress(done)
        for page in _pages(reader, view):
            yield from (_json({"edge": pack_edge(edge)}) for edge in _edges(reader, page, view))
        for stone in _tombstones(reader, view):
            yield _json({"tombstone": _pack_stone(stone)})


def node_link(store: Store, scope: Scopes = EVERYTHING) -> dict[str, Any]:
    """A memory as a directed multigraph in node-link form: `networkx.node_link_graph(data, edges="edges")`."""
    view = _everything(scope)
    nodes: list[dict[str, Any]] = []
    edges: list[dict[str, Any]] = []
    with store.read() as reader:
        for page in _pages(reader, view):
            nodes += [pack(item) for item in page]
            for edge in _edges(reader, page, view):
                data = {"source": edge.source, "target": edge.target, "type": edge.type, "weight": edge.weight}
                edges.append({**data, "relation": edge.relation, "key": f"{edge.type} {edge.relation}".strip()})
    return {"directed": True, "multigraph": True, "graph": {}, "nodes": nodes, "edges": edges}


def _everything(scope: Scopes) -> View:
    return View(check_scopes(scope), now()).everything()


def _pages(reader: Reader, view: View) -> Iterator[list[Item]]:
    after = 0
    while found := reader.scan(view, after=after, limit=BATCH):
        yield [item for _, item in found]
        after = found[-1][0]


def _edges(reader: Reader, page: Sequence[Item], view: View) -> list[Edge]:
    return reader.edges([item.id for item in page], view, direction="out")


def _tombstones(reader: Reader, view: View) -> Iterator[Tombstone]:
    """Of the forgettings that the history knows."""
    from opensage_memory.scope import covers

    for done in reader.operations(MOST_OPERATIONS):
        for id in done.touched if done.name == "forget" else ():
            stone = reader.tombstone(id)
            if stone is not None and covers(view.scopes, stone.scope):
                yield stone


def _pack_stone(stone: Tombstone) -> dict[str, str]:
    at = stone.at.isoformat()
    return {"id": stone.id, "scope": stone.scope, "kind": stone.kind, "at": at, "operation": stone.operation}


def _json(data: Mapping[str, Any]) -> str:
    return json.dumps(data, ensure_ascii=True, separators=(",", ":"))


# --- import ----------------------------------------------------------------------------------------------------


def import_lines(
    store: Store, lines: Callable[[], Iterable[str]], *, skip_bad: bool = False, progress: Progress | None = None
) -> Imported:
    """Take in what `export` wrote: all of it, or nothing. A second time changes nothing.

    What is here already stays as it is: an item with the same id, or (named) the same kind, scope and key, or the same
    text; what was forgotten here stays forgotten.

    Args:
        store: where to.
        lines: gives the lines; called twice, to check them all before the first is stored.
        skip_bad: leave bad lines out instead of refusing the file.
        progress: told how many lines are done.

    Raises:
        BadInput: a line is bad; it says which, and why. Nothing was stored.
    """
    done = Imported()
    ids = _checked(lines(), done, skip_bad)
    with store.write() as writer:
        taking = _Taking(writer, done, ids)
        for number, line in enumerate(lines(), 1):
            if line.strip() and number not in done.bad:
                taking.take(parse(line))
            if progress is not None and number % BATCH == 0:
                progress(number)
        taking.flush()
    return done


def parse(line: str) -> Item | Edge | Tombstone | None:
    """What a line of an export says; None for its head.

    Raises:
        BadInput: it is no such line.
    """
    if len(line) > LONGEST_LINE:
        raise BadInput("the line is too long")
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"not JSON: {error}") from error
    if not isinstance(data, dict):
        raise BadInput("not a line of an export: an object is wanted")
    if "opensage_memory" in data:
        if data["opensage_memory"] != FORMAT:
            raise BadInput(f"format {str(data['opensage_memory'])[:20]} is not known: use a newer version to import it")
        return None
    if isinstance(item := data.get("item"), dict):
        return unpack(item)
    if "edge" in data:
        return unpack_edge(data["edge"])
    if isinstance(stone := data.get("tombstone"), dict):
        return _unpack_stone(stone)
    raise BadInput("not a line of an export: it has no item, edge or tombstone")


def _unpack_stone(data: Mapping[str, Any]) -> Tombstone:
    texts = [data.get(name) for name in ("id", "scope", "kind", "operation")]
    at = instant(data.get("at"))
    if at is None or not all(isinstance(text, str) for text in texts):
        raise BadInput("not a tombstone: id, scope, kind, at or operation is wrong")
    id, scope, kind, operation = map(str, texts)
    return Tombstone(id, check_scope(scope), kind, at, operation)


def _checked(lines: Iterable[str], done: Imported, skip_bad: bool) -> set[str]:
    """Check all lines; the ids of their items."""
    ids: set[str] = set()
    for number, line in enumerate(lines, 1):
        try:
            found = parse(line) if line.strip() else None
        except BadInput as error:
            if not skip_bad:
                raise BadInput(
                    f"line {number}: {error}; nothing was imported (--skip-bad leaves such lines out)"
                ) from error
            done.bad[number] = str(error)
        else:
            ids |= {found.id} if isinstance(found, Item) else set()
    return ids


class _Taking:
    """Stores what an import finds, in one transaction."""

    def __init__(self, writer: Writer, done: Imported, ids: set[str]) -> None:
        self._writer, self._done, self._ids = writer, done, ids
        self._items: list[Item] = []
        self._edges: list[Edge] = []
        self._other: dict[str, str] = {}
        self._fresh: set[str] = set()

    def take(self, found: Item | Edge | Tombstone | None) -> None:
        """Take one in."""
        if isinstance(found, Item):
            self._items.append(found)
            if len(self._items) >= BATCH:
                self._put_items()
        elif isinstance(found, Edge):
            self._edges.append(found)
            if len(self._edges) >= BATCH:
                self._put_edges()
        elif found is not None:
            self._bury(found)

    def flush(self) -> None:
        """Store the rest."""
        self._put_items()
        self._put_edges()

    def _put_items(self) -> None:
        there = self._writer.get(item.id for item in self._items)
        new: dict[str, Item] = {}
        for item in self._items:
            if item.id in there or item.id in new:
                self._done.kept += item.id not in self._fresh
            elif self._writer.tombstone(item.id) is not None:
                self._done.forgotten += 1
            elif (same := self._same(item)) is not None:
                self._other[item.id] = same
                self._done.kept += 1
            else:
                new[item.id] = item
        self._writer.put([Row(item, index_text(item.text)) for item in new.values()])
        self._fresh |= new.keys()
        self._done.items += len(new)
        self._items = []

    def _same(self, item: Item) -> str | None:
        """Id of an item that was here before and is this one."""
        if item.kind in NAMED and item.key:
            view = View((item.scope,), now(), kinds=(item.kind,), ended=True, archived=True)
            found = self._writer.find(view, item.key, 1)
            old = found[0] if found else None
        elif item.retired_at is None and item.valid_to is None:
            old = self._writer.same(item.scope, item.kind, item.hash)
        else:
            old = None
        return None if old is None or old.id in self._ids else old.id

    def _put_edges(self) -> None:
        self._put_items()
        moved = [
            Edge(self._here(edge.source), edge.type, self._here(edge.target), edge.relation, edge.weight)
            for edge in self._edges
        ]
        ends = self._writer.get({end for edge in moved for end in (edge.source, edge.target)})
        sound = [edge for edge in moved if edge.source in ends and edge.target in ends]
        there = {edge.identity for edge in self._writer.edges({edge.source for edge in sound}, direction="out")}
        fresh = [edge for edge in sound if edge.identity not in there]
        self._writer.put_edges(fresh)
        self._done.edges += len({edge.identity for edge in fresh})
        self._edges = []

    def _here(self, id: str) -> str:
        return self._other.get(id, id)

    def _bury(self, stone: Tombstone) -> None:
        self._put_items()
        if self._writer.tombstone(stone.id) is None and not self._writer.get([stone.id]):
            self._writer.bury([stone])
            self._done.tombstones += 1


# --- migrate ----------------------------------------------------------------------------------------------------


def migrate(source: Store, target: Store, progress: Progress | None = None) -> Migrated:
    """Copy everything from one store to another, in batches; can be broken off and done again.

    Raises:
        BadInput: what is in the target afterwards is not what is in the source.
    """
    view = _everything(EVERYTHING)
    items = edges = vectors = 0
    relations: set[str] = set()
    with source.read() as reader:
        models = list(reader.counts().vectors)
        for page in _pages(reader, view):
            relations |= {str(item.data["relation"]) for item in page if "relation" in item.data}
            vectors += _copy(reader, target, page, models)
            items += len(page)
            if progress is not None:
                progress(items)
        for page in _pages(reader, view):
            found = _edges(reader, page, view)
            with target.write() as writer:
                writer.put_edges(found)
            edges += len(found)
        _copy_history(reader, target, view, relations)
        wanted = digest_of(reader, view)
        with target.read() as copied:
            got = _digest_of_same(reader, copied, view)
    if wanted != got:
        raise BadInput(f"{target.name} does not hold what {source.name} does after the copy: do not use it, try again")
    return Migrated(items, edges, vectors, wanted)


def _copy(reader: Reader, target: Store, page: Sequence[Item], models: Sequence[str]) -> int:
    ids = [item.id for item in page]
    tokens, count = reader.tokens(ids), 0
    with target.write() as writer:
        writer.put([Row(item, tokens.get(item.id, "")) for item in page])
        for model in models:
            found = reader.vectors(model, ids)
            writer.put_vectors(model, found)
            count += len(found)
    return count


def _copy_history(reader: Reader, target: Store, view: View, relations: Iterable[str]) -> None:
    names = (*SETTINGS, *(f"relation:{fold(name)[:400]}" for name in relations))
    with target.write() as writer:
        writer.bury(list(_tombstones(reader, view)))
        for done in reversed(reader.operations(MOST_OPERATIONS)):
            writer.log(done)
        for name in names:
            if (value := reader.meta(name)) is not None:
                writer.set_meta(name, value)


def digest_of(reader: Reader, view: View) -> str:
    """SHA-256 over the items of a view and the edges among them, in the order in which the items came."""
    return _digest(reader, reader, view)


def _digest_of_same(reader: Reader, other: Reader, view: View) -> str:
    """The digest of what another store holds of the items of this one."""
    return _digest(reader, other, view)


def _digest(order: Reader, reader: Reader, view: View) -> str:
    hashed = hashlib.sha256()
    for page in _pages(order, view):
        ids = [item.id for item in page]
        there = reader.get(ids)
        for id in ids:
            hashed.update((_json(pack(there[id])) if id in there else f"no {id}").encode())
        for edge in sorted(reader.edges(ids, direction="out"), key=lambda edge: edge.identity):
            hashed.update(_json({"edge": pack_edge(edge)}).encode())
    return hashed.hexdigest()
