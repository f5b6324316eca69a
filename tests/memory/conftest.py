"""Stores for the tests of the memory: each kind empty, and openable again."""

from __future__ import annotations

import contextlib
import fcntl
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from memory_servers import GIVEN, Address, ArcadeServer

from opensage_memory.store.base import Store
from opensage_memory.store.sqlite import SqliteStore

STORES = ("sqlite", "neo4j")
OpenStore = Callable[..., Store]


@pytest.fixture(scope="session")
def bolt_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    """The server that OPENSAGE_NEO4J_URI names, else an ArcadeDB of this worker's own; started once."""
    if GIVEN["URI"]:
        user, password = GIVEN["USER"] or "neo4j", GIVEN["PASSWORD"]
        yield Address(GIVEN["URI"], user, password, GIVEN["DATABASE"] or None, GIVEN["SQL"])
        return
    server = ArcadeServer(tmp_path_factory.mktemp("arcadedb"))
    server.start()
    try:
        yield server.address
    finally:
        server.stop()


@pytest.fixture
def bolt(bolt_server: Address) -> Iterator[Address]:
    """That server with an empty database, for one test of one worker at a time."""
    with (Path(tempfile.gettempdir()) / "opensage-tests-bolt.lock").open("w") as lock:
        if GIVEN["URI"]:
            fcntl.flock(lock, fcntl.LOCK_EX)
        bolt_server.empty()
        yield bolt_server


@pytest.fixture(params=STORES)
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenStore]:
    """Opens the test's one memory, again and again if asked to; of each kind of store. Empty at first."""
    with contextlib.ExitStack() as opened:
        bolt: Address | None = request.getfixturevalue("bolt") if request.param == "neo4j" else None

        def open_it(**options: Any) -> Store:
            store = bolt.open(**options) if bolt else SqliteStore(tmp_path / "memory.db", **options)
            opened.callback(store.close)
            return store

        yield open_it


@pytest.fixture
def store(open_store: OpenStore) -> Store:
    """An empty memory, of each kind of store."""
    return open_store()
