"""The grader: what counts as resolved, and that a patch cannot simply say so."""

from __future__ import annotations

import asyncio
import json
import subprocess
from xml.etree import ElementTree

import pytest

from opensage.errors import OpenSageError
from opensage_benchmarks.swe.errors import BenchError
from opensage_benchmarks.swe.grade import Grader, Log, evaluate, regrade
from opensage_benchmarks.swe.grade.grader import split_pytest
from opensage_benchmarks.swe.grade.results import Results, find
from opensage_benchmarks.swe.predictions import Prediction
from opensage_benchmarks.swe.task import Task, TestPlan

WRONG = "def add(a, b):\n    return a - b\n"
RIGHT = "def add(a, b):\n    return a + b\n"
TEST = """import unittest
import pytest
from calc import add

def test_add():
    assert add(1, 2) == 3

@pytest.mark.parametrize("text", ["one two", "ünï"])
def test_words(text):
    assert text

@pytest.mark.xfail
def test_hoped():
    assert add(1, 1) == 3

@pytest.mark.skip
def test_not_here():
    pass

class TestOld(unittest.TestCase):
    def test_zero(self):
        self.assertEqual(add(2, 0), 2)
"""
FILES = {"calc.py": WRONG, "helper.py": "x = 1\n", "conftest.py": "", "tests/test_old.py": "def test_old(): pass\n"}
WORDS = tuple(f"test_calc.py::test_words[{word}]" for word in ("one two", "\\xfcn\\xef"))
ADD = ("test_calc.py::test_add",)
MORE = tuple(f"test_calc.py::{name}" for name in ("test_hoped", "test_not_here", "TestOld::test_zero"))
ALL = (*ADD, *WORDS, *MORE)


class Source:
    """One task with a hidden test."""

    name = "calc"

    def __init__(self, **options):
        plan = {"files": {"test_calc.py": TEST.encode()}, "command": ("{python}", "-m", "pytest", "-q", "test_calc.py")}
        self.plan = TestPlan(**(plan | options))

    def tasks(self):
        return iter([task("calc"), task("other")])

    def prepare(self, task, folder):
        for path, text in FILES.items():
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_text(text)

    def test_plan(self, task):
        return self.plan


def task(id="calc", f2p=ADD, p2p=WORDS, **more):
    return Task(id, "Fix it.", fail_to_pass=f2p, pass_to_pass=p2p, **more)


def patch(tmp_path, **files):
    """A patch that gives files (`__` for a slash, `_py` and the like at the end for the suffix) new contents."""
    folder = tmp_path / "made"
    folder.mkdir()
    Source().prepare(None, folder)
    words = ["-c", "user.name=x", "-c", "user.email=x@y"]
    for step in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "x"]):
        subprocess.run(["git", *words, *step], cwd=folder, check=True)
    for name, text in files.items():
        path = folder / ".".join(name.replace("__", "/").rsplit("_", 1))
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    subprocess.run(["git", "add", "-A"], cwd=folder, check=True)
    return subprocess.run(["git", "diff", "--cached"], cwd=folder, check=True, capture_output=True, text=True).stdout


def grade(made, what=None, source=None, **options):
    log = Log()
    options = {"sandbox": "bubblewrap", "test_timeout": 10, "command_timeout": 120} | options
    verdict = asyncio.run(Grader(source or Source(), **options).grade(what or task(), made, log))
    return verdict, log


def test_tests_that_the_command_deselects_do_not_count(tmp_path):
    command = ("{python}", "-m", "pytest", "-q", "-k", "add", "test_calc.py")
    verdict, _ = grade(patch(tmp_path, calc_py=RIGHT), task(f2p=(), p2p=()), Source(command=command))
    assert verdict.resolved, verdict
    assert list(verdict.runs[0].tests) == ["test_calc.py::test_add"]


