"""The functions an agent may call: JSON in, JSON out, bounded. Paths are from the workspace, the current folder."""

from __future__ import annotations

from typing import Any, Literal

from . import git as _git
from . import running as _running
from .lookup import Lookup

__all__ = [
    "call_path",
    "callees",
    "callers",
    "definition",
    "git_bisect",
    "git_blame",
    "git_diff",
    "outline",
    "references",
    "repo_map",
    "run_tests",
    "symbols",
]

_MOST = 500
_LONGEST = 280


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


def run_tests(command: str = "", path: str = "", timeout: float = 120) -> dict[str, Any]:
    """Run tests; failures come with file, line, message and assertion.

    Args:
        command: pytest, unittest or any command; found out without it
        path: test file, folder or test id
        timeout: seconds, at most 280
    """
    return _running.run_tests(command, path, _seconds(timeout)).shown()


def git_diff(revision: str = "HEAD", path: str = "") -> dict[str, Any]:
    """What differs from a commit.

    Args:
        revision: the commit
        path: only there
    """
    return _git.diff(".", revision, path)


def git_blame(path: str, line: int, count: int = 1) -> dict[str, Any]:
    """Which commit wrote a line.

    Args:
        path: of the file
        line: the first
        count: lines
    """
    return _git.blame(".", path, line, count)


def git_bisect(command: str, good: str, bad: str = "HEAD", timeout: float = 60) -> dict[str, Any]:
    """The first commit for which a command fails, found in a copy.

    Args:
        command: exits with 0 where all is well
        good: a commit where it does
        bad: a later one where it does not
        timeout: seconds a run
    """
    return _git.bisect(".", command, good, bad, _seconds(timeout))


def _seconds(timeout: float) -> float:
    if not 0 < timeout <= _LONGEST:
        raise ValueError(f"timeout must be more than 0 and at most {_LONGEST} seconds")
    return timeout


def _lookup(limit: int) -> Lookup:
    if not 1 <= limit <= _MOST:
        raise ValueError(f"limit must be from 1 to {_MOST}")
    return Lookup()
