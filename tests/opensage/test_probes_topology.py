"""Probes G and J: agents that call agents, as they went wrong in other kits."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from helpers_run import assert_paired, call, calls, say
from topology_helpers import answers, create, delegate, events, seen, sessions, team, topology

import opensage
from opensage import AgentSpec, Limits, tool
from opensage.approval import Decision
from opensage.models import ScriptedModel
from opensage.sandbox import ScriptedSandbox
from opensage.topology.graph import Topology


def forever(name: str, arguments: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"repeat": calls(call(name, arguments or {})), "times": -1}


def test_probe_g3_the_whole_tree_stops_at_the_parents_limit(tmp_path: Path) -> None:
    counter = iter(range(1000))
    agents = {
        "main": [create("worker"), {"repeat": delegate("worker"), "times": -1}],
        "worker": [forever("count")],
    }

    @tool
    def count() -> int:
        """Count."""
        return next(counter)

    result, model = team(agents, tmp_path, tools=[count], limits=Limits(max_turns=10))
    assert result.status == "limit"
    assert len(model.requests) <= 10
    assert result.usage["model_calls"] == len(model.requests)


def test_probe_g5_two_agents_cannot_delegate_to_each_other_for_ever(tmp_path: Path) -> None:
    agents = {
        "main": [create("a"), create("b"), delegate("a"), say("over")],
        "a": [delegate("b", "your turn"), say("a is done")],
        "b": [delegate("a", "no, yours"), delegate("main", "or yours"), say("b cannot")],
    }
    result, model = team(agents, tmp_path)
    assert result.status == "done"
    refused = answers(model, "b")
    assert "a cycle: main -> a -> b -> a" in refused[0]
    assert "a cycle: main -> a -> b -> main" in refused[1]


def test_probe_g5_depth_is_bounded(tmp_path: Path) -> None:
    agents: dict[str, Any] = {"main": [create("d1"), delegate("d1"), say("over")]}
    for depth in range(1, 4):
        agents[f"d{depth}"] = [create(f"d{depth + 1}"), delegate(f"d{depth + 1}"), say("deep")]
    result, model = team(agents, tmp_path, limits=Limits(max_depth=2))
    assert result.status == "done"
    deepest = seen(model, "d2")[-1]
    assert "create_agent" not in [t["function"]["name"] for t in deepest["tools"]]
    assert not seen(model, "d3")


def test_probe_g5_the_same_task_is_not_given_again_and_again(tmp_path: Path) -> None:
    agents = {
        "main": [create("w"), delegate("w"), delegate("w"), delegate("w"), say("over")],
        "w": [say("A"), say("B")],
    }
    result, model = team(agents, tmp_path)
    assert result.status == "done"
    last = answers(model)[-1]
    assert "this same task 2 times" in last
    assert "B" in last
    assert len(seen(model, "w")) == 2


@pytest.mark.parametrize(
    ("turns", "options", "status"),
    [
        ([calls(call("tasks")), say("never said")], {"limits": {"max_turns": 1}}, "limit"),
        ([say("half of the ans", finish_reason="length")], {}, "limit"),
        ([say(""), say(""), say("")], {}, "empty"),
        ([{"error": {"status": 401, "message": "no key"}}], {}, "failed"),
        ([forever("tasks")], {}, "stuck"),
    ],
)
def test_probe_g10_a_child_that_was_stopped_is_no_success(
    tmp_path: Path, turns: list[Any], options: dict[str, Any], status: str
) -> None:
    agents = {"main": [create("w", **options), delegate("w"), say("over")], "w": turns}
    result, model = team(agents, tmp_path)
    assert result.status == "done"
    report = answers(model)[-1]
    assert report.startswith(f"[a1 w: {status} (")
    assert "NOT finished" in report
    if turns[0].get("finish_reason") == "length":
        assert "half of the ans" in report
    assert topology(tmp_path, result).root.children[0].status == status


def test_probe_g12_a_model_that_always_spawns_is_stopped(tmp_path: Path) -> None:
    spawn = [
        calls(
            call("create_agent", {"name": f"w{n}", "instruction": "x"}),
            call("call_agent", {"name": f"w{n}", "task": "t"}),
        )
        for n in range(12)
    ]
    agents: dict[str, Any] = {"main": [*spawn, say("over")]}
    agents |= {f"w{n}": [say("done")] for n in range(12)}
    result, model = team(agents, tmp_path, limits=Limits(max_agents=5))
    assert result.status == "done"
    assert len(topology(tmp_path, result).root.children) == 5
    assert any("max_agents: 5 of 5" in answer for answer in answers(model))


def test_probe_g12_agents_at_work_at_one_time_are_capped(tmp_path: Path) -> None:
    now = most = 0

    @tool
    async def work() -> str:
        """Work for a moment."""
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.05)
        now -= 1
        return "ok"

    names = [f"w{n}" for n in range(9)]
    agents: dict[str, Any] = {
        "main": [
            *(create(n) for n in names),
            calls(*(call("call_agent", {"name": n, "task": "t"}) for n in names)),
            say("over"),
        ]
    }
    agents |= {n: [calls(call("work")), say("ok")] for n in names}
    result, model = team(agents, tmp_path, tools=[work], limits=Limits(max_live_agents=3))
    assert result.status == "done"
    assert most == 3
    assert all("done" in a for a in answers(model)[-9:])


@tool(approval="ask")
def gated(value: str) -> str:
    """Do something that needs a yes."""
    return f"did {value}"


GATED = {
    "main": [create("child"), delegate("child"), say("over")],
    "child": [calls(call("gated", {"value": "one"}, id="g")), say("child is done")],
}
ANSWERS = {
    "approve": (lambda _call: True, "did one"),
    "reject": (lambda _call: False, "Not permitted"),
    "edit": (lambda _call: Decision(True, "", {"value": "two"}), "did two"),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_probe_j4_an_approval_inside_a_child_reaches_the_person(tmp_path: Path, answer: str) -> None:
    asked = []

    def approve(question: Any) -> object:
        asked.append((question.agent, question.name))
        return ANSWERS[answer][0](question)

    result, model = team(GATED, tmp_path, tools=[gated], approve=approve)
    assert result.status == "done"
    assert asked == [("child", "gated")]
    assert ANSWERS[answer][1] in answers(model, "child")[-1]


class Gone(BaseException):
    """The process dies here."""


@pytest.mark.parametrize("moment", ["asked", "decided"])
@pytest.mark.parametrize("answer", ANSWERS)
def test_probe_j4_an_approval_inside_a_child_survives_a_restart(tmp_path: Path, answer: str, moment: str) -> None:
    """A process of its own is killed while the question is open, or right after it was answered."""
    program = f"""
