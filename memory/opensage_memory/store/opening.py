"""Stores by name."""

from __future__ import annotations

from pathlib import Path

from opensage_memory.store.base import Store

SCHEMES = ("neo4j://", "neo4j+s://", "neo4j+ssc://", "bolt://", "bolt+s://", "bolt+ssc://")


def open_store(where: str | Path, *, read_only: bool = False, durable: bool = False) -> Store:
    """An SQLite file by its path, or a server by its address (`neo4j://HOST:7687`; user and password: see there).

    `durable` waits for the disk at each commit of a file: a power cut then loses nothing that was acknowledged.

    Raises:
        Damaged, StoreUnavailable: it cannot be opened.
    """
    if str(where).startswith(SCHEMES):
        from opensage_memory.store.neo4j import Neo4jStore

        return Neo4jStore.from_environment(str(where), read_only=read_only)
    from opensage_memory.store.sqlite import SqliteStore

    return SqliteStore(where, read_only=read_only, durable=durable)
