"""HumanEval, HumanEvalFix, MBPP, exercises and QuixBugs: what the agent gets, what it does not, and what passes."""

from __future__ import annotations

import asyncio
import json
import os
import re
from pathlib import Path

import pytest

from opensage_benchmarks.swe.errors import TaskError
from opensage_benchmarks.swe.grade import Grader
from opensage_benchmarks.swe.sources.base import unified
from opensage_benchmarks.swe.sources.humaneval import HumanEval
from opensage_benchmarks.swe.sources.humanevalfix import HumanEvalFix
from opensage_benchmarks.swe.sources.mbpp import Mbpp
from opensage_benchmarks.swe.sources.polyglot import Polyglot
from opensage_benchmarks.swe.sources.quixbugs import QuixBugs
from opensage_benchmarks.swe.sources.swebench import SweBench

DATA = Path(os.environ.get("OPENSAGE_DATA") or "../shared/data")
QUIXBUGS, TASKS = DATA / "quixbugs", DATA / "quixbugs_swe.jsonl"
FIXES = DATA / "humanevalfix_python_sample.jsonl"
needs_data = pytest.mark.skipif(not FIXES.is_file(), reason="the data is not at hand: name its folder in OPENSAGE_DATA")

BODY = "    return helper(n) + 1\n"
HEAD = 'import math\n\n\ndef helper(n):\n    return n\n\n\ndef add(n):\n    """Add 1; `add(1)` is 2."""\n'
EVAL = {
    "task_id": "HumanEval/0",
    "prompt": HEAD,
    "entry_point": "add",
    "canonical_solution": BODY,
    "test": "def check(candidate):\n    assert candidate(41) == 42\n    assert helper(1) == math.floor(1.5)\n",
}
FIX = {
    "task_id": "Python/0",
    "declaration": "def add(n):\n",
    "buggy_solution": "    return n - 1\n",
    "canonical_solution": "    return n + 1\n",
    "docstring": "Add 1.",
    "entry_point": "add",
    "test": "def check(add):\n    assert add(41) == 42\n\ncheck(add)",
    "bug_type": "operator misuse",
}
MBPP = {
    "task_id": 2,
    "prompt": "Write a function that adds one.",
    "code": "def add(n):\r\n    return n + 1",
    "test_imports": ["import math"],
    "test_list": ["assert add(1) == 2", "assert add(41) == math.floor(42.5)"],
}


def lines(path, *records):
    file = path / "tasks.jsonl"
    file.write_text("".join(json.dumps(each) + "\n" for each in records))
    return file


def contents(source, task, path):
    folder = path / "work"
    folder.mkdir()
    source.prepare(task, folder)
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def status(source, task, patch):
    return asyncio.run(Grader(source, sandbox="local", test_timeout=300).grade(task, patch)).status


@pytest.mark.parametrize(("kind", "record"), [(HumanEval, EVAL), (HumanEvalFix, FIX), (Mbpp, MBPP)])
def test_the_reference_passes_and_the_start_does_not(tmp_path, kind, record):
    source = kind(lines(tmp_path, record))
    (task,) = source.tasks()
    files = contents(source, task, tmp_path)
    assert list(files) == ["solution.py"]
    assert b"41" not in files["solution.py"]
    assert "41" not in task.problem
    assert status(source, task, task.patch) == "resolved"
    assert status(source, task, unified("other.py", "", "x = 1\n")) == "unresolved"


