"""A task, how it is tested, and where tasks come from. Everything else of the benchmark composes these three."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Task:
    """One task. `problem` is the only text that the agent may see; the rest is for the runner and the grader.

    Attributes:
        id: unique in its set, safe as the name of a folder once `folder_name` has seen it.
        problem: what the agent is told.
        repo: `owner/name`, or nothing for a task that brings its own files.
        base_commit: where the agent starts, 40 hex digits or nothing.
        fail_to_pass, pass_to_pass: ids of tests, as the test runner prints them (blanks included). With neither, every
            test that the plan's command finds must pass, and there must be one.
        patch: the reference, a unified diff against the base; nothing when there is none.
        test_patch: what the grader applies on top.
        image: a Docker image made for this task, or nothing.
        record: the task as it was read, with every field, known or not.
    """

    id: str
    problem: str
    repo: str = ""
    base_commit: str = ""
    fail_to_pass: tuple[str, ...] = ()
    pass_to_pass: tuple[str, ...] = ()
    patch: str = field(default="", repr=False)
    test_patch: str = field(default="", repr=False)
    image: str = ""
    record: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def folder_name(self) -> str:
        """The id with what a path cannot hold replaced, as the official tools do it."""
        return self.id.replace("/", "__")


@dataclass(frozen=True, slots=True)
class TestPlan:
    """How the grader tests a checkout, after the model's patch.

    Attributes:
        files: path in the checkout → bytes, written over whatever the patch left there.
        removed: paths in the checkout that are deleted before `files` are written (folders with all that is in them).
        patch: a unified diff applied after `files`, e.g. a SWE-bench test_patch.
        command: argv; `{python}` is the sandbox's interpreter. With `junit` the grader adds pytest's report option.
        junit: whether the command is pytest; otherwise its exit code is the verdict of every id.
        timeout: seconds for the command as a whole, None for the default.
    """

    __test__ = False

    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    removed: Sequence[str] = ()
    patch: str = field(default="", repr=False)
    command: Sequence[str] = ("{python}", "-m", "pytest", "-q")
    junit: bool = True
    timeout: float | None = None


@runtime_checkable
class TaskSource(Protocol):
    """Where tasks come from: a file or folder of one format, given by the user, never fetched."""

    @property
    def name(self) -> str:
        """What the user calls this kind of source, e.g. `quixbugs`."""
        ...

    def tasks(self) -> Iterator[Task]:
        """The tasks, in the order of the file.

        Raises:
            TaskError: a record cannot be read; the message names file and line.
        """
        ...

    def prepare(self, task: Task, folder: Path) -> None:
        """Fill an empty folder with what the agent starts from: files, or a git repository whose HEAD is the base.

        References and hidden tests are never in it.

        Raises:
            MissingRepo: the repository of the task is not at hand.
        """
        ...

    def test_plan(self, task: Task) -> TestPlan:
        """How the task is tested."""
        ...
