"""In what servers that speak Bolt and Cypher differ: indexes, cosines, and how a writer waits for another."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Protocol

from opensage_memory.errors import StoreUnavailable
from opensage_memory.store.neo4j.connection import Run, patiently
from opensage_memory.store.neo4j.locks import Lease, Lock, NodeLock

UNIQUE = {
    "Lock": ("id",),
    "Lease": ("id",),
    "Item": ("id",),
    "Operation": ("id",),
    "Tombstone": ("id",),
    "Task": ("item", "work"),
    "Meta": ("name",),
    "Model": ("name",),
}
"""Labels and what identifies a node of each."""
INDEXED = {
    "Item": ("scope", "hash", "key_hash", "seq"),
    "Operation": ("seq", "undo_before"),
}
TEXT_INDEX = "item_tokens"
INDEX_SECONDS = 300


class Dialect(Protocol):
    """What a server understands."""

    name: str
    labels: bool
    """Whether a node may get a label beside its first."""
    text_index: str
    cosine: str
    """The cosine of the property {0} and the parameter {1}."""
    most_dimensions: int
    """Of a vector in an index; longer ones are looked at one by one."""

    def lock(self) -> Lock:
        """For one transaction."""

    def prepare(self, alone: Run) -> None:
        """Make what is not there yet, and wait for it; many processes may do so at once."""

    def vector_index(self, name: str) -> str:
        """What the index over this property is called."""

    def make_vector_index(self, alone: Run, name: str, dimension: int) -> None:
        """Make it, and wait for it."""


class Neo4jDialect:
    """Neo4j 5.26 and later."""

    name = "neo4j"
    labels = True
    text_index = TEXT_INDEX
    cosine = "2 * vector.similarity.cosine({0}, {1}) - 1"
    most_dimensions = 4096

    def lock(self) -> Lock:
        """For one transaction."""
        return NodeLock()

    def prepare(self, alone: Run) -> None:
        """Constraints, indexes, full-text index."""
        make_constraints(alone)
        _once(
            alone,
            f"CREATE FULLTEXT INDEX {TEXT_INDEX} IF NOT EXISTS FOR (n:Item) ON EACH [n.tokens] OPTIONS "
            "{indexConfig: {`fulltext.analyzer`: 'whitespace', `fulltext.eventually_consistent`: false}}",
        )
        alone("CALL db.awaitIndexes($seconds)", seconds=INDEX_SECONDS)

    def vector_index(self, name: str) -> str:
        """What the index over this property is called."""
        return name

    def make_vector_index(self, alone: Run, name: str, dimension: int) -> None:
        """Make it, and wait for it."""
        _once(
            alone,
            f"CREATE VECTOR INDEX {name} IF NOT EXISTS FOR (n:Item) ON (n.{name}) OPTIONS {{indexConfig: "
            f"{{`vector.dimensions`: {int(dimension)}, `vector.similarity_function`: 'cosine'}}}}",
        )
        alone("CALL db.awaitIndexes($seconds)", seconds=INDEX_SECONDS)


class ArcadeDialect:
    """ArcadeDB: its full-text and vector indexes are made in its own SQL, which it takes over HTTP only.

    Args:
        sql: asks the server a statement of SQL.
    """

    name = "arcadedb"
    labels = False  # a second label makes another vertex of it
    text_index = "Item[tokens]"
    cosine = "vector.similarity.cosine({0}, {1})"
    most_dimensions = 1 << 16

    def __init__(self, sql: Callable[[str], None]) -> None:
        self._sql = sql

    def lock(self) -> Lock:
        """For one transaction."""
        return Lease()

    def prepare(self, alone: Run) -> None:
        """Constraints, indexes, full-text index: by one process at a time."""
        make_unique(alone, "Lease")
        lease = Lease()
        lease.take(alone)
        try:
            make_constraints(alone)
            self._sql("CREATE PROPERTY Item.tokens IF NOT EXISTS STRING")
            self._sql(
                "CREATE INDEX IF NOT EXISTS ON Item (tokens) FULL_TEXT METADATA "
                '{"analyzer": "org.apache.lucene.analysis.core.WhitespaceAnalyzer", "similarity": "BM25"}'
            )
        finally:
            lease.leave(alone)

    def vector_index(self, name: str) -> str:
        """What the index over this property is called."""
        return f"Item[{name}]"

    def make_vector_index(self, alone: Run, name: str, dimension: int) -> None:
        """Make it over what is there already."""
        lease = Lease()
        lease.take(alone)
        try:
            self._sql(f"CREATE PROPERTY Item.{name} IF NOT EXISTS ARRAY_OF_FLOATS")
            self._sql(
                f"CREATE INDEX IF NOT EXISTS ON Item ({name}) LSM_VECTOR METADATA "
                f'{{"dimensions": {int(dimension)}, "similarity": "COSINE"}}'
            )
        finally:
            lease.leave(alone)


def make_constraints(alone: Run) -> None:
    """What identifies a node, and what it is looked up by: the same Cypher for every server."""
    for label in UNIQUE:
        make_unique(alone, label)
    for label, names in INDEXED.items():
        for name in names:
            _once(alone, f"CREATE INDEX {label.lower()}_{name} IF NOT EXISTS FOR (n:{label}) ON (n.{name})")


def make_unique(alone: Run, label: str) -> None:
    """One node for each identity."""
    names = ", ".join(f"n.{name}" for name in UNIQUE[label])
    _once(alone, f"CREATE CONSTRAINT {label.lower()}_once IF NOT EXISTS FOR (n:{label}) REQUIRE ({names}) IS UNIQUE")


def _once(alone: Run, statement: str) -> None:
    """Make something that another process may be making at this moment."""

    def step() -> None:
        try:
            alone(statement)
        except Exception as error:
            if "AlreadyExists" not in (getattr(error, "code", "") or ""):
                raise

    patiently(step)


class HttpSql:
    """Statements of SQL for ArcadeDB, which takes them over HTTP.

    Args:
        address: `http://HOST:PORT`.
        database: its name.
        user: who asks.
        password: of the user.
    """

    def __init__(self, address: str, database: str, user: str, password: str) -> None:
        self._url = f"{address.rstrip('/')}/api/v1/command/{database}"
        secret = base64.b64encode(f"{user}:{password}".encode()).decode()
        self._headers = {"Authorization": f"Basic {secret}", "Content-Type": "application/json"}

    def __call__(self, statement: str) -> None:
        """Run one.

        Raises:
            StoreUnavailable: the server does not answer, or refuses.
        """
        body = json.dumps({"language": "sql", "command": statement}).encode()
        request = urllib.request.Request(self._url, body, self._headers)
        try:
            with urllib.request.urlopen(request, timeout=INDEX_SECONDS) as answer:
                answer.read()
        except urllib.error.HTTPError as error:
            said = error.read(500).decode(errors="replace")
            raise StoreUnavailable(f"ArcadeDB refuses {statement[:60]!r}: {said}") from error
        except OSError as error:
            raise StoreUnavailable(
                f"{self._url} does not answer ({error}): ArcadeDB makes its indexes over HTTP; name it in "
                "OPENSAGE_ARCADEDB_HTTP"
            ) from error
