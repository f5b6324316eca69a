"""The default store: one SQLite file, no extension, no server."""

from __future__ import annotations

from opensage_memory.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
