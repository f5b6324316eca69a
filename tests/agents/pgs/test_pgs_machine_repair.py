"""Repair of a class by a machine: the Generator is shown the least sequence of calls."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from test_pgs_stateful import CACHE, LRU, RIGHT, STACK
from typer.testing import CliRunner

from opensage.models import ScriptedModel
from opensage_agents.pgs import PGSConfig, PGSWorkflow, PropertyError, PropertySet, Result, Task
from opensage_agents.pgs.cli import app
from opensage_agents.pgs.generator import program_in
from opensage_agents.pgs.task import from_code

BUGGY = RIGHT.replace("self.items.pop()", "self.items.pop(0)")
HEAD = '"""A stack: the last in is the first out."""\n\nimport math\n\nLIMIT = math.inf\n\n\n'
CONFIG = PGSConfig(sandbox="bubblewrap", inputs_per_round=20, call_timeout=0.3, max_rounds=3)


def ran(code: str | None, replies: Sequence[str], text: str = STACK, **options: object) -> tuple[Result, list[str]]:
    propset = PropertySet.from_source(text)
    model = ScriptedModel([{"text": f"So.\n```python\n{each}\n```"} for each in replies])
    task = Task("The last in is the first out.", propset.entry, code, **options)  # type: ignore[arg-type]
    result = PGSWorkflow(model, config=CONFIG, properties=propset).run(task)
    return result, [each["messages"][1]["content"] for each in model.requests]


def test_a_class_is_repaired_by_its_least_sequence_of_calls(tmp_path: Path) -> None:
    result, prompts = ran(HEAD + BUGGY, [RIGHT])
    assert result.status == "solved"
    assert result.code == HEAD + RIGHT
    assert "    s = Stack()\n    s.push(0)\n    s.push(1)\n    s.pop()\nreturns\n    0\n" in prompts[0]
    assert "not the last. The check is" in prompts[0]
    assert "def pop(self):\n    assert self.call('pop') == self.model.pop()" in prompts[0]
    assert "def size" not in prompts[0]
    result.write_tests(tmp_path / "test_kept.py", "stack")
    (tmp_path / "stack.py").write_text(BUGGY)
    before = _pytest(tmp_path)
    assert before.returncode == 1, before.stdout
    assert "test_Machine_sequence_1" in before.stdout
    assert "2 failed" in before.stdout
    (tmp_path / "stack.py").write_text(RIGHT)
    after = _pytest(tmp_path)
    assert "2 passed" in after.stdout, after.stdout


def _pytest(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_kept.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def test_machines_with_bundles_and_beginnings_are_kept_too(tmp_path: Path) -> None:
    buggy = LRU.replace("return None", "return 0")
    result, _ = ran(buggy, [LRU], CACHE)
    assert (result.status, result.code) == ("solved", LRU)
    result.write_tests(tmp_path / "test_kept.py", "cache")
    for code, told in ((LRU, "2 passed"), (buggy, "2 failed")):
        (tmp_path / "cache.py").write_text(code)
        assert told in (done := _pytest(tmp_path)).stdout, done.stdout


def test_a_text_with_a_semicolon_is_shown_whole() -> None:
    text = STACK.replace("st.integers(0, 9)", 'st.just("a; b")').replace('pop(), "not the last"', 'pop() + "!"')
    _, prompts = ran(RIGHT, [BUGGY] * 6, text)
    assert "    s.push('a; b')\n    s.pop()\nreturns" in prompts[0]


def test_a_class_is_written_from_its_outline() -> None:
    outline = "class Stack:\n    def push(self, value): ...\n    def pop(self): ..."
    result, prompts = ran(None, [BUGGY, RIGHT], signature=outline)
    assert (result.status, result.code) == ("solved", RIGHT)
    assert outline in prompts[0]


def test_earlier_sequences_are_tried_again_on_the_repair() -> None:
    worse = BUGGY.replace("append(value)", "append(value + 1)")
    result, prompts = ran(BUGGY, [worse, RIGHT])
    assert result.status == "solved"
    assert len(prompts) == 2


@pytest.mark.parametrize(
    ("reply", "taken"),
    [
        (RIGHT, True),
        (RIGHT.replace("def pop", "def take"), False),
        (RIGHT.replace("def push(self, value)", "def push(self)"), False),
        (RIGHT.replace("class Stack", "class Pile"), False),
        ("def Stack():\n    return 1\n", False),
        ("class Stack:\n    def pop(self", False),
        ("class Spare:\n    pass\n\n\n" + RIGHT, True),
    ],
)
def test_a_reply_must_hold_the_whole_class(reply: str, taken: bool) -> None:
    task = Task("A stack.", "Stack", BUGGY)
    found = program_in(f"```python\n{reply}\n```", task, BUGGY)
    assert bool(found) is taken
    assert not taken or ("pop(0)" not in found and ("Spare" in reply) == ("Spare" in found))


def test_a_method_keeps_its_class() -> None:
    task = from_code(BUGGY, "Stack.pop", "Remove and return the last.")
    assert not task.is_class
    assert task.parameters == []


def test_classes_and_machines_go_together() -> None:
    machine, task = PropertySet.from_source(STACK), Task("A stack.", "Stack", BUGGY)
    model = ScriptedModel([])
    with pytest.raises(PropertyError, match="is a class: give a file with a machine"):
        PGSWorkflow(model).run(task)
    with pytest.raises(PropertyError, match="no class of the program"):
        PGSWorkflow(model, properties=machine).run(Task("Sort.", "ordered", "def ordered(x):\n    return x\n"))
    with pytest.raises(PropertyError, match="give the signature `class Stack:`"):
        PGSWorkflow(model, properties=machine).run(replace(task, code=None))
    with pytest.raises(PropertyError, match="no public tests"):
        PGSWorkflow(model, properties=machine).run(replace(task, public_tests=[((1,), 1)]))


def test_a_class_in_a_file_is_repaired_from_the_command_line(tmp_path: Path) -> None:
    code = BUGGY.replace("class Stack:", 'class Stack:\n    """The last in is the first out."""')
    (tmp_path / "stack.py").write_text(code)
    (tmp_path / "machine.py").write_text(STACK)
    (tmp_path / "script.json").write_text(json.dumps([{"text": f"```python\n{RIGHT}\n```"}]))
    words = ["run", str(tmp_path / "stack.py"), "-f", "Stack", "-p", str(tmp_path / "machine.py"), "--write"]
    words += ["--script", str(tmp_path / "script.json"), "--sandbox", "bubblewrap"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "s = Stack(); s.push(0); s.push(1); s.pop() == 0" in done.output
    assert (tmp_path / "stack.py").read_text() == code.replace("pop(0)", "pop()")
