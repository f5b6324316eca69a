"""Agents that call agents when things go wrong: crashes, limits, rights, hostile files, half-written logs."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from helpers_run import assert_paired, call, calls, say
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from topology_helpers import answers, create, delegate, events, seen, sessions, team, topology

import opensage
from opensage import AgentSpec, Limits, tool
from opensage.approval import Policy
from opensage.budget import Budget
from opensage.cli.agents import drawn
from opensage.engine import Engine
from opensage.errors import SessionError
from opensage.log.events import AgentCalled, AgentCreated, AgentFinished, ModelReply, RunStarted, UserMessage, encode
from opensage.log.session import Session
from opensage.log.store import SessionStore
from opensage.messages import Usage
from opensage.models import ScriptedModel
from opensage.models.script import ScriptedFunction
from opensage.sandbox import ScriptedSandbox
from opensage.toolkit.workshop import Workshop
from opensage.topology import restart
from opensage.topology.copies import Copies
from opensage.topology.graph import Topology
from opensage.topology.library import AgentLibrary
from opensage.topology.report import listed, reported
from opensage.topology.seats import Seats
from opensage.topology.team import Team

PAID = {"usage": {"input_tokens": 10, "output_tokens": 1, "cost": 0.01}}


def ends(tmp_path: Path, result: opensage.Result) -> list[AgentFinished]:
    return [event for event in events(tmp_path, result.session_id) if event.type == "agent.finished"]


# --- what an agent reads ---


@pytest.fixture(autouse=True)
def nothing_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is installed here does not count."""
    monkeypatch.setattr("opensage.topology.library.shipped", list)


def test_a_post_of_its_own_leaves_no_empty_message(tmp_path: Path) -> None:
    post = calls(call("post", {"topic": "news", "text": "hello"}))
    result, model = team({"main": [post, post, say("over")]}, tmp_path)
    assert result.status == "done"
    assert_paired(model)


def test_a_copy_of_a_session_has_the_board(tmp_path: Path) -> None:
    """What was read of the board is a place in it: in an empty one the next posts would be missed."""
    post = calls(call("post", {"topic": "t", "text": "x" * 300}))
    first, _ = team({"main": [create("w"), post, post, delegate("w"), say("over")], "w": [post, say("w")]}, tmp_path)
    copy = SessionStore(sessions(tmp_path)).fork(first.session_id)
    more = {
        "main": [calls(call("resume_agent", {"id": "a1", "message": "post"})), say("over")],
        "w": [calls(call("post", {"topic": "t", "text": "new in the copy"})), say("w")],
    }
    _, model = team(more, tmp_path, "go on", session=copy)
    assert any("new in the copy" in str(m["content"]) for m in model.requests[-1]["messages"] if m["role"] == "user")


def test_a_copy_of_a_session_has_children_that_heard_no_more_than_it_said(tmp_path: Path) -> None:
    more = calls(call("resume_agent", {"id": "a1", "message": "second"}))
    agents = {
        "main": [create("w"), delegate("w", "first"), more, say("over")],
        "w": [create("v"), delegate("v", "deep"), say("one"), say("two")],
        "v": [say("v")],
    }
    first, _ = team(agents, tmp_path)
    at = next(e.seq for e in first.events if e.type == "agent.called")
    copy = SessionStore(sessions(tmp_path)).fork(first.session_id, at)
    again = {"main": [more, say("over")], "w": [say("two again")]}
    result, model = team(again, tmp_path, None, session=copy)
    assert answers(model)[-2].endswith("one")  # the work is not done again
    assert answers(model)[-1].endswith("two again")
    said = [e.text for e in events(tmp_path, f"{copy}.1") if e.type == "user.message"]
    assert said == ["first", "second"]
    assert events(tmp_path, f"{copy}.1.1")[-1].text == "v"
    assert result.usage["model_calls"] == 4 + 5  # of main and w; w's first run with all below it


# --- seats ---


