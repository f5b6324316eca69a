"""Approvals in real runs: questions beside running calls, edits, remembered choices, and a kill at every moment."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers_run import assert_paired, call, calls, go, results, say

import opensage
from opensage import Decision, Policy, tool
from opensage.errors import ConfigError
from opensage.log.store import SessionStore
from opensage.messages import ToolCall
from opensage.models import ScriptedModel
from opensage.sandbox import ScriptedSandbox

ROOT = Path(__file__).parents[2]


@tool(approval="ask")
async def gated(n: int) -> str:
    """Gated."""
    return f"ran {n}"


def log_of(folder: Path) -> Path:
    (log,) = (folder / ".opensage" / "sessions").glob("*.jsonl")
    return log


def test_questions_come_one_by_one_in_call_order_while_other_calls_go_on(tmp_path: Path) -> None:
    asked: list[int] = []
    open_now: list[int] = []
    free_done = asyncio.Event()

    @tool
    async def free() -> str:
        """Free."""
        free_done.set()
        return "free"

    async def approve(wanted: ToolCall) -> bool:
        n = json.loads(wanted.arguments)["n"]
        asked.append(n)
        open_now.append(n)
        assert open_now == [n], "two questions at once"
        await asyncio.wait_for(free_done.wait(), 5)  # the free call comes last, and is not kept waiting
        await asyncio.sleep(0.02)
        open_now.remove(n)
        return n != 2

    turn = calls(call("gated", {"n": 1}), call("gated", {"n": 2}), call("gated", {"n": 3}), call("free"))
    result, model = go([turn, say("x")], tmp_path, tools=[gated, free], approve=approve)
    assert (result.status, asked) == ("done", [1, 2, 3])
    texts = results(model)
    assert (texts[0], texts[2], texts[3]) == ("ran 1", "ran 3", "free")
    assert texts[1].startswith("Not permitted: default of gated, and the user refused it")


def test_an_answer_remembered_meanwhile_answers_the_waiting_calls(tmp_path: Path) -> None:
    asked: list[str] = []

    def approve(wanted: ToolCall) -> Decision:
        asked.append(wanted.arguments)
        return Decision(True, remember="gated")

    _, model = go(
        [calls(*[call("gated", {"n": n}) for n in range(3)]), say("x")], tmp_path, tools=[gated], approve=approve
    )
    assert results(model) == ["ran 0", "ran 1", "ran 2"]
    assert len(asked) == 1


def test_cancelling_while_a_question_is_open_answers_every_call(tmp_path: Path) -> None:
    model = ScriptedModel([calls(call("gated", {"n": 1}), call("gated", {"n": 2})), say("hello")])

    async def main() -> opensage.Result:
        waiting = asyncio.Event()

        async def approve(_: ToolCall) -> bool:
            waiting.set()
            await asyncio.sleep(60)
            return True

        options: dict[str, Any] = {"model": model, "workdir": tmp_path, "tools": [gated], "sandbox": ScriptedSandbox()}
        task = asyncio.create_task(opensage.arun("go", approve=approve, **options))
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await opensage.arun("hi", session=log_of(tmp_path).stem, approve=approve, **options)

    assert asyncio.run(main()).text == "hello"
    assert results(model) == ["[cancelled before it ran]"] * 2
    assert_paired(model)


def test_the_time_limit_holds_while_a_question_is_open(tmp_path: Path) -> None:
    async def never(_: ToolCall) -> bool:
        await asyncio.sleep(60)
        return True

    limits = opensage.Limits(max_seconds=0.3)
    result, _ = go([calls(call("gated", {"n": 1})), say("x")], tmp_path, tools=[gated], approve=never, limits=limits)
    assert (result.status, result.reason.partition(":")[0]) == ("limit", "max_seconds")


def test_the_model_is_told_what_the_person_changed(tmp_path: Path) -> None:
    _, model = go([calls(call("gated", {"n": 1})), say("x")], tmp_path, tools=[gated], approve=lambda _: {"n": 7})
    assert results(model) == ['[the user changed the call before it ran: {"n": 7}]\nran 7']


def test_an_edit_to_no_arguments_is_an_edit(tmp_path: Path) -> None:
    @tool(approval="ask")
    async def maybe(n: int = 0) -> str:
        """Maybe."""
        return f"ran {n}"

    _, model = go([calls(call("maybe", {"n": 1})), say("x")], tmp_path, tools=[maybe], approve=lambda _: {})
    assert results(model)[0].endswith("ran 0")


@pytest.mark.parametrize(
    "answer", [True, {"n": 13}, Decision(True, remember="gated"), Decision(True, arguments={"n": 13})]
)
def test_no_answer_of_a_person_overrides_a_deny_rule(tmp_path: Path, answer: object) -> None:
    policy = Policy.parse(deny=['gated({"n": 13})', 'gated({"n": 14})'], ask=["gated"])
    turns = [calls(call("gated", {"n": 1})), calls(call("gated", {"n": 14})), say("x")]
    _, model = go(turns, tmp_path, tools=[gated], approve=lambda _: answer, policy=policy)
    first, second = results(model)
    edited = "13" in str(answer)
    assert (first == "ran 1") is not edited
    assert ("rule deny" in first) is edited
    assert second.startswith('Not permitted: rule deny gated({"n": 14})')
    assert ('"allowed":true' in log_of(tmp_path).read_text()) is not edited


def test_yes_does_not_allow_what_a_deny_rule_may_speak_of(tmp_path: Path) -> None:
    policy = Policy.parse(deny=["shell(touch *)"])
    turns = [calls(call("shell", {"command": c})) for c in ("x=touch; $x a", "echo fine")]
    _, model = go([*turns, say("x")], tmp_path, real=True, policy=policy, approve="allow")
    hidden, plain = results(model)
    assert hidden.startswith("Not permitted: rule deny shell(touch *) may speak of it")
    assert plain == "fine"
    assert not (tmp_path / "a").exists()


def test_a_person_may_allow_what_cannot_be_seen_through(tmp_path: Path) -> None:
    policy = Policy.parse(deny=["shell(touch *)"])
    turn = calls(call("shell", {"command": "x=echo; $x hello"}))
    _, model = go([turn, say("x")], tmp_path, real=True, policy=policy, approve=lambda _: True)
    assert results(model) == ["hello"]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (3, "must answer"),
        (Decision(True, remember="("), "names no tool"),
        (ToolCall("x", "other", "{}"), "not turn gated into other"),
    ],
)
def test_an_approve_function_that_answers_nonsense_ends_the_run_and_leaves_the_log_usable(
    tmp_path: Path, answer: object, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        go([calls(call("gated", {"n": 1})), say("x")], tmp_path, tools=[gated], approve=lambda _: answer)
    result, model = go([say("fine")], tmp_path, "hi", session=log_of(tmp_path).stem, tools=[gated])
    assert (result.text, results(model)) == ("fine", ["[cancelled before it ran]"])


def test_an_approve_function_that_raises_ends_the_run_with_its_error(tmp_path: Path) -> None:
    def broken(_: ToolCall) -> bool:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        go([calls(call("gated", {"n": 1})), say("x")], tmp_path, tools=[gated], approve=broken)
    assert '"status":"cancelled"' in log_of(tmp_path).read_text()


def test_remembered_choices_hold_after_resume_and_fork_and_no_wider(tmp_path: Path) -> None:
    asked: list[str] = []

    def approve(wanted: ToolCall) -> Decision:
        asked.append(json.loads(wanted.arguments)["command"])
        return Decision(len(asked) == 1, remember="shell(echo *)" if len(asked) == 1 else "")

    def run(session: str | None, *commands: str) -> list[str]:
        turns = [calls(call("shell", {"command": c})) for c in commands]
        _, model = go([*turns, say("x")], tmp_path, "go", real=True, session=session, approve=approve)
        return results(model)[-len(commands) :]

    assert run(None, "echo 1", "echo 2") == ["1", "2"]
    first = log_of(tmp_path).stem
    fork = SessionStore(tmp_path / ".opensage" / "sessions").fork(first)
    for session in (first, fork):
        texts = run(session, "echo 3", "echo 4; touch x", "echo $(touch x)", "echo 5 > x")
        assert texts[0] == "3"
        assert all(text.startswith("Not permitted") for text in texts[1:])
    assert asked == ["echo 1", *["echo 4; touch x", "echo $(touch x)", "echo 5 > x"] * 2]
    assert not (tmp_path / "x").exists()
    shown = subprocess.run(
        [sys.executable, "-m", "opensage", "sessions", "show", fork, "-w", str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "(allowed for the rest of this session: shell(echo *))" in shown


def test_a_choice_always_answers_questions_that_rules_ask_but_never_those_that_deny(tmp_path: Path) -> None:
    policy = Policy.parse(ask=["gated"], deny=['gated({"n": 2})'])
    approve = lambda _: Decision(True, remember="gated")  # noqa: E731
    turns = [calls(call("gated", {"n": n})) for n in (1, 2, 3)]
    _, model = go([*turns, say("x")], tmp_path, tools=[gated], policy=policy, approve=approve)
    assert [text.partition(" ")[0] for text in results(model)] == ["ran", "Not", "ran"]


CHILD = '''
import asyncio, json, os, signal, sys
from pathlib import Path
import opensage
from opensage import Decision, tool
from opensage.log.journal import LogFile
from opensage.models import ScriptedModel
from opensage.sandbox import ScriptedSandbox

folder, moment, answer, session = Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4] or None

@tool(approval="ask")
async def gated(n: int) -> str:
    """Gated."""
    with open(folder / "effects", "a") as file:
        file.write(f"{n}\\n")
    return f"ran {n}"

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def approve(call):
    if moment == "asked":
        die()
    return {"approve": True, "reject": Decision(False, "no"), "edit": {"n": 7}}[answer]

class Dies(LogFile):
    def write(self, data):
        done = super().write(data)
        if moment == "decided" and b'"approval.decided"' in data:
            die()
        return done

if moment == "decided":
    import opensage.log.journal as journal
    journal.LogFile = Dies
turns = [{"tool_calls": [{"id": "a", "name": "gated", "arguments": {"n": 1}}]}, {"text": "end"}]
model = ScriptedModel(turns[1:] if session else turns)
result = opensage.run(None if session else "go", model=model, workdir=folder, sandbox=ScriptedSandbox(), tools=[gated],
                      approve=approve, session=session)
print(json.dumps([result.status, [m["content"] for m in model.requests[-1]["messages"] if m["role"] == "tool"]]))
'''


@pytest.mark.parametrize("moment", ["asked", "decided"])
@pytest.mark.parametrize(
    ("answer", "effect", "told"), [("approve", "1", "ran 1"), ("edit", "7", "ran 7"), ("reject", "", "Not permitted")]
)
def test_probe_j4_approvals_survive_a_killed_process(
    tmp_path: Path, moment: str, answer: str, effect: str, told: str
) -> None:
    """Killed while the question is open it is asked again; killed after the answer, the answer holds; run once each."""
    (tmp_path / "child.py").write_text(CHILD)

    def child(moment: str, answer: str, session: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, str(tmp_path / "child.py"), str(tmp_path), moment, answer, session]
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        return subprocess.run(words, capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": path})

    first = child(moment, answer, "")
    assert first.returncode == -signal.SIGKILL, first.stderr
    assert not (tmp_path / "effects").exists()
    # After the answer nobody may be asked again: the other answer would show.
    again = answer if moment == "asked" else {"approve": "reject", "edit": "reject", "reject": "approve"}[answer]
    second = child("", again, log_of(tmp_path).stem)
    assert second.returncode == 0, second.stderr
    status, texts = json.loads(second.stdout)
    assert status == "done"
    assert len(texts) == 1
    assert told in texts[0]
    effects = tmp_path / "effects"
    assert (effects.read_text().split() if effects.exists() else []) == effect.split()
    assert log_of(tmp_path).read_text().count('"tool.result"') == 1


def test_a_deny_rule_added_while_the_process_was_dead_beats_the_decision(tmp_path: Path) -> None:
    go([calls(call("gated", {"n": 1})), say("x")], tmp_path, tools=[gated], approve=lambda _: True)
    log = log_of(tmp_path)
    lines = log.read_text().splitlines()
    decided = next(n for n, line in enumerate(lines) if '"approval.decided"' in line)
    log.write_text("\n".join(lines[: decided + 1]) + "\n")
    policy = Policy.parse(deny=["gated"])
    _, model = go([say("y")], tmp_path, None, session=log.stem, tools=[gated], policy=policy, approve="allow")
    assert results(model)[0].startswith("Not permitted: rule deny gated")
