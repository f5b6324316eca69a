"""A tree of agents killed at each write of its logs, once and several times, and resumed: nothing twice, nothing lost."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from helpers_run import say
from topology_helpers import sessions

import opensage
from opensage.log.folds import summarise
from opensage.log.journal import load
from opensage.models.script import ScriptedFunction
from opensage.sandbox import ScriptedSandbox
from opensage.topology.graph import Topology

HERE = Path(__file__).parent
PAID = {"usage": {"input_tokens": 10, "output_tokens": 1, "cost": 0.01}}
MAIN: list[list[tuple[str, str, dict[str, Any]]]] = [
    [("c0", "create_agent", {"name": "w", "instruction": "x"})],
    [("c1", "call_agent", {"name": "w", "task": "one"}), ("c2", "call_agent", {"name": "w", "task": "two"})],
    [
        ("c3", "call_agent", {"name": "w", "task": "back", "background": True}),
        ("c4", "post", {"topic": "t", "text": "hello"}),
    ],
    [("c5", "await_agents", {"ids": ["a3"]})],
    [("c6", "resume_agent", {"id": "a1", "message": "again"})],
]
DEEP: list[list[tuple[str, str, dict[str, Any]]]] = [
    [("k0", "create_agent", {"name": "v", "instruction": "x"})],
    [("k1", "call_agent", {"name": "v", "task": "deep"})],
]


def reply(request: Any) -> dict[str, Any]:
    """What each agent says follows from its history alone, so any process can go on with it."""
    answered = {m["tool_call_id"] for m in request.messages if m["role"] == "tool"}
    said = [m["content"] for m in request.messages if m["role"] == "user" and not m["content"].startswith("[")]
    steps = {"main": MAIN, "w": DEEP if "two" in said else [], "v": []}[request.agent]
    for step in [[("t0", "tasks", {})], *steps]:
        if not answered.issuperset(id for id, _, _ in step):
            return {"tool_calls": [{"id": id, "name": name, "arguments": a} for id, name, a in step], **PAID}
    return {**say(f"{request.agent} did {said[-1]}"), **PAID}


def go(folder: Path, session: str | None = None) -> opensage.Result:
    task = "it" if session is None else None
    return opensage.run(task, model=ScriptedFunction(reply), workdir=folder, sandbox=ScriptedSandbox(), session=session)


KILLER = f"""
    import json, os, signal, sys
    from pathlib import Path
    sys.path[:0] = [{str(HERE)!r}, {str(HERE.parents[1])!r}]
    from opensage.log import journal
    import test_topology_crash as t

    class Killing(journal.LogFile):
        left, half = -1, False

        def step(self):
            Killing.left -= 1
            return Killing.left == 0

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
    for job in json.loads(sys.argv[1]):
        for at in job["at"]:
            pid = os.fork()
            if pid == 0:
                Killing.left, Killing.half = at, job["half"]
                root = t.root_of(Path(job["folder"]))
                t.go(Path(job["folder"]), root)
                os._exit(0)
            os.waitpid(pid, 0)
"""


def root_of(folder: Path) -> str | None:
    """The session that can be gone on with, if there is one yet."""
    roots = [path for path in sessions(folder).glob("*.jsonl") if "." not in path.stem]
    begun = [path.stem for path in roots if any(e.type == "user.message" for e in load(path).events)]
    return begun[0] if begun else None


def crash(tmp_path: Path, points: list[list[int]], *, half: bool = False) -> int:
    """Kill a run, and what resumes it, at the given writes; then resume it to its end. How many were taken up."""
    jobs = [{"folder": str(tmp_path / f"r{n}"), "at": at, "half": half} for n, at in enumerate(points)]
    for job in jobs:
        os.mkdir(str(job["folder"]))
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILLER), json.dumps(jobs)],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    roots = [(Path(str(job["folder"])), root_of(Path(str(job["folder"])))) for job in jobs]
    for folder, root in roots:
        if root is not None:
            check(folder, root, go(folder, root))
    return sum(root is not None for _, root in roots)


def check(folder: Path, root: str, result: opensage.Result) -> None:
    assert (result.status, result.text) == ("done", "main did it")
    logs = {path.stem: load(path).events for path in sessions(folder).glob("*.jsonl")}
    assert set(logs) == {root, f"{root}.1", f"{root}.2", f"{root}.3", f"{root}.2.1"}  # none was begun twice
    for found in logs.values():
        asked = [call["id"] for event in found if event.type == "model.reply" for call in event.calls]
        answered = [event.id for event in found if event.type == "tool.result"]
        assert sorted(asked) == sorted(answered)
        called = Counter(event.number for event in found if event.type == "agent.called")
        assert called == Counter(event.number for event in found if event.type == "agent.finished")
    said = [e.text for n in (1, 2, 3) for e in logs[f"{root}.{n}"] if e.type == "user.message"]
    assert said == ["one", "again", "two", "back"]
    texts = {event.id: event.text for event in logs[root] if event.type == "tool.result"}
    for id, text in (("c1", "w did one"), ("c2", "w did two"), ("c5", "w did back"), ("c6", "w did again")):
        assert text in texts[id]
    replies = [event for found in logs.values() for event in found if event.type == "model.reply"]
    paid = pytest.approx(sum(event.cost for event in replies))
    summary = summarise(logs[root])
    assert (summary.turns, summary.usage.cost) == (len(replies), paid)
    if result.usage["model_calls"]:  # else nothing was left to do
        assert (result.usage["model_calls"], result.usage["cost"]) == (len(replies), paid)
    tree = Topology(sessions(folder), root).root
    assert {node.status for node in tree.walk()} == {"done"}
    assert sum(node.turns for node in tree.walk()) == len(replies)


def test_a_tree_of_agents_killed_at_some_writes_is_taken_up(tmp_path: Path) -> None:
    points = [[at] for at in range(17, 120, 15)]
    points += [[30, 12, 20], [80, 3]]
    assert crash(tmp_path, points) == len(points)


@pytest.mark.slow
@pytest.mark.parametrize("half", [False, True])
def test_a_tree_of_agents_killed_at_every_write_is_taken_up(tmp_path: Path, half: bool) -> None:
    assert crash(tmp_path, [[at] for at in range(1, 125)], half=half) > 100


@pytest.mark.slow
def test_a_tree_of_agents_killed_again_and_again_is_taken_up(tmp_path: Path) -> None:
    rng = random.Random(5)
    assert crash(tmp_path, [[rng.randrange(8, 120), *(rng.randrange(1, 40) for _ in range(3))] for _ in range(60)]) > 50