def test_right_and_wrong(tmp_path):
    verdict, log = grade(patch(tmp_path, calc_py=RIGHT), task(f2p=(*ADD, "test_zero (test_calc.TestOld)"), p2p=WORDS))
    assert verdict.resolved, verdict
    assert verdict.runs[0].tests["test_calc.py::test_hoped"] == "XFAIL"
    assert verdict.applied_by == "git apply --verbose"
    assert "4 passed, 1 skipped, 1 xfailed" in log.output
    (tmp_path / "2").mkdir()
    verdict, _ = grade(patch(tmp_path / "2", helper_py="x = 2\n"))
    assert (verdict.status, verdict.missing_tests) == ("unresolved", ())
    assert verdict.tests["FAIL_TO_PASS"] == {"success": [], "failure": [*ADD]}
    assert verdict.tests["PASS_TO_PASS"]["success"] == [*WORDS]


def test_what_did_not_run_is_a_failure_and_what_was_skipped_no_fix(tmp_path):
    what = task(f2p=(*ADD, "test_calc.py::test_gone"), p2p=("test_calc.py::test_not_here",))
    made = patch(tmp_path, calc_py=RIGHT)
    verdict, _ = grade(made, what)
    assert (verdict.status, verdict.missing_tests) == ("unresolved", ("test_calc.py::test_gone",))
    assert verdict.tests["PASS_TO_PASS"]["failure"] == []  # swebench 5: skipped is no regression
    verdict, _ = grade(made, task(f2p=("test_calc.py::test_not_here",)))
    assert verdict.status == "unresolved"


def test_without_ids_every_test_counts_and_there_must_be_one(tmp_path):
    made = patch(tmp_path, calc_py=RIGHT)
    verdict, _ = grade(made, task(f2p=(), p2p=()))
    assert verdict.status == "unresolved"  # the skipped one
    passing = Source(files={"test_calc.py": TEST.replace("@pytest.mark.skip\n", "").encode()})
    assert grade(made, task(f2p=(), p2p=()), passing)[0].resolved
    none = Source(files={"test_calc.py": b"x = 1\n"})
    assert grade(made, task(f2p=(), p2p=()), none)[0].status == "error"


LIES = {
    "prints": "print('PASSED test_calc.py::test_add\\n7 passed')\n",
    "leaves at import": "import os\nos._exit(0)\n",
    "exits at import": "import sys\nsys.exit(0)\n",
    "leaves in the test": "import os\ndef add(a, b):\n    os._exit(0)\n",
    "leaves quietly in the test": "def add(a, b):\n    raise SystemExit(0)\n",
    "ends pytest": "import pytest\ndef add(a, b):\n    pytest.exit('done', 0)\n",
    "skips": "import pytest\ndef add(a, b):\n    pytest.skip('no')\n",
    "at exit": "import atexit, os\natexit.register(lambda: os._exit(0))\n",
    "writes to every descriptor": "import os\nfor fd in range(3, 60):\n    try:\n        os.write(fd, b'7 passed\\n0 [0, \"end\", 0]\\n')\n    except OSError:\n        pass\n",
    "closes every descriptor": "import os\nos.closerange(3, 100)\n",
    "replaces how tests run": "import _pytest.python\n_pytest.python.Function.runtest = lambda self: None\n",
    "replaces reports": "import _pytest.reports as r\nold = r.TestReport.from_item_and_call.__func__\ndef f(cls, item, call):\n    made = old(cls, item, call)\n    made.outcome, made.longrepr = 'passed', None\n    return made\nr.TestReport.from_item_and_call = classmethod(f)\n",
    "replaces the case of unittest": "import unittest\nunittest.TestCase.assertEqual = lambda *a: None\nimport _pytest.python as p\np.pytest_pyfunc_call = lambda pyfuncitem: True\n",
    "forks": "import os\nif os.fork():\n    os._exit(0)\n",
    "loops": "def add(a, b):\n    while True:\n        pass\n",
    "kills": "import os\ndef add(a, b):\n    os.kill(os.getppid(), 9)\n    os.kill(os.getpid(), 9)\n",
}  # fmt: skip


@pytest.mark.parametrize("how", LIES)
def test_a_patch_cannot_simply_say_that_it_passed(tmp_path, how):
    text = LIES[how] if "def add" in LIES[how] else WRONG + LIES[how]
    verdict, log = grade(patch(tmp_path, calc_py=text), test_timeout=3)
    assert verdict.status in ("unresolved", "error"), (verdict, log.output)
    assert verdict.reason or verdict.status == "unresolved"
    if how in ("prints", "at exit", "loops", "leaves quietly in the test", "writes to every descriptor"):
        assert verdict.status == "unresolved", verdict


