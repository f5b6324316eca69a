"""QuixBugs (Lin et al. 2017): small programs with a bug in one line each, from a folder of the data set."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from opensage_benchmarks.swe.errors import TaskError
from opensage_benchmarks.swe.sources.base import PYTEST, SETTINGS, unified
from opensage_benchmarks.swe.sources.trees import QUIXBUGS, copy_tree, read_tree
from opensage_benchmarks.swe.task import Task, TestPlan

# Lines of test data whose tests skip themselves, as too slow for any program. They are left out, and of the other tests
# every one must pass, so that a program that skips the test it is called by does not.
SKIPPED = {"knapsack": 9, "levenshtein": 3}
"""Line of a program's test data, from 0, that is left out."""


class QuixBugs:
    """The Python programs that have a correct version and tests. No list of tests comes with them: all must pass."""

    name = "quixbugs"

    def __init__(self, path: Path) -> None:
        self.path = path

    @staticmethod
    def recognises(path: Path, record: Mapping[str, Any]) -> bool:
        """Whether this is a folder of the data set."""
        return (path / "python_programs").is_dir() and (path / "correct_python_programs").is_dir()

    def tasks(self) -> Iterator[Task]:
        """One task a program, in alphabetical order.

        Raises:
            TaskError: the folder is not of this form.
        """
        tests = sorted(self.path.glob("python_testcases/test_*.py"))
        names = [name for path in tests if self._correct(name := path.stem.removeprefix("test_")).is_file()]
        if not names:
            raise TaskError(f"{self.path}: no QuixBugs; python_programs, correct_python_programs and tests are wanted")
        return map(self._task, names)

    def _correct(self, name: str) -> Path:
        return self.path / "correct_python_programs" / f"{name}.py"

    def _task(self, name: str) -> Task:
        where = f"python_programs/{name}.py"
        try:
            before, after = (path.read_bytes().decode() for path in (self.path / where, self._correct(name)))
        except (OSError, UnicodeDecodeError) as error:
            raise TaskError(f"{self.path / where}: cannot be read: {error}") from error
        problem = f"{where} has a defect. Fix the function so that it meets this description.\n\n{_purpose(before)}"
        return Task(f"quixbugs__{name}", problem, patch=unified(where, before, after), record={"program": name})

    def prepare(self, task: Task, folder: Path) -> None:
        """The programs, without solutions and tests."""
        copy_tree(self.path, folder, QUIXBUGS.all)

    def test_plan(self, task: Task) -> TestPlan:
        """Every test of the program."""
        files = read_tree(self.path, QUIXBUGS.tests)
        program = task.record["program"]
        if program in SKIPPED:
            data = f"json_testcases/{program}.json"
            lines = files[data].splitlines(keepends=True)
            files[data] = b"".join(line for number, line in enumerate(lines) if number != SKIPPED[program])
        test = f"python_testcases/test_{program}.py"
        return TestPlan(files=files, removed=(*SETTINGS, *QUIXBUGS.tests), command=(*PYTEST, test))


def _purpose(program: str) -> str:
    """The last text that stands for itself in the program."""
    try:
        body = ast.parse(program).body
    except SyntaxError:
        return ""
    texts = [node.value.value for node in body if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    return next((each.strip() for each in reversed(texts) if isinstance(each, str)), "")
