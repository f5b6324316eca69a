"""Talking to the server: queries that return plain rows, and errors that say what to do."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

from opensage_memory.errors import ReadOnly, StoreUnavailable
from opensage_memory.store.neo4j.values import pack, unpack

WAIT_SECONDS = 30.0
"""How long a writer waits for another, and a first query for a server that is busy."""
AWAY_SECONDS = 2.0
Answer = TypeVar("Answer")
Rows = list[list[Any]]


class Run(Protocol):
    """One query with its parameters; returns the rows."""

    def __call__(self, query: str, /, **values: Any) -> Rows:
        """Run it."""


def driver_module() -> Any:
    """The official driver.

    Raises:
        StoreUnavailable: it is not installed.
    """
    try:
        import neo4j
    except ImportError as error:
        raise StoreUnavailable("the neo4j store needs its driver: pip install 'opensage[neo4j]'") from error
    return neo4j


def rows_of(result: Any) -> Rows:
    """All rows of a result."""
    return [[unpack(value) for value in record.values()] for record in result]


def pairs(rows: Rows) -> dict[Any, Any]:
    """Rows of two as a mapping."""
    return {row[0]: row[1] for row in rows}


def in_transaction(transaction: Any) -> Run:
    """Queries of one open transaction."""
    return lambda query, /, **values: rows_of(transaction.run(query, pack(values)))


def one_by_one(session: Any) -> Run:
    """Reading queries, each in a transaction of its own that the driver tries again while the server says `later`."""
    return lambda query, /, **values: session.execute_read(lambda each: rows_of(each.run(query, pack(values))))


def alone(session: Any) -> Run:
    """Queries that the server commits at once: changes of the schema, and what is kept whatever becomes of a write."""
    return lambda query, /, **values: rows_of(session.run(query, pack(values)))


def patiently(step: Callable[[], Answer], seconds: float = WAIT_SECONDS) -> Answer:
    """Do a step again while another transaction is in its way; it must be one that may run twice."""
    errors, start = driver_module().exceptions, time.monotonic()
    while True:
        try:
            return step()
        except (errors.Neo4jError, errors.DriverError) as error:
            # Connections kept from before a restart of the server fail, each once; a server that is away stays away.
            away = isinstance(error, errors.ServiceUnavailable)
            if not error.is_retryable() or time.monotonic() - start > (AWAY_SECONDS if away else seconds):
                raise
            time.sleep(random.uniform(0.005, 0.05))


@contextlib.contextmanager
def explained(name: str, database: str | None) -> Iterator[None]:
    """Turn the driver's errors into ours."""
    errors = driver_module().exceptions
    try:
        yield
    except errors.AuthError as error:
        raise StoreUnavailable(
            f"{name} refuses this user or password: look at OPENSAGE_NEO4J_USER and OPENSAGE_NEO4J_PASSWORD"
        ) from error
    except errors.Neo4jError as error:
        said = " ".join((error.message or str(error)).split())[:300]
        code = error.code or ""
        if "DatabaseNotFound" in code or ("atabase" in said and "not" in said and "exist" in said):
            raise StoreUnavailable(f"{name} has no database {database!r}: look at OPENSAGE_NEO4J_DATABASE") from error
        if "Forbidden" in code or "AccessMode" in code:
            raise ReadOnly(f"{name}: this user may not do that ({said})") from error
        if "TransientError" in code or "TransactionTimedOut" in code:
            raise StoreUnavailable(f"{name} is busy, and nothing was written: do it again ({said})") from error
        raise StoreUnavailable(f"{name}: {code}: {said}") from error
    except errors.IncompleteCommit as error:
        raise StoreUnavailable(
            f"{name} went away at the end of a write, which is there whole or not at all: look before you repeat it"
        ) from error
    except (errors.DriverError, OSError) as error:
        said = " ".join(str(error).split())[:300]
        raise StoreUnavailable(f"{name} cannot be reached: start the server or mend the address ({said})") from error
