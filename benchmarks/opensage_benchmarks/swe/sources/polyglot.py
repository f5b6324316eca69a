"""Exercism's Python exercises, as in the folders of its track and of the polyglot benchmark of aider."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from opensage_benchmarks.swe.errors import TaskError
from opensage_benchmarks.swe.records import read_json
from opensage_benchmarks.swe.sources.base import PYTEST, SETTINGS, unified
from opensage_benchmarks.swe.sources.trees import copy_tree, read_tree
from opensage_benchmarks.swe.task import Task, TestPlan

_SECRET = (".*",)
_DOCUMENTS = ("introduction.md", "instructions.md", "instructions.append.md")


class Polyglot:
    """A folder with exercises at any depth, or one: `.meta/example.py`, a stub, tests, `.docs/instructions.md`."""

    name = "polyglot"

    def __init__(self, path: Path) -> None:
        self.path = path

    @staticmethod
    def recognises(path: Path, record: Mapping[str, Any]) -> bool:
        """Whether there is an exercise in the folder."""
        return path.is_dir() and next(_exercises(path), None) is not None

    def tasks(self) -> Iterator[Task]:
        """One task an exercise, by path.

        Raises:
            TaskError: there is none, or one is not of this form.
        """
        found = list(_exercises(self.path))
        if not found:
            raise TaskError(
                f"{self.path}: no exercise there; a folder with .meta/example.py or .meta/exemplar.py is one"
            )
        names = [folder.resolve().name for folder in found]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise TaskError(f"{self.path}: two exercises are called {twice}; name a folder with one of them")
        return map(self._task, found)

    def _task(self, folder: Path) -> Task:
        stub, example, tests = _parts(folder)
        try:
            before, after = ((folder / name).read_bytes().decode() for name in (stub, example))
            documents = [folder / ".docs" / name for name in _DOCUMENTS]
            text = "\n\n".join(path.read_text("utf-8").strip() for path in documents if path.is_file())
        except (OSError, UnicodeDecodeError) as error:
            raise TaskError(f"{folder}: cannot be read: {error}") from error
        problem = f"{text}\n\nWrite it in {stub}; keep the names that are there, since the tests use them.\n"
        record = {"folder": str(folder), "tests": tests}
        return Task(folder.resolve().name, problem, patch=unified(stub, before, after), record=record)

    def prepare(self, task: Task, folder: Path) -> None:
        """The stub and what lies beside it, without example, tests and texts."""
        copy_tree(Path(task.record["folder"]), folder, (*_SECRET, *task.record["tests"]))

    def test_plan(self, task: Task) -> TestPlan:
        """Every test of the exercise must pass."""
        tests = task.record["tests"]
        files = read_tree(Path(task.record["folder"]), tests)
        return TestPlan(files=files, removed=SETTINGS, command=(*PYTEST, *tests))


def _exercises(path: Path) -> Iterator[Path]:
    """Folders with a reference in Python; a link is not followed."""
    for meta in sorted(path.glob("**/.meta")):
        if any((meta / name).is_file() for name in ("example.py", "exemplar.py")):
            yield meta.parent


def _parts(folder: Path) -> tuple[str, str, list[str]]:
    """Stub, example and tests: as the exercise's own settings say, else by their names."""
    settings = folder / ".meta" / "config.json"
    said = read_json(settings) if settings.is_file() else {}
    files = said.get("files", {}) if isinstance(said, dict) else {}
    tests = _named(files, "test") or sorted(path.name for path in folder.glob("*_test.py"))
    stubs = _named(files, "solution") or sorted({path.name for path in folder.glob("*.py")} - set(tests))
    examples = _named(files, "example") or _named(files, "exemplar") or [".meta/example.py"]
    if not stubs or not tests:
        raise TaskError(f"{folder}: a stub and a file *_test.py are wanted")
    return stubs[0], examples[0], tests


def _named(files: Any, kind: str) -> list[str]:
    """Paths of one kind in an exercise's settings, none of which may lead out of it."""
    names = files.get(kind) if isinstance(files, dict) else None
    plain = [PurePosixPath(name) for name in names or () if isinstance(name, str)]
    return [str(path) for path in plain if path.suffix == ".py" and not path.is_absolute() and ".." not in path.parts]