import os, sys
sys.path[:0] = {[os.path.dirname(__file__), os.path.dirname(os.path.dirname(__file__))]!r}
import opensage
import test_probes_topology as t
from opensage.log.session import Session
def approve(call):
    if {moment == "asked"}:
        os.kill(os.getpid(), 9)
    return t.ANSWERS[{answer!r}][0](call)
record = Session.record
def dying(self, event):
    made = record(self, event)
    if event.type == "approval.decided":
        os.kill(os.getpid(), 9)
    return made
Session.record = dying
opensage.run("do it", model=t.ScriptedModel({{"agents": t.GATED}}), workdir={str(tmp_path)!r}, tools=[t.gated],
             sandbox=t.ScriptedSandbox(), approve=approve)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    [root] = [path.stem for path in sessions(tmp_path).glob("*.jsonl") if "." not in path.stem]
    asked: list[str] = []

    def approve(question: Any) -> object:
        asked.append(question.agent)
        return ANSWERS[answer][0](question)

    model = ScriptedModel({"agents": {"main": [say("over")], "child": [say("child is done")]}})
    result = opensage.run(
        None, model=model, workdir=tmp_path, tools=[gated], sandbox=ScriptedSandbox(), approve=approve, session=root
    )
    assert_paired(model)
    assert result.status == "done"
    assert result.text == "over"
    assert asked == (["child"] if moment == "asked" else [])
    assert ANSWERS[answer][1] in answers(model, "child")[-1]
    assert "[a1 child: done" in answers(model)[-1]
    assert len(list(sessions(tmp_path).glob("*.jsonl"))) == 2  # the child went on, no second one was begun
    assert result.usage["model_calls"] == 5  # two of the root and one of the child before, one of each after


def test_probe_j5_two_parents_with_a_pool_of_two_finish(tmp_path: Path) -> None:
    agents = {
        "main": [
            create("p1"),
            create("p2"),
            create("c1"),
            create("c2"),
            calls(call("call_agent", {"name": "p1", "task": "t"}), call("call_agent", {"name": "p2", "task": "t"})),
            say("over"),
        ],
        "p1": [delegate("c1"), say("p1")],
        "p2": [delegate("c2"), say("p2")],
        "c1": [say("c1", delay_s=0.05)],
        "c2": [say("c2", delay_s=0.05)],
    }
    for pool in (1, 2):
        begin = time.monotonic()
        result, model = team(agents, tmp_path, limits=Limits(max_live_agents=pool, max_seconds=20))
        assert result.status == "done", result.reason
        assert time.monotonic() - begin < 10
        assert [a.splitlines()[-1] for a in answers(model)[-2:]] == ["p1", "p2"]


