"""Changes of the graph in one transaction over Bolt."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from opensage_memory.item import EDGE_TYPES, Edge, to_micros
from opensage_memory.scope import View
from opensage_memory.store.base import Operation, Row, Task, Tombstone, Vector
from opensage_memory.store.neo4j.connection import Run
from opensage_memory.store.neo4j.dialect import Dialect
from opensage_memory.store.neo4j.filters import chunks
from opensage_memory.store.neo4j.reader import Neo4jReader
from opensage_memory.store.neo4j.values import LABELS, to_properties, vector_name

FRESH = 1000
"""Up to how many vectors of an open transaction are looked at one by one, beside the index."""


class Neo4jWriter(Neo4jReader):
    """`Writer` over a transaction that holds the lock.

    Args:
        run: runs a query in it.
        dialect: the server's.
        number: the last that was given to an item or operation.
    """

    def __init__(self, run: Run, dialect: Dialect, number: int) -> None:
        super().__init__(run, dialect)
        self.number = number
        self.offline: dict[str, int] = {}
        """Vector indexes to make after the commit, with their dimension."""
        self._fresh: list[str] | None = []

    def put(self, rows: Sequence[Row]) -> None:
        """See `Writer`."""
        latest = {row.item.id: row for row in rows}
        kinds: dict[str, list[dict[str, object]]] = {}
        for row in latest.values():
            self.number += 1
            entry = {"id": row.item.id, "seq": self.number, "properties": to_properties(row)}
            kinds.setdefault(row.item.kind if self.dialect.labels else "", []).append(entry)
        for kind, entries in kinds.items():
            query = "UNWIND $rows AS row MERGE (n:Item {id: row.id}) ON CREATE SET n.seq = row.seq "
            query += "SET n += row.properties"
            if kind:
                others = "".join(f":{label}" for name, label in LABELS.items() if name != kind)
                query += f" SET n:{LABELS[kind]} REMOVE n{others}"
            self._each(query, entries)

    def _each(self, query: str, rows: Iterable[object]) -> None:
        for part in chunks(rows):
            self.run(query, rows=part)

    def use(self, ids: Iterable[str]) -> None:
        """See `Writer`."""
        self._each("UNWIND $rows AS id MATCH (n:Item {id: id}) SET n.uses = n.uses + 1", ids)

    def put_edges(self, edges: Sequence[Edge]) -> None:
        """See `Writer`."""
        for type, rows in _by_type(edges).items():
            self._each(
                "UNWIND $rows AS row MATCH (a:Item {id: row.source}) MATCH (b:Item {id: row.target}) "
                f"MERGE (a)-[r:{type} {{relation: row.relation}}]->(b) SET r.weight = row.weight",
                rows,
            )

    def put_vectors(self, model: str, vectors: Mapping[str, Vector]) -> None:
        """See `Writer`."""
        sizes: dict[int, list[dict[str, object]]] = {}
        for id, vector in vectors.items():
            sizes.setdefault(len(vector), []).append({"id": id, "vector": array("f", vector).tolist()})
        for dimension, rows in sizes.items():
            name = vector_name(model, dimension)
            query = "MERGE (m:Model {name: $name}) ON CREATE SET m.model = $model, m.dimension = $dimension "
            if not self.run(query + "RETURN m.online", name=name, model=model, dimension=dimension)[0][0]:
                self.offline[name] = dimension
            others = "".join(f", n.{other} = null" for other in self._models().get(model, []) if other != name)
            self._each(f"UNWIND $rows AS row MATCH (n:Item {{id: row.id}}) SET n.{name} = row.vector{others}", rows)
        if self._fresh is not None and len(self._fresh) + len(vectors) <= FRESH:
            self._fresh += vectors
        else:
            self._fresh = None

    def remove(self, ids: Iterable[str]) -> None:
        """See `Writer`."""
        gone, self._fresh = list(dict.fromkeys(ids)), None
        self._each("UNWIND $rows AS id MATCH (t:Task {item: id}) DELETE t", gone)
        self._each("UNWIND $rows AS id MATCH (n:Item {id: id}) DETACH DELETE n", gone)

    def remove_edges(self, edges: Iterable[Edge]) -> None:
        """See `Writer`."""
        for type, rows in _by_type(edges).items():
            self._each(
                "UNWIND $rows AS row MATCH (:Item {id: row.source})"
                f"-[r:{type} {{relation: row.relation}}]->(:Item {{id: row.target}}) DELETE r",
                rows,
            )

    def nearest(self, model: str, vector: Vector, view: View, k: int) -> list[tuple[str, float]]:
        """See `Reader`."""
        return self._by_vector(model, vector, view, k).best(self._fresh)

    def remove_vectors(self, model: str) -> None:
        """See `Writer`."""
        self._fresh = None
        for name in self._models().get(model, []):
            self.run(f"MATCH (n:Item) WHERE n.{name} IS NOT NULL REMOVE n.{name}")

    def set_meta(self, name: str, value: str | None) -> None:
        """See `Writer`."""
        if value is None:
            self.run("MATCH (m:Meta {name: $name}) DELETE m", name=name)
        else:
            self.run("MERGE (m:Meta {name: $name}) SET m.value = $value", name=name, value=value)

    def log(self, operation: Operation) -> None:
        """See `Writer`."""
        self.number += 1
        at = to_micros(operation.at)
        self.run(
            "MERGE (o:Operation {id: $id}) ON CREATE SET o.seq = $seq, o.scope = $scope, o.at = $at "
            "SET o.name = $name, o.touched = $touched, o.undo = $undo, "
            "o.undo_before = CASE WHEN $undo = '' THEN null ELSE o.at END",
            id=operation.id,
            seq=self.number,
            scope=operation.scope,
            at=at,
            name=operation.name,
            touched=list(operation.touched),
            undo=operation.undo,
        )

    def forget_undo(self, before: datetime) -> int:
        """See `Writer`."""
        query = (
            "MATCH (o:Operation) WHERE o.undo_before < $before SET o.undo = '', o.undo_before = null RETURN count(o)"
        )
        return int(self.run(query, before=to_micros(before))[0][0])

    def bury(self, stones: Sequence[Tombstone]) -> None:
        """See `Writer`."""
        self._each(
            "UNWIND $rows AS row MERGE (t:Tombstone {id: row.id}) "
            "SET t.scope = row.scope, t.kind = row.kind, t.at = row.at, t.operation = row.operation",
            [
                {"id": stone.id, "scope": stone.scope, "kind": stone.kind, "at": to_micros(stone.at)}
                | {"operation": stone.operation}
                for stone in stones
            ],
        )

    def unbury(self, ids: Iterable[str]) -> None:
        """See `Writer`."""
        self._each("UNWIND $rows AS id MATCH (t:Tombstone {id: id}) DELETE t", ids)

    def put_tasks(self, tasks: Sequence[Task]) -> None:
        """See `Writer`."""
        self._each(
            "UNWIND $rows AS row MATCH (n:Item {id: row.item}) MERGE (t:Task {item: row.item, work: row.work}) "
            "SET t.seq = n.seq, t.tries = row.tries, t.error = row.error",
            [{"item": task.item, "work": task.work, "tries": task.tries, "error": task.error} for task in tasks],
        )

    def remove_tasks(self, work: str, ids: Iterable[str]) -> None:
        """See `Writer`."""
        query = "UNWIND $rows AS row MATCH (t:Task {item: row.item, work: row.work}) DELETE t"
        self._each(query, [{"item": id, "work": work} for id in ids])


def _by_type(edges: Iterable[Edge]) -> dict[str, list[dict[str, object]]]:
    """Rows of edges by type; one of another than the fixed types can be nowhere."""
    found: dict[str, list[dict[str, object]]] = {}
    for edge in edges:
        if edge.type in EDGE_TYPES:
            row = {"source": edge.source, "target": edge.target, "relation": edge.relation, "weight": edge.weight}
            found.setdefault(edge.type, []).append(row)
    return found
