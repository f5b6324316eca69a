"""Full-text and vector search inside a view: take more of the index until k are found that it shows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from opensage_memory.scope import View
from opensage_memory.store.base import Vector
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


def by_vector(run: Run, dialect: Dialect, name: str, vector: Vector, view: View, k: int) -> Found:
    """See `Reader.nearest`. An index gives neighbours that are near enough; their order is exact."""
    query = [float(value) for value in vector]
    known = run("MATCH (m:Model {name: $name}) RETURN m.online", name=name)
    if not known or k < 1 or not any(query) or not math.isfinite(sum(query)):
        return []
    found = _from_index(run, dialect, name, query, view, k) if known[0][0] else []
    return found if len(found) >= k else _of_all(run, dialect, name, query, view, k)


def _from_index(run: Run, dialect: Dialect, name: str, vector: list[float], view: View, k: int) -> Found:
    condition, values = shown(view)
    query = (
        "CALL db.index.vector.queryNodes($index, $count, $vector) YIELD node AS n "
        f"WITH n, {dialect.cosine.format('n.' + name, '$vector')} AS score ORDER BY score DESC, n.seq "
        f"WITH count(*) AS seen, collect(CASE WHEN {condition} THEN [n.id, score] END)[..$k] AS best RETURN seen, best"
    )
    count = 4 * k + 60
    while count <= max(MOST_NEAR, 4 * k + 60):
        index = dialect.vector_index(name)
        seen, best = run(query, index=index, vector=vector, count=count, k=k, **values)[0]
        if len(best) >= k:
            return [(id, float(score)) for id, score in best]
        if seen < count:
            break
        count *= 4
    return []


def _of_all(run: Run, dialect: Dialect, name: str, vector: list[float], view: View, k: int) -> Found:
    condition, values = shown(view)
    query = (
        f"MATCH (n:Item) WHERE n.{name} IS NOT NULL AND {condition} "
        f"WITH n, {dialect.cosine.format('n.' + name, '$vector')} AS score "
        "RETURN n.id, score ORDER BY score DESC, n.seq LIMIT $k"
    )
    return [(id, float(score)) for id, score in run(query, vector=vector, k=k, **values)]
