"""The store for those who outgrow one machine: Neo4j 5.26 or later over Bolt, and ArcadeDB, which speaks the same."""

from __future__ import annotations

from opensage_memory.store.neo4j.store import Neo4jStore

__all__ = ["Neo4jStore"]
