"""What the sources share: reading a file of tasks with unique ids, and tasks that are one file with a hidden test."""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from opensage_benchmarks.swe.errors import TaskError
from opensage_benchmarks.swe.records import Record, read_records
from opensage_benchmarks.swe.task import Task, TestPlan

PYTEST = ("{python}", "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider")
"""`-P`: a `pytest.py` that a patch leaves in the checkout must not be the test runner."""

SETTINGS = (
    "conftest.py",
    "pytest.ini",
    ".pytest.ini",
    "pytest.toml",
    ".pytest.toml",
    "pyproject.toml",
    "tox.ini",
    "setup.cfg",
)
"""Files through which a patch could change what pytest reports, of tasks that bring none of their own."""

_LONGEST_ID = 200


class FileSource(ABC):
    """Tasks of one file.

    Attributes:
        bad: messages of the records that `skip_bad` left out, of the last reading.
    """

    name: ClassVar[str]

    def __init__(self, path: Path, *, skip_bad: bool = False) -> None:
        self.path = path
        self.bad: list[str] = []
        self._skip_bad = skip_bad

    def tasks(self) -> Iterator[Task]:
        """The tasks, in the order of the file.

        Raises:
            TaskError: a record cannot be read, or an id is there twice; the message names file and line.
        """
        self.bad = []
        places: dict[str, str] = {}
        for record in read_records(self.path, self.bad if self._skip_bad else None):
            try:
                task = self.task(record)
                if (before := places.setdefault(task.folder_name, record.place)) != record.place:
                    raise TaskError(f"{record.place}: task {task.id} is at {before} too; ids must be unique")
            except TaskError as error:
                if not self._skip_bad:
                    raise
                self.bad.append(str(error))
            else:
                yield task

    @abstractmethod
    def task(self, record: Record) -> Task:
        """The task in one record."""


def checked_id(value: str, place: str) -> str:
    """The id, when it can name a folder.

    Raises:
        TaskError: it cannot.
    """
    if not value.strip():
        raise TaskError(f"{place}: has no id; each task needs one")
    if value in (".", "..") or len(value.encode(errors="replace")) > _LONGEST_ID or not value.isprintable():
        raise TaskError(f"{place}: {value[:60]!r} is no id: up to {_LONGEST_ID} bytes that can be printed are wanted")
    return value


class FunctionSource(FileSource):
    """Tasks that are one file, `solution.py`, whose function a hidden test calls."""

    test_id = "test_solution.py::test_solution"

    def task(self, record: Record) -> Task:
        """The task in one record: its patch leads from `start` to `reference`."""
        start, reference = self.start(record), self.reference(record)
        return Task(
            id=checked_id(self.identity(record), record.place),
            problem=self.problem(record),
            fail_to_pass=(self.test_id,),
            patch=unified("solution.py", start, reference),
            record=dict(record.data),
        )

    def prepare(self, task: Task, folder: Path) -> None:
        """Write `solution.py`."""
        (folder / "solution.py").write_bytes(self.start(_again(task)).encode("utf-8", "replace"))

    def test_plan(self, task: Task) -> TestPlan:
        """One test, which reports nothing unless it ran to its end: an early exit or a printed word is no pass."""
        record = _again(task)
        content = _TEST.format(check=self.check(record)).encode("utf-8", "replace")
        return TestPlan(files={"test_solution.py": content}, removed=SETTINGS, command=(*PYTEST, "test_solution.py"))

    def identity(self, record: Record) -> str:
        """The id of the task."""
        return record.wanted("task_id")

    @abstractmethod
    def problem(self, record: Record) -> str:
        """What the agent is told."""

    @abstractmethod
    def start(self, record: Record) -> str:
        """`solution.py` as the agent finds it."""

    @abstractmethod
    def reference(self, record: Record) -> str:
        """`solution.py` as it should be."""

    @abstractmethod
    def check(self, record: Record) -> str:
        """A program that raises unless the solution is right; it sees the solution's names."""


# The solution is imported within the test: whatever it does at import, leaving included, is a failure of this test.
_TEST = """import importlib

_CHECK = compile({check!r}, "check", "exec")


def test_solution(run=exec):
    run(_CHECK, dict(vars(importlib.import_module("solution"))))
"""


def _again(task: Task) -> Record:
    return Record(task.id, task.record)


def unified(path: str, before: str, after: str) -> str:
    """A unified diff of one file as git writes it; lines end at line feeds alone, so that carriage returns are kept."""
    changes = list(difflib.unified_diff(_lines(before), _lines(after), f"a/{path}", f"b/{path}"))
    if not changes:
        return ""
    ends = (line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in changes)
    return "".join((f"diff --git a/{path} b/{path}\n", *ends))


def _lines(content: str) -> list[str]:
    return [line + "\n" for line in content.split("\n")[:-1]] + [last for last in content.split("\n")[-1:] if last]


def fields(record: Mapping[str, Any], *names: str) -> bool:
    """Whether a record has all of these fields."""
    return all(name in record for name in names)
