"""How fast the SQLite store is, next to the barest tables that could do the same, in one run."""

from __future__ import annotations

import random
import sqlite3
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BATCH = 1000
QUERIES = 40
SCOPE = "bench/engine"
KINDS = ("RELATES", "NEXT")


class Corpus:
    """Texts of twenty words with a Zipf-like distribution, random unit vectors, and two edges a node."""

    def __init__(self, nodes: int, dimension: int, seed: int = 0) -> None:
        import numpy as np

        dice = random.Random(seed)
        words = [f"w{number}" for number in range(20_000)]
        weights = [1 / (rank + 10) for rank in range(len(words))]
        drawn = dice.choices(words, weights, k=20 * nodes)
        self.texts = [" ".join(drawn[20 * n : 20 * n + 20]) for n in range(nodes)]
        self.vectors = np.random.default_rng(seed).normal(size=(nodes, dimension)).astype(np.float32)
        self.ids = [f"{n:032x}" for n in range(nodes)]
        self.edges = [(n, n // 3) for n in range(nodes)], [(n, max(0, n - 1)) for n in range(nodes)]
        self.queries = [dice.sample(words[200:4000], 3) for _ in range(QUERIES)]
        self.nodes, self.dimension = nodes, dimension


def median_ms(work: Callable[[int], object]) -> float:
    """Median milliseconds of CPU over the queries; the first call, which fills caches, does not count."""
    work(0)
    spent = []
    for number in range(QUERIES):
        began = time.process_time()
        work(number)
        spent.append((time.process_time() - began) * 1e3)
    return round(statistics.median(spent), 3)


def measure(nodes: int, folder: Path, dimension: int = 384) -> dict[str, Any]:
    """Nodes a second of CPU, milliseconds of CPU a query, and bytes, of the store and of bare tables."""
    corpus = Corpus(nodes, dimension)
    return {"nodes": nodes, "dimension": dimension, "store": _store(corpus, folder), "bare": _bare(corpus, folder)}


def _store(corpus: Corpus, folder: Path) -> dict[str, Any]:
    from opensage_memory import Memory
    from opensage_memory.item import Edge, Item, digest, now
    from opensage_memory.store.base import Row
    from opensage_memory.store.sqlite import SqliteStore

    path = folder / f"store-{corpus.nodes}.db"
    store = SqliteStore(path)
    rows = [
        Row(Item(id, SCOPE, "message", text, digest(text), created_at=now()), text)
        for id, text in zip(corpus.ids, corpus.texts, strict=True)
    ]
    joined = zip(KINDS, corpus.edges, strict=True)
    edges = [[Edge(corpus.ids[a], kind, corpus.ids[b]) for a, b in some] for kind, some in joined]
    began, wall = time.process_time(), time.perf_counter()
    for start in range(0, corpus.nodes, BATCH):
        with store.write() as writer:
            writer.put(rows[start : start + BATCH])
            numbers = range(start, min(start + BATCH, corpus.nodes))
            writer.put_vectors("m", {corpus.ids[number]: corpus.vectors[number] for number in numbers})
            writer.put_edges([edge for some in edges for edge in some[start : start + BATCH]])
    spent, passed = time.process_time() - began, time.perf_counter() - wall
    memory = Memory(store)
    view = memory.view(SCOPE)
    with store.read() as reader:
        found = {
            "vector_ms": median_ms(lambda n: reader.nearest("m", corpus.vectors[n], view, 10)),
            "bm25_ms": median_ms(lambda n: reader.lexical(corpus.queries[n], view, 10)),
            "two_hops_ms": median_ms(lambda n: reader.hop([corpus.ids[97 * n % corpus.nodes]], view)),
        }
    found["search_ms"] = median_ms(lambda n: memory.search(" ".join(corpus.queries[n]), SCOPE))
    found |= _size(store, path)
    return {"nodes_per_cpu_s": round(corpus.nodes / spent), "nodes_per_s": round(corpus.nodes / passed), **found}


def _size(store: Any, path: Path) -> dict[str, Any]:
    faults = store.check()
    store.close()
    return {"MB": round(path.stat().st_size / 1e6, 1), "check": faults}


def _bare(corpus: Corpus, folder: Path) -> dict[str, Any]:
    """What a few lines of sqlite3 and numpy do: no ids but row numbers, no scope, no time, no undo."""
    import numpy as np

    path = folder / f"bare-{corpus.nodes}.db"
    link = sqlite3.connect(path, isolation_level=None)
    link.executescript(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; CREATE TABLE items(id INTEGER PRIMARY KEY, text TEXT);"
        "CREATE VIRTUAL TABLE terms USING fts5(tokens, content='items', content_rowid='id');"
        "CREATE TABLE edges(a INT, b INT, PRIMARY KEY(a, b)) WITHOUT ROWID; CREATE INDEX back ON edges(b, a);"
        "CREATE TABLE vectors(id INTEGER PRIMARY KEY, data BLOB);"
    )
    began, wall = time.process_time(), time.perf_counter()
    for start in range(0, corpus.nodes, BATCH):
        numbers = range(start, min(start + BATCH, corpus.nodes))
        link.execute("BEGIN IMMEDIATE")
        link.executemany("INSERT INTO items VALUES(?, ?)", [(n, corpus.texts[n]) for n in numbers])
        link.executemany("INSERT INTO terms(rowid, tokens) VALUES(?, ?)", [(n, corpus.texts[n]) for n in numbers])
        link.executemany("INSERT INTO vectors VALUES(?, ?)", [(n, corpus.vectors[n].tobytes()) for n in numbers])
        for some in corpus.edges:
            link.executemany("INSERT OR REPLACE INTO edges VALUES(?, ?)", some[start : start + BATCH])
        link.execute("COMMIT")
    spent, passed = time.process_time() - began, time.perf_counter() - wall
    matrix = corpus.vectors / np.linalg.norm(corpus.vectors, axis=1, keepdims=True)
    hops = (
        "WITH one(n) AS (SELECT b FROM edges WHERE a = ?1 UNION SELECT a FROM edges WHERE b = ?1) "
        "SELECT b FROM one CROSS JOIN edges ON a = n UNION SELECT a FROM one CROSS JOIN edges ON b = n"
    )
    words = "SELECT rowid FROM terms WHERE terms MATCH ? ORDER BY rank LIMIT 10"
    found = {
        "vector_ms": median_ms(lambda n: np.argpartition(-(matrix @ matrix[n]), 10)[:10]),
        "bm25_ms": median_ms(lambda n: link.execute(words, (" OR ".join(corpus.queries[n]),)).fetchall()),
        "two_hops_ms": median_ms(lambda n: link.execute(hops, (97 * n % corpus.nodes,)).fetchall()),
    }
    link.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    link.close()
    size = {"MB": round(path.stat().st_size / 1e6, 1)}
    speed = {"nodes_per_cpu_s": round(corpus.nodes / spent), "nodes_per_s": round(corpus.nodes / passed)}
    return {**speed, **found, **size}
