"""A memory on a server that speaks Bolt and Cypher."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from opensage_memory.errors import ReadOnly, StoreUnavailable
from opensage_memory.item import digest, now
from opensage_memory.scope import EVERYTHING, View
from opensage_memory.store.neo4j.connection import (
    WAIT_SECONDS,
    Run,
    alone,
    driver_module,
    explained,
    in_transaction,
    one_by_one,
    pairs,
    patiently,
)
from opensage_memory.store.neo4j.dialect import ArcadeDialect, Dialect, HttpSql, Neo4jDialect
from opensage_memory.store.neo4j.locks import Lock
from opensage_memory.store.neo4j.reader import Neo4jReader
from opensage_memory.store.neo4j.writer import Neo4jWriter

TRANSACTION_SECONDS = 300.0
"""How long one write may take on the server, with its waiting for other writers."""
SCHEMES = ("neo4j", "neo4j+s", "neo4j+ssc", "bolt", "bolt+s", "bolt+ssc")


class _Mine(threading.local):
    """What a thread has: its open write."""

    writer: Neo4jWriter | None = None


class Neo4jStore:
    """`Store` on a Neo4j server, 5.26 or later, or on ArcadeDB. The Community edition suffices: a scope is a property.

    Reads are each of a committed state; several reads of one `read()` may see different ones, unless inside a write.

    Args:
        address: `neo4j://HOST:PORT`, `bolt://...`, `neo4j+s://...`; a user and password in it come first.
        user: who asks.
        password: of the user.
        database: its name; None for the server's default.
        read_only: never write.
        sql_address: where ArcadeDB takes SQL over HTTP, `http://HOST:2480` when not said.

    Raises:
        StoreUnavailable: driver missing, server away, user, password or database refused.
    """

    def __init__(
        self,
        address: str,
        user: str = "",
        password: str = "",
        database: str | None = None,
        *,
        read_only: bool = False,
        sql_address: str = "",
    ) -> None:
        parts = _parts(address)
        self._user = unquote(parts.username or "") or user or "neo4j"
        self._password = unquote(parts.password or "") or password
        host = parts.netloc.rpartition("@")[2]
        self._address = f"{parts.scheme}://{host}"
        self.name = f"neo4j:{self._address}" + (f"/{database}" if database else "")
        self.writable = not read_only
        self.trouble = ""
        self._database = database
        self._sql_address = sql_address or f"http://{parts.hostname}:2480"
        self._mine = _Mine()
        self._writing = threading.Lock()
        self._driver: Any = None
        self._pid = 0
        self._closed = False
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    @classmethod
    def from_environment(cls, address: str = "", *, read_only: bool = False) -> Neo4jStore:
        """The store that OPENSAGE_NEO4J_URI, _USER, _PASSWORD and _DATABASE name.

        Raises:
            StoreUnavailable: no address is given, or what `Neo4jStore` raises.
        """
        address = address or os.environ.get("OPENSAGE_NEO4J_URI", "")
        if not address:
            raise StoreUnavailable("no server is named: set OPENSAGE_NEO4J_URI, as neo4j://localhost:7687")
        return cls(
            address,
            os.environ.get("OPENSAGE_NEO4J_USER", ""),
            os.environ.get("OPENSAGE_NEO4J_PASSWORD", ""),
            os.environ.get("OPENSAGE_NEO4J_DATABASE") or None,
            read_only=read_only,
            sql_address=os.environ.get("OPENSAGE_ARCADEDB_HTTP", ""),
        )

    def _open(self) -> None:
        with explained(self.name, self._database):
            self._agent = str(self._connect().get_server_info().agent)
            self._dialect: Dialect = self._arcade() if "ArcadeDB" in self._agent else Neo4jDialect()
            if self.writable:
                with self._session() as session:
                    self._dialect.prepare(alone(session))
                    waiting = alone(session)("MATCH (m:Model) WHERE m.online IS NULL RETURN m.name, m.dimension")
                self._make_indexes(pairs(waiting))

    def _arcade(self) -> Dialect:
        return ArcadeDialect(HttpSql(self._sql_address, self._database or "", self._user, self._password))

    def _connect(self) -> Any:
        """The driver; another after a fork, which no connection survives."""
        if self._closed:
            raise StoreUnavailable(f"{self.name} is closed")
        if self._driver is None or self._pid != os.getpid():
            self._driver = driver_module().GraphDatabase.driver(
                self._address,
                auth=(self._user, self._password),
                connection_timeout=10,
                connection_acquisition_timeout=WAIT_SECONDS,
                max_transaction_retry_time=3,
                liveness_check_timeout=30,
                notifications_min_severity="OFF",
                user_agent="opensage",
            )
            self._bookmarks = driver_module().GraphDatabase.bookmark_manager()
            self._pid, self._mine = os.getpid(), _Mine()
        return self._driver

    def _session(self) -> Any:
        """In a cluster each sees what this store wrote before."""
        driver = self._connect()
        return driver.session(database=self._database, bookmark_manager=self._bookmarks)

    @contextlib.contextmanager
    def read(self) -> Iterator[Neo4jReader]:
        """See `Store`. Inside a write of this thread it is that one."""
        if self._mine.writer is not None:
            yield self._mine.writer
            return
        with explained(self.name, self._database), self._session() as session:
            yield Neo4jReader(one_by_one(session), self._dialect)

    @contextlib.contextmanager
    def write(self) -> Iterator[Neo4jWriter]:
        """See `Store`. Inside a write of this thread it is that one."""
        if not self.writable:
            raise ReadOnly(f"{self.name} was opened for reading only")
        if self._mine.writer is not None:
            yield self._mine.writer
            return
        if not self._writing.acquire(timeout=WAIT_SECONDS):
            raise StoreUnavailable(f"{self.name}: another thread has written for {WAIT_SECONDS:.0f} s")
        try:
            with explained(self.name, self._database), self._session() as session, self._session() as other:
                with self._transaction(session, alone(other)) as writer:
                    yield writer
                self._make_indexes(writer.offline)
        finally:
            self._writing.release()

    @contextlib.contextmanager
    def _transaction(self, session: Any, other: Run) -> Iterator[Neo4jWriter]:
        lock = self._dialect.lock()
        lock.take(other)
        committed = False
        try:
            transaction, number = patiently(lambda: self._begin(session, lock))
            with transaction:
                run = in_transaction(transaction)

                def query(text: str, /, **values: Any) -> list[list[Any]]:
                    lock.keep(other)
                    return run(text, **values)

                writer = self._mine.writer = Neo4jWriter(query, self._dialect, number)
                yield writer
                lock.last(run, writer.number)
                transaction.commit()
                committed = True
        finally:
            self._mine.writer = None
            if not committed:
                with contextlib.suppress(driver_module().exceptions.DriverError, driver_module().exceptions.Neo4jError):
                    lock.leave(other)  # else its time runs out

    def _begin(self, session: Any, lock: Lock) -> tuple[Any, int]:
        transaction = session.begin_transaction(timeout=TRANSACTION_SECONDS)
        try:
            return transaction, lock.first(in_transaction(transaction))
        except BaseException:
            transaction.close()
            raise

    def _make_indexes(self, names: dict[str, int]) -> None:
        """Vector indexes for what was just stored: a server makes none while a transaction has changed the label."""
        fit = {name: size for name, size in names.items() if 0 < size <= self._dialect.most_dimensions}
        if not fit:
            return
        try:
            with explained(self.name, self._database), self._session() as session:
                run = alone(session)
                for name, dimension in fit.items():
                    self._dialect.make_vector_index(run, name, dimension)
                patiently(lambda: run("MATCH (m:Model) WHERE m.name IN $names SET m.online = true", names=list(fit)))
        except StoreUnavailable as error:  # the vectors are there all the same, and found one by one
            self.trouble = f"a vector index could not be made, the next opening tries again: {error}"

    def check(self) -> list[str]:
        """See `Store`."""
        found: list[str] = []
        view = View((EVERYTHING,), now()).everything()
        with self.read() as reader:
            after = 0
            while rows := reader.scan(view, after=after):
                after = rows[-1][0]
                found += [
                    f"item {item.id}: its text is not the one that was stored"
                    for _, item in rows
                    if digest(item.text) != item.hash
                ]
            buried = reader.run("MATCH (t:Tombstone) MATCH (n:Item {id: t.id}) RETURN n.id")
            found += [f"item {row[0]}: forgotten, and there" for row in buried]
            counts = reader.counts()
            if counts.indexed != counts.items:
                found.append(f"full-text index: {counts.indexed} items of {counts.items}")
            states = reader.run("SHOW INDEXES YIELD name, state WHERE state <> 'ONLINE' RETURN name, state")
            found += [f"index {name} is {state}" for name, state in states]
        found += [self.trouble] if self.trouble else []
        return found

    def vacuum(self) -> None:
        """Nothing: the space of what was removed, and when its bytes are overwritten, is the server's own matter."""

    def stats(self) -> dict[str, Any]:
        """See `Store`."""
        return {
            "store": self.name,
            "server": self._agent,
            "dialect": self._dialect.name,
            "database": self._database,
            "writable": self.writable,
            "trouble": self.trouble,
        }

    def close(self) -> None:
        """See `Store`."""
        self._closed = True
        if self._driver is not None and self._pid == os.getpid():
            self._driver.close()


def _parts(address: str) -> SplitResult:
    """The parts of an address."""
    try:
        parts = urlsplit(address)
        if parts.scheme in SCHEMES and parts.hostname and parts.port != 0:
            return parts
    except ValueError:
        pass
    shown = address.rpartition("@")[2][:80]
    raise StoreUnavailable(f"{shown!r} is no address of a server: give it as neo4j://localhost:7687")
