"""Runs pytest where a candidate's code runs too, and reports each result at once, signed. The grader sends it as text.

It works with any Python from 3.8 and any pytest from 5 on, and imports nothing of this package. The candidate shares
its process, so it is made hard to lie, not impossible: what a result is comes from the exception that a test raised,
not from pytest's word; results go out one by one through a descriptor of their own, signed with a key that came by
standard input; and functions of pytest that were replaced are noticed.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and sys.path[0] == "":
    del sys.path[0]  # that is the checkout, where a patch may have put a `json.py`

import hashlib
import hmac
import importlib.util
import json
import os
import time
import types
from typing import Any, Iterator, NoReturn  # noqa: UP035

_WATCHED = frozenset(
    ["builtins", "pytest", "unittest.case", "_pytest._code.code"]
    + ["_pytest." + name for name in ("main", "outcomes", "python", "python_api", "raises", "reports", "runner")]
    + ["_pytest." + name for name in ("skipping", "unittest", "assertion", "assertion.rewrite")]
    + ["pluggy." + name for name in ("_callers", "_hooks", "_manager", "_result")]
)
"""Modules that the outcome of a test hangs on."""
_KINDS = (types.FunctionType, types.BuiltinFunctionType, type, property, staticmethod, classmethod)
_MOST_TEXT = 2000
_leave = os._exit


class Line:
    """The way out: numbered, signed lines."""

    def __init__(self, fd: int, key: bytes) -> None:
        self._fd, self._key, self._count, self._process = fd, key, 0, os.getpid()

    def send(self, kind: str, *facts: Any) -> None:
        """Send one result; a fork of the process sends none."""
        if os.getpid() != self._process:
            return
        body = json.dumps([self._count, kind, *facts]).encode()
        self._count += 1
        rest = hmac.new(self._key, body, hashlib.sha256).hexdigest().encode() + b" " + body + b"\n"
        while rest:
            rest = rest[os.write(self._fd, rest) :]


def watched() -> Iterator[tuple[str, Any]]:
    """Names and values of what a test's outcome hangs on."""
    for name, module in list(sys.modules.items()):
        if name in _WATCHED:
            for key, value in list(vars(module).items()):
                if isinstance(value, _KINDS):
                    yield name + "." + key, value
                if isinstance(value, type) and value.__module__ == name:
                    for attribute, inner in list(vars(value).items()):
                        if isinstance(inner, _KINDS):
                            yield name + "." + key + "." + attribute, inner


def marks() -> dict[str, tuple[int, int]]:
    """What identifies each function: itself and its code."""
    return {name: (id(value), id(getattr(value, "__code__", None))) for name, value in watched()}


class Reporter:
    """The plugin."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._before: dict[str, tuple[int, int]] = {}
        self._cost, self._last = 0.0, 0.0

    def pytest_load_initial_conftests(self) -> None:
        """Note what pytest is made of, before anything of the checkout is imported."""
        start = time.perf_counter()
        self._before = marks()
        self._cost = time.perf_counter() - start

    def compare(self, always: bool = False) -> None:
        """Say what was replaced since; no more than a twentieth of the time goes into it."""
        now = time.perf_counter()
        if always or now - self._last > 20 * self._cost:
            after = marks()
            changed = [name for name, mark in self._before.items() if after.get(name) != mark]
            if changed:
                self._line.send("tampered", sorted(changed)[:10])
            self._last = time.perf_counter()

    def pytest_collectreport(self, report: Any) -> None:
        """A file could not be collected."""
        if report.failed:
            self._line.send("uncollected", report.nodeid, str(report.longrepr)[-_MOST_TEXT:])

    def pytest_collection_finish(self, session: Any) -> None:
        """Tests will run; one of unittest has a second name, which Django's and unittest's runners print."""
        for item in session.items:
            cls = getattr(item, "cls", None)
            other = f"{item.name} ({cls.__module__}.{cls.__qualname__})" if cls is not None else ""
            self._line.send("found", item.nodeid, other)

    def pytest_runtest_makereport(self, item: Any, call: Any) -> Any:
        """One phase of a test ended. A report that says passed though an exception was raised is not believed."""
        report = (yield).get_result()
        outcome = report.outcome
        if outcome == "passed" and call.excinfo is not None:
            self._line.send("tampered", ["the report of " + item.nodeid[:200]])
            outcome = "failed"
        text = str(report.longrepr)[-_MOST_TEXT:] if outcome == "failed" else ""
        expected = hasattr(report, "wasxfail")
        self._line.send("test", item.nodeid, call.when, outcome, expected, text, round(call.stop - call.start, 6))
        if call.when == "teardown":
            self.compare()


def main() -> NoReturn:
    """Read the settings, a line of JSON, from standard input; run; leave without what the candidate left to be done."""
    settings = json.loads(sys.stdin.buffer.readline())
    line = Line(os.dup(1), bytes.fromhex(settings.pop("key")))
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    try:
        import pytest
    except ImportError as error:
        line.send("unable", str(error))
        _leave(1)

    plugins: list[Any] = [Reporter(line)]
    arguments = list(settings["arguments"])
    if settings["seconds"]:
        if importlib.util.find_spec("pytest_timeout") is None:
            line.send("untimed")
        else:
            arguments = [f"--timeout={settings['seconds']}", "--timeout-method=signal", *arguments]
            if os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD"):
                plugins.append(importlib.import_module("pytest_timeout"))
    if settings["here"]:
        sys.path.insert(0, os.getcwd())
    pytest.hookimpl(tryfirst=True)(Reporter.pytest_load_initial_conftests)
    pytest.hookimpl(tryfirst=True, hookwrapper=True)(Reporter.pytest_runtest_makereport)
    code = int(pytest.main(arguments, plugins=plugins))
    plugins[0].compare(always=True)
    line.send("end", code)
    sys.stdout.flush()
    sys.stderr.flush()
    _leave(code)


if __name__ == "__main__":
    main()