GREEN = "import pytest\n@pytest.hookimpl(hookwrapper=True)\ndef pytest_runtest_makereport(item, call):\n    out = yield\n    out.get_result().outcome = 'passed'\n"


@pytest.mark.parametrize(
    "files",
    [
        {"conftest_py": GREEN}, {"tests__conftest_py": GREEN}, {"sitecustomize_py": GREEN}, {"usercustomize_py": "1/0\n"},
        {"pytest_ini": "[pytest]\naddopts = --collect-only\n"}, {"tox_ini": "[pytest]\naddopts = --co\n"},
        {"setup_cfg": "[tool:pytest]\naddopts = --co\n"}, {"pyproject_toml": "[tool.pytest.ini_options]\naddopts = '--co'\n"},
    ],
    ids=lambda files: next(iter(files)),
)  # fmt: skip
def test_what_steers_the_tests_is_put_back(tmp_path, files):
    verdict, log = grade(patch(tmp_path, **files))
    assert (verdict.status, len(verdict.put_back)) == ("unresolved", 1), verdict
    assert "put back" in "\n".join(log.lines)


@pytest.mark.parametrize("name", ["pytest", "json", "pytest_timeout"])
def test_a_module_of_the_checkout_is_not_the_test_runner(tmp_path, name):
    fake = "import sys\nprint('1 passed')\nsys.exit(0)\n"
    assert grade(patch(tmp_path, **{f"{name}_py": fake}))[0].status == "unresolved"


def test_settings_that_say_nothing_to_pytest_may_change(tmp_path):
    verdict, _ = grade(patch(tmp_path, calc_py=RIGHT, pyproject_toml="[project]\nname = 'x'\nversion = '1'\n"))
    assert (verdict.status, verdict.put_back) == ("resolved", ())


def test_tests_come_from_the_task(tmp_path):
    """Files of the plan win over the patch's, whatever those are; tests that the ids name are the base's."""
    made = patch(tmp_path, calc_py=RIGHT, tests__test_calc_py="def test_add(): pass\n", tests__test_old_py="1/0\n")
    command = ("{python}", "-m", "pytest", "-q", "tests")
    source = Source(removed=("tests",), files={"tests/test_calc.py": TEST.encode()}, command=command)
    verdict, _ = grade(made, task(f2p=("tests/test_calc.py::test_add",), p2p=()), source)
    assert verdict.resolved, verdict
    assert set(verdict.runs[0].tests) == {id.replace("test_calc", "tests/test_calc", 1) for id in ALL}
    kept = Source(files={}, command=(*command[:-1], "tests/test_old.py"))
    verdict, _ = grade(made, task(f2p=("tests/test_old.py::test_old",), p2p=()), kept)
    assert (verdict.status, verdict.put_back) == ("resolved", ("tests/test_old.py",))


def test_the_test_patch_goes_on_top_of_the_base(tmp_path):
    test_patch = "diff --git a/tests/test_old.py b/tests/test_old.py\n--- a/tests/test_old.py\n+++ b/tests/test_old.py\n@@ -1 +1,4 @@\n def test_old(): pass\n+def test_add():\n+    from calc import add\n+    assert add(1, 2) == 3\n"
    source = Source(files={}, patch=test_patch, command=("{python}", "-m", "pytest", "-q", "tests"))
    made = patch(tmp_path, calc_py=RIGHT, tests__test_old_py="def test_add(): pass\n")
    verdict, _ = grade(made, task(f2p=("tests/test_old.py::test_add",), p2p=("tests/test_old.py::test_old",)), source)
    assert verdict.resolved, verdict
    bad = Source(files={}, patch=test_patch.replace(" def test_old(): pass", " nothing of the kind"))
    verdict, _ = grade(made, source=bad)
    assert (verdict.status, "test patch does not apply" in verdict.reason) == ("infra_error", True)


