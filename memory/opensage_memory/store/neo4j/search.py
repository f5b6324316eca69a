"""Full-text and vector search inside a view: take more of the index until k are found that it shows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from opensage_memory.scope import View
from opensage_memory.store.neo4j.connection import Run
from opensage_memory.store.neo4j.dialect import Dialect
from opensage_memory.store.neo4j.filters import chunks, shown
from opensage_memory.store.neo4j.values import literally

Found = list[tuple[str, float]]

TERMS = 500
"""Tokens in one query: Lucene takes 1,024 clauses."""
MOST_NEAR = 1000
"""How many neighbours an index is asked for; a view that shows too few of them is looked through itself."""


def by_text(run: Run, dialect: Dialect, terms: Sequence[str], view: View, k: int) -> Found:
    """See `Reader.lexical`."""
    wanted = list(dict.fromkeys(terms))
    if not wanted or k < 1:
        return []
    if len(wanted) <= TERMS:
        return _best_text(run, dialect, wanted, view, k)
    scores: Counter[str] = Counter()
    for part in chunks(wanted, TERMS):
        scores.update(dict(_best_text(run, dialect, part, view, k)))
    return [(id, float(score)) for id, score in scores.most_common(k)]


def _best_text(run: Run, dialect: Dialect, terms: Sequence[str], view: View, k: int) -> Found:
    condition, values = shown(view)
    query = (
        "CALL db.index.fulltext.queryNodes($index, $text, {limit: $count}) YIELD node AS n, score "
        "WITH n, score ORDER BY score DESC, n.seq "
        f"WITH count(*) AS seen, collect(CASE WHEN {condition} THEN [n.id, score] END)[..$k] AS best RETURN seen, best"
    )
    count = 4 * k + 60
    while True:
        seen, best = run(query, index=dialect.text_index, text=literally(terms), count=count, k=k, **values)[0]
        if len(best) >= k or seen < count:
            return [(id, float(score)) for id, score in best]
        count *= 4


@dataclass(frozen=True, slots=True)
class ByVector:
    """`Reader.nearest`: an index gives neighbours that are near enough, and their order is exact.

    Attributes:
        run: runs a query.
        dialect: the server's.
        name: property of the vectors.
        vector: what is looked for.
        view: what may be found.
        k: how many.
    """

    run: Run
    dialect: Dialect
    name: str
    vector: list[float]
    view: View
    k: int

    def best(self, fresh: Sequence[str] | None = ()) -> Found:
        """The nearest; `fresh` has what this transaction has changed and an index need not know; None for anything."""
        known = self.run("MATCH (m:Model {name: $name}) RETURN m.online", name=self.name)
        if not known or self.k < 1 or not any(self.vector) or not math.isfinite(sum(self.vector)):
            return []
        near = self._indexed() if known[0][0] and fresh is not None else []
        if len(near) < self.k or fresh is None:
            return self._exact("MATCH (n:Item)")
        if fresh:
            near += self._exact("UNWIND $fresh AS id MATCH (n:Item {id: id})", fresh=list(fresh))
        return sorted(dict(near).items(), key=lambda pair: -pair[1])[: self.k]

    def _indexed(self) -> Found:
        condition, values = shown(self.view)
        query = (
            f"CALL db.index.vector.queryNodes($index, $count, $vector) YIELD node AS n WITH n, {self._score} AS score "
            "ORDER BY score DESC, n.seq WITH count(*) AS seen, "
            f"collect(CASE WHEN score IS NOT NULL AND {condition} THEN [n.id, score] END)[..$k] AS best "
            "RETURN seen, best"
        )
        values |= {"index": self.dialect.vector_index(self.name), "vector": self.vector, "k": self.k}
        count, best = 4 * self.k + 60, list[list[Any]]()
        while len(best) < self.k and count <= max(MOST_NEAR, 4 * self.k + 60):
            seen, best = self.run(query, count=count, **values)[0]
            if seen < count:
                break
            count *= 4
        return [(id, float(score)) for id, score in best]

    def _exact(self, match: str, **values: Any) -> Found:
        condition, more = shown(self.view)
        query = (
            f"{match} WHERE n.{self.name} IS NOT NULL AND {condition} WITH n, {self._score} AS score "
            "RETURN n.id, score ORDER BY score DESC, n.seq LIMIT $k"
        )
        rows = self.run(query, vector=self.vector, k=self.k, **values, **more)
        return [(id, float(score)) for id, score in rows]

    @property
    def _score(self) -> str:
        return self.dialect.cosine.format(f"n.{self.name}", "$vector")
