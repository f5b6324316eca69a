"""The execution graph: written live, written again from the logs, killed in between: the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from helpers_run import call, calls, go, results, say
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from memory_helpers import graph_of, items_of, memory_file, memory_of, place_of, sessions_of
from topology_helpers import create, delegate, sessions, team

import opensage
from opensage.log.events import ToolResult
from opensage.log.journal import load
from opensage.memory.rebuild import rebuild
from opensage.models.script import ScriptedFunction
from opensage.sandbox import ScriptedSandbox

HERE = Path(__file__).parents[1]
MAIN: list[list[tuple[str, str, dict[str, Any]]]] = [
    [("c0", "create_agent", {"name": "walker", "instruction": "x", "description": "Walks the tree"})],
    [
        ("c1", "call_agent", {"name": "walker", "task": "walk to /srv/data"}),
        ("c2", "post", {"topic": "t", "text": "hi"}),
    ],
    [("c3", "save_agent", {"name": "walker"})],
    [("c4", "resume_agent", {"id": "a1", "message": "walk back"})],
    [("c5", "remember", {"text": "The data lies in /srv/data"})],
]
WALKER: list[list[tuple[str, str, dict[str, Any]]]] = [[("t0", "tasks", {})], [("t1", "list_agents", {})]]


def reply(request: Any) -> dict[str, Any]:
    """What each agent says follows from its history alone, so any process can go on with it."""
    answered = {m["tool_call_id"] for m in request.messages if m["role"] == "tool"}
    said = [m["content"] for m in request.messages if m["role"] == "user" and m["content"][0] not in "[<"]
    for step in {"main": MAIN, "walker": WALKER}[request.agent]:
        if not answered.issuperset(id for id, _, _ in step):
            return {"tool_calls": [{"id": id, "name": name, "arguments": a} for id, name, a in step]}
    return say(f"{request.agent} did {said[-1]}")


def work(folder: Path, session: str | None = None) -> opensage.Result:
    task = "Find the data, please" if session is None else None
    return opensage.run(task, model=ScriptedFunction(reply), workdir=folder, sandbox=ScriptedSandbox(), session=session)


def again(folder: Path, store: Path) -> Any:
    """The graph as the logs alone give it."""
    with place_of(folder, str(store)) as place:
        assert rebuild(place, sessions_of(folder)).unreadable == []
        with place.memory.store.write() as writer:
            writer.set_meta("project", place.project)
    return graph_of(folder, str(store))


def in_order(entry: Any) -> tuple[str, str, int]:
    (kind, key), _ = entry
    session, _, seq = key.partition("#")
    return kind, session, int(seq.partition(".")[0] or 0)


def test_the_graph_of_a_run_with_two_agents(tmp_path: Path) -> None:
    root = work(tmp_path).session_id
    told, edges = graph_of(tmp_path)
    by_kind: dict[str, list[str]] = {}
    for (kind, _), item in sorted(told.items(), key=in_order):
        by_kind.setdefault(kind, []).append(str(item[1]))
    assert by_kind["session"] == [f"Session {root}", f"Session {root}.1"]
    assert by_kind["message"] == ["Find the data, please", "walk to /srv/data", "walk back"]
    assert by_kind["run"][0] == f"Run of main in session {root}: done"
    assert len(by_kind["run"]) == 3
    assert "main did Find the data, please" in by_kind["turn"]
    assert len(by_kind["tool_call"]) == len(by_kind["observation"]) == 8
    assert by_kind["procedure"] == ["Agent walker, called with call_agent: Walks the tree"]
    runs = [key for (kind, key), _ in sorted(told.items(), key=in_order) if kind == "run"]
    own, first, second = runs
    assert edges[f"run {own}", "CALLED", f"run {first}"] == edges[f"run {own}", "CALLED", f"run {second}"] == 1
    assert edges[f"run {first}", "NEXT", f"run {second}"] == 1
    assert edges[f"session {root}.1", "PART_OF", f"session {root}"] == 1
    task = f"message {next(key for kind, key in told if kind == 'message' and '.1#' not in key)}"
    assert edges["procedure agent:walker", "WORKED_FOR", task] == 1
    assert edges[f"run {own}", "USED", "procedure agent:walker"] == 1
    answers = [source for source, type, target in edges if type == "REPLY_TO" and target == task]
    assert [told["turn", key.removeprefix("turn ")][1] for key in answers] == ["main did Find the data, please"]
    trusts = {kind: {item[2] for (k, _), item in told.items() if k == kind} for kind in by_kind}
    assert trusts["message"] == {"user", "agent"}
    assert trusts["observation"] == {"tool"}
    assert trusts["turn"] == trusts["tool_call"] == {"agent"}


def test_the_graph_rebuilt_from_the_logs_is_the_one_written_live(tmp_path: Path) -> None:
    work(tmp_path)
    live = graph_of(tmp_path)
    assert again(tmp_path, tmp_path / "again.db") == live
    before = memory_file(tmp_path).read_bytes()
    with place_of(tmp_path) as place:  # L4: folded twice into the same memory
        rebuild(place, sessions_of(tmp_path))
    assert graph_of(tmp_path) == live
    assert len(before) == len(memory_file(tmp_path).read_bytes())


KILLER = """
    import os, signal, sys
    from pathlib import Path
    sys.path[:0] = [{folders}]
    import opensage.memory.keeper as keeper
    keeper.EVERY, keeper.BEHIND = 0.0, 0.0
    from opensage.log import journal
    import test_kit_memory_graph as t

    class Killing(journal.LogFile):
        left = int(sys.argv[2])

        def write(self, data):
            Killing.left -= 1
            if Killing.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().write(data)

    journal.LogFile = Killing
    folder = Path(sys.argv[1])
    t.work(folder, t.begun(folder))
