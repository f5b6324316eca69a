"""Python programs from inside: stopped at a line, or watched for which test reaches a function."""

from __future__ import annotations

import json
import shlex
import tempfile
from pathlib import Path
from typing import Any

from .files import inside
from .index import Symbol
from .process import Ended, run
from .running import python

_HERE = Path(__file__).parent
_OUTPUT = 2000
_MOST_TESTS = 200
_REPORT = 8 << 20


def debug(
    target: str,
    breakpoint: str = "",
    expressions: list[str] | None = None,
    condition: str = "",
    hit: int = 1,
    seconds: float = 60.0,
    root: Path | str = ".",
) -> dict[str, Any]:
    """Run a program up to a line, or up to the exception that ends it, and tell what is there.

    Args:
        target: a script with its arguments, `-m module`, or a test as `file.py::test`.
        breakpoint: `file:line`; the exception without it.
        expressions: evaluated there.
        condition: an expression; it stops only where it holds.
        hit: stop at this time.
        seconds: time limit.
        root: the workspace.

    Raises:
        ValueError: no such file, or no such line.
    """
    words = shlex.split(target)
    if not words or (words[0].startswith("-") and (words[0] != "-m" or len(words) < 2)):
        raise ValueError("target is a script with its arguments, `-m module` or a test as file.py::test")
    if words[0] != "-m":
        inside(Path(root), words[0].partition("::")[0])
    file, line = _place(breakpoint, root)
    request = {"words": words, "file": file, "line": line, "expressions": (expressions or [])[:20]}
    request |= {"condition": condition, "hit": hit}
    done, text, _ = _driven("debug_driver.py", request, seconds, root)
    if not text:
        why = f"it did not end in {seconds:g} s" if done.late else f"it ended with exit code {done.code}"
        return {"stopped": "timeout" if done.late else "crash", "why": why, "output": done.output[-_OUTPUT:]}
    found = json.loads(text)
    if found["stopped"] == "ended" and breakpoint:
        found["why"] = f"{file}:{line} was reached {found['hits']} times"
    return {**found, "output": done.output[-_OUTPUT:]}


def covers(symbol: Symbol, path: str = "", seconds: float = 120.0, root: Path | str = ".") -> dict[str, Any]:
    """The tests that call a Python function.

    Args:
        symbol: the function.
        path: tests to run; all without it.
        seconds: time limit; the tests that ran by then count.
        root: the workspace.

    Raises:
        ValueError: it is no Python function.
    """
    _python_function(symbol)
    if path:
        inside(Path(root), path.partition("::")[0])
    request = {"file": symbol.path, "name": symbol.name, "line": symbol.line, "paths": [path] if path else []}
    done, text, _ = _driven("reach_driver.py", request, seconds, root)
    rows = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
    reached = sorted((row for row in rows if row["calls"]), key=lambda row: row["calls"])
    answer: dict[str, Any] = {"function": symbol.full, "file": symbol.path, "line": symbol.line, "ran": len(rows)}
    answer |= {"tests": reached[:_MOST_TESTS], "reached_by": len(reached)}
    if done.late:
        answer["note"] = f"the tests did not end in {seconds:g} s: these are those that did"
    return answer if rows else {**answer, "output": done.output[-_OUTPUT:]}


def fuzz(
    symbol: Symbol,
    seconds: float = 10.0,
    types: list[str] | None = None,
    expected: list[str] | None = None,
    seed: int = 0,
    root: Path | str = ".",
) -> dict[str, Any]:
    """Look for arguments for which a Python function fails, led by the lines they reach.

    Args:
        symbol: a function of a module, or a static method.
        seconds: how long.
        types: of the arguments, from str, bytes, int, float, bool, list[...]; its hints without them.
        expected: names of exceptions that are right to be raised.
        seed: of the random numbers.
        root: the workspace.

    Raises:
        ValueError: it is no Python function.
    """
    _python_function(symbol)
    request: dict[str, Any] = {"file": symbol.path, "name": symbol.full, "seconds": seconds, "seed": seed}
    request |= {"types": types or [], "expected": expected or []}
    done, text, last = _driven("fuzz_driver.py", request, seconds * 1.5 + 20, root)
    found: dict[str, Any] = json.loads(text) if text.startswith("{") else {"crashes": []}
    if done.late or done.code:
        said = "did not return" if done.late else f"ended with {done.code}"
        found["ended"] = f"the process {said}; its last call: {symbol.full}(*{last})"
        found["output"] = done.output[-_OUTPUT:]
    return found


def _python_function(symbol: Symbol) -> None:
    if not symbol.path.endswith(".py") or symbol.kind not in ("function", "method"):
        raise ValueError(f"{symbol.full} in {symbol.path} is a {symbol.kind}, not a Python function")


def _place(breakpoint: str, root: Path | str) -> tuple[str, int]:
    if not breakpoint:
        return "", 0
    file, _, number = breakpoint.rpartition(":")
    if not file or not number.isdigit():
        raise ValueError(f"breakpoint must be file:line, got {breakpoint!r}")
    return inside(Path(root), file), int(number)


def _driven(driver: str, request: dict[str, Any], seconds: float, root: Path | str) -> tuple[Ended, str, str]:
    """Run a driver with the workspace's Python; its report, and the last input it noted; "" for none."""
    with tempfile.TemporaryDirectory(prefix="opensage-python-") as folder:
        asked, report = Path(folder) / "request", Path(folder) / "report"
        asked.write_text(json.dumps(request), encoding="utf-8")
        done = run([python(root), str(_HERE / driver), str(asked), str(report)], root, seconds)
        noted = _read(Path(f"{report}.input"))
        last = noted[8 : 8 + int.from_bytes(noted[:8], "big")][:_OUTPUT]
        return done, _read(report).decode("utf-8", "replace"), last.decode("utf-8", "replace")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()[:_REPORT]
    except OSError:
        return b""
