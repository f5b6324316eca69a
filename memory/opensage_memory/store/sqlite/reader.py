"""Reads of a memory file in one transaction."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from opensage_memory.item import NEXT, PART_OF, REPLY_TO, Edge, Item, from_micros
from opensage_memory.scope import View, covers
from opensage_memory.store.base import RING, Counts, Operation, Outline, Task, Tombstone, Vector
from opensage_memory.store.sqlite.filters import Value, chunks, marks, shown
from opensage_memory.store.sqlite.index import TextIndex
from opensage_memory.store.sqlite.rows import SELECT, bind, to_edge, to_item, unbind
from opensage_memory.store.sqlite.vectors import Matrices
from opensage_memory.store.strongest import strongest

MATCHES = 10_000
"""Items that one query may match before its commonest tokens are left out; the rarest is always looked for."""
KEPT = "MATERIALIZED" if sqlite3.sqlite_version_info >= (3, 35) else ""
"""A step is worked out once, where SQLite can be told so; the plan is the same without."""
START = 400
"""Items that one look at their surroundings begins at."""
FEW = 64
"""Items whose strongest edges are looked for one by one."""
TERMS = 100
"""Tokens in one full-text query."""


class SqliteReader:
    """`Reader` over a connection in a transaction."""

    def __init__(self, link: sqlite3.Connection, index: TextIndex, matrices: Matrices) -> None:
        self.link, self.index, self._matrices = link, index, matrices
        self._frequencies: dict[str, int] = {}

    def get(self, ids: Iterable[str], view: View | None = None) -> dict[str, Item]:
        """See `Reader`."""
        wanted = list(dict.fromkeys(ids))
        condition, values = shown(view)
        found: dict[str, Item] = {}
        for part in chunks(wanted):
            sql = f"SELECT {SELECT} FROM items i WHERE i.id IN ({marks(part)}) AND {condition}"
            found |= {row[0]: to_item(row) for row in self.link.execute(sql, [*part, *values])}
        return {id: found[id] for id in wanted if id in found}

    def scan(self, view: View, *, after: int = 0, limit: int = 1000) -> list[tuple[int, Item]]:
        """See `Reader`."""
        condition, values = shown(view, seek=True)
        sql = f"SELECT {SELECT}, i.seq FROM items i WHERE i.seq > ? AND {condition} ORDER BY i.seq LIMIT ?"
        return [(row[-1], to_item(row)) for row in self.link.execute(sql, [after, *values, limit])]

    def find(self, view: View, key: str, limit: int = 1000) -> list[Item]:
        """See `Reader`."""
        condition, values = shown(view)
        sql = f"SELECT {SELECT} FROM items i WHERE i.key <> '' AND i.key = ? AND {condition} ORDER BY i.seq LIMIT ?"
        return [to_item(row) for row in self.link.execute(sql, [bind(key), *values, limit])]

    def same(self, scope: str, kind: str, hash: str) -> Item | None:
        """See `Reader`."""
        row = self.link.execute(
            f"SELECT {SELECT} FROM items i WHERE +scope = ? AND kind = ? AND hash = ? AND retired_at IS NULL "
            "ORDER BY coalesce(valid_to, 9223372036854775807) DESC, seq LIMIT 1",
            (scope, kind, bytes.fromhex(hash)),
        ).fetchone()
        return to_item(row) if row else None

    def lexical(self, terms: Sequence[str], view: View, k: int) -> list[tuple[str, float]]:
        """See `Reader`."""
        condition, values = shown(view)
        wanted = self._telling(list(dict.fromkeys(terms)))
        if len(wanted) <= TERMS:
            return self.index.best(self.link, wanted, condition, values, k) if wanted and k > 0 else []
        scores: Counter[str] = Counter()
        for part in chunks(wanted, TERMS):
            scores.update(dict(self.index.best(self.link, part, condition, values, k)))
        return [(id, float(score)) for id, score in scores.most_common(k)]

    def _telling(self, terms: list[str]) -> list[str]:
        """The rarest tokens: one that is in half of all items has no weight in BM25, and each costs its items' time."""
        size = self.size()
        if size <= MATCHES:
            return terms
        counts = sorted((count, term) for term, count in self.frequencies(terms).items() if count)
        half, left, kept = size / 2, MATCHES, list[str]()
        for count, term in counts:
            if kept and (count > half or count > left):
                break
            kept.append(term)
            left -= count
        return kept

    def nearest(self, model: str, vector: Vector, view: View, k: int) -> list[tuple[str, float]]:
        """See `Reader`."""
        import numpy as np

        query = np.asarray(vector, dtype=np.float32)
        norm = float(np.linalg.norm(query))
        if not norm or k < 1:
            return []
        query, found = query / norm, list[tuple[str, float]]()
        for scope in self._scopes(view):
            found += self._nearest_in(scope, model, query, view, k)
        return sorted(found, key=lambda pair: -pair[1])[:k]

    def _nearest_in(self, scope: str, model: str, query: Any, view: View, k: int) -> list[tuple[str, float]]:
        """Take more and more of the nearest until k of them are shown by the view."""
        count = k + 16
        while True:
            near = self._matrices.best(self.link, model, scope, query, count)
            visible = self._visible([id for id, _ in near], view)
            kept = [pair for pair in near if pair[0] in visible]
            if len(kept) >= k or len(near) < count:
                return kept[:k]
            count *= 4

    def _visible(self, ids: Iterable[str], view: View) -> set[str]:
        condition, values = shown(view)
        found: set[str] = set()
        for part in chunks(ids):
            sql = f"SELECT i.id FROM items i WHERE i.id IN ({marks(part)}) AND {condition}"
            found.update(row[0] for row in self.link.execute(sql, [*part, *values]))
        return found

    def _scopes(self, view: View) -> list[str]:
        if all(not scope.endswith("*") for scope in view.scopes):
            return list(view.scopes)
        return [scope for scope in self.scopes() if covers(view.scopes, scope)]

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
        found: dict[tuple[str, str, str, str], Edge] = {}
        for here, there in (("source", "target"), ("target", "source")):
            if direction in ("both", "out" if here == "source" else "in"):
                rest = wanted
                if limit is not None and len(wanted) <= FEW:
                    whole = {id: self._edges([id], here, there, view, types, limit) for id in wanted}
                    found |= {edge.identity: edge for edges in whole.values() for edge in edges}
                    rest = [id for id in wanted if len(whole[id]) < limit]
                for part in chunks(rest):
                    for edge in self._edges(part, here, there, view, types):
                        found[edge.identity] = edge
        edges = list(found.values())
        return edges if limit is None else strongest(edges, wanted, limit)

    def _edges(
        self,
        ids: list[str],
        here: str,
        there: str,
        view: View | None,
        types: Sequence[str] | None,
        strong: int | None = None,
    ) -> list[Edge]:
        """Their edges; with `strong`, at most so many of full strength, without a look at the rest of a crowd."""
        condition, values = shown(view)
        near, more = shown(view, "h")
        if types is not None:
            condition, values = f"e.type IN ({marks(types)}) AND {condition}", [*types, *values]
        # CROSS JOIN keeps this order in every version of SQLite: few items, their edges, the other ends.
        sql = (
            f"SELECT {'h.id, e.type, i.id' if here == 'source' else 'i.id, e.type, h.id'}, e.relation, e.weight "
            f"FROM items h CROSS JOIN edges e ON e.{here} = h.seq CROSS JOIN items i ON i.seq = e.{there} "
            f"WHERE h.id IN ({marks(ids)}) AND {near} AND {condition}"
        )
        if strong is not None:
            sql, values = f"{sql} AND e.weight >= 1 LIMIT ?", [*values, strong]
        return [to_edge(row) for row in self.link.execute(sql, [*ids, *more, *values])]

    def hop(self, ids: Iterable[str], view: View, hops: int = 2, limit: int = 200) -> dict[str, int]:
        """See `Reader`."""
        start = list(dict.fromkeys(ids))
        distance: dict[str, int] = {}
        for part in chunks(start, START):
            sql, values = hop_query(part, view, hops, limit)
            for id, steps in self.link.execute(sql, values):
                distance[id] = min(steps, distance.get(id, steps))
        return dict(sorted(distance.items(), key=lambda pair: pair[1])[:limit])

    def tokens(self, ids: Iterable[str]) -> dict[str, str]:
        """See `Reader`."""
        found: dict[str, str] = {}
        for part in chunks(ids):
            found |= dict(self.link.execute(f"SELECT id, tokens FROM items WHERE id IN ({marks(part)})", part))
        return found

    def outlines(self, ids: Iterable[str], view: View) -> list[Outline]:
        """See `Reader`."""
        wanted = list(dict.fromkeys(ids))
        placed = {row[1]: row for part in chunks(wanted) for row in self._outlined("i.id", part, view)}
        rows = [placed[id] for id in wanted if id in placed]
        known = {row[0] for row in rows}
        ring = dict.fromkeys(end for row in rows[:RING] for end in row[7:11] if end is not None and end not in known)
        for part in chunks(ring):
            rows += self._outlined("i.seq", part, view)
        names = {row[0]: row[1] for row in rows}
        return [
            Outline(
                *(row[1], row[2], unbind(row[3]), row[4], row[5], row[6]),
                *(names.get(row[7], ""), names.get(row[8], ""), names.get(row[9], ""), row[11] or ""),
            )
            for row in rows
        ]

    def _outlined(self, column: str, values: Sequence[Value], view: View) -> list[Any]:
        """Rows of seq, id, tokens, author, valid_from, created_at, uses, previous, next, asked, answer, session."""
        condition, more = shown(view)
        one = "(SELECT {} FROM edges WHERE {} = i.seq AND type = '{}' LIMIT 1)"
        links = [
            one.format("source", "target", NEXT),
            one.format("target", "source", NEXT),
            one.format("target", "source", REPLY_TO),
            one.format("source", "target", REPLY_TO),
            "(SELECT s.id FROM edges e CROSS JOIN items s ON s.seq = e.target "
            f"WHERE e.source = i.seq AND e.type = '{PART_OF}' LIMIT 1)",
        ]
        sql = (
            f"SELECT i.seq, i.id, i.tokens, i.author, i.valid_from, i.created_at, i.uses, {', '.join(links)} "
            f"FROM items i WHERE {column} IN ({marks(values)}) AND {condition}"
        )
        return self.link.execute(sql, [*values, *more]).fetchall()

    def size(self) -> int:
        """See `Reader`."""
        row = self.link.execute("SELECT seq FROM sqlite_sequence WHERE name = 'items'").fetchone()
        return int(row[0]) if row else 0

    def frequencies(self, terms: Iterable[str]) -> dict[str, int]:
        """See `Reader`."""
        terms = list(terms)
        for term in terms:
            if term not in self._frequencies:
                self._frequencies[term] = self.index.frequency(self.link, term)
        return {term: self._frequencies[term] for term in terms}

    def vectors(self, model: str, ids: Iterable[str]) -> dict[str, list[float]]:
        """See `Reader`."""
        import numpy as np

        found: dict[str, list[float]] = {}
        for part in chunks(ids):
            sql = (
                "SELECT i.id, v.data FROM vectors v JOIN items i ON i.seq = v.item "
                f"WHERE v.model = ? AND i.id IN ({marks(part)})"
            )
            for id, data in self.link.execute(sql, [model, *part]):
                found[id] = np.frombuffer(data, dtype="<f4").tolist()
        return found

    def without_vector(self, model: str, after: int = 0, limit: int = 256) -> list[tuple[int, Item]]:
        """See `Reader`."""
        sql = (
            f"SELECT {SELECT}, i.seq FROM items i WHERE i.seq > ? AND i.retired_at IS NULL AND i.text <> '' "
            "AND NOT EXISTS (SELECT 1 FROM vectors v WHERE v.item = i.seq AND v.model = ?) ORDER BY i.seq LIMIT ?"
        )
        return [(row[-1], to_item(row)) for row in self.link.execute(sql, (after, model, limit))]

    def counts(self, view: View | None = None) -> Counts:
        """See `Reader`."""
        condition, values = shown(view, seek=True)
        kinds = dict(self.link.execute(f"SELECT kind, count(*) FROM items i WHERE {condition} GROUP BY kind", values))
        if view is not None:
            there, more = shown(view, "t")
            edges = self._count(
                "edges e JOIN items i ON i.seq = e.source JOIN items t ON t.seq = e.target "
                f"WHERE {condition} AND {there}",
                [*values, *more],
            )
            return Counts(sum(kinds.values()), 0, edges, 0, kinds=kinds)
        return Counts(
            items=self._count("items"),
            indexed=self.index.size(self.link),
            edges=self._count("edges"),
            dangling=self._count(
                "edges WHERE source NOT IN (SELECT seq FROM items) OR target NOT IN (SELECT seq FROM items)"
            ),
            vectors=dict(self.link.execute("SELECT model, count(*) FROM vectors GROUP BY model")),
            orphans=self._count("vectors WHERE item NOT IN (SELECT seq FROM items)"),
            tombstones=self._count("tombstones"),
            kinds=kinds,
        )

    def _count(self, source: str, values: Sequence[Value] = ()) -> int:
        return int(self.link.execute(f"SELECT count(*) FROM {source}", values).fetchone()[0])

    def scopes(self) -> dict[str, int]:
        """See `Reader`."""
        return dict(self.link.execute("SELECT scope, count(*) FROM items GROUP BY scope ORDER BY scope"))

    def meta(self, name: str) -> str | None:
        """See `Reader`."""
        row = self.link.execute("SELECT value FROM meta WHERE name = ?", (bind(name),)).fetchone()
        return str(row[0]) if row else None

    def operations(self, limit: int = 100, touching: str | None = None) -> list[Operation]:
        """See `Reader`."""
        sql = "SELECT id, name, scope, at, touched, undo FROM operations "
        if touching is None:
            rows = self.link.execute(f"{sql} ORDER BY number DESC LIMIT ?", (limit,))
        else:
            part = f"%{json.dumps(touching)}%" if touching.isalnum() else "%"
            rows = self.link.execute(f"{sql} WHERE touched LIKE ? ORDER BY number DESC", (part,))
        found = (_operation(row) for row in rows)
        return [op for op in found if touching is None or touching in op.touched][:limit]

    def operation(self, id: str) -> Operation | None:
        """See `Reader`."""
        sql = "SELECT id, name, scope, at, touched, undo FROM operations WHERE id = ?"
        row = self.link.execute(sql, (bind(id),)).fetchone()
        return _operation(row) if row else None

    def tombstone(self, id: str) -> Tombstone | None:
        """See `Reader`."""
        row = self.link.execute(
            "SELECT id, scope, kind, at, operation FROM tombstones WHERE id = ?", (bind(id),)
        ).fetchone()
        return Tombstone(row[0], row[1], row[2], _at(row[3]), row[4]) if row else None

    def tasks(self, work: str, limit: int = 100) -> list[Task]:
        """See `Reader`."""
        sql = (
            "SELECT i.id, t.work, t.tries, t.error FROM tasks t JOIN items i ON i.seq = t.item "
            "WHERE t.work = ? ORDER BY t.tries, t.item LIMIT ?"
        )
        return [Task(row[0], row[1], row[2], unbind(row[3])) for row in self.link.execute(sql, (work, limit))]