"""


def begun(folder: Path) -> str | None:
    roots = [path for path in sessions(folder).glob("*.jsonl") if "." not in path.stem]
    found = [path.stem for path in roots if any(e.type == "user.message" for e in load(path).events)]
    return found[0] if found else None


def kill(folder: Path, at: int) -> int:
    places = [HERE / "memory", HERE, HERE.parents[1], HERE.parents[1] / "memory"]
    code = textwrap.dedent(KILLER).format(folders=", ".join(repr(str(place)) for place in places))
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder), str(at)], capture_output=True, timeout=120, check=False
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
    return done.returncode


def check_killed(folder: Path, points: list[int]) -> bool:
    folder.mkdir()
    for at in points:
        kill(folder, at)
    session = begun(folder)
    if session is None:
        return False
    result = work(folder, session)
    assert (result.status, result.warnings) == ("done", [])
    live = graph_of(folder)
    rebuilt = again(folder, folder / "again.db")
    assert rebuilt[0] == live[0]
    assert rebuilt[1] == live[1]
    assert len({key for kind, key in live[0] if kind == "message"}) == 3
    with memory_of(folder) as memory:
        assert memory.check() == []
    return True


def test_a_session_with_two_agents_killed_and_resumed_has_the_same_graph(tmp_path: Path) -> None:
    points = [[9], [23], [38, 6]]
    assert sum(check_killed(tmp_path / f"r{n}", at) for n, at in enumerate(points)) == len(points)


@pytest.mark.slow
def test_a_session_killed_at_every_write_and_resumed_has_the_same_graph(tmp_path: Path) -> None:
    assert sum(check_killed(tmp_path / f"r{at}", [at]) for at in range(2, 56)) > 45


def test_a_memory_that_was_lost_is_written_again_from_the_logs(tmp_path: Path) -> None:
    work(tmp_path)
    live = graph_of(tmp_path)
    for path in memory_file(tmp_path).parent.iterdir():
        path.unlink()
    with place_of(tmp_path) as place:
        rebuild(place, sessions_of(tmp_path))
    assert graph_of(tmp_path)[0] == live[0]


def test_a_result_keeps_a_pointer_to_what_was_long(tmp_path: Path) -> None:
    @opensage.tool
    def long() -> str:
        """Much."""
        return "tail and head " * 10_000

    result, _ = go([calls(call("long")), say("x")], tmp_path, tools=[long])
    [found] = items_of(tmp_path, "observation")
    [told] = [event for event in result.events if isinstance(event, ToolResult)]
    assert len(found.text) <= 2000
    assert (found.data["blob"], found.data["size"]) == (told.blob, 140_000)
    assert found.key == f"{result.session_id}#{told.seq}"


def test_what_was_recalled_is_not_stored_again(tmp_path: Path) -> None:
    go([calls(call("remember", {"text": "The heron nests in the tower"})), say("x")], tmp_path)
    task = "Where does the heron nest, in which tower?"
    result, model = go([calls(call("recall", {"query": "heron"})), say("In the tower")], tmp_path, task)
    assert "<memory>" in model.requests[0]["messages"][1]["content"]
    assert "<memory>" in results(model)[0]
    stored = [item for item in items_of(tmp_path) if "nests" in item.text]
    assert sorted(item.kind for item in stored) == ["fact", "tool_call"]
    [seen] = [item for item in items_of(tmp_path, "observation") if result.session_id in item.key]
    assert seen.text == "(observation: recalled from memory)"
    go([say("x")], tmp_path, model.requests[0]["messages"][1]["content"] + "and this is new: the egret")
    assert [item.kind for item in items_of(tmp_path) if "nests" in item.text] == ["fact", "tool_call"]


def test_compaction_becomes_a_summary_of_what_it_replaced(tmp_path: Path) -> None:
    from opensage.models import ScriptedModel

    class Narrow(ScriptedModel):
        context_window = 1500

    turns = [calls(call("tasks"), text=f"step {n}: " + "word " * 150) for n in range(8)]
    go(Narrow([*turns[:6], say("the summary of it all"), *turns[6:], *[say("end")] * 20]), tmp_path, "count the steps")
    summaries = items_of(tmp_path, "summary")
    told, edges = graph_of(tmp_path)
    assert summaries
    assert sum(type == "SUMMARIZES" for _, type, _ in edges) >= 2
    assert again(tmp_path, tmp_path / "again.db") == (told, edges)


# --- trouble ---


def test_a_memory_that_cannot_be_written_is_a_warning_and_nothing_is_lost(tmp_path: Path) -> None:
    memory_file(tmp_path).parent.mkdir(parents=True)
    memory_file(tmp_path).write_bytes(b"this is no database" * 1000)
    result, _ = go([say("fine")], tmp_path, "work")
    assert (result.status, result.text) == ("done", "fine")
    assert len(result.warnings) == 1
    assert "memory" in result.warnings[0]
    assert memory_file(tmp_path).read_bytes() == b"this is no database" * 1000
    memory_file(tmp_path).unlink()
    with place_of(tmp_path) as place:
        rebuild(place, sessions_of(tmp_path))
    assert [item.text for item in items_of(tmp_path, "message")] == ["work"]


def test_an_embedder_that_fails_is_a_warning_and_the_texts_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L2: whatever adds to a text, its failure is visible, and the text is there."""
    from opensage.memory import MemorySettings
    from opensage_memory.embed import CallableEmbedder

    def broken(_texts: Any) -> Any:
        raise RuntimeError("the server is on fire")

    monkeypatch.setattr("opensage_memory.embed.open_embedder", lambda _name: CallableEmbedder("broken", 3, broken))
    result, _ = go(
        [calls(call("remember", {"text": "kept"})), say("x")], tmp_path, memory=MemorySettings(embedder="hashed")
    )
    assert "the server is on fire" in result.warnings[0]
    assert "opensage memory reindex" in result.warnings[0]
    assert [item.text for item in items_of(tmp_path, "fact")] == ["kept"]
    assert [item.text for item in items_of(tmp_path, "message")] == ["do it"]
    with memory_of(tmp_path) as memory:
        assert memory.waiting("embed")