def test_what_stops_the_tests_is_an_error_with_its_reason(tmp_path):
    verdict, log = grade(patch(tmp_path, calc_py="def add(:\n"))
    assert (verdict.status, "SyntaxError" in verdict.reason) == ("error", True), verdict
    assert "SyntaxError" in log.output
    slow = Source(files={"test_calc.py": b"import time\ndef test_add(): time.sleep(60)\n"})
    verdict, _ = grade(patch_of_none(), source=slow, command_timeout=3, test_timeout=0)
    assert (verdict.status, "within 3 s" in verdict.reason) == ("error", True), verdict
    verdict, _ = grade("diff --git a/x b/x\n", source=slow)
    assert verdict.status == "invalid_patch"
    assert grade(" \n")[0].status == grade(None)[0].status == "empty_patch"


def test_a_command_that_is_not_pytest_speaks_by_its_exit_code(tmp_path):
    source = Source(command=("sh", "-c", "grep -q 'a + b' calc.py"), junit=False)
    assert grade(patch(tmp_path, calc_py=RIGHT), source=source)[0].resolved
    (tmp_path / "2").mkdir()
    verdict, _ = grade(patch(tmp_path / "2", helper_py="x = 2\n"), source=source)
    assert verdict.status == "unresolved"
    assert grade(patch_of_none(), source=Source(command=("no-such-program",), junit=False))[0].status == "error"


def patch_of_none():
    return "diff --git a/n b/n\nnew file mode 100644\n--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+n\n"


def test_reruns_mark_what_is_flaky(tmp_path):
    flaky = b"import os\ndef test_add():\n    here = os.path.exists('/tmp/seen')\n    open('/tmp/seen', 'w').close()\n    assert here\n"
    verdict, _ = grade(patch_of_none(), task(p2p=()), Source(files={"test_calc.py": flaky}), reruns=2)
    assert (verdict.status, verdict.flaky, len(verdict.runs)) == ("unresolved", ADD, 2)


def test_the_network_and_the_callers_secrets_are_not_there(monkeypatch):
    monkeypatch.setenv("DEMO_API_KEY", "secret")
    test = b"import os, socket, pytest\ndef test_add():\n    assert 'DEMO_API_KEY' not in os.environ\n    with pytest.raises(OSError):\n        socket.create_connection(('1.1.1.1', 53), 1)\n"
    assert grade(patch_of_none(), task(p2p=()), Source(files={"test_calc.py": test}))[0].resolved


def test_an_unknown_sandbox_is_for_a_person(tmp_path):
    with pytest.raises(OpenSageError, match="unknown sandbox"):
        grade(patch_of_none(), sandbox="nowhere")


def test_only_pytest_is_driven():
    assert split_pytest(["/x/python", "-P", "-m", "pytest", "-q", "a b"]) == (False, ["-q", "a b"])
    assert split_pytest(["python3", "-m", "pytest"]) == (True, [])
    with pytest.raises(BenchError, match="junit=False"):
        split_pytest(["make", "test"])


def test_ids_are_found_as_swebench_writes_them():
    tests = {"t.py::a[log(photon x)]": "PASSED", "t.py::a[log(photon y)]": "XFAIL", "t.py::T::test_z": "PASSED"}
    aliases = {"test_z (t.T)": "t.py::T::test_z"}
    assert find("t.py::a[log(photon", tests, aliases) == "PASSED"
    assert find("test_z (t.T)", tests, aliases) == find("test_z (t.T.test_z)", tests, aliases) == "PASSED"
    assert find("t.py::a", tests, aliases) is None
    assert find("t.py::a[log(photon", tests | {"t.py::a[log(photon z)]": "FAILED"}, aliases) is None


def test_only_signed_lines_in_their_order_are_believed():
    results = Results()
    results.feed("stdout", b'0 [0, "end", 0]\n' + b"x" * 100 + b"\n")
    results.feed("stderr", b"whatever\n")
    assert (results.ended, results.forged) == (None, 2)
    results.feed("stdout", b"y" * (2 << 20))
    assert results.broken


# --- many ---


def predictions(tmp_path, **more):
    made = {"calc": patch(tmp_path, calc_py=RIGHT), "other": patch_of_none(), **more}
    return {id: Prediction(id, text, "me/model") for id, text in made.items()}


