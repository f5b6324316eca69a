"""The SWE-bench family (Jimenez et al. 2024): an issue of a repository, a commit before its fix, and tests."""

from __future__ import annotations

import json
import re
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opensage_benchmarks.swe.errors import MissingRepo, TaskError
from opensage_benchmarks.swe.records import Record, names_of_tests, write_records
from opensage_benchmarks.swe.sources import trees
from opensage_benchmarks.swe.sources.base import PYTEST, SETTINGS, FileSource, checked_id
from opensage_benchmarks.swe.sources.reverse import reversed_patch
from opensage_benchmarks.swe.task import Task, TestPlan

LISTS = ("FAIL_TO_PASS", "PASS_TO_PASS")
_IMAGES = ("image_name", "docker_image", "image")
# Its tests need its own runner; the exit code then speaks for all of them.
_DJANGO = ("{python}", "tests/runtests.py", "--verbosity=2", "--parallel=1")
_MIRROR = re.compile(r"(?:[^/]+/)?(?P<owner>.+?)__(?P<name>.+)\.(?P<commit>[0-9a-f]{8})")
_TOUCHED = re.compile(r"^\+\+\+ b/(.+?)\t?$", re.MULTILINE)


class SweBench(FileSource):
    """A `.json`, `.jsonl` or `.parquet` file of SWE-bench, Lite, Verified, Gym, Live, smith and their like.

    Args:
        path: the file.
        repos: a folder with clones or copies of the repositories; nothing is ever fetched.
        hints: whether the issue's comments are told to the agent.
        reverse: whether `patch` makes the bug, as in SWE-smith: the task then starts from it, the reference undoes it.
        skip_bad: whether bad records are left out.
    """

    name = "swebench"

    def __init__(
        self,
        path: Path,
        *,
        repos: Path | str | None = None,
        hints: bool = False,
        reverse: bool = False,
        skip_bad: bool = False,
    ) -> None:
        super().__init__(path, skip_bad=skip_bad)
        self._repos = None if repos is None else Path(repos).expanduser()
        self._hints, self._reverse = hints, reverse
        self._kept: dict[tuple[Path, str], dict[str, bytes]] = {}

    @staticmethod
    def recognises(path: Path, record: Mapping[str, Any]) -> bool:
        """Whether a file with this first record is of this format."""
        return "instance_id" in record and "requirements" not in record

    def task(self, record: Record) -> Task:
        """The task in one record. Lists of tests are kept in the form that is published: JSON in a text."""
        tests = {name: names_of_tests(record.data.get(name), f"{record.place}: {name}") for name in LISTS}
        patch = record.text("patch")
        repo, commit = self._origin(record)
        return Task(
            id=checked_id(record.text("instance_id"), record.place),
            problem=self.problem(record).encode("utf-8", "replace").decode(),
            repo=repo,
            base_commit=commit,
            fail_to_pass=tests["FAIL_TO_PASS"],
            pass_to_pass=tests["PASS_TO_PASS"],
            patch=reversed_patch(patch, record.place) if self._reverse else patch,
            test_patch=record.text("test_patch"),
            image=record.text(*_IMAGES),
            record=dict(record.data)
            | {name: _published(record.data[name], tests[name]) for name in LISTS if name in record.data},
        )

    def _origin(self, record: Record) -> tuple[str, str]:
        """Repository and commit; a SWE-smith mirror has both in its name."""
        repo, commit = record.text("repo"), record.text("base_commit")
        if self._reverse and (found := _MIRROR.fullmatch(repo)):
            return f"{found['owner']}/{found['name']}", commit or found["commit"]
        return repo, commit

    def problem(self, record: Record) -> str:
        """What the agent is told."""
        hints = record.text("hints_text") if self._hints else ""
        return record.text("problem_statement") + (f"\n\nComments on it:\n\n{hints}" if hints.strip() else "")

    def prepare(self, task: Task, folder: Path) -> None:
        """The repository at the base commit with its history up to there, or a copy of a plain folder.

        Raises:
            MissingRepo: it is not at hand, or does not hold the commit.
        """
        source, hidden = self._source(task), _hidden(task)
        git = trees.git_dir(source)
        if git is not None and not hidden.all and not self._reverse:
            trees.clone_at(git, task.base_commit, folder)
            return
        # History would hold the solutions, or the state before the bug.
        self._plain(source, task, folder, hidden.all)
        if self._reverse:
            trees.apply_patch(folder, str(task.record.get("patch") or ""))

    def _source(self, task: Task) -> Path:
        if not task.repo:
            raise MissingRepo(f"task {task.id} names no repository")
        return trees.find_repo(self._repos, task.repo)

    def _plain(self, source: Path, task: Task, folder: Path, hidden: Sequence[str]) -> None:
        git = trees.git_dir(source)
        if git is None:
            trees.copy_tree(source, folder, hidden)
            return
        with tempfile.TemporaryDirectory(prefix="opensage-tree-") as place:
            trees.export_at(git, task.base_commit, Path(place))
            trees.copy_tree(Path(place), folder, hidden)

    def test_plan(self, task: Task) -> TestPlan:
        """The task's own command, else pytest on the files of its tests; its repository's hidden tests are put back."""
        hidden = _hidden(task)
        files = self._hidden_tests(task) if hidden.tests else {}
        removed = (*SETTINGS, *hidden.tests) if hidden.tests else ()
        command, junit = self.command(task)
        return TestPlan(files, removed, task.test_patch, command, junit)

    def _hidden_tests(self, task: Task) -> dict[str, bytes]:
        source = self._source(task)
        key = (source, task.base_commit)
        if key not in self._kept:
            with tempfile.TemporaryDirectory(prefix="opensage-tests-") as place:
                self._plain(source, task, Path(place), ())
                self._kept[key] = trees.read_tree(Path(place), _hidden(task).tests)
        return self._kept[key]

    def command(self, task: Task) -> tuple[Sequence[str], bool]:
        """The command that tests a task, and whether it is pytest."""
        given = task.record.get("test_cmds") or task.record.get("test_cmd")
        lines = [given] if isinstance(given, str) else list(given or ())
        if not all(isinstance(line, str) for line in lines):
            raise TaskError(f"task {task.id}: test_cmds must be text or a list of texts")
        if lines:
            return of_lines(lines)
        files = files_of_tests(task)
        if task.repo.lower() == "django/django":
            return (
                *_DJANGO,
                *(name.removeprefix("tests/").removesuffix(".py").replace("/", ".") for name in files),
            ), False
        return (*PYTEST, *files), True