def test_a_torn_or_foreign_log_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    result, _ = go([say("fine")], tmp_path, "work")
    path = sessions(tmp_path) / f"{result.session_id}.jsonl"
    path.write_bytes(path.read_bytes() + b'not json\n{"seq": 99, "time": 1, "type": "later"}\n{"seq": 100, "ti')
    (sessions(tmp_path) / "20000101-000000-aaaaaa.jsonl").write_bytes(b"\x00\xff" * 100)
    with place_of(tmp_path, str(tmp_path / "again.db")) as place:
        done = rebuild(place, sessions_of(tmp_path))
    assert done.sessions >= 1
    assert [item.text for item in items_of(tmp_path, "message", store=str(tmp_path / "again.db"))] == ["work"]


def test_forgotten_items_stay_forgotten_when_the_logs_are_read_again(tmp_path: Path) -> None:
    from opensage.memory import forgotten

    go([say("fine")], tmp_path, "my secret hobby is knitting")
    [said] = items_of(tmp_path, "message")
    with memory_of(tmp_path) as memory:
        done = forgotten.forget(memory, [said.id], said.scope)
        assert done is not None
    with place_of(tmp_path) as place:
        rebuild(place, sessions_of(tmp_path))
    assert not [item for item in items_of(tmp_path) if "knitting" in item.text]
    with memory_of(tmp_path) as memory:
        forgotten.undo(memory, done.id, said.scope)
    with place_of(tmp_path) as place:
        rebuild(place, sessions_of(tmp_path))
    assert [item.text for item in items_of(tmp_path, "message")] == ["my secret hobby is knitting"]