def test_reports_have_the_shapes_of_swebench(tmp_path):
    out, seen = tmp_path / "out", []
    made = predictions(tmp_path, unknown="x")
    grader = Grader(Source(), sandbox="bubblewrap", test_timeout=10)
    result = asyncio.run(
        evaluate(grader, made, out, run_id="r1", workers=2, progress=lambda *words: seen.append(words[1:]))
    )
    assert (result.resolved, result.unknown, result.resumed) == (1, ("unknown",), 0)
    assert seen == [(1, 2), (2, 2)]
    record = json.loads((out / "me__model.r1.json").read_text())
    assert record["schema_version"] == 2
    assert (record["total_instances"], record["submitted_instances"], record["completed_instances"]) == (2, 3, 2)
    assert (record["resolved_ids"], record["unresolved_ids"], record["incomplete_ids"]) == (["calc"], ["other"], [])
    folder = out / "logs/run_evaluation/r1/me__model/calc"
    assert {path.name for path in folder.iterdir()} == {
        "report.json", "test_output.txt", "run_instance.log", "patch.diff", "eval.sh", "result.json", "junit.xml"
    }  # fmt: skip
    report = json.loads((folder / "report.json").read_text())["calc"]
    assert [
        report[key]
        for key in ("patch_is_None", "patch_exists", "patch_successfully_applied", "resolved", "infra_failure")
    ] == [False, True, True, True, False]
    assert report["tests_status"]["FAIL_TO_PASS"] == {"success": [*ADD], "failure": []}
    assert (folder / "patch.diff").read_text() == made["calc"].patch
    assert len(ElementTree.fromstring((folder / "junit.xml").read_text()).findall("testcase")) == 6
    again = asyncio.run(evaluate(grader, made, out, run_id="r1"))
    assert (again.resumed, again.record == result.record) == (2, True)
    (folder / "result.json").write_text("{")  # cut off
    assert asyncio.run(evaluate(grader, made, out, run_id="r1")).resumed == 1
    (folder / "report.json").unlink()
    tasks = {task.id: task for task in Source().tasks()}
    assert regrade(tasks, out, run_id="r1", model="me/model").record["resolved_ids"] == ["calc"]
    assert json.loads((folder / "report.json").read_text())["calc"] == report
    harder = tasks | {"calc": task("calc", f2p=("test_calc.py::test_gone",))}
    assert regrade(harder, out, run_id="r1", model="me/model").resolved == 0
    with pytest.raises(BenchError, match="evaluate first"):
        regrade(tasks, out, run_id="r2", model="me/model")


def test_failures_are_told_apart_in_the_summary(tmp_path):
    made = {"calc": Prediction("calc", "no diff", "m"), "other": Prediction("other", "", "m")}
    result = asyncio.run(evaluate(Grader(Source(), sandbox="bubblewrap"), made, tmp_path))
    assert (result.record["error_ids"], result.record["empty_patch_ids"]) == (["calc"], ["other"])
    assert "no diff" in result.record["failure_reasons"]["calc"]
    assert not list(tmp_path.rglob("report.json"))
    with pytest.raises(BenchError, match="one at a time"):
        asyncio.run(evaluate(Grader(Source()), made | {"calc": Prediction("calc", "x", "n")}, tmp_path))


def test_a_place_without_pytest_is_no_candidate_s_fault(tmp_path, docker_host):
    verdict, _ = grade(patch(tmp_path, calc_py=RIGHT), sandbox="docker:opensage/base:latest")
    assert verdict.status == "infra_error"
    assert "cannot run pytest" in verdict.reason
    assert "pip install 'opensage[bench]'" in verdict.reason


def test_docker_when_an_engine_is_at_hand(tmp_path, docker_host):
    """The base image has no pytest: the command speaks by its exit code, in a container."""
    source = Source(command=("python3", "-c", "from calc import add; assert add(1, 2) == 3"), junit=False)
    made = patch(tmp_path, calc_py=RIGHT)
    verdict, log = grade(made, task(image="opensage/base:latest"), source, sandbox="auto")
    assert verdict.resolved, verdict
    assert "docker:opensage/base:latest" in "\n".join(log.lines)
    assert grade(patch_of_none(), source=source, sandbox="docker:opensage/base:latest")[0].status == "unresolved"