def of_lines(lines: Sequence[str]) -> tuple[Sequence[str], bool]:
    """A command of a record, and whether it is one of pytest, whose results are then read test by test."""
    try:
        words = shlex.split(lines[0]) if len(lines) == 1 and not set(lines[0]) & set(";&|<>$`(){}*?~\n") else []
    except ValueError:
        words = []
    for start in (["pytest"], ["python", "-m", "pytest"], ["python3", "-m", "pytest"]):
        if words[: len(start)] == start:
            return (*PYTEST, *words[len(start) :]), True
    return ("bash", "-c", " && ".join(lines)), False


def files_of_tests(task: Task) -> list[str]:
    """Files that the ids of a task name, else those that its test patch writes."""
    ids = (*task.fail_to_pass, *task.pass_to_pass)
    named = {id.partition("::")[0] for id in ids if "::" in id}
    files = named or {path for path in _TOUCHED.findall(task.test_patch) if path.endswith(".py")}
    return sorted(file for file in files if not file.startswith("-"))


def _hidden(task: Task) -> trees.Hidden:
    return trees.HIDDEN.get(task.repo.lower(), trees.Hidden())


def _published(value: Any, tests: Sequence[str]) -> str:
    return value if isinstance(value, str) and value.strip() else json.dumps(list(tests))


def write_tasks(path: Path, tasks: Sequence[Task]) -> None:
    """Write tasks as they were read, unknown fields included, as a `.json` list or `.jsonl`."""
    write_records(path, [task.record for task in tasks])