def test_probe_j8_a_child_has_a_session_of_its_own(tmp_path: Path) -> None:
    agents = {"main": [create("w"), delegate("w", "its task"), say("over")], "w": [say("w's answer")]}
    result, _model = team(agents, tmp_path)
    first = events(tmp_path, f"{result.session_id}.1")[0]
    assert first.parent == result.session_id
    assert not any(getattr(e, "text", "") == "its task" for e in events(tmp_path, result.session_id))
    assert topology(tmp_path, result).root.children[0].task == "its task"


def test_probe_j10_children_are_pinned_when_the_history_is_compacted(tmp_path: Path) -> None:
    filler = [
        calls(call("fill", {"n": f"{n} " * 400})) for n in range(6)
    ]  # arguments are not left out, outputs would be

    @tool
    def fill(n: str) -> str:
        """Fill the window."""
        return "filled"

    agents: dict[str, Any] = {
        "main": [
            create("slow"),
            delegate("slow", "count the stars", background=True),
            *filler,
            calls(call("await_agents")),
            say("over"),
        ],
        "slow": [say("seven", delay_s=1.5)],
        "compactor": [{"repeat": say("a summary"), "times": -1}],
    }
    model = ScriptedModel({"agents": agents}, context_window=2000)
    result = opensage.run("do it", model=model, workdir=tmp_path, tools=[fill], sandbox=ScriptedSandbox())
    assert result.status == "done"
    pinned = [
        m["content"]
        for r in model.requests
        for m in r["messages"]
        if m["role"] == "user" and "compacted" in m["content"]
    ]
    assert any("a1 slow [running]: count the stars" in text for text in pinned)


def test_probe_h11_a_child_that_runs_no_command_starts_no_sandbox(tmp_path: Path) -> None:
    agents = {"main": [create("w"), delegate("w"), say("over")], "w": [say("thought")]}
    model = ScriptedModel({"agents": agents})
    engine = opensage.engine.Engine(model=model, workdir=tmp_path, sandbox="bubblewrap")

    async def go() -> object:
        async for _event in engine.turn("do it"):
            pass
        started = engine.sandbox.pid
        await engine.close()
        return started

    assert asyncio.run(go()) is None
    assert engine.session.summary.status == "done"


def test_cancelling_a_parent_ends_its_tree_within_a_second(tmp_path: Path) -> None:
    marker = tmp_path / "alive"
    loop = f"while true; do date +%s%N > {marker}; sleep 0.05; done"
    agents: dict[str, Any] = {
        "main": [create("a"), create("b"), delegate("b", "go", background=True), delegate("a", "go"), say("over")],
        "a": [delegate("c", "deeper"), say("a")],
        "b": [calls(call("shell", {"command": loop})), say("b")],
        "c": [calls(call("shell", {"command": "sleep 60"})), say("c")],
    }

    async def go() -> float:
        spec = AgentSpec(name="c", instruction="sleep")
        run = asyncio.create_task(
            opensage.arun(
                "do it", model=ScriptedModel({"agents": agents}), workdir=tmp_path, sandbox="bubblewrap", agents=[spec]
            )
        )
        while not marker.exists() or len(list(sessions(tmp_path).glob("*.*.*.jsonl"))) < 1:
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.3)
        begin = time.monotonic()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        return time.monotonic() - begin

    seconds = asyncio.run(go())
    assert seconds < 3.0  # 0.1 to 0.4 on an idle machine; the limit is a second
    before = marker.read_text()
    time.sleep(0.3)
    assert marker.read_text() == before
    [root] = [path.stem for path in sessions(tmp_path).glob("*.jsonl") if "." not in path.stem]
    assert {node.status for node in Topology(sessions(tmp_path), root).root.walk()} == {"cancelled"}


def test_a_resumed_root_goes_on_with_background_children(tmp_path: Path) -> None:
    """Killed while two children work; the resumed run finds their answers by the ids it knows."""
    program = f"""
import os, sys
sys.path[:0] = {[os.path.dirname(__file__)]!r}
import opensage
from opensage import tool
from topology_helpers import *
from helpers_run import *
@tool
def die() -> str:
    "Die."
    os.kill(os.getpid(), 9)
team({{"main": [create("w"), delegate("w", "one", background=True), calls(call("tasks")), calls(call("die"))],
      "w": [calls(call("tasks")), calls(call("tasks", {{}})), say("x", delay_s=60)]}}, Path({str(tmp_path)!r}), tools=[die])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    [root] = [path.stem for path in sessions(tmp_path).glob("*.jsonl") if "." not in path.stem]
    assert Topology(sessions(tmp_path), root).root.children[0].status == "interrupted"
    model = ScriptedModel(
        {"agents": {"main": [calls(call("await_agents", {"ids": ["a1"]})), say("over")], "w": [say("one is done")]}}
    )
    result = opensage.run(None, model=model, workdir=tmp_path, sandbox=ScriptedSandbox(), session=root)
    assert result.status == "done"
    assert "one is done" in answers(model)[-1]
    assert json.loads(json.dumps(result.usage))["model_calls"] >= 6
