"""The tasks of the claim: functions to repair, and the same functions to write."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from opensage_agents.pgs.task import Task, from_code
from opensage_benchmarks.pgs import data as files
from opensage_benchmarks.swe.sources.humanevalfix import HumanEvalFix
from opensage_benchmarks.swe.sources.quixbugs import SKIPPED, QuixBugs
from opensage_benchmarks.swe.task import Task as Graded
from opensage_benchmarks.swe.task import TaskSource

PUBLIC = 3
"""Pairs of QuixBugs' tests, chosen by the hash of their text, that are public beside the examples of the text."""

SEEN = ("quixbugs__hanoi", "quixbugs__knapsack", "quixbugs__pascal")
"""Functions of the reported half whose repairs were read while prompts were mended: of the other half now."""


@dataclass(frozen=True, slots=True)
class Case:
    """A task with its public tests, and how its result is graded.

    Attributes:
        path: of the program in the graded workspace.
        reference: a program that is right.
        written: whether the function is to be written, from a body that does nothing, and not to be repaired.
    """

    task: Task
    source: TaskSource
    graded: Graded
    path: str
    reference: str
    written: bool = False

    @property
    def id(self) -> str:
        """Of the task."""
        return self.graded.id + ("+write" if self.written else "")

    @property
    def tuned(self) -> bool:
        """Whether it is of the half that prompts are tuned on; that half is never reported."""
        return self.graded.id in SEEN or hashlib.sha256(self.graded.id.encode()).digest()[0] % 2 == 0

    def to_write(self) -> Case:
        """The same function without its body."""
        return replace(self, task=replace(self.task, code=stub(self.task)), written=True)


def cases(data: Path) -> list[Case]:
    """QuixBugs programs with tests in JSON, and HumanEvalFix, to repair and to write, in the order of their hash."""
    found = [each for fix in (*_quixbugs(data), *_fixes(data)) for each in (fix, fix.to_write())]
    return sorted(found, key=lambda each: hashlib.sha256(each.id.encode()).hexdigest())


def stub(task: Task) -> str:
    """The program of a task with nothing but the docstring in its function."""
    code = task.code or ""
    node = next(
        each for each in ast.parse(code).body if isinstance(each, ast.FunctionDef) and each.name == task.entry_point
    )
    said = node.body[:1] if ast.get_docstring(node) is not None else []
    empty = ast.FunctionDef(node.name, node.args, [*said, ast.Pass()], [], node.returns)
    lines = code.split("\n")
    lines[node.lineno - 1 : node.end_lineno] = ast.unparse(ast.fix_missing_locations(empty)).split("\n")
    return "\n".join(lines)


def _quixbugs(data: Path) -> Iterator[Case]:
    source = QuixBugs(data / "quixbugs")
    for graded in source.tasks():
        name = graded.record["program"]
        if (data / "quixbugs" / "json_testcases" / f"{name}.json").is_file():
            task = from_code(files.program(data, files.BUGGY, name), name)
            pairs = [each for at, each in enumerate(files.pairs(data, name)) if at != SKIPPED.get(name)]
            pairs.sort(key=lambda each: hashlib.sha256(repr(each).encode()).hexdigest())
            public = [*task.public_tests, *((tuple(args), result) for args, result in pairs[:PUBLIC])]
            right = files.program(data, files.CORRECTED, name)
            yield Case(replace(task, public_tests=public), source, graded, f"python_programs/{name}.py", right)


def _fixes(data: Path) -> Iterator[Case]:
    source = HumanEvalFix(data / files.FIXES)
    for fix, one in zip(files.fixes(data), source.tasks(), strict=True):
        task = from_code(fix.buggy, fix.entry, str(one.record["docstring"]))
        yield Case(task, source, one, "solution.py", fix.canonical)
