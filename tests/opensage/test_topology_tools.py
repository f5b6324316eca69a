"""Agents that make, call and save agents: what is allowed, what is said, what is kept."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers_run import call, calls, results, say
from hypothesis import given, settings
from hypothesis import strategies as st
from topology_helpers import answers, create, delegate, events, seen, sessions, team, topology

import opensage
from opensage import AgentSpec, Limits, tool
from opensage.engine import Engine
from opensage.errors import ConfigError
from opensage.models import ScriptedModel
from opensage.sandbox import ScriptedSandbox
from opensage.topology.graph import Topology
from opensage.topology.library import AgentLibrary, find_agent, shipped


@pytest.fixture(autouse=True)
def nothing_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is installed here does not count."""
    monkeypatch.setattr("opensage.topology.library.shipped", list)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"name": "w", "instruction": "x", "tools": ["shell", "fly"]}, "tools you do not have: fly; yours: shell"),
        ({"name": "w", "instruction": "x", "toolkits": ["nope"]}, "toolkits you do not have: nope"),
        ({"name": "w", "instruction": "x", "model": "openai/gpt-9"}, "use one of inherit, script"),
        ({"name": "w", "instruction": "x", "limits": {"max_turns": 1000}}, "you have 100"),
        (
            {"name": "w", "instruction": "x", "limits": {"max_turn": 10}},
            "unknown limit 'max_turn'; there are max_turns",
        ),
        ({"name": "w", "instruction": "x", "limits": {"max_turns": -1}}, "limits.max_turns"),
        ({"name": "two words", "instruction": "x"}, "name"),
        ({"name": "main", "instruction": "x"}, "'main' is the main agent"),
        ({"name": "there", "instruction": "x"}, "exists already: call it"),
        ({"name": "w"}, "instruction"),
    ],
)
def test_create_agent_refuses_with_what_is_allowed(tmp_path: Path, arguments: dict[str, Any], said: str) -> None:
    agents = {"main": [create("there"), calls(call("create_agent", arguments)), say("over")]}
    result, model = team(agents, tmp_path)
    assert result.status == "done"
    assert said in answers(model)[-1]
    assert [e.agent for e in result.events if e.type == "agent.created"] == ["there"]


def test_an_unknown_agent_is_answered_with_those_there_are(tmp_path: Path) -> None:
    agents = {"main": [create("tester"), delegate("testr"), delegate("tester", "  "), say("over")]}
    _result, model = team(agents, tmp_path)
    assert "Did you mean 'tester'?" in answers(model)[-2]
    assert "the task is empty" in answers(model)[-1]


def test_a_retired_agent_is_ended_and_its_name_never_used_again(tmp_path: Path) -> None:
    agents = {
        "main": [
            create("w"),
            delegate("w", background=True),
            calls(call("retire_agent", {"name": "w"})),
            delegate("w"),
            create("w"),
            say("x"),
            say("over"),
        ],
        "w": [say("late", delay_s=30)],
    }
    result, model = team(agents, tmp_path)
    assert result.status == "done"
    assert "was retired" in answers(model)[-2]
    assert "names are not used twice" in answers(model)[-1]
    assert topology(tmp_path, result).root.children[0].status == "cancelled"


def test_an_answer_while_others_work_is_sent_back_once(tmp_path: Path) -> None:
    agents = {
        "main": [
            create("w"),
            delegate("w", background=True),
            say("done already"),
            calls(call("await_agents")),
            say("now"),
        ],
        "w": [say("found it", delay_s=0.1)],
    }
    result, model = team(agents, tmp_path)
    assert result.text == "now"
    assert "found it" in answers(model)[-1]
    assert any("Agents are still at work: a1 (w)" in getattr(e, "text", "") for e in result.events)


def test_resume_agent_goes_on_in_the_same_conversation(tmp_path: Path) -> None:
    agents = {
        "main": [
            create("w"),
            delegate("w", "first"),
            calls(call("resume_agent", {"id": "a1", "message": "second"})),
            calls(call("resume_agent", {"id": "a9"})),
            calls(call("resume_agent", {"id": "a1"})),
            say("over"),
        ],
        "w": [say("one"), say("two")],
    }
    result, model = team(agents, tmp_path)
    assert "two" in answers(model)[-3]
    assert "there are: a1 (w)" in answers(model)[-2]
    assert "say in message what it should do next" in answers(model)[-1]
    said = [m["content"] for m in seen(model, "w")[-1]["messages"] if m["role"] == "user"]
    assert said == ["first", "second"]
    assert len(topology(tmp_path, result).root.children) == 1