def test_a_seat_that_is_given_to_one_who_is_just_cancelled_is_not_lost() -> None:
    async def go() -> int:
        seats = Seats(1)
        await seats.take()
        waiting = [asyncio.create_task(seats.take()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        seats.free()  # before the cancelled one has run
        with pytest.raises(asyncio.CancelledError):
            await waiting[0]
        seats.free()
        await waiting[1]
        seats.free()
        await waiting[2]
        seats.free()
        return seats.taken

    assert asyncio.run(go()) == 0


def test_who_waits_for_a_time_does_not_wait_longer_for_a_seat(tmp_path: Path) -> None:
    agents = {
        "main": [
            create("w"),
            delegate("w", "1", background=True),
            delegate("w", "2", background=True),
            calls(call("await_agents", {"timeout": 0.1})),
            calls(call("await_agents")),
            say("over"),
        ],
        "w": [say("one", delay_s=0.6), say("two", delay_s=0.6)],
    }
    result, model = team(agents, tmp_path, limits=Limits(max_live_agents=1))
    assert result.status == "done"
    assert answers(model)[-2].count("[a1 w: running") == 1
    assert answers(model)[-1].count(": done;") == 2


def test_what_is_ended_in_the_queue_for_a_seat_is_told_like_the_rest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    agents = {
        "main": [
            create("w"),
            calls(call("call_agent", {"name": "w", "task": "1"}), call("call_agent", {"name": "w", "task": "2"})),
        ],
        "w": [say("late", delay_s=30), say("late", delay_s=30)],
    }
    result, _ = team(agents, tmp_path, limits=Limits(max_seconds=1.0, max_live_agents=1))
    gc.collect()
    assert result.status == "limit"
    assert len(ends(tmp_path, result)) == 2
    assert all(event.reason for event in ends(tmp_path, result))
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


# --- what breaks inside a child ---


def test_a_defect_in_a_persons_function_is_told_and_not_lost(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    @tool(approval="ask")
    def gated() -> str:
        """Needs a yes."""
        return "x"

    def approve(_call: object) -> bool:
        raise RuntimeError("a defect")

    agents = {"main": [create("w"), delegate("w"), say("over")], "w": [calls(call("gated"))]}
    result, model = team(agents, tmp_path, tools=[gated], approve=approve)
    gc.collect()
    assert result.status == "done"
    assert answers(model)[-1].startswith("[a1 w: failed (RuntimeError: a defect), NOT finished")
    assert not caplog.records


def test_what_cannot_be_told_to_the_log_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = Session.record

    def full(self: Session, event: Any) -> Any:
        if event.type == "agent.finished":
            raise SessionError("the disk is full")
        return record(self, event)

    monkeypatch.setattr(Session, "record", full)
    with pytest.raises(SessionError, match="the disk is full"):
        team({"main": [create("w"), delegate("w"), say("over")], "w": [say("w")]}, tmp_path)
    monkeypatch.undo()
    [root] = [path.stem for path in sessions(tmp_path).glob("*.jsonl") if "." not in path.stem]
    result, model = team({"main": [say("over")]}, tmp_path, None, session=root)
    assert result.status == "done"
    assert_paired(model)


def test_ctrl_c_in_a_tool_of_a_child_ends_the_tree(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    @tool
    async def interrupted() -> str:
        """Ctrl-C."""
        raise KeyboardInterrupt

    agents = {
        "main": [create("w"), create("v"), delegate("v", background=True), delegate("w")],
        "w": [calls(call("interrupted"))],
        "v": [say("late", delay_s=30)],
    }
    with pytest.raises(KeyboardInterrupt):
        team(agents, tmp_path, tools=[interrupted])
    gc.collect()
    assert not caplog.records
    [root] = [path.stem for path in sessions(tmp_path).glob("*.jsonl") if "." not in path.stem]
    assert {node.status for node in Topology(sessions(tmp_path), root).root.walk()} == {"cancelled"}
    assert [e.status for e in events(tmp_path, root) if e.type == "agent.finished"] == ["cancelled"] * 2


def test_an_engine_closed_in_mid_run_ends_its_children_first(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    agents = {
        "main": [create("w"), delegate("w", background=True), calls(call("tasks")), say("late", delay_s=30)],
        "w": [say("late", delay_s=30)],
    }

    async def go() -> set[str]:
        engine = Engine(model=ScriptedModel({"agents": agents}), workdir=tmp_path, sandbox=ScriptedSandbox())
        running = engine.turn("do it")
        async for event in running:
            if event.type == "tool.result" and event.name == "tasks":
                break
        await engine.close()
        await running.aclose()  # type: ignore[attr-defined]
        return {task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("agent ")}

    assert asyncio.run(go()) == set()
    gc.collect()
    assert not caplog.records
    [root] = [path.stem for path in sessions(tmp_path).glob("*.jsonl") if "." not in path.stem]
    assert [e.status for e in events(tmp_path, root) if e.type == "agent.finished"] == ["cancelled"]


def test_each_message_of_a_chat_may_call_as_many_agents_as_the_limit_says(tmp_path: Path) -> None:
    turns = [delegate("w", f"task {n}") for n in range(4)]
    agents = {
        "main": [create("w"), *[part for turn in turns for part in (turn, say("ok"))]],
        "w": [say("done")] * 4,
    }
    model = ScriptedModel({"agents": agents})

    async def go() -> None:
        engine = Engine(model=model, workdir=tmp_path, sandbox=ScriptedSandbox(), limits=Limits(max_agents=1))
        for number in range(4):
            async for _event in engine.turn(f"message {number}"):
                pass
        await engine.close()

    asyncio.run(go())
    assert [": done;" in answer for answer in answers(model)[1:]] == [True] * 4


# --- saved agents ---

FILES = {
    "another agent's": "---\nname: bar\n---\nprecious\n",
    "a broken one": "---\nname: foo\nprecious",
    "of the same name": "---\nname: foo\n# a remark\ncolor: red\n---\nprecious\n",
}


@pytest.mark.parametrize("name", FILES)
def test_a_persons_file_is_never_overwritten_by_an_agent(tmp_path: Path, name: str) -> None:
    folder = tmp_path / ".opensage" / "agents"
    folder.mkdir(parents=True)
    (folder / "foo.md").write_text(FILES[name])
    agents = {
        "main": [create("foo"), delegate("foo"), calls(call("save_agent", {"name": "foo"})), say("over")],
        "foo": [say("x")],
    }
    _, model = team(agents, tmp_path)
    assert (folder / "foo.md").read_text() == FILES[name]
    assert os.listdir(folder) == ["foo.md"]
    assert "already" in answers(model)[-1]


def test_what_could_not_be_read_again_is_not_saved(tmp_path: Path) -> None:
    agents = {
        "main": [
            calls(call("create_agent", {"name": "big", "instruction": "x" * 300_000})),
            calls(call("save_agent", {"name": "big"})),
            calls(call("create_agent", {"name": "odd", "instruction": "\ud800 x"})),
            calls(call("save_agent", {"name": "odd"})),
            calls(call("save_agent", {"name": "odd"})),
            say("over"),
        ]
    }
    _, model = team(agents, tmp_path)
    assert "256000 are allowed" in answers(model)[1]
    assert answers(model)[3] == answers(model)[4] == "saved as odd.md: later sessions can call 'odd'"
    assert os.listdir(tmp_path / ".opensage" / "agents") == ["odd.md"]


def test_agents_are_not_saved_through_a_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / ".opensage").mkdir()
    (tmp_path / ".opensage" / "agents").symlink_to(outside)
    _, model = team({"main": [create("w"), calls(call("save_agent", {"name": "w"})), say("over")]}, tmp_path)
    assert "cannot write" in answers(model)[-1]
    assert not list(outside.iterdir())


def test_a_file_that_names_one_limit_wishes_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / ".opensage" / "agents"
    folder.mkdir(parents=True)
    (folder / "foo.md").write_text("---\nname: foo\nlimits: {max_cost: 1.0}\n---\nx\n")
    both = calls(call("call_agent", {"name": "foo", "task": "1"}), call("call_agent", {"name": "foo", "task": "2"}))
    result, model = team({"main": [both, say("over")], "foo": [say("x"), say("y")]}, tmp_path)
    assert [": done;" in answer for answer in answers(model)] == [True, True]
    given = [
        e.limits["max_turns"]
        for n in (1, 2)
        for e in events(tmp_path, f"{result.session_id}.{n}")
        if e.type == "run.started"
    ]
    assert all(turns <= 50 for turns in given)
    assert Limits(max_turns=500).within(Limits(max_cost=1.0)).max_turns == 500


BOMB = [f" - &l{n} [{','.join([f'*l{n - 1}'] * 10 if n else ['x'] * 10)}]" for n in range(10)]
HOSTILE = {
    "bomb": ("\n".join(["metadata:", *BOMB, "description: *l9"]), "an alias (*name) is not allowed"),
    "huge number": (f"limits: {{max_turns: 0x{'f' * 20_000}}}", "digits"),
    "huge key": (f"? 0x{'f' * 20_000}\n: 1", "digits"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_of_an_agent_is_a_warning_at_once(tmp_path: Path, name: str) -> None:
    folder = tmp_path / ".opensage" / "agents"
    folder.mkdir(parents=True)
    (folder / "bad.md").write_text(f"---\nname: bad\n{HOSTILE[name][0]}\n---\nx\n")
    (folder / "nameless.md").write_text("---\nname:\ndescription: has the name of its file\n---\nx\n")
    (folder / "main.md").write_text("---\nname: main\n---\nx\n")
    library = AgentLibrary(tmp_path, tmp_path / "home")
    begin = time.monotonic()
    assert set(library.all()) == {"nameless", "main"}
    assert time.monotonic() - begin < 5
    assert len(library.warnings) == 1
    assert HOSTILE[name][1] in library.warnings[0]
    result, model = team({"main": [calls(call("list_agents")), say("over")]}, tmp_path)
    assert result.status == "done"
    assert answers(model)[0].splitlines() == ["Agents:", "- nameless: has the name of its file"]  # not itself


# --- what a model may write ---


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("inspect_agent", {"name": "9" * 5000}, "does not exist"),
        ("resume_agent", {"id": "a" + "9" * 5000}, "there are: a1 (w)"),
        ("await_agents", {"ids": ["a0", "a-1"]}, "there are: a1 (w)"),
        ("await_agents", {"ids": ["A1", "1"]}, "[a1 w: done"),
        ("create_agent", {"name": "a1", "instruction": "x"}, "looks like the id of a call"),
        ("create_agent", {"name": "v", "instruction": "x", "limits": {"max_turns": 10**400}}, "limits.max_turns"),
        ("create_agent", {"name": "v\ud800", "instruction": "x"}, "name"),
        ("post", {"topic": "\ud800", "text": "\ud800" * 900}, "posted"),
        ("call_agent", {"name": "w", "task": "\ud800"}, "[a2 w: done"),
        ("run_ensemble", {"task": "x", "members": ["w", "w"], "seconds": -1}, "given as an object"),
    ],
)
def test_odd_arguments_are_answered(tmp_path: Path, name: str, arguments: dict[str, Any], said: str) -> None:
    agents = {
        "main": [create("w"), delegate("w"), calls(call(name, arguments)), calls(call("tasks")), say("over")],
        "w": [say("one"), say("two")],
    }
    result, model = team(agents, tmp_path)
    assert result.status == "done"
    assert said in answers(model)[2]
    assert_paired(model)


# --- rights ---


def test_an_agent_cannot_retire_those_that_others_made(tmp_path: Path) -> None:
    agents = {
        "main": [create("w"), create("v"), delegate("w"), delegate("v"), say("over")],
        "w": [
            calls(call("retire_agent", {"name": "v"})),
            create("own"),
            calls(call("retire_agent", {"name": "own"})),
            say("w"),
        ],
        "v": [say("v is there")],
    }
    _, model = team(agents, tmp_path)
    assert "was made by 'main', who alone can retire it" in answers(model, "w")[0]
    assert answers(model, "w")[-1] == "agent 'own' is retired"
    assert "v is there" in answers(model)[-1]


def planted(tmp_path: Path, *more: Any) -> str:
    """A log of somebody else, in which a model that runs code was given to an agent."""
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\ndef reply(r): return {{'text': 'x'}}\n")
    folder = sessions(tmp_path)
    folder.mkdir(parents=True)
    lines = [RunStarted(session="s"), UserMessage(text="do it"), *more]
    for number, event in enumerate(lines):
        event.seq = number
    (folder / "s.jsonl").write_bytes(b"".join(encode(event) for event in lines))
    return "s"


@pytest.mark.parametrize("source", ["model", "user", "python"])
def test_a_planted_log_cannot_bring_a_model(tmp_path: Path, source: str) -> None:
    evil = f"script:{tmp_path / 'evil.py'}"
    reply = ModelReply(calls=[{"id": "c", "name": "await_agents", "arguments": "{}"}])
    made = AgentCreated(agent="w", by="main", spec={"name": "w", "model": evil}, source=source)
    called = AgentCalled(number=1, agent="w", task="x", model=evil, background=True)
    agents = {"main": [delegate("w", "y"), say("over")]}
    _, model = team(agents, tmp_path, None, session=planted(tmp_path, made, called, reply))
    assert all("is not configured for agents" in answer for answer in answers(model))
    assert len(answers(model)) == 2
    assert not (tmp_path / "ran").exists()


def test_the_model_of_a_call_in_a_planted_log_is_checked_too(tmp_path: Path) -> None:
    reply = ModelReply(calls=[{"id": "c", "name": "await_agents", "arguments": "{}"}])
    made = AgentCreated(agent="w", by="main", spec={"name": "w"}, source="model")
    called = AgentCalled(number=1, agent="w", task="x", model=f"script:{tmp_path / 'evil.py'}", background=True)
    _, model = team({"main": [say("over")]}, tmp_path, None, session=planted(tmp_path, made, called, reply))
    assert "is not configured for agents" in answers(model)[0]
    assert not (tmp_path / "ran").exists()


def test_a_child_that_has_lost_a_tool_is_told_so_and_its_log_is_free(tmp_path: Path) -> None:
    @tool
    def special() -> str:
        """Special."""
        return "x"

    agents: dict[str, Any] = {"main": [create("w", tools=["special"]), delegate("w"), say("over")], "w": [say("one")]}
    first, _ = team(agents, tmp_path, tools=[special])
    again = calls(call("resume_agent", {"id": "a1", "message": "more"}))
    _, model = team({"main": [again, say("over")]}, tmp_path, "more", session=first.session_id)
    assert "wants tools you do not have: special" in answers(model)[-1]
    third, _ = team(
        {"main": [again, say("over")], "w": [say("two")]}, tmp_path, "more", session=first.session_id, tools=[special]
    )
    assert topology(tmp_path, third).root.children[0].text == "two"


def test_rules_speak_of_agents_by_name(tmp_path: Path) -> None:
    """Denied for one agent, denied for those below it too."""
    policy = Policy.parse(deny=["call_agent(risky)", "create_agent(evil*)"])
    agents = {
        "main": [create("w"), create("risky"), create("evil"), delegate("risky"), delegate("w"), say("over")],
        "w": [delegate("risky"), create("evil2"), say("w")],
    }
    result, model = team(agents, tmp_path, policy=policy)
    assert ["Not permitted: rule deny" in answer for answer in answers(model)] == [False, False, True, True, False]
    assert ["Not permitted: rule deny" in answer for answer in answers(model, "w")] == [True, True]
    assert [child.agent for child in topology(tmp_path, result).root.children] == ["w"]


# --- ensembles ---


def ensemble(**arguments: Any) -> dict[str, Any]:
    return calls(call("run_ensemble", {"task": "fix it", **arguments}))


def test_an_ensemble_that_cannot_begin_leaves_nobody_at_work(tmp_path: Path) -> None:
    agents = {"main": [ensemble(n=4), calls(call("list_agents")), say("over")]}
    result, model = team(agents, tmp_path, sandbox="bubblewrap", limits=Limits(max_turns=6))
    assert "too little to give any away" in answers(model)[0]
    assert answers(model)[1].count("[failed]") == 4
    assert len(list(sessions(tmp_path).glob("*.jsonl"))) == 1
    assert result.usage["model_calls"] == 3


@pytest.mark.parametrize(
    ("policy", "tools", "arguments", "said"),
    [
        (Policy(), ("run_ensemble", "read"), {"n": 2, "merge": "best_by_test", "test": "true"}, "needs the tool shell"),
        (Policy(), ("run_ensemble", "read"), {"members": ["w", "w"]}, "needs the tool call_agent"),
        (Policy.parse(deny=["call_agent(w)"]), None, {"members": ["w", "w"]}, "rule deny call_agent(w)"),
        (
            Policy.parse(deny=["shell(rm *)"]),
            None,
            {"n": 2, "merge": "best_by_test", "test": "rm x"},
            "rule deny shell(rm *)",
        ),
        (
            Policy.parse(ask=["shell(rm *)"]),
            None,
            {"n": 2, "merge": "best_by_test", "test": "rm x"},
            "rule ask shell(rm *)",
        ),
    ],
)
def test_an_ensemble_is_no_way_around_the_rules(
    tmp_path: Path, policy: Policy, tools: tuple[str, ...] | None, arguments: dict[str, Any], said: str
) -> None:
    spec, worker = AgentSpec(tools=tools), AgentSpec(name="w")
    agents = {"main": [ensemble(**arguments), say("over")]}
    result, model = team(agents, tmp_path, sandbox="bubblewrap", policy=policy, agent=spec, brought=[worker])
    assert said in answers(model)[-1]
    assert not topology(tmp_path, result).root.children


def test_without_isolation_a_person_is_asked_for_the_test_of_an_ensemble(tmp_path: Path) -> None:
    asked = []

    def approve(question: Any) -> bool:
        asked.append(question.name)
        return False

    agents = {"main": [ensemble(n=2, merge="best_by_test", test="touch ran"), say("over")]}
    _, model = team(agents, tmp_path, sandbox="local", approve=approve)
    assert asked == ["run_ensemble"]
    assert "Not permitted" in answers(model)[-1]


def test_all_copies_are_of_one_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody writes while the copies are made: no member is given that for its own work."""
    from opensage.topology import copies as module

    workdir = tmp_path / "w"
    workdir.mkdir()
    (workdir / "f").write_text("one\n")
    copy = module.copy_folder

    def slow(source: Path, target: Path, skip: tuple[str, ...] = ()) -> None:
        copy(source, target, skip)
        (workdir / "f").write_text(f"after {target.name}\n")

    monkeypatch.setattr(module, "copy_folder", slow)
    made = Copies(workdir, tmp_path / "copies")
    made.make([1, 2])
    assert not made.changes(1)
    assert not made.changes(2)


def test_copies_are_not_made_through_a_link(tmp_path: Path) -> None:
    outside, workdir = tmp_path / "outside", tmp_path / "w"
    outside.mkdir()
    (workdir / ".opensage").mkdir(parents=True)
    (workdir / ".opensage" / "work").symlink_to(outside)
    _, model = team({"main": [ensemble(n=2), say("over")]}, workdir, sandbox="bubblewrap")
    assert "is a link, or in one" in answers(model)[-1]
    assert not list(outside.iterdir())


def test_a_member_of_an_ensemble_never_goes_on_in_the_workspace_of_its_caller(tmp_path: Path) -> None:
    """The ensemble was cut off; its members' sessions know a copy, and only an ensemble has that."""
    called = AgentCalled(number=1, agent="main-1", task="x", group=1, place="work/s/e1")
    ids = calls(call("await_agents", {"ids": ["a1"]}), call("resume_agent", {"id": "a1", "message": "go"}))
    _, model = team({"main": [ids, say("over")]}, tmp_path, "go", session=planted(tmp_path, called))
    assert all("was part of an ensemble" in answer for answer in answers(model))


def test_a_file_that_replaces_a_folder_is_brought_back_and_empty_folders_go(tmp_path: Path) -> None:
    workdir = tmp_path / "w"
    for name in ("folder/x", "gone/deep/y", "kept/z", "file"):
        (workdir / name).parent.mkdir(parents=True, exist_ok=True)
        (workdir / name).write_text(name)
    copies = Copies(workdir, tmp_path / "copies")
    copies.make([1])
    place = copies.place(1)
    shutil.rmtree(place / "folder")
    (place / "folder").write_text("a file now")
    shutil.rmtree(place / "gone")
    (place / "kept" / "z").unlink()
    (place / "file").unlink()
    (place / "file").mkdir()
    (place / "file" / "inside").write_text("x")
    (workdir / "gone" / "theirs").write_text("of somebody else")
    done, left = copies.apply(1)
    assert not left
    assert set(done) == {"folder", "folder/x", "gone/deep/y", "kept/z", "file", "file/inside"}
    found = {str(path.relative_to(workdir)) for path in workdir.rglob("*")}
    assert found == {"folder", "file", "file/inside", "gone", "gone/theirs", "kept"}
    assert (workdir / "folder").read_text() == "a file now"


def test_a_folder_of_somebody_else_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    workdir = tmp_path / "w"
    (workdir / "d").mkdir(parents=True)
    (workdir / "d" / "x").write_text("x")
    copies = Copies(workdir, tmp_path / "copies")
    copies.make([1])
    shutil.rmtree(copies.place(1) / "d")
    (copies.place(1) / "d").write_text("a file now")
    (workdir / "d" / "theirs").write_text("of somebody else")
    assert copies.apply(1) == (["d/x"], ["d"])
    assert os.listdir(workdir / "d") == ["theirs"]


def test_a_large_change_is_not_the_smallest_because_it_cannot_be_shown(tmp_path: Path) -> None:
    workdir = tmp_path / "w"
    workdir.mkdir()
    lines = random.Random(1)
    (workdir / "f").write_text("".join(f"line {lines.randrange(150)}\n" for _ in range(300_000)))
    copies = Copies(workdir, tmp_path / "copies")
    copies.make([1, 2, 3])
    (copies.place(1) / "f").write_text("".join(f"line {lines.randrange(150)}\n" for _ in range(300_000)))
    (copies.place(2) / "new.bin").write_bytes(b"\0" * 100_000)
    with (copies.place(3) / "f").open("a") as file:
        file.write("one more\n")
    begin = time.monotonic()
    sizes = [copies.size(member) for member in (1, 2, 3)]
    assert time.monotonic() - begin < 20  # line by line it would be hours
    assert sizes[0] > sizes[1] >= 100_000 > 1000 > sizes[2] > 0


# --- restarts ---


def test_the_end_of_a_run_tells_all_that_was_spent(tmp_path: Path) -> None:
    """Whoever reads the events may take time: nobody works on meanwhile."""
    agents = {
        "main": [create("w"), delegate("w", background=True), say("x"), say("over")],
        "w": [{"repeat": calls(call("tick")), "times": -1}],
    }
    ticks: list[int] = []

    @tool
    async def tick() -> str:
        """Tick."""
        await asyncio.sleep(0.005)
        ticks.append(1)
        return str(len(ticks))

    async def go() -> tuple[int, Any]:
        engine = Engine(
            model=ScriptedModel({"agents": agents}), workdir=tmp_path, sandbox=ScriptedSandbox(), tools=[tick]
        )
        async for event in engine.turn("do it"):
            if event.type == "run.finished":
                before = len(ticks)
                await asyncio.sleep(0.2)
        await engine.close()
        return len(ticks) - before, event

    more, last = asyncio.run(go())
    assert more == 0
    root = Topology(sessions(tmp_path), last.session).root
    assert root.children[0].status == "cancelled"
    assert last.usage["tool_calls"] == sum(node.tool_calls for node in root.walk())


def test_a_child_that_goes_on_many_times_counts_each_time_once(tmp_path: Path) -> None:
    again = calls(call("resume_agent", {"id": "a1", "message": "more"}))
    agents = {
        "main": [create("w"), delegate("w"), again, again, say("over")],
        "w": [turn for _ in range(3) for turn in ({**calls(call("tasks")), **PAID}, {**say("w"), **PAID})],
    }
    result, _ = team(agents, tmp_path)
    root = topology(tmp_path, result).root
    assert (root.turns, root.tool_calls) == (5, 4)
    assert (root.children[0].turns, root.children[0].tool_calls) == (6, 3)
    assert (result.usage["model_calls"], result.usage["tool_calls"], result.usage["cost"]) == (
        11,
        7,
        pytest.approx(0.06),
    )
    assert root.total.cost == pytest.approx(0.06)


def wild(rng: random.Random) -> Any:
    """A model that does anything with agents, in any order."""
    made = 0

    def one() -> dict[str, Any]:
        name, number = rng.choice("abcdef"), f"a{rng.randint(1, 4)}"
        task, background = str(rng.random()), rng.random() < 0.5
        return rng.choice(
            [
                call("call_agent", {"name": name, "task": task, "background": background}),
                call("call_agent", {"name": name, "task": task, "background": background}),
                call("create_agent", {"name": f"n{task[2:8]}", "instruction": "x", "limits": {"max_turns": 3}}),
                call("await_agents", rng.choice([{}, {"timeout": 0.01}, {"ids": [number]}])),
                call("resume_agent", {"id": number, "message": rng.choice(["", "go on"])}),
                call("post", {"topic": "t", "text": task}),
                call("retire_agent", {"name": name}),
                call("tasks"),
            ]
        )

    def reply(_request: Any) -> dict[str, Any]:
        nonlocal made
        made += 1
        if made > 200 or rng.random() < 0.12:
            return {**say(f"done {rng.random()}"), **PAID}
        return {**calls(*(one() for _ in range(rng.randint(1, 4))), delay_s=rng.choice([0, 0.01])), **PAID}

    return reply


@pytest.mark.parametrize("seed", range(12))
def test_whatever_a_model_does_with_agents_the_books_are_right(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    limits = Limits(
        max_turns=rng.choice([10, 40, 150]),
        max_cost=rng.choice([None, 0.3]),
        max_live_agents=rng.choice([1, 2, 8]),
        max_agents=rng.choice([3, 32]),
        max_depth=rng.choice([1, 3]),
        max_seconds=rng.choice([None, 1.0]),
    )
    model, brought = ScriptedFunction(wild(rng)), [AgentSpec(name=name) for name in "abcdef"]
    result = opensage.run("go", model=model, workdir=tmp_path, sandbox=ScriptedSandbox(), limits=limits, agents=brought)
    assert_paired(model)
    replies = 0.0
    for path in sessions(tmp_path).glob("*.jsonl"):
        log = events(tmp_path, path.stem)
        replies += sum(event.cost for event in log if event.type == "model.reply")
        called = [event.number for event in log if event.type == "agent.called"]
        assert sorted(called) == sorted(event.number for event in log if event.type == "agent.finished")
        assert log[-1].type == "run.finished"
    assert result.usage["model_calls"] <= (limits.max_turns or 0)
    assert result.usage["cost"] == pytest.approx(replies)
    assert next(SessionStore(sessions(tmp_path)).summaries()).usage.cost == pytest.approx(replies)


VALUE = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.lists(st.text(max_size=3))
FIELDS = (
    "number",
    "agent",
    "task",
    "call",
    "group",
    "place",
    "status",
    "usage",
    "artefacts",
    "spec",
    "cursor",
    "topic",
)
KINDS = (
    "agent.created",
    "agent.called",
    "agent.finished",
    "agent.retired",
    "board.read",
    "board.posted",
    "run.finished",
)
HOSTILE_EVENT = st.dictionaries(
    st.sampled_from(FIELDS), VALUE | st.dictionaries(st.sampled_from(["model_calls", "cost", "name", "limits"]), VALUE)
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(KINDS), HOSTILE_EVENT), max_size=6))
def test_any_log_is_drawn_and_told(tmp_path_factory: Any, items: list[tuple[str, dict[str, Any]]]) -> None:
    folder = tmp_path_factory.mktemp("logs")
    lines = [json.dumps({**more, "seq": n, "time": 0, "type": kind}) for n, (kind, more) in enumerate(items)]
    for name in ("s", "s.1"):
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    found = Topology(folder, "s")
    found.graph()
    Console(file=io.StringIO()).print(drawn(found.root))
    restart.of_children(folder, "s", found.root.delegations)
    for child in found.root.delegations:
        reported(child)
    listed(found.root.delegations)
    Team(folder, "s", AgentLibrary(folder), AgentSpec(), Workshop(folder, folder)).restore(found.root.delegations)


def test_an_answer_by_the_tool_finish_is_sent_back_too_while_others_work(tmp_path: Path) -> None:
    done = calls(call("finish", {"text": "over"}))
    agents = {
        "main": [create("w"), delegate("w", background=True), done, calls(call("await_agents")), done],
        "w": [say("found it", delay_s=0.2)],
    }
    result, model = team(agents, tmp_path)
    assert (result.status, result.text) == ("done", "over")
    assert "found it" in answers(model)[-1]


def test_the_session_of_a_child_is_not_gone_on_with_alone(tmp_path: Path) -> None:
    agents = {"main": [create("w", tools=["read"]), delegate("w"), say("over")], "w": [say("w")]}
    result, _ = team(agents, tmp_path)
    with pytest.raises(SessionError, match=f"opensage resume {result.session_id}"):
        team(agents, tmp_path, "more", session=f"{result.session_id}.1")
    copy = SessionStore(sessions(tmp_path)).fork(f"{result.session_id}.1")
    again, _ = team({"main": [say("as a session of its own")]}, tmp_path, "more", session=copy)
    assert again.text == "as a session of its own"


def killed(tmp_path: Path, agents: dict[str, Any], when: str) -> str:
    """A run in a process of its own that dies when an event fits; id of its session."""
    program = f"""
import json, os, sys
sys.path[:0] = {[os.path.dirname(__file__)]!r}
from topology_helpers import *
from opensage.log.session import Session
record = Session.record
def dying(self, event):
    made = record(self, event)
    depth = self.id.count(".")
    if {when}:
        os.kill(os.getpid(), 9)
    return made
Session.record = dying
team(json.loads({json.dumps(json.dumps(agents))}), Path({str(tmp_path)!r}))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    [root] = [path.stem for path in sessions(tmp_path).glob("*.jsonl") if "." not in path.stem]
    return root


RESUMED = {
    "main": [
        create("w"),
        delegate("w", "first"),
        calls(call("resume_agent", {"id": "a1", "message": "second"})),
        say("over"),
    ],
    "w": [{**say("one"), **PAID}, {**say("two"), **PAID}],
}


@pytest.mark.parametrize(
    "when",
    [
        "event.type == 'agent.called' and event.task == 'second'",
        "depth == 1 and event.type == 'run.started' and self.summary.runs == 2",
        "depth == 1 and event.type == 'user.message' and event.text == 'second'",
        "depth == 1 and event.type == 'model.reply' and event.text == 'two'",
        "depth == 1 and event.type == 'run.finished' and event.text == 'two'",
        "event.type == 'agent.finished' and event.text == 'two'",
    ],
)
def test_a_message_to_a_child_is_heard_once_whenever_the_process_dies(tmp_path: Path, when: str) -> None:
    root = killed(tmp_path, RESUMED, when)
    model = ScriptedModel({"agents": {"main": [say("over")], "w": [{**say("two"), **PAID}]}})
    result = opensage.run(None, model=model, workdir=tmp_path, sandbox=ScriptedSandbox(), session=root)
    assert result.status == "done"
    assert answers(model)[-1].splitlines()[-1] == "two"
    said = [e.text for e in events(tmp_path, f"{root}.1") if e.type == "user.message"]
    assert said == ["first", "second"]
    assert result.usage["cost"] == pytest.approx(0.02)
    summary = next(SessionStore(sessions(tmp_path)).summaries())
    assert summary.usage.cost == pytest.approx(0.02)
    assert summary.usage.tokens == 22


def test_what_grandchildren_spent_before_a_crash_counts_once(tmp_path: Path) -> None:
    agents = {
        "main": [{**create("w"), **PAID}, {**delegate("w"), **PAID}],
        "w": [{**create("v"), **PAID}, {**delegate("v"), **PAID}],
        "v": [{**calls(call("tasks")), **PAID}, {**calls(call("tasks", {"n": 1})), **PAID}, {**say("v"), **PAID}],
    }
    root = killed(tmp_path, agents, "depth == 2 and event.type == 'model.reply' and event.text == 'v'")
    rest = {"main": [{**say("over"), **PAID}], "w": [{**say("w"), **PAID}]}
    for _ in range(2):  # the second time nothing is left to do
        model = ScriptedModel({"agents": rest})
        result = opensage.run(None, model=model, workdir=tmp_path, sandbox=ScriptedSandbox(), session=root)
        assert result.status == "done"
        if model.requests:
            assert (result.usage["model_calls"], result.usage["cost"]) == (9, pytest.approx(0.09))
        assert next(SessionStore(sessions(tmp_path)).summaries()).usage.cost == pytest.approx(0.09)


def test_a_child_that_goes_on_after_a_crash_gets_its_share_on_top_of_what_it_had() -> None:
    root = Budget(Limits(max_turns=30))
    root.charge(Usage(5, 5), 20, 0)
    share = root.share(spent=(Usage(), 12, 0))
    share.charge(Usage(), 12, 0, above=False)
    assert share.limits.max_turns == 12 + 4
    assert not share.exhausted()
    own = root.share(Limits(max_turns=15), spent=(Usage(), 12, 0))
    assert own.limits.max_turns == 15
    own.close()
    used = root.share(Limits(max_turns=12), spent=(Usage(), 12, 0))
    used.charge(Usage(), 12, 0, above=False)
    assert "12 of 12" in used.exhausted()


@pytest.mark.parametrize("damage", ["missing", "torn", "garbage", "folder", "pipe", "locked"])
def test_a_damaged_log_of_a_child_is_the_childs_trouble_only(tmp_path: Path, damage: str) -> None:
    agents = {
        "main": [create("w"), delegate("w", "the task")],
        "w": [calls(call("tasks")), say("never said")],
    }
    root = killed(tmp_path, agents, "depth == 1 and event.type == 'tool.result'")
    log = sessions(tmp_path) / f"{root}.1.jsonl"
    data, lock = log.read_bytes(), None
    log.unlink()
    if damage == "torn":
        log.write_bytes(data[:-20])
    elif damage == "garbage":
        log.write_bytes(b"\0\xff" * 1000 + b"\n")
    elif damage == "folder":
        log.mkdir()
    elif damage == "pipe":
        os.mkfifo(log)
    elif damage == "locked":
        import fcntl

        log.write_bytes(data)
        lock = log.open("rb")
        fcntl.flock(lock, fcntl.LOCK_EX)
    model = ScriptedModel({"agents": {"main": [say("over")], "w": [say("w is done")]}})
    begin = time.monotonic()
    result = opensage.run(None, model=model, workdir=tmp_path, sandbox=ScriptedSandbox(), session=root)
    if lock is not None:
        lock.close()
    assert time.monotonic() - begin < 20
    assert result.status == "done"
    assert_paired(model)
    answer = answers(model)[-1]
    assert ("[a1 w: failed (" if damage in ("folder", "pipe", "locked") else "w is done") in answer
    if damage == "missing":
        assert [m["content"] for m in seen(model, "w")[-1]["messages"] if m["role"] == "user"] == ["the task"]
    if damage != "locked":
        SessionStore(sessions(tmp_path)).fork(root)
    Topology(sessions(tmp_path), root)
