"""`opensage bench` as a person types it, on real tasks and in real sandboxes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from opensage.cli.main import main
from opensage.log.events import ModelReply, SideReply, ToolResult, UserMessage
from opensage_benchmarks.swe.agents.kit import Told
from opensage_benchmarks.swe.opening import open_source, select

DATA = Path(os.environ.get("OPENSAGE_DATA") or "../shared/data").resolve()
BUGGY = "    return number + 1\n"
RIGHT = "    return number * 2\n"


def record(name: str) -> dict[str, str]:
    """A task in the form of HumanEvalFix, made for these tests."""
    return {
        "task_id": f"Python/{name}",
        "prompt": f"def {name}(number):\n    '''Twice the number.'''\n",
        "declaration": f"def {name}(number):\n",
        "docstring": f"Twice the number.\n>>> {name}(2)\n4",
        "canonical_solution": RIGHT,
        "buggy_solution": BUGGY,
        "bug_type": "operator misuse",
        "failure_symptoms": "incorrect output",
        "entry_point": name,
        "import": "",
        "test_setup": "",
        "example_test": "",
        "signature": f"{name}(number)",
        "instruction": "",
        "test": f"def check({name}):\n    assert {name}(3) == 6\n\ncheck({name})",
    }


@pytest.fixture
def tasks(tmp_path: Path) -> str:
    file = tmp_path / "tasks.jsonl"
    file.write_text("".join(json.dumps(record(name)) + "\n" for name in ("twice", "double")))
    return f"humanevalfix:{file}"


def run(*words: str) -> int:
    return main(["bench", *words])


def test_run_grade_go_on_report_compare_export_and_eval(tasks, tmp_path, capsys):
    gold, empty = str(tmp_path / "gold"), str(tmp_path / "empty")
    common = ("--tasks", tasks, "--sandbox", "bubblewrap", "--grade", "--test-timeout", "20")
    assert run("run", *common, "--agent", "gold", "-o", gold) == 0
    out, err = capsys.readouterr()
    assert "2 of 2 (100 %, 95 % interval 34 to 100)" in out
    assert err.count("done") >= 2
    assert run("run", *common, "--agent", "gold", "-o", gold, "--json") == 0  # nothing is left to do
    lines = (tmp_path / "gold" / "status.jsonl").read_text().splitlines()
    assert len(lines) == 2
    assert run("run", *common, "--agent", "empty", "-o", empty) == 0
    capsys.readouterr()

    assert run("compare", gold, empty, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["difference"], found["only_a"]) == (1.0, ["Python/double", "Python/twice"])
    assert run("report", gold, "--compare", empty) == 0
    assert "only A: Python/double, Python/twice" in capsys.readouterr().out

    target = tmp_path / "out.json"
    assert run("export", gold, str(target), "--format", "swebench-pro") == 0
    assert [row["prefix"] for row in json.loads(target.read_text())] == ["gold", "gold"]

    report = tmp_path / "report"
    assert run("eval", "--tasks", tasks, "-p", gold, "-o", str(report), "--sandbox", "bubblewrap", "--json") == 0
    summary = json.loads((report / "gold.local.json").read_text())
    assert (summary["resolved_instances"], summary["schema_version"]) == (2, 2)
    assert run("report", str(report)) == 0
    assert "2 of 2" in capsys.readouterr().out
    assert run("eval", "--tasks", tasks, "-p", gold, "-o", str(report), "--regrade") == 0
    assert "2 of 2" in capsys.readouterr().out


def test_a_workflow_is_told_with_its_questions():
    told = Told()
    calls = [{"id": "c0", "name": "read", "arguments": "{}"}]
    for event in (
        UserMessage(text="Mend it."),
        ModelReply(text="Explore", calls=calls, by="workflow"),
        ToolResult(id="c0", name="read", text="a file"),
        SideReply(purpose="fix", prompt="Write it.", text="def f(): ..."),
        SideReply(purpose="summary", text="a summary, which nobody asks for"),
        ModelReply(text="Done."),
    ):
        told.apply(event)
    found = [(message["role"], message["content"]) for message in told.messages()]
    assert found == [
        ("user", "Mend it."),
        ("assistant", "Explore"),
        ("tool", "a file"),
        ("user", "Write it."),
        ("assistant", "def f(): ..."),
        ("assistant", "Done."),
    ]


def test_validate(tasks, tmp_path, capsys):
    assert run("validate", "--tasks", tasks, "--sandbox", "bubblewrap") == 0
    assert capsys.readouterr().out.splitlines() == ["references: 2 of 2 resolved", "without a patch: 0 of 2 resolved"]
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text(json.dumps({**record("twice"), "canonical_solution": BUGGY + "    # no\n"}) + "\n")
    assert run("validate", "--tasks", f"humanevalfix:{wrong}", "--gold", "--sandbox", "bubblewrap", "--json") == 1
    assert "Python/twice" in json.loads(capsys.readouterr().out)["bad"]


def test_a_dry_run_does_nothing(tasks, tmp_path, capsys):
    out = tmp_path / "out"
    assert run("run", "--tasks", tasks, "-o", str(out), "--dry-run", "--sample", "1", "-m", "script:x.json") == 0
    said = json.loads(capsys.readouterr().out)
    assert len(said["tasks"]) == 1
    assert said["config"]["model"] == "script:x.json"
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "seconds"),
    [([], 3600), (["--time-limit", "7200"], 7500), (["--time-limit", "150", "--task-timeout", "0"], 0)],
)
def test_a_task_is_killed_some_time_after_its_limit(words, seconds, tasks, tmp_path, capsys):
    options = ["--tasks", tasks, "-o", str(tmp_path / "run"), "--dry-run", "-m", "script:x.json"]
    assert run("run", *options, *words) == 0
    assert json.loads(capsys.readouterr().out)["config"]["task_timeout"] == seconds


def test_a_sample_is_the_same_whatever_the_order(tasks):
    source = open_source(tasks)
    forwards, backwards = list(source.tasks()), list(source.tasks())[::-1]
    assert select(forwards, sample=1)[0].id == select(backwards, sample=1)[0].id
    assert len(select(forwards, sample=5)) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "--tasks", "nothing.jsonl", "-o", "out"), "no such file or folder of tasks: nothing.jsonl"),
        (("run", "--tasks", "TASKS", "-o", "out", "--filter", "zzz"), "no task is chosen"),
        (("run", "--tasks", "TASKS", "-o", "out", "--agent", "gold", "--agent-option", "x"), "write NAME=VALUE"),
        (("run", "--tasks", "TASKS", "-o", "out", "--agent", "gold", "--executor", "moon"), "unknown executor 'moon'"),
        (("run", "--tasks", "TASKS", "-o", "out", "--cost-limit", "-1"), "--cost-limit"),
        (("eval", "--tasks", "TASKS", "-o", "out", "-p", "none.json"), "none.json"),
        (("compare", "none", "none"), "none"),
        (("report", "none"), "none"),
        (("export", "none.json", "out.json"), "none.json"),
    ],
)
def test_bad_input_is_one_line_and_2(words, said, tasks, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(*(tasks if word == "TASKS" else word for word in words)) == 2
    err = capsys.readouterr().err
    assert said in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.skipif(not DATA.is_dir(), reason="the data is not at hand: name its folder in OPENSAGE_DATA")
def test_workers_find_the_repositories_too(tmp_path, capsys):
    tasks = str(DATA / "quixbugs_swe.jsonl")
    words = (
        "--tasks",
        tasks,
        "--repos",
        str(DATA),
        "-i",
        "quixbugs__gcd",
        "--agent",
        "gold",
        "--sandbox",
        "bubblewrap",
    )
    assert run("run", *words, "--grade", "-o", str(tmp_path / "out")) == 0
    assert "1 of 1" in capsys.readouterr().out


def test_repos_may_be_named_for_tasks_that_need_none(tasks, tmp_path, capsys):
    os.makedirs(tmp_path / "repos")
    assert run("run", "--tasks", tasks, "--repos", str(tmp_path / "repos"), "-o", str(tmp_path / "o"), "--dry-run") == 0
