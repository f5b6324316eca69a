"""The functions an agent may call: JSON in, JSON out, bounded. Paths are from the workspace, the current folder."""

from __future__ import annotations

from typing import Any, Literal

from .lookup import Lookup

__all__ = [
    "call_path",
    "callees",
    "callers",
    "definition",
    "outline",
    "references",
    "repo_map",
    "symbols",
]

_MOST = 500


def symbols(
    query: str,
    kind: Literal["", "class", "function", "method", "variable", "interface", "type", "enum", "module", "macro"] = "",
    limit: int = 50,
) -> dict[str, Any]:
    """Find definitions by part of a name.

    Args:
        query: part of a name, or Class.part; * stands for anything
        kind: only these
        limit: at most so many
    """
    with _lookup(limit) as lookup:
        return lookup.symbols(query, kind, limit)


def definition(name: str, limit: int = 5) -> dict[str, Any]:
    """Where a name is defined, and its code.

    Args:
        name: name, Class.name or path:name
        limit: at most so many
    """
    with _lookup(limit) as lookup:
        return lookup.definition(name, limit)


def references(name: str, limit: int = 100) -> dict[str, Any]:
    """Lines that use an identifier; not comments or strings.

    Args:
        name: the identifier
        limit: at most so many
    """
    with _lookup(limit) as lookup:
        return lookup.references(name, limit)


def callers(name: str, limit: int = 100) -> dict[str, Any]:
    """Who calls a function.

    Args:
        name: name, Class.name or path:name
        limit: at most so many
    """
    with _lookup(limit) as lookup:
        return lookup.callers(name, limit)


def callees(name: str, limit: int = 100) -> dict[str, Any]:
    """What a function calls.

    Args:
        name: name, Class.name or path:name
        limit: at most so many
    """
    with _lookup(limit) as lookup:
        return lookup.callees(name, limit)


def call_path(source: str, target: str) -> dict[str, Any]:
    """A chain of calls from one function to another.

    Args:
        source: name, Class.name or path:name
        target: the same
    """
    with Lookup() as lookup:
        return lookup.call_path(source, target)


def outline(path: str = ".", limit: int = 200) -> dict[str, Any]:
    """The definitions in a file or folder.

    Args:
        path: of the file or folder
        limit: at most so many
    """
    with _lookup(limit) as lookup:
        return lookup.outline(path, limit)


def repo_map(budget_tokens: int = 1000, focus: str = "") -> dict[str, Any]:
    """The most important definitions of the repository, to get to know it.

    Args:
        budget_tokens: size of the map, at most 20000
        focus: files, names or words the task is about
    """
    if not 1 <= budget_tokens <= 20_000:
        raise ValueError("budget_tokens must be from 1 to 20000")
    with Lookup() as lookup:
        return lookup.repo_map(budget_tokens, focus)


def _lookup(limit: int) -> Lookup:
    if not 1 <= limit <= _MOST:
        raise ValueError(f"limit must be from 1 to {_MOST}")
    return Lookup()
