"""Runs a toolkit's tests, by pytest where it is installed."""

from __future__ import annotations

import os
from typing import Any

from .entry import awaited, explain


def test(place: str, package: str) -> dict[str, Any]:
    """Run the toolkit's tests: {"ok": {"passed", "skipped", "failed": [{"name", "text"}], "runner"}}."""
    import tempfile

    if not os.path.isdir(os.path.join(place, package, "tests")):
        return {"ok": {"passed": 0, "skipped": 0, "failed": [], "runner": ""}}
    os.chdir(tempfile.mkdtemp(prefix="opensage-test-"))
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    _told.append(os.dup(2))
    try:
        import pytest
    except ImportError:
        found = Tests(place, package).run()
    else:
        found = _with_pytest(pytest, place, package)
    return {"ok": found}


def _with_pytest(pytest: Any, place: str, package: str) -> dict[str, Any]:
    found: dict[str, Any] = {"runner": "pytest", "passed": 0, "skipped": 0, "failed": []}

    class Reporter:
        def pytest_runtest_logstart(self, nodeid: str) -> None:
            _tell(nodeid)

        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.failed:
                found["failed"].append({"name": report.nodeid, "text": report.longreprtext})
            elif report.when == "call" or report.skipped:
                found["skipped" if report.skipped else "passed"] += 1

        def pytest_collectreport(self, report: Any) -> None:
            if report.failed:
                found["failed"].append({"name": report.nodeid, "text": report.longreprtext})

    options = ["-q", "--tb=short", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", place]
    code = pytest.main([*options, os.path.join(place, package, "tests")], plugins=[Reporter()])
    if code not in (0, 1, 5) and not found["failed"]:
        found["failed"].append({"name": "pytest", "text": f"pytest ended with {code!r}"})
    return found


_told: list[int] = []


def _tell(name: str) -> None:
    """Say which test runs, past what captures output: the last one said is the one that never ended."""
    os.write(_told[0], f"\nrunning {name}\n".encode(errors="replace"))


class Tests:
    """Runs `test_*` functions, for sandboxes without pytest. `tmp_path` is the one fixture."""

    def __init__(self, place: str, package: str) -> None:
        self.package = package
        self.folder = os.path.join(place, package)
        self.found: dict[str, Any] = {"runner": "opensage", "passed": 0, "skipped": 0, "failed": []}

    def run(self) -> dict[str, Any]:
        """The report."""
        import importlib

        names = sorted(os.listdir(os.path.join(self.folder, "tests")))
        for name in [n[:-3] for n in names if n.startswith("test_") and n.endswith(".py")]:
            try:
                module = importlib.import_module(f"{self.package}.tests.{name}")
            except BaseException as error:  # noqa: BLE001 foreign code
                self._fail(f"tests/{name}.py", error)
                continue
            for title, function in self._functions(module):
                self._one(f"tests/{name}.py::{title}", function)
        return self.found

    def _functions(self, module: Any) -> list[tuple[str, Any]]:
        found = []
        for name, value in list(vars(module).items()):
            if name.startswith("test_") and callable(value):
                found.append((name, value))
            elif name.startswith("Test") and isinstance(value, type):
                methods = [each for each in dir(value) if each.startswith("test_")]
                found += [(f"{name}::{each}", _Method(value, each)) for each in methods]
        return found

    def _one(self, title: str, function: Any) -> None:
        import inspect
        import pathlib
        import tempfile

        _tell(title)
        try:
            target = function.function() if isinstance(function, _Method) else function
            needed = list(inspect.signature(target).parameters)
            if set(needed) - {"tmp_path"}:
                raise TypeError(f"it needs {', '.join(needed)}, but pytest is not installed here: write it without")
            value = target(**{name: pathlib.Path(tempfile.mkdtemp()) for name in needed})
            if hasattr(value, "__await__"):
                awaited(value)
            self.found["passed"] += 1
        except BaseException as error:  # noqa: BLE001 foreign code
            self._fail(title, error)

    def _fail(self, title: str, error: BaseException) -> None:
        text = explain(error, self.folder)
        frame = error.__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        if isinstance(error, AssertionError) and frame is not None:
            known = {k: v for k, v in frame.tb_frame.f_locals.items() if not k.startswith("__") and not callable(v)}
            shown = [f"  {name} = {_shown(value)}" for name, value in list(known.items())[:10]]
            text = "\n".join([text, *shown])
        self.found["failed"].append({"name": title, "text": text})


class _Method:
    def __init__(self, owner: type, name: str) -> None:
        self.owner, self.name = owner, name

    def function(self) -> Any:
        return getattr(self.owner(), self.name)


def _shown(value: Any) -> str:
    try:
        return repr(value)[:200]
    except Exception as error:  # noqa: BLE001 a foreign __repr__
        return f"<{type(value).__name__}: {type(error).__name__}>"
