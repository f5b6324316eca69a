"""Ensembles: each member in its own copy, four ways to merge, the losers' work kept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers_run import call, calls, say
from topology_helpers import answers, create, seen, sessions, team, topology

import opensage
from opensage import Limits
from opensage.errors import ToolError
from opensage.models import ScriptedModel
from opensage.topology.copies import Copies, compare


def ensemble(**arguments: Any) -> dict[str, Any]:
    return calls(call("run_ensemble", {"task": "fix f.py", **arguments}, id="e"))


def wrote(text: str, path: str = "f.py") -> list[dict[str, Any]]:
    return [calls(call("write", {"path": path, "content": text})), say(f"wrote {text.strip()}")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "f.py").write_text("x = 0\n")
    (tmp_path / "keep.txt").write_text("keep\n")
    return tmp_path


def test_best_by_test_applies_the_winner_and_keeps_the_losers(folder: Path) -> None:
    agents = {
        "main": [ensemble(n=3, merge="best_by_test", test="grep -q 'x = 2' f.py"), say("over")],
        "main-1": wrote("x = 1\n"),
        "main-2": wrote("x = 2\n# and much more than is needed\n"),
        "main-3": wrote("x = 2\n"),
    }
    result, model = team(agents, folder, sandbox="bubblewrap")
    assert result.status == "done"
    report = answers(model)[-1]
    assert report.startswith("[winner: a3 main-3; the test passes for 2 of 3, its change is the smallest]")
    assert "[changed here: f.py]" in report
    assert "test fails: exit code 1" in report
    assert (folder / "f.py").read_text() == "x = 2\n"
    assert (folder / "keep.txt").read_text() == "keep\n"
    work = folder / ".opensage" / "work" / result.session_id / "e1"
    assert (work / "m1" / "f.py").read_text() == "x = 1\n"
    assert {child.group for child in topology(folder, result).root.children} == {1}


def test_members_work_in_copies_until_one_has_won(folder: Path) -> None:
    agents = {
        "main": [ensemble(n=2, merge="best_by_test", test="false"), calls(call("read", {"path": "f.py"})), say("over")],
        "main-1": wrote("x = 1\n"),
        "main-2": wrote("x = 2\n"),
    }
    _result, model = team(agents, folder, sandbox="bubblewrap")
    assert answers(model)[0].startswith("[no winner: the test passes for 0 of 2; nothing was changed]")
    assert "x = 0" in answers(model)[1]


def test_all_gives_every_answer_and_changes_nothing(folder: Path) -> None:
    agents = {"main": [ensemble(n=2), say("over")], "main-1": wrote("x = 1\n"), "main-2": [say("I would not")]}
    _result, model = team(agents, folder, sandbox="bubblewrap")
    report = answers(model)[-1]
    assert "[a1 main-1: done" in report
    assert "changed in its copy m1: f.py" in report
    assert "I would not" in report
    assert (folder / "f.py").read_text() == "x = 0\n"


def test_vote_takes_the_most_frequent_answer(folder: Path) -> None:
    agents = {
        "main": [ensemble(n=3, merge="vote"), say("over")],
        "main-1": [say("It is 41.")],
        "main-2": [say("It is 42")],
        "main-3": [say("it is 42.")],
    }
    _result, model = team(agents, folder, sandbox="bubblewrap")
    assert answers(model)[-1].startswith("[winner: a2 main-2; 2 of 3 gave this answer]\n[it changed no file]\nIt is 42")


@pytest.mark.parametrize(
    ("said", "begins"),
    [
        ('Sure: {"winner": 2, "reason": "it is right"}', "[winner: a2 main-2; the judge: it is right]"),
        ("The winner is 1.", "[winner: a1 main-1; the judge: The winner is 1.]"),
        ('{"winner": 7}', "[no winner: the judge named nobody"),
        ("I cannot say", "[no winner: the judge named nobody: I cannot say"),
    ],
)
def test_a_model_judges(folder: Path, said: str, begins: str) -> None:
    agents = {
        "main": [ensemble(n=2, merge="judge"), say("over")],
        "main-1": wrote("x = 1\n"),
        "main-2": wrote("x = 2\n"),
        "judge": [say(said)],
    }
    _result, model = team(agents, folder, sandbox="bubblewrap")
    assert answers(model)[-1].startswith(begins)
    asked = next(r for r in model.requests if "Decide whose work is best" in r["messages"][0]["content"])
    assert "+x = 2" in asked["messages"][1]["content"]


def test_a_time_limit_ends_the_late_ones_and_the_others_count(folder: Path) -> None:
    agents = {
        "main": [ensemble(n=2, merge="best_by_test", test="grep -q 'x = 1' f.py", seconds=2), say("over")],
        "main-1": wrote("x = 1\n"),
        "main-2": [calls(call("shell", {"command": "sleep 60"})), say("late")],
    }
    result, model = team(agents, folder, sandbox="bubblewrap")
    assert "[winner: a1 main-1" in answers(model)[-1]
    assert [child.status for child in topology(folder, result).root.children] == ["done", "limit"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "an ensemble has 2 to 16 members"),
        ({"n": 1}, "an ensemble has 2 to 16 members"),
        ({"n": 99}, "an ensemble has 2 to 16 members"),
        ({"n": 2, "merge": "best"}, "merge must be one of all, vote, judge, best_by_test"),
        ({"n": 2, "merge": "best_by_test"}, "best_by_test needs test"),
        ({"members": ["a", "nobody"]}, "agent 'nobody' does not exist"),
        ({"n": 2, "models": ["openai/x"]}, "is not configured for agents"),
        ({"n": 9}, "max_agents: 0 of 8"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_starts(folder: Path, arguments: dict[str, Any], said: str) -> None:
    agents = {"main": [create("a"), ensemble(**arguments), say("over")]}
    result, model = team(agents, folder, sandbox="bubblewrap", limits=Limits(max_agents=8))
    assert said in answers(model)[-1]
    assert not topology(folder, result).root.children
    assert not (folder / ".opensage" / "work").exists()


def test_a_sandbox_that_was_given_as_an_object_cannot_be_copied(tmp_path: Path) -> None:
    _result, model = team({"main": [ensemble(n=2), say("over")]}, tmp_path)
    assert "given as an object" in answers(model)[-1]


def test_named_members_with_a_model_each(folder: Path) -> None:
    scripts = []
    for number in (1, 2):
        path = folder / f"m{number}.json"
        path.write_text(f'[{{"text": "model {number}"}}]')
        scripts.append(f"script:{path}")
    agents = {
        "main": [create("a", tools=["read"]), create("b"), ensemble(members=["a", "b"], models=scripts), say("over")]
    }
    result, model = team(agents, folder, sandbox="bubblewrap", models=scripts)
    assert result.status == "done"
    assert "[a1 a: done" in answers(model)[-1]
    assert "model 1" in answers(model)[-1]
    assert "model 2" in answers(model)[-1]


def test_a_killed_ensemble_is_taken_up_again(folder: Path) -> None:
    """One member is done when the process dies; only the other goes on."""
    program = f"""
