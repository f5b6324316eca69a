"""Runs unittest and writes what came of each test as JSON: `python unittest_report.py REPORT [NAME or path ...]`.

It runs on the workspace's own Python, so it needs nothing but the standard library, and no new syntax.
"""

from __future__ import annotations

import json
import os
import sys
import unittest
from typing import Any


class Result(unittest.TextTestResult):
    """Keeps failures with their place."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.rows: list[dict[str, Any]] = []
        self.passed = 0

    def addSuccess(self, test: Any) -> None:
        """A test that passed."""
        super().addSuccess(test)
        self.passed += 1

    def addError(self, test: Any, err: Any) -> None:
        """A test that raised."""
        super().addError(test, err)
        self.rows.append(_row(test.id(), "error", err))

    def addFailure(self, test: Any, err: Any) -> None:
        """A test whose assertion does not hold."""
        super().addFailure(test, err)
        self.rows.append(_row(test.id(), "failed", err))

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        """A part of a test."""
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.rows.append(_row(subtest.id(), "failed" if issubclass(err[0], AssertionError) else "error", err))

    def addUnexpectedSuccess(self, test: Any) -> None:
        """A test that passed though it should not."""
        super().addUnexpectedSuccess(test)
        self.rows.append({"test": test.id(), "kind": "failed", "message": "unexpected success"})


def _row(name: str, kind: str, err: Any) -> dict[str, Any]:
    import traceback

    row: dict[str, Any] = {"test": name, "kind": kind, "message": f"{err[0].__name__}: {err[1]}"}
    here = os.getcwd() + os.sep
    for frame in reversed(traceback.extract_tb(err[2])):
        if frame.filename.startswith(here) and "site-packages" not in frame.filename:
            return {**row, "file": frame.filename, "line": frame.lineno, "assertion": frame.line or ""}
    return row


def main(report: str, names: list[str]) -> int:
    """Run the named tests, or all that can be found."""
    sys.path[0] = os.getcwd()
    loader = unittest.TestLoader()
    if not names:
        suite = loader.discover(".")
    elif len(names) == 1 and os.path.isdir(names[0]):
        suite = loader.discover(names[0], top_level_dir=None)
    else:
        suite = loader.loadTestsFromNames([_module(name) for name in names])
    result = unittest.TextTestRunner(resultclass=Result, verbosity=0).run(suite)
    assert isinstance(result, Result)
    rows = {"passed": result.passed, "skipped": len(result.skipped), "failures": result.rows}
    with open(report, "w", encoding="utf-8", errors="replace") as file:
        json.dump(rows, file)
    return 0 if result.wasSuccessful() else 1


def _module(name: str) -> str:
    """The dotted name of a file that is given by its path."""
    return name[:-3].strip("./").replace("/", ".") if name.endswith(".py") and os.path.isfile(name) else name


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
