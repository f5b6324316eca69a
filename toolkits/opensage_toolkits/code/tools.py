"""The functions an agent may call: JSON in, JSON out, bounded. Paths are from the workspace, the current folder."""

from __future__ import annotations

from typing import Any, Literal

from . import git as _git
from . import inspecting as _inspecting
from . import running as _running
from .lookup import Lookup

__all__ = [
    "call_path",
    "callees",
    "callers",
    "covers",
    "debug",
    "definition",
    "fuzz",
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


def debug(
    target: str,
    breakpoint: str = "",
    expressions: list[str] | None = None,
    condition: str = "",
    hit: int = 1,
    timeout: float = 60,
) -> dict[str, Any]:
    """Run Python to a line, or to its exception; shows stack, locals and values.

    Args:
        target: script with arguments, -m module, or file.py::test
        breakpoint: file:line; the exception without it
        expressions: to evaluate there
        condition: stop only where it holds
        hit: stop at this time
        timeout: seconds
    """
    return _inspecting.debug(target, breakpoint, expressions, condition, hit, _seconds(timeout))


def covers(function: str, path: str = "", timeout: float = 120) -> dict[str, Any]:
    """Which tests reach a Python function.

    Args:
        function: name, Class.name or path:name
        path: only these tests
        timeout: seconds
    """
    with Lookup() as lookup:
        symbol = lookup.one(function)
    return _inspecting.covers(symbol, path, _seconds(timeout))


def fuzz(
    target: str,
    seconds: float = 10,
    types: list[str] | None = None,
    expected: list[str] | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Look for arguments that crash a Python function, and make them small.

    Args:
        target: name or path:name of a function of a module
        seconds: at most 180
        types: of its arguments, such as str or list[int]; its hints without
        expected: exceptions that are right
        seed: of the random numbers
    """
    if not 0 < seconds <= 180:
        raise ValueError("seconds must be more than 0 and at most 180")
    with Lookup() as lookup:
        symbol = lookup.one(target)
    return _inspecting.fuzz(symbol, seconds, types, expected, seed)


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
