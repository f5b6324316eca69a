"""Runs tests and writes, test by test, whether a function was called: `python reach_driver.py REQUEST REPORT`.

It runs on the workspace's own Python, so it needs nothing but the standard library; pytest where it is installed.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import unittest
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any, TextIO

_DECORATORS = 20


class Watch:
    """Counts calls of one function, given by file, name and line, between the begin and the end of a test."""

    def __init__(self, request: dict[str, Any], report: TextIO) -> None:
        self.name, self.line = str(request["name"]), int(request["line"])
        self.path = os.path.realpath(request["file"])
        self.report = report
        self.known: dict[CodeType, bool] = {}
        self.calls = 0

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        """A profile function."""
        if event == "call":
            code = frame.f_code
            wanted = self.known.get(code)
            if wanted is None:
                wanted = self.known[code] = self._is(code)
            self.calls += wanted

    def _is(self, code: CodeType) -> bool:
        near = self.line - _DECORATORS <= code.co_firstlineno <= self.line
        return near and code.co_name == self.name and os.path.realpath(code.co_filename) == self.path

    def begin(self) -> None:
        """A test begins."""
        self.calls = 0
        threading.setprofile(self)
        sys.setprofile(self)

    def end(self, test: str) -> None:
        """A test has ended."""
        sys.setprofile(None)
        threading.setprofile(None)
        self.report.write(json.dumps({"test": test, "calls": self.calls}) + "\n")
        self.report.flush()


def _with_pytest(pytest: Any, watch: Watch, paths: list[str]) -> None:
    class Plugin:
        @pytest.hookimpl(hookwrapper=True)  # type: ignore[untyped-decorator]
        def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
            watch.begin()
            yield
            watch.end(item.nodeid)

    pytest.main(["-q", "-p", "no:cacheprovider", "--no-header", "--tb=no", *paths], plugins=[Plugin()])


def _with_unittest(watch: Watch, paths: list[str]) -> None:
    class Result(unittest.TestResult):
        def startTest(self, test: unittest.TestCase) -> None:
            watch.begin()
            super().startTest(test)

        def stopTest(self, test: unittest.TestCase) -> None:
            super().stopTest(test)
            watch.end(test.id())

    for path in paths or ["."]:
        folder, _, name = path.rpartition("/")
        suite = (
            unittest.TestLoader().discover(path)
            if os.path.isdir(path)
            else unittest.TestLoader().discover(folder or ".", pattern=name)
        )
        suite.run(Result())


def main(request_file: str, report_file: str) -> None:
    """Run the tests."""
    sys.path[0] = os.getcwd()
    with open(request_file, encoding="utf-8") as file:
        request = json.load(file)
    with open(report_file, "w", encoding="utf-8") as report:
        watch = Watch(request, report)
        try:
            import pytest
        except ImportError:
            _with_unittest(watch, request["paths"])
        else:
            _with_pytest(pytest, watch, request["paths"])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
    sys.stdout.flush()
    os._exit(0)
