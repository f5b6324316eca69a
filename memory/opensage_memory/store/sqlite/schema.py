"""Tables of a memory file, and how an older file becomes a newer one."""

from __future__ import annotations

APPLICATION = 0x4F53474D
"""`PRAGMA application_id` of a memory file: OSGM."""

VERSION = 1
"""`PRAGMA user_version` that this code reads and writes."""

TABLES = """
CREATE TABLE items (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    scope TEXT NOT NULL,
    kind TEXT NOT NULL,
    text TEXT NOT NULL,
    hash BLOB NOT NULL,
    key TEXT NOT NULL,
    valid_from INTEGER,
    valid_to INTEGER,
    created_at INTEGER NOT NULL,
    retired_at INTEGER,
    archived INTEGER NOT NULL,
    stale INTEGER NOT NULL,
    sources TEXT NOT NULL,
    trust TEXT NOT NULL,
    author TEXT NOT NULL,
    seen INTEGER NOT NULL,
    uses INTEGER NOT NULL,
    data TEXT NOT NULL,
    tokens TEXT NOT NULL
);
CREATE INDEX items_by_key ON items(key, scope, kind) WHERE key <> '';
CREATE INDEX items_by_hash ON items(hash);
CREATE TABLE edges (
    source INTEGER NOT NULL REFERENCES items(seq) ON DELETE CASCADE,
    type TEXT NOT NULL,
    target INTEGER NOT NULL REFERENCES items(seq) ON DELETE CASCADE,
    relation TEXT NOT NULL,
    weight REAL NOT NULL,
    PRIMARY KEY (source, type, target, relation)
) WITHOUT ROWID;
CREATE INDEX edges_by_target ON edges(target, type, source);
CREATE TABLE vectors (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    model TEXT NOT NULL,
    item INTEGER NOT NULL REFERENCES items(seq) ON DELETE CASCADE,
    dimension INTEGER NOT NULL,
    data BLOB NOT NULL
);
CREATE UNIQUE INDEX vectors_by_item ON vectors(item, model);
CREATE TABLE operations (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    scope TEXT NOT NULL,
    at INTEGER NOT NULL,
    touched TEXT NOT NULL,
    undo TEXT NOT NULL
);
CREATE INDEX operations_to_undo ON operations(at) WHERE undo <> '';
CREATE TABLE tombstones (
    id TEXT PRIMARY KEY,
    scope TEXT NOT NULL,
    kind TEXT NOT NULL,
    at INTEGER NOT NULL,
    operation TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE tasks (
    item INTEGER NOT NULL REFERENCES items(seq) ON DELETE CASCADE,
    work TEXT NOT NULL,
    tries INTEGER NOT NULL,
    error TEXT NOT NULL,
    PRIMARY KEY (work, item)
) WITHOUT ROWID;
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""

MIGRATIONS: dict[int, str] = {}
"""By version: what makes a file of this version one of the next. A copy of the file is made before."""


def statements(script: str) -> list[str]:
    """The statements of a script: none of ours has a semicolon inside."""
    return [part for part in (piece.strip() for piece in script.split(";")) if part]