import os, sys
sys.path[:0] = {[os.path.dirname(__file__)]!r}
import test_ensemble as t
from topology_helpers import team
from opensage import tool
@tool
def die() -> str:
    "Die when the other one is done."
    import time, glob
    while "run.finished" not in open(glob.glob({str(folder)!r} + "/.opensage/sessions/*.1.jsonl")[0]).read():
        time.sleep(0.05)
    time.sleep(0.2)
    os.kill(os.getpid(), 9)
team({{"main": [t.ensemble(n=2, merge="best_by_test", test="grep -q 'x = 2' f.py")], "main-1": t.wrote("x = 1\\n"),
      "main-2": [t.calls(t.call("die"))]}}, t.Path({str(folder)!r}), tools=[die], sandbox="bubblewrap")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    [root] = [path.stem for path in sessions(folder).glob("*.jsonl") if "." not in path.stem]
    model = ScriptedModel({"agents": {"main": [say("over")], "main-2": wrote("x = 2\n")}})
    result = opensage.run(None, model=model, workdir=folder, sandbox="bubblewrap", session=root)
    assert result.status == "done"
    assert "[winner: a2 main-2; the test passes for 1 of 2" in answers(model)[-1]
    assert (folder / "f.py").read_text() == "x = 2\n"
    assert not seen(model, "main-1")


def make(tmp_path: Path) -> Copies:
    (tmp_path / "w").mkdir()
    workdir = tmp_path / "w"
    for name in ("changed", "removed", "same", "theirs"):
        (workdir / name).write_text(f"{name}\n")
    (workdir / "run.sh").write_text("#!/bin/sh\n")
    (workdir / "link").symlink_to("same")
    copies = Copies(workdir, tmp_path / "copies")
    copies.make([1])
    return copies


def test_changes_are_brought_back_whole(tmp_path: Path) -> None:
    copies = make(tmp_path)
    place = copies.place(1)
    (place / "changed").write_text("new\n")
    (place / "removed").unlink()
    (place / "deep" / "er").mkdir(parents=True)
    (place / "deep" / "er" / "added.bin").write_bytes(b"\0\xff")
    (place / "run.sh").chmod(0o755)
    (place / "link").unlink()
    (place / "link").symlink_to("changed")
    (place / "__pycache__").mkdir()
    (place / "__pycache__" / "x.pyc").write_bytes(b"x")
    (place / "theirs").write_text("mine\n")
    (copies.workdir / "theirs").write_text("changed by somebody else\n")
    diff = copies.diff(1)
    assert "-changed\n+new\n" in diff
    assert "Binary file deep/er/added.bin differs" in diff
    done, left = copies.apply(1)
    assert left == ["theirs"]
    assert set(done) == {"changed", "removed", "deep/er/added.bin", "run.sh", "link"}
    assert (copies.workdir / "deep/er/added.bin").read_bytes() == b"\0\xff"
    assert os.access(copies.workdir / "run.sh", os.X_OK)
    assert os.readlink(copies.workdir / "link") == "changed"
    assert not (copies.workdir / "removed").exists()
    assert not compare(copies.workdir, place).paths.keys() - {"theirs"}


def test_a_link_cannot_lead_a_change_out_of_the_workspace(tmp_path: Path) -> None:
    copies = make(tmp_path)
    outside = tmp_path / "outside"
    outside.mkdir()
    place = copies.place(1)
    (place / "sub").mkdir()
    (place / "sub" / "evil").write_text("x")
    (copies.workdir / "sub").symlink_to(outside)
    done, left = copies.apply(1)
    assert (done, left) == ([], ["sub/evil"])
    assert not list(outside.iterdir())


def test_a_workspace_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opensage.topology.copies._MOST_FILES", 3)
    with pytest.raises(ToolError, match="too large to copy"):
        make(tmp_path)
