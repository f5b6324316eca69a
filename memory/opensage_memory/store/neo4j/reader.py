"""Reads of the graph over Bolt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from opensage_memory.item import EDGE_TYPES, Edge, Item, from_micros
from opensage_memory.scope import View
from opensage_memory.store.base import RING, Counts, Operation, Outline, Task, Tombstone, Vector
from opensage_memory.store.neo4j.connection import Run, pairs
from opensage_memory.store.neo4j.dialect import Dialect
from opensage_memory.store.neo4j.filters import chunks, shown
from opensage_memory.store.neo4j.search import ByVector, by_text
from opensage_memory.store.neo4j.values import ITEM, key_hash, literally, to_item, vector_name
from opensage_memory.store.strongest import strongest

_OPERATION = "o.id, o.name, o.scope, o.at, o.touched, o.undo"


class Neo4jReader:
    """`Reader` over a way to run queries. Each read sees what is committed when it begins."""

    def __init__(self, run: Run, dialect: Dialect) -> None:
        self.run, self.dialect = run, dialect

    def get(self, ids: Iterable[str], view: View | None = None) -> dict[str, Item]:
        """See `Reader`."""
        wanted = list(dict.fromkeys(ids))
        condition, values = shown(view)
        found: dict[str, Item] = {}
        for part in chunks(wanted):
            query = f"UNWIND $ids AS id MATCH (n:Item {{id: id}}) WHERE {condition} RETURN {ITEM}"
            found |= {row[0]: to_item(row) for row in self.run(query, ids=part, **values)}
        return {id: found[id] for id in wanted if id in found}

    def scan(self, view: View, *, after: int = 0, limit: int = 1000) -> list[tuple[int, Item]]:
        """See `Reader`."""
        return self._numbered(*shown(view), after, limit)

    def _numbered(self, condition: str, values: dict[str, Any], after: int, limit: int) -> list[tuple[int, Item]]:
        query = f"MATCH (n:Item) WHERE n.seq > $after AND {condition} RETURN {ITEM}, n.seq ORDER BY n.seq LIMIT $limit"
        return [(row[-1], to_item(row)) for row in self.run(query, after=after, limit=limit, **values)]

    def find(self, view: View, key: str, limit: int = 1000) -> list[Item]:
        """See `Reader`."""
        if not key:
            return []
        condition, values = shown(view)
        query = f"MATCH (n:Item) WHERE n.key_hash = $hash AND {condition} RETURN {ITEM} ORDER BY n.seq LIMIT $limit"
        return [to_item(row) for row in self.run(query, hash=key_hash(key), limit=limit, **values)]

    def same(self, scope: str, kind: str, hash: str) -> Item | None:
        """See `Reader`."""
        query = (
            "MATCH (n:Item) WHERE n.hash = $hash AND n.scope = $scope AND n.kind = $kind AND n.retired_at IS NULL "
            f"RETURN {ITEM} ORDER BY coalesce(n.valid_to, 9223372036854775807) DESC, n.seq LIMIT 1"
        )
        rows = self.run(query, hash=hash, scope=scope, kind=kind)
        return to_item(rows[0]) if rows else None

    def lexical(self, terms: Sequence[str], view: View, k: int) -> list[tuple[str, float]]:
        """See `Reader`."""
        return by_text(self.run, self.dialect, terms, view, k)

    def nearest(self, model: str, vector: Vector, view: View, k: int) -> list[tuple[str, float]]:
        """See `Reader`."""
        return self._by_vector(model, vector, view, k).best()

    def _by_vector(self, model: str, vector: Vector, view: View, k: int) -> ByVector:
        wanted = [float(value) for value in vector]
        return ByVector(self.run, self.dialect, vector_name(model, len(wanted)), wanted, view, k)

    def edges(
        self,
        ids: Iterable[str],
        view: View | None = None,
        *,
        types: Sequence[str] | None = None,
        direction: str = "both",
        limit: int | None = None,
    ) -> list[Edge]:
        """See `Reader`."""
        wanted = list(dict.fromkeys(ids))
        names = EDGE_TYPES if types is None else [name for name in EDGE_TYPES if name in types]
        found: dict[tuple[str, str, str, str], Edge] = {}
        for way in ("out", "in"):
            if names and direction in ("both", way):
                for part in chunks(wanted):
                    for edge in self._edges(part, view, "|".join(names), way, limit):
                        found[edge.identity] = edge
        edges = list(found.values())
        return edges if limit is None else strongest(edges, wanted, limit)

    def _edges(self, ids: list[str], view: View | None, types: str, way: str, limit: int | None) -> list[Edge]:
        near, values = shown(view, "h")
        source, target = ("h", "n") if way == "out" else ("n", "h")
        edge = f"{source}.id, type(r), {target}.id, r.relation, r.weight"
        query = (
            f"UNWIND $ids AS id MATCH (h:Item {{id: id}}) MATCH ({source})-[r:{types}]->({target}:Item) "
            f"WHERE {near} AND {shown(view)[0]} "
        )
        if limit is None:
            return [Edge(*row) for row in self.run(f"{query} RETURN {edge}", ids=ids, **values)]
        query += (
            f"WITH h, r, n ORDER BY r.weight DESC, type(r), {target}.id, {source}.id "
            f"WITH h, collect([{edge}])[..$limit] AS best UNWIND best AS edge RETURN edge"
        )
        return [Edge(*row[0]) for row in self.run(query, ids=ids, limit=limit, **values)]

    def hop(self, ids: Iterable[str], view: View, hops: int = 2, limit: int = 200) -> dict[str, int]:
        """See `Reader`."""
        distance = dict.fromkeys(self._shown(list(dict.fromkeys(ids)), view)[:limit], 0)
        frontier = list(distance)
        condition, values = shown(view)
        query = (
            "UNWIND $ids AS id MATCH (:Item {id: id})--(n:Item) "
            f"WHERE NOT n.id IN $known AND {condition} RETURN DISTINCT n.id, n.seq ORDER BY n.seq LIMIT $room"
        )
        for step in range(1, hops + 1):
            room = limit - len(distance)
            if room <= 0 or not frontier:
                break
            rows = self.run(query, ids=frontier, known=list(distance), room=room, **values)
            frontier = [row[0] for row in rows]
            distance |= dict.fromkeys(frontier, step)
        return distance

    def _shown(self, ids: list[str], view: View) -> list[str]:
        condition, values = shown(view)
        query = f"UNWIND $ids AS id MATCH (n:Item {{id: id}}) WHERE {condition} RETURN n.id"
        there = {row[0] for part in chunks(ids) for row in self.run(query, ids=part, **values)}
        return [id for id in ids if id in there]

    def tokens(self, ids: Iterable[str]) -> dict[str, str]:
        """See `Reader`."""
        query = "UNWIND $ids AS id MATCH (n:Item {id: id}) RETURN n.id, n.tokens"
        return {row[0]: row[1] for part in chunks(ids) for row in self.run(query, ids=part)}

    def outlines(self, ids: Iterable[str], view: View) -> list[Outline]:
        """See `Reader`."""
        wanted = list(dict.fromkeys(ids))
        placed = {row[0]: row for row in self._outlined(wanted, view)}
        rows = [placed[id] for id in wanted if id in placed]
        ring = dict.fromkeys(end for row in rows[:RING] for end in row[6:10] if end and end not in placed)
        rows += self._outlined(list(ring), view)
        there = {row[0] for row in rows}
        told = [[end if end in there else "" for end in row[6:9]] for row in rows]
        return [Outline(*[*row[:6], *ends, row[10] or ""]) for row, ends in zip(rows, told, strict=True)]

    def _outlined(self, ids: list[str], view: View) -> list[list[Any]]:
        """Rows of an outline; behind `asked` the answer."""
        condition, values = shown(view)
        links = ("(m)-[:NEXT]->(n)", "(n)-[:NEXT]->(m)", "(n)-[:REPLY_TO]->(m)", "(m)-[:REPLY_TO]->(n)")
        ends = ", ".join(f"head([{link} | m.id])" for link in (*links, "(n)-[:PART_OF]->(m)"))
        query = (
            f"UNWIND $ids AS id MATCH (n:Item {{id: id}}) WHERE {condition} "
            f"RETURN n.id, n.tokens, n.author, n.valid_from, n.created_at, n.uses, {ends}"
        )
        return [row for part in chunks(ids) for row in self.run(query, ids=part, **values)]

    def size(self) -> int:
        """See `Reader`."""
        return int(self.run("MATCH (n:Item) RETURN count(n)")[0][0])

    def frequencies(self, terms: Iterable[str]) -> dict[str, int]:
        """See `Reader`."""
        wanted = dict.fromkeys(terms, 0)
        query = (
            "UNWIND $terms AS term CALL db.index.fulltext.queryNodes($index, term[1]) YIELD node "
            "RETURN term[0], count(node)"
        )
        for part in chunks(wanted):
            asked = [[term, literally([term])] for term in part]
            wanted |= pairs(self.run(query, terms=asked, index=self.dialect.text_index))
        return wanted

    def _models(self) -> dict[str, list[str]]:
        """The properties of each model's vectors."""
        found: dict[str, list[str]] = {}
        for model, name in self.run("MATCH (m:Model) RETURN m.model, m.name ORDER BY m.name"):
            found.setdefault(model, []).append(name)
        return found

    def vectors(self, model: str, ids: Iterable[str]) -> dict[str, list[float]]:
        """See `Reader`."""
        names = self._models().get(model, [])
        wanted, found = list(ids), dict[str, list[float]]()
        for name in names:
            query = f"UNWIND $ids AS id MATCH (n:Item {{id: id}}) WHERE n.{name} IS NOT NULL RETURN n.id, n.{name}"
            found |= {row[0]: row[1] for part in chunks(wanted) for row in self.run(query, ids=part)}
        return found

    def without_vector(self, model: str, after: int = 0, limit: int = 256) -> list[tuple[int, Item]]:
        """See `Reader`."""
        clauses = ["n.retired_at IS NULL", "n.text <> ''"]
        clauses += [f"n.{name} IS NULL" for name in self._models().get(model, [])]
        return self._numbered(" AND ".join(clauses), {}, after, limit)

    def counts(self, view: View | None = None) -> Counts:
        """See `Reader`. An edge without an end and a vector without its item cannot be here."""
        condition, values = shown(view)
        there = shown(view, "m")[0]
        kinds = pairs(self.run(f"MATCH (n:Item) WHERE {condition} RETURN n.kind, count(n)", **values))
        if view is not None:
            query = f"MATCH (n:Item)-[r]->(m:Item) WHERE {condition} AND {there} RETURN count(r)"
            return Counts(sum(kinds.values()), 0, self.run(query, **values)[0][0], 0, kinds=kinds)
        vectors = {
            model: sum(self.run(f"MATCH (n:Item) RETURN count(n.{name})")[0][0] for name in names)
            for model, names in self._models().items()
        }
        return Counts(
            items=sum(kinds.values()),
            indexed=self.run("MATCH (n:Item) WHERE n.tokens IS NOT NULL RETURN count(n)")[0][0],
            edges=self.run(f"MATCH ()-[r:{'|'.join(EDGE_TYPES)}]->() RETURN count(r)")[0][0],
            dangling=0,
            vectors={model: count for model, count in vectors.items() if count},
            tombstones=self.run("MATCH (t:Tombstone) RETURN count(t)")[0][0],
            kinds=kinds,
        )

    def scopes(self) -> dict[str, int]:
        """See `Reader`."""
        return pairs(sorted(self.run("MATCH (n:Item) RETURN n.scope, count(n)")))

    def meta(self, name: str) -> str | None:
        """See `Reader`."""
        rows = self.run("MATCH (m:Meta {name: $name}) RETURN m.value", name=name)
        return rows[0][0] if rows else None

    def operations(self, limit: int = 100, touching: str | None = None) -> list[Operation]:
        """See `Reader`."""
        condition = "true" if touching is None else "$touching IN o.touched"
        query = (
            f"MATCH (o:Operation) WHERE o.seq > 0 AND {condition} RETURN {_OPERATION} ORDER BY o.seq DESC LIMIT $limit"
        )
        return [_operation(row) for row in self.run(query, limit=limit, touching=touching)]

    def operation(self, id: str) -> Operation | None:
        """See `Reader`."""
        rows = self.run(f"MATCH (o:Operation {{id: $id}}) RETURN {_OPERATION}", id=id)
        return _operation(rows[0]) if rows else None

    def tombstone(self, id: str) -> Tombstone | None:
        """See `Reader`."""
        query = "MATCH (t:Tombstone {id: $id}) RETURN t.id, t.scope, t.kind, t.at, t.operation"
        rows = self.run(query, id=id)
        return Tombstone(rows[0][0], rows[0][1], rows[0][2], _at(rows[0][3]), rows[0][4]) if rows else None

    def tasks(self, work: str, limit: int = 100) -> list[Task]:
        """See `Reader`."""
        query = (
            "MATCH (t:Task) WHERE t.work = $work "
            "RETURN t.item, t.work, t.tries, t.error ORDER BY t.tries, t.seq LIMIT $limit"
        )
        return [Task(*row) for row in self.run(query, work=work, limit=limit)]


def _operation(row: Sequence[Any]) -> Operation:
    return Operation(row[0], row[1], row[2], _at(row[3]), tuple(row[4] or ()), row[5] or "")


def _at(micros: int) -> Any:
    return from_micros(micros)