WRITER = """
    import sys
    sys.path[:0] = [{folders}]
    from pathlib import Path
    from helpers_run import call, calls, say
    import opensage
    from opensage.models import ScriptedModel
    from opensage.sandbox import ScriptedSandbox
    name = sys.argv[2]
    for number in range(3):
        turns = [calls(call("remember", {{"text": f"{{name}} fact {{number}}"}})), say(f"{{name}} said {{number}}")]
        result = opensage.run(f"{{name}} task {{number}}", model=ScriptedModel(turns), workdir=sys.argv[1], sandbox=ScriptedSandbox())
        assert (result.status, result.warnings) == ("done", []), result
"""


def test_four_processes_share_one_memory_from_its_first_moment(tmp_path: Path) -> None:
    """L6."""
    places = [HERE, HERE.parents[1], HERE.parents[1] / "memory"]
    code = textwrap.dedent(WRITER).format(folders=", ".join(repr(str(place)) for place in places))
    started = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path), name], stderr=subprocess.PIPE) for name in "abcd"
    ]
    errors = [process.communicate(timeout=120)[1].decode() for process in started]
    assert [process.returncode for process in started] == [0] * 4, errors
    wanted = sorted(f"{name} fact {n}" for name in "abcd" for n in range(3))
    assert sorted(item.text for item in items_of(tmp_path, "fact")) == wanted
    assert len(items_of(tmp_path, "message")) == len(items_of(tmp_path, "session")) == 12
    with memory_of(tmp_path) as memory:
        assert memory.check() == []
    assert again(tmp_path, tmp_path / "again.db")[0] == graph_of(tmp_path)[0]