CHEATS = {
    "leaves": "import os\nos._exit(0)\n",
    "leaves politely": "import sys\nsys.exit(0)\n",
    "says so": "print('test_solution.py::test_solution PASSED')\nprint('1 passed')\nraise SystemExit\n",
    "skips": "import pytest\npytest.skip('no', allow_module_level=True)\n",
    "ends pytest": "import pytest\npytest.exit('done', returncode=0)\n",
    "interrupts": "raise KeyboardInterrupt\n",
    "is other": "def check(f):\n    pass\n\n\ndef add(n):\n    return 0\n",
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_no_pass_without_the_test(tmp_path, cheat):
    source = HumanEval(lines(tmp_path, EVAL))
    (task,) = source.tasks()
    verdict = status(source, task, unified("solution.py", HEAD, CHEATS[cheat]))
    assert verdict in ("unresolved", "error")


def test_what_else_a_patch_leaves_decides_nothing(tmp_path):
    source = HumanEval(lines(tmp_path, EVAL))
    (task,) = source.tasks()
    hook = "import pytest\n\n\n@pytest.fixture(autouse=True)\ndef p(request):\n    request.node.obj = lambda: None\n    yield\n"
    others = {
        "conftest.py": hook,
        "pytest.ini": "[pytest]\naddopts = --collect-only\n",
        "pytest.py": "import os\nos._exit(0)\n",
        "test_solution.py": "def test_solution():\n    pass\n",
        "sitecustomize.py": "import os\nos._exit(0)\n",
    }
    patch = "".join(
        unified(name, "", text).replace(f"--- a/{name}", "new file mode 100644\n--- /dev/null")
        for name, text in others.items()
    )
    assert status(source, task, patch) == "unresolved"
    assert status(source, task, patch + task.patch) == "resolved"


def test_the_bug_is_not_named_and_mbpp_shows_one_assert(tmp_path):
    (fix,) = HumanEvalFix(lines(tmp_path, FIX)).tasks()
    assert "misuse" not in fix.problem
    assert "Add 1." in fix.problem
    (one,), (all_,) = Mbpp(lines(tmp_path, MBPP)).tasks(), Mbpp(tmp_path / "tasks.jsonl", shown=3).tasks()
    assert ("add(1)" in one.problem, "add(41)" in one.problem, "add(41)" in all_.problem) == (True, False, True)
    assert (one.id, one.folder_name) == ("mbpp/2", "mbpp__2")
    assert "\r\n" in one.patch


@pytest.mark.parametrize(
    ("kind", "record", "said"),
    [
        (HumanEval, EVAL | {"prompt": None}, "prompt is missing"),
        (HumanEval, EVAL | {"task_id": 3}, "task_id must be text"),
        (HumanEvalFix, {"task_id": "x"}, "declaration is missing"),
        (HumanEvalFix, FIX | {"docstring": ""}, "docstring is missing"),
        (Mbpp, MBPP | {"test_list": "assert True"}, "test_list must be a list of texts"),
        (Mbpp, MBPP | {"task_id": None}, "task_id must be a number"),
    ],
)
def test_a_record_that_is_no_task_of_this_kind(tmp_path, kind, record, said):
    source = kind(lines(tmp_path, record))
    with pytest.raises(TaskError, match=rf"tasks\.jsonl:1: {said}"):
        list(source.tasks())


# Exercises.


@pytest.fixture
def exercise(tmp_path):
    folder = tmp_path / "python" / "exercises" / "practice" / "two-fer"
    for name, content in {
        ".meta/example.py": "def two(n):\n    return 2 * n\n",
        ".meta/config.json": json.dumps(
            {"files": {"solution": ["two.py"], "test": ["two_test.py"], "example": [".meta/example.py"]}}
        ),
        ".docs/instructions.md": "Double it.\n",
        ".docs/hints.md": "Multiply.\n",
        "two.py": "def two(n):\n    pass\n",
        "two_test.py": "import unittest\nfrom two import two\n\nclass T(unittest.TestCase):\n    def test_a(self):\n        self.assertEqual(two(21), 42)\n",
        "data.txt": "kept\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return tmp_path / "python", folder


def test_an_exercise_without_its_example_and_tests(tmp_path, exercise):
    source = Polyglot(exercise[0])
    (task,) = source.tasks()
    assert (task.id, "Double it." in task.problem) == ("two-fer", True)
    assert sorted(contents(source, task, tmp_path)) == ["data.txt", "two.py"]
    assert status(source, task, task.patch) == "resolved"
    assert status(source, task, unified("x.py", "", "x = 1\n")) == "unresolved"


def test_an_exercise_without_settings_is_told_by_its_names(tmp_path, exercise):
    (exercise[1] / ".meta" / "config.json").unlink()
    (task,) = Polyglot(exercise[1]).tasks()
    assert task.record["tests"] == ["two_test.py"]
    assert "+    return 2 * n" in task.patch


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("{", "is no JSON"),
        ('{"files": {"example": ["../../../secret.py"], "solution": ["/etc/x.py"]}}', None),
        ('{"files": {"solution": ["gone.py"]}}', "cannot be read"),
        ("[]", None),
    ],
)
def test_settings_of_an_exercise_that_are_wrong(exercise, config, said):
    (exercise[1] / ".meta" / "config.json").write_text(config)
    if said is None:
        assert [task.id for task in Polyglot(exercise[0]).tasks()] == ["two-fer"]
        return
    with pytest.raises(TaskError, match=said):
        list(Polyglot(exercise[0]).tasks())