def test_a_saved_agent_is_found_and_used_in_a_later_session(tmp_path: Path) -> None:
    first = {
        "main": [
            create("counter", tools=["search"], description="counts words in files"),
            calls(call("save_agent", {"name": "counter"})),
            say("over"),
        ]
    }
    team(first, tmp_path)
    second = {
        "main": [
            calls(call("list_agents", {"query": "count words"})),
            create("counter"),
            delegate("counter"),
            say("over"),
        ],
        "counter": [say("7 words")],
    }
    result, model = team(second, tmp_path)
    assert answers(model)[0] == "- counter (project): counts words in files"
    assert "'counter' is a saved agent" in answers(model)[1]
    assert "7 words" in answers(model)[2]
    assert [t["function"]["name"] for t in seen(model, "counter")[0]["tools"]] == ["search"]
    assert "- counter: counts words in files" in model.requests[0]["messages"][0]["content"]
    assert result.status == "done"


BAD_FILES = {
    "closed": ("---\nname: x\n", "not closed"),
    "yaml": ("---\nname: [\n---\n", "not valid YAML"),
    "key": ("---\nname: x\ntool: [shell]\n---\n", "did you mean 'tools'?"),
    "name": ("---\nname: two words\n---\n", "name"),
    "limits": ("---\nname: x\nlimits: {max_turns: many}\n---\n", "limits.max_turns"),
    "type": ("---\nname: x\ntools: 3\n---\n", "tools"),
    "list": ("---\n- a\n---\n", "not a list of"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_agent_file_is_one_warning_and_the_rest_is_there(tmp_path: Path, name: str) -> None:
    folder = tmp_path / ".opensage" / "agents"
    folder.mkdir(parents=True)
    (folder / "bad.md").write_text(BAD_FILES[name][0])
    (folder / "latin.md").write_bytes(b"---\nname: y\n---\n\xff\xfe")
    (folder / "huge.md").write_text("x" * 300_000)
    os.mkfifo(folder / "pipe.md")
    (folder / "good.md").write_text("---\nname: good\ntools: read, search\ncolor: red\n---\nDo good.\n")
    library = AgentLibrary(tmp_path, tmp_path / "home")
    assert list(library.all()) == ["good"]
    assert library.all()["good"].spec.tools == ("read", "search")
    assert len(library.warnings) == 3
    assert any(BAD_FILES[name][1] in warning and "bad.md" in warning for warning in library.warnings)
    with pytest.raises(ConfigError, match="there are: good"):
        find_agent("nobody", tmp_path, tmp_path / "home")


@settings(max_examples=60, deadline=None)
@given(
    name=st.from_regex(r"[a-zA-Z0-9_-]{1,64}", fullmatch=True),
    description=st.text(max_size=100),
    instruction=st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"]), max_size=200),
    tools=st.none() | st.lists(st.sampled_from(["shell", "read"]), max_size=2).map(tuple),
    turns=st.none() | st.integers(1, 10**6),
)
def test_an_agent_written_and_read_is_the_same(
    name: str, description: str, instruction: str, tools: Any, turns: Any
) -> None:
    from opensage.topology.agent_file import parse_agent, write_agent

    limits = None if turns is None else Limits(max_turns=turns)
    spec = AgentSpec(name=name, description=description, instruction=instruction.strip(), tools=tools, limits=limits)
    assert parse_agent(write_agent(spec), "x") == spec


def test_saved_agents_that_call_each_other_end(tmp_path: Path) -> None:
    folder = tmp_path / ".opensage" / "agents"
    folder.mkdir(parents=True)
    for name, other in (("ping", "pong"), ("pong", "ping")):
        (folder / f"{name}.md").write_text(f"---\nname: {name}\ndescription: calls {other}\n---\nCall {other}.\n")
    agents = {
        "main": [delegate("ping"), say("over")],
        "ping": [delegate("pong"), say("ping")],
        "pong": [delegate("ping"), say("pong")],
    }
    result, model = team(agents, tmp_path)
    assert result.status == "done"
    assert "a cycle: main -> ping -> pong -> ping" in answers(model, "pong")[-1]


def test_a_planted_agent_cannot_bring_its_own_model(tmp_path: Path) -> None:
    folder = tmp_path / ".opensage" / "agents"
    folder.mkdir(parents=True)
    (tmp_path / "evil.py").write_text(
        f"open({str(tmp_path / 'ran')!r}, 'w')\ndef reply(request): return {{'text': 'x'}}\n"
    )
    (folder / "evil.md").write_text("---\nname: evil\nmodel: script:evil.py\n---\nx\n")
    _result, model = team({"main": [delegate("evil"), say("over")]}, tmp_path)
    assert "is not configured for agents" in answers(model)[-1]
    assert not (tmp_path / "ran").exists()


NAMES = st.lists(
    st.sampled_from(["shell", "read", "write", "search", "create_agent", "call_agent", "create_toolkit", "fly"]),
    unique=True,
    max_size=5,
)


@settings(max_examples=40, deadline=None)
@given(first=NAMES, second=NAMES, third=NAMES)
def test_a_created_agent_never_has_a_tool_its_creator_has_not(
    tmp_path_factory: Any, first: Any, second: Any, third: Any
) -> None:
    """Three levels; each asks for anything for the next."""
    folder = tmp_path_factory.mktemp("tree")
    agents = {
        "main": [create("a", tools=first), delegate("a"), say("over")],
        "a": [create("b", tools=second), delegate("b"), say("a")],
        "b": [create("c", tools=third), delegate("c"), say("b")],
        "c": [say("c")],
    }
    result, model = team(agents, folder)
    assert result.status == "done"
    had: set[str] | None = None
    for name in ("", "a", "b", "c"):
        requests = seen(model, name) if name else [model.requests[0]]
        for request in requests:
            has = {t["function"]["name"] for t in request["tools"]}
            assert had is None or has <= had
        if not requests:
            break
        had = {t["function"]["name"] for t in requests[0]["tools"]}


def test_an_agent_cannot_reach_more_through_an_agent_that_another_made(tmp_path: Path) -> None:
    """`strong` has the shell; `weak` has not, and so may not have it through `strong`."""
    agents = {
        "main": [
            create("strong", tools=["shell"]),
            create("weak", tools=["call_agent"]),
            delegate("weak"),
            say("over"),
        ],
        "weak": [delegate("strong"), say("weak")],
    }
    _result, model = team(agents, tmp_path)
    assert "wants tools you do not have: shell" in answers(model, "weak")[-1]


SHAPES: Any = st.recursive(st.integers(0, 3), lambda inner: st.lists(inner, min_size=1, max_size=3), max_leaves=6)


@settings(max_examples=25, deadline=None)
@given(shape=SHAPES, turns=st.integers(2, 25), cost=st.integers(1, 30))
def test_any_tree_of_agents_stays_within_the_roots_budget(
    tmp_path_factory: Any, shape: Any, turns: int, cost: int
) -> None:
    folder = tmp_path_factory.mktemp("tree")
    agents: dict[str, Any] = {}

    def build(name: str, inner: Any) -> list[dict[str, Any]]:
        price = {"usage": {"input_tokens": 10, "output_tokens": 1, "cost": 0.01}}
        if isinstance(inner, int):
            agents[name] = [
                *[{**calls(call("tasks", {"n": n})), **price} for n in range(inner)],
                {**say(name), **price},
            ]
            return []
        names = [f"{name}_{number}" for number in range(len(inner))]
        made = [{**create(child), **price} for child in names]
        fan = {**calls(*(call("call_agent", {"name": child, "task": child}) for child in names)), **price}
        agents[name] = [*made, fan, {**say(name), **price}]
        for child, below in zip(names, inner, strict=True):
            build(child, below)
        return []

    build("main", shape)
    model = ScriptedModel({"agents": agents})
    limits = Limits(max_turns=turns, max_cost=cost / 100, max_depth=5, max_live_agents=4)
    result = opensage.run("go", model=model, workdir=folder, sandbox=ScriptedSandbox(), limits=limits)
    assert len(model.requests) <= turns
    assert result.usage["cost"] < cost / 100 + 4 * 0.01 + 1e-9  # four calls may be in flight
    whole = Topology(sessions(folder), result.session_id).root
    assert sum(node.turns for node in whole.walk()) == result.usage["model_calls"]


def test_the_fold_of_the_logs_is_what_happened(tmp_path: Path) -> None:
    agents = {
        "main": [
            create("a"),
            create("idle"),
            delegate("a"),
            calls(call("post", {"topic": "news", "text": "hi"})),
            say("over"),
        ],
        "a": [create("b"), delegate("b"), delegate("b", "again"), say("a")],
        "b": [calls(call("tasks")), say("b1"), say("b2")],
    }
    result, _model = team(agents, tmp_path)
    graph = topology(tmp_path, result).graph()
    assert {n: graph.nodes[n].get("calls") for n in graph.nodes} == {
        "main": 1,
        "a": 1,
        "b": 2,
        "idle": 0,
        "#news": None,
    }
    assert graph.edges["main", "a"] == {"created": 1, "called": 1}
    assert graph.edges["a", "b"] == {"created": 1, "called": 2}
    assert graph.edges["main", "#news"] == {"posted": 1}
    assert graph.nodes["b"]["turns"] == 3
    assert graph.nodes["a"]["spec"]["name"] == "a"


def test_every_prefix_of_a_tree_s_logs_can_be_drawn(tmp_path: Path) -> None:
    agents = {"main": [create("a"), delegate("a"), say("over")], "a": [calls(call("tasks")), say("a")]}
    result, _model = team(agents, tmp_path)
    path = sessions(tmp_path) / f"{result.session_id}.1.jsonl"
    whole = path.read_bytes()
    for cut in range(0, len(whole), 40):
        path.write_bytes(whole[:cut])
        node = topology(tmp_path, result).root.children[0]
        assert node.status in ("new", "interrupted", "done")


def test_a_hundred_agents_stay_small(tmp_path: Path) -> None:
    names = [f"w{n}" for n in range(100)]
    agents: dict[str, Any] = {"main": [turn for n in names for turn in (create(n), delegate(n))] + [say("over")]}
    agents |= {n: [calls(call("tasks")), say("x" * 1000)] for n in names}
    model = ScriptedModel({"agents": agents})
    del agents

    async def go() -> tuple[str, int]:
        engine = Engine(
            model=model, workdir=tmp_path, sandbox=ScriptedSandbox(), limits=Limits(max_turns=1000, max_agents=100)
        )
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        last = ""
        async for event in engine.turn("go"):
            model._seen.clear()
            last = event.type
        await engine.close()
        return last, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before

    last, kilobytes = asyncio.run(go())
    assert last == "run.finished"
    logs = sum(path.stat().st_size for path in sessions(tmp_path).iterdir() if path.is_file())
    assert len(list(sessions(tmp_path).glob("*.*.jsonl"))) == 100
    assert kilobytes * 1024 - logs < 50_000_000


def test_a_developers_agents_and_models_can_be_given(tmp_path: Path) -> None:
    @tool
    def where() -> str:
        """Say where."""
        return "here"

    spec = AgentSpec(name="guide", description="knows the way", tools=("where",))
    script = tmp_path / "other.json"
    script.write_text('[{"text": "the other model"}]')
    agents = {
        "main": [delegate("guide"), create("other", model=f"script:{script}"), delegate("other"), say("over")],
        "guide": [calls(call("where")), say("it is here")],
    }
    result, model = team(agents, tmp_path, tools=[where], brought=[spec], models=[f"script:{script}"])
    assert result.status == "done"
    assert "it is here" in answers(model)[0]
    assert "the other model" in answers(model)[2]
    with pytest.raises(ConfigError, match="two agents are named 'guide'"):
        team(agents, tmp_path, brought=[spec, spec])


def test_limits_can_turn_delegation_off(tmp_path: Path) -> None:
    for limits in (Limits(max_agents=0), Limits(max_depth=0)):
        result, model = team({"main": [create("a"), say("over")]}, tmp_path, limits=limits)
        assert result.status == "done"
        assert "There is no tool named 'create_agent'" in results(model)[-1]


def test_children_inherit_secrets_masks_and_the_log_of_each_is_its_own(tmp_path: Path) -> None:
    from opensage.secrets import Mask

    agents = {"main": [create("w"), delegate("w"), say("over")], "w": [calls(call("leak")), say("hunter2 is the word")]}

    @tool
    def leak() -> str:
        """Leak."""
        return "hunter2"

    result, model = team(
        agents,
        tmp_path,
        tools=[leak],
        mask=Mask.of({"API_TOKEN": "hunter2hunter2", "MY_PASSWORD": "hunter2-long-secret"}),
    )
    assert result.status == "done"
    assert events(tmp_path, f"{result.session_id}.1")[0].session == f"{result.session_id}.1"
    assert len(seen(model, "w")) == 2


def test_an_installed_package_brings_agents_without_being_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / "brought_agents"
    (package / "reviewer").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "reviewer" / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "reviewer" / "AGENT.md").write_text("---\nname: reviewer\ndescription: reviews\n---\nReview.\n")
    about = tmp_path / "site" / "brought-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: brought\nVersion: 1\n")
    (about / "entry_points.txt").write_text(
        "[opensage.agents]\nreviewer = brought_agents.reviewer\ngone = nowhere.at_all\nbad = x\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setattr("opensage.topology.library.shipped", shipped)
    library = AgentLibrary(tmp_path, tmp_path / "home")
    saved = library.find("reviewer")
    assert saved is not None
    assert (saved.source, saved.spec.description) == ("shipped", "reviews")
    assert library.warnings == []


def test_a_chat_that_goes_on_with_another_session_has_its_agents(tmp_path: Path) -> None:
    first, _model = team({"main": [create("theirs"), say("over")]}, tmp_path)
    agents = {
        "main": [create("ours"), say("one"), delegate("ours"), delegate("theirs"), say("two")],
        "theirs": [say("here")],
    }
    model = ScriptedModel({"agents": agents})

    async def go() -> None:
        engine = Engine(model=model, workdir=tmp_path, sandbox=ScriptedSandbox())
        async for _event in engine.turn("make one"):
            pass
        engine.use_session(first.session_id)
        async for _event in engine.turn("call them"):
            pass
        await engine.close()

    asyncio.run(go())
    assert "does not exist" in answers(model)[-2]
    assert "here" in answers(model)[-1]
    assert (sessions(tmp_path) / f"{first.session_id}.1.jsonl").exists()


def _command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OPENSAGE_HOME": str(folder / "home")}
    command = [sys.executable, "-m", "opensage", *words, "--workdir", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)


def test_the_command_runs_a_saved_agent_and_a_resume_keeps_it(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('{"default": [{"text": "checked"}, {"text": "again"}]}')
    agents = tmp_path / ".opensage" / "agents"
    agents.mkdir(parents=True)
    (agents / "checker.md").write_text(
        "---\nname: checker\ntools: [read]\nlimits: {max_turns: 3}\n---\nCheck everything.\n"
    )
    (agents / "greedy.md").write_text("---\nname: greedy\nmodel: openai/gpt-x\n---\nx\n")
    model = ("--model", f"script:{tmp_path / 's.json'}", "--sandbox", "bubblewrap")
    assert _command(tmp_path, "run", "go", "--agent", "checker", *model).returncode == 0
    assert _command(tmp_path, "resume", "last", "more", *model).returncode == 0
    [log] = sessions(tmp_path).glob("*.jsonl")
    started = [e for e in events(tmp_path, log.stem) if e.type == "run.started"]
    assert [(e.agent, e.limits["max_turns"], e.setup["tools"]) for e in started] == [("checker", 3, ["read"])] * 2
    assert "Check everything." in started[0].system
    missing = _command(tmp_path, "run", "go", "--agent", "chekcer", *model)
    assert (missing.returncode, missing.stderr.count("\n")) == (2, 1)
    assert "there are: checker, greedy" in missing.stderr
    refused = _command(tmp_path, "run", "go", "--agent", "greedy", *model)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "use it with --model openai/gpt-x" in refused.stderr
    listed = _command(tmp_path, "agents", "list")
    assert "checker" in listed.stdout
    assert "Check everything." in _command(tmp_path, "agents", "show", "checker").stdout
    assert "[done]" in _command(tmp_path, "agents", "tree", "last").stdout
