"""Real tasks: references resolve them, nothing does not, and the number of workers changes no verdict."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from opensage_benchmarks.swe.grade import Grader
from opensage_benchmarks.swe.grade.evaluate import grade_all
from opensage_benchmarks.swe.sources.humanevalfix import HumanEvalFix
from opensage_benchmarks.swe.sources.swebench import SweBench
from opensage_benchmarks.swe.validate import validate
from opensage_benchmarks.swe.workspace import prepare

DATA = Path(os.environ.get("OPENSAGE_DATA") or "../shared/data").resolve()
# Whoever has no data runs the rest; CI has it, and says so with OPENSAGE_DATA.
pytestmark = pytest.mark.skipif(
    not os.environ.get("OPENSAGE_DATA") and not (DATA / "quixbugs").is_dir(), reason="no data at ../shared/data"
)


def quixbugs():
    return SweBench(DATA / "quixbugs_swe.jsonl", repos=DATA)


def functions():
    return HumanEvalFix(DATA / "humanevalfix_python_sample.jsonl")


def checked(source, tasks, seconds, **which):
    return asyncio.run(validate(Grader(source, sandbox="bubblewrap", test_timeout=seconds), tasks, workers=2, **which))


def test_references_and_nothing_on_some_tasks():
    source = quixbugs()
    tasks = [task for task in source.tasks() if task.id.partition("__")[2] in ("wrap", "gcd", "flatten")]
    found = checked(source, tasks, 20)
    assert [verdict.status for verdict in found.gold.values()] == ["resolved"] * 3
    assert [verdict.status for verdict in found.empty.values()] == ["unresolved"] * 3
    assert (found.bad, found.flaky) == ({}, {})


def test_the_reference_of_another_task_and_how_many_work_at_a_time():
    """Each patch on the task after its own: some apply and fix nothing, some do not apply; the verdicts are the same."""
    tasks = list(functions().tasks())[:4]
    shifted = {task.id: before.patch for task, before in zip(tasks, [tasks[-1], *tasks], strict=False)}
    patches = shifted | {tasks[0].id: tasks[0].patch}
    by_id = {task.id: task for task in tasks}
    found = []
    for workers in (1, 4):
        grader = Grader(functions(), sandbox="bubblewrap", test_timeout=20)
        verdicts = asyncio.run(grade_all(grader, by_id, patches, workers))
        found.append({id: (verdicts[id].status, verdicts[id].tests, verdicts[id].missing_tests) for id in by_id})
    assert found[0] == found[1]
    assert found[0][tasks[0].id][0] == "resolved"
    assert {status for status, *_ in list(found[0].values())[1:]} <= {"unresolved", "invalid_patch"}


def test_an_agent_finds_no_reference_and_no_test(tmp_path):
    """Whatever is searched: the work tree, the names, every object of its repository."""
    (tmp_path / "work").mkdir()
    task = next(task for task in quixbugs().tasks() if task.id == "quixbugs__wrap")
    space = prepare(quixbugs(), task, tmp_path / "work", tmp_path / "trusted")
    files = [path for path in space.folder.rglob("*") if path.is_file()]
    assert any(path.name == "wrap.py" for path in files)
    for path in files:
        name = path.relative_to(space.folder).as_posix()
        assert not any(word in name for word in ("correct_", "testcases", "conftest")), name
        assert b"correct_python" not in path.read_bytes(), name


@pytest.mark.slow
def test_all_references_of_quixbugs():
    source = quixbugs()
    found = checked(source, list(source.tasks()), 20, empty=False)
    assert (len(found.gold), found.bad) == (40, {})


@pytest.mark.slow
def test_nothing_resolves_none_of_quixbugs():
    source = quixbugs()
    found = checked(source, list(source.tasks()), 2, gold=False)
    assert [verdict.status for verdict in found.empty.values()] == ["unresolved"] * 40


@pytest.mark.slow
def test_all_references_of_functions():
    source = functions()
    found = checked(source, list(source.tasks()), 20, empty=False)
    assert (len(found.gold), found.bad) == (41, {})