def hop_query(ids: Sequence[str], view: View, hops: int, limit: int) -> tuple[str, list[Value]]:
    """SQL for all steps at once, and its values."""
    condition, values = shown(view)
    bound: list[Value] = []
    for step in range(1, hops + 1):
        side = [*ids, *values, *values] if step == 1 else values
        bound += [*side, *side, 2 * limit]
    return _hop_text(len(ids), condition, shown(view, "s")[0], hops), [*bound, *ids, *values]


@lru_cache(maxsize=64)
def _hop_text(count: int, condition: str, start: str, hops: int) -> str:
    """Each step is a table, and CROSS JOIN begins with it in every version of SQLite."""
    given = f"IN ({marks(range(count))})"
    found = [f"SELECT i.id, 0 FROM items i WHERE i.id {given} AND {condition}"]
    steps = []
    for step in range(1, hops + 1):
        before, n, only = (
            ("items s", "s.seq", f"s.id {given} AND {start} AND ") if step == 1 else (f"f{step - 1}", "n", "")
        )
        sides = " UNION ".join(
            f"SELECT i.seq, i.id FROM {before} CROSS JOIN edges e ON e.{here} = {n} "
            f"CROSS JOIN items i ON i.seq = e.{there} WHERE {only}{condition}"
            for here, there in (("source", "target"), ("target", "source"))
        )
        steps.append(f"f{step}(n, id) AS {KEPT if step < hops else ''} ({sides} LIMIT ?)")
        found.append(f"SELECT id, {step} FROM f{step}")
    return f"{'WITH ' * bool(steps)}{', '.join(steps)} {' UNION ALL '.join(found)}"


def _operation(row: Sequence[Any]) -> Operation:
    return Operation(row[0], row[1], row[2], _at(row[3]), tuple(json.loads(row[4])), row[5])


def _at(micros: int) -> Any:
    return from_micros(micros)