def test_no_exercise_and_two_of_one_name(tmp_path, exercise):
    import shutil

    with pytest.raises(TaskError, match="no exercise"):
        list(Polyglot(exercise[1] / ".docs").tasks())
    shutil.copytree(exercise[0], tmp_path / "both" / "a")
    shutil.copytree(exercise[0], tmp_path / "both" / "b")
    with pytest.raises(TaskError, match="two exercises are called two-fer"):
        list(Polyglot(tmp_path / "both").tasks())


# The data sets themselves.


@needs_data
def test_quixbugs_as_a_folder_and_as_tasks_say_the_same():
    folder = {task.id: task for task in QuixBugs(QUIXBUGS).tasks()}
    tasks = {task.id: task for task in SweBench(TASKS, repos=DATA).tasks()}
    assert len(tasks) == 40
    assert list(folder) == list(tasks)
    assert {id: task.problem for id, task in folder.items()} == {id: task.problem for id, task in tasks.items()}


@needs_data
@pytest.mark.parametrize("source", [QuixBugs(QUIXBUGS), SweBench(TASKS, repos=DATA)], ids=["folder", "tasks"])
def test_quixbugs_without_solutions_and_tests(tmp_path, source):
    task = next(task for task in source.tasks() if task.id == "quixbugs__wrap")
    files = contents(source, task, tmp_path)
    assert not [name for name in files if re.search(r"correct|\btest|_test", name)]
    assert not [name for name, content in files.items() if b"correct_" in content or b"pytest" in content]
    assert b"\r\n" in files["python_programs/wrap.py"]
    plan = source.test_plan(task)
    assert {"conftest.py", "python_testcases/test_wrap.py", "json_testcases/wrap.json"} <= set(plan.files)
    assert not [name for name in plan.files if "correct_" in name]
    assert status(source, task, task.patch) == "resolved"


@needs_data
@pytest.mark.parametrize("program", ["levenshtein", "knapsack"])
def test_quixbugs_programs_with_a_test_that_skips_itself(program):
    source = QuixBugs(QUIXBUGS)
    task = next(task for task in source.tasks() if task.id == f"quixbugs__{program}")
    assert status(source, task, task.patch) == "resolved"


@needs_data
def test_humanevalfix_is_read():
    tasks = list(HumanEvalFix(FIXES).tasks())
    assert len(tasks) == 41
    assert all(task.patch and task.problem and not task.repo for task in tasks)


def test_a_folder_that_is_no_quixbugs(tmp_path):
    with pytest.raises(TaskError, match="no QuixBugs"):
        list(QuixBugs(tmp_path).tasks())


def test_a_diff_of_lines_that_other_tools_would_split(tmp_path):
    import subprocess

    before, after = "a\u2028b\r\nc\x0cd", "a\u2028b\r\nc\x0ce\r"
    (tmp_path / "x.py").write_bytes(before.encode())
    subprocess.run(["git", "apply", "-"], input=unified("x.py", before, after).encode(), cwd=tmp_path, check=True)
    assert (tmp_path / "x.py").read_bytes() == after.encode()