VALUE = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8) | st.just([])
CALL = st.fixed_dictionaries(
    {"id": st.sampled_from("ab"), "name": st.text(max_size=5), "arguments": st.text(max_size=9)}
)
LOGGED = st.sampled_from(
    ["run.started", "run.finished", "user.message", "model.reply", "tool.started", "tool.result", "compacted", "agent.created",
     "agent.called", "agent.finished", "agent.saved", "board.read", "toolkit.made", "toolkit.retired", "memory.recalled"]
)  # fmt: skip
FIELD = st.sampled_from(
    ["agent", "text", "id", "name", "source", "summary", "keep_from", "number", "status", "spec", "tools", "usage", "resumed",
     "description", "version", "data", "blob", "size", "ok"]
)  # fmt: skip
LINE = st.tuples(
    LOGGED, st.dictionaries(FIELD, VALUE | st.text(), max_size=4), st.lists(CALL, max_size=2),
    st.floats(allow_nan=False, allow_infinity=False) | st.just(1.8e9),
)  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(LINE, max_size=12))
def test_any_log_is_folded_and_folded_again(tmp_path_factory: Any, lines: list[Any]) -> None:
    folder = tmp_path_factory.mktemp("logs")
    sessions(folder).mkdir(parents=True)
    told = []
    for seq, (kind, fields, made, at) in enumerate(lines):
        calls_too = {"calls": made} if kind == "model.reply" else {}
        told.append(json.dumps({**fields, **calls_too, "seq": seq, "time": at, "type": kind}))
    for name in ("s", "s.1"):
        (sessions(folder) / f"{name}.jsonl").write_text("\n".join(told) + "\n")
    with place_of(folder) as place:
        rebuild(place, sessions_of(folder))
        before = place.memory.counts()
        rebuild(place, sessions_of(folder))
        assert place.memory.counts() == before
        assert place.memory.check() == []


# --- procedures ---


def test_a_later_session_finds_the_agent_that_an_earlier_one_made(tmp_path: Path) -> None:
    """Session 2 calls what session 1 saved; then it is known what it worked for in both."""
    main = [
        create("linter", description="Finds style mistakes in Python files"),
        delegate("linter", "Look at app.py"),
        calls(call("save_agent", {"name": "linter"})),
        say("clean"),
    ]
    team({"main": main, "linter": [say("no mistakes")]}, tmp_path, "Is app.py clean?")
    asked = calls(call("recall", {"query": "who finds style mistakes in Python?"}))
    second = {"main": [asked, delegate("linter", "Look at web.py"), say("clean too")], "linter": [say("none")]}
    _, model = team(second, tmp_path, "And is web.py clean?")
    recalled = next(m["content"] for r in model.requests for m in r["messages"] if m["role"] == "tool")
    assert "Agent linter, called with call_agent: Finds style mistakes" in recalled
    [made] = items_of(tmp_path, "procedure")
    with memory_of(tmp_path) as memory:
        items, edges = memory.neighbours(made.id, f"{made.scope}/*")
    tasks = {item.id: item.text for item in items}
    worked = {tasks[edge.target] for edge in edges if edge.type == "WORKED_FOR"}
    assert worked == {"Is app.py clean?", "And is web.py clean?"}
    live = graph_of(tmp_path)
    assert again(tmp_path, tmp_path / "again.db") == live


def test_a_run_that_failed_worked_for_nothing(tmp_path: Path) -> None:
    main = [create("linter"), calls(call("save_agent", {"name": "linter"})), delegate("linter", "Look"), *[say("")] * 9]
    result, _ = team({"main": main, "linter": [say("none")]}, tmp_path, "Is it clean?")
    assert result.status == "empty"
    _, edges = graph_of(tmp_path)
    types = {type for _, type, _ in edges}
    assert "USED" in types
    assert "WORKED_FOR" not in types


def test_the_logs_alone_are_enough_after_the_folder_was_moved(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    go([calls(call("remember", {"text": "The otter sleeps at noon"})), say("x")], old)
    os.rename(old, new)
    _, model = go([calls(call("recall", {"query": "when does the otter sleep"})), say("x")], new, "hm")
    assert "otter sleeps" in results(model)[0]
    assert json.dumps(sorted({item.scope.split("/")[1][:4] for item in items_of(new)})) == '["old-"]'
