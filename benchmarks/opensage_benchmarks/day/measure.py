"""Runs the day, measures memory and time at tenths, then cuts copies of the log anywhere and resumes them."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import statistics
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any

import opensage
from opensage import Decision, Limits, Policy, tool
from opensage.engine import Engine
from opensage.errors import OpenSageError
from opensage.log.events import RunFinished, ToolResult, ToolStarted
from opensage.log.journal import load
from opensage.log.session import Session
from opensage.messages import ToolCall
from opensage.models import ScriptedModel
from opensage.protocols import Sandbox
from opensage.sandbox import open_sandbox
from opensage.secrets import Mask
from opensage.tools import Tool
from opensage_benchmarks.day.turns import DayModel

POLICY = Policy.parse(allow=["shell(echo *)"], ask=["gated"], deny=["shell(rm *)", "*(.env)"])
LIMITS = Limits(max_turns=10**9)


def tools(sandbox: Sandbox) -> list[Tool]:
    """The tools of the day, beside the built-in ones."""

    @tool
    async def fails(n: int) -> str:
        """Fail."""
        raise ValueError(f"no {n}")

    @tool
    async def gated(n: int) -> str:
        """Do what a person must allow."""
        await asyncio.sleep(0)
        return f"gated {n}"

    @tool
    def huge(n: int) -> str:
        """Say a lot."""
        return f"{n} " * 40_000

    @tool(parallel=False)
    async def lose_sandbox(n: int) -> str:
        """Kill the sandbox's first process."""
        pid = getattr(sandbox, "pid", None)
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
        return f"killed at {n}"

    return [fails, gated, huge, lose_sandbox]


async def approve(call: ToolCall) -> object:
    """A person who allows, refuses, edits, and once says always."""
    await asyncio.sleep(0)
    n = json.loads(call.arguments).get("n", 0) if call.name == "gated" else 0
    return [True, Decision(False, "not now"), {"n": -n}, True][n % 4]


def measure(
    turns: int, *, seed: int = 1, resumes: int = 20, sandbox: str = "bubblewrap", folder: Path
) -> dict[str, Any]:
    """All figures of one day in `folder`: seconds, CPU seconds, bytes."""
    began, cpu = time.perf_counter(), time.process_time()
    day = asyncio.run(_live(turns, seed, sandbox, folder))
    day["seconds"], day["cpu_s"] = round(time.perf_counter() - began, 1), round(time.process_time() - cpu, 1)
    log = folder / ".opensage" / "sessions" / f"{day['session']}.jsonl"
    day["log_bytes"] = log.stat().st_size
    day["load_cpu_s"] = _load_seconds(log)
    day["load_cpu_s_of_half"] = _load_seconds(_cut(log, folder / "half", log.stat().st_size // 2))
    problems, day["results"] = check(log), results(log)
    day["resumed"], found = resume_anywhere(log, folder / "resumed", resumes, seed)
    day["problems"] = problems + found
    return day


async def _live(turns: int, seed: int, kind: str, folder: Path) -> dict[str, Any]:
    model, place = DayModel(seed, turns), open_sandbox(kind, folder, approve_local=None)
    engine = Engine(
        model=model,
        sandbox=place,
        workdir=folder,
        tools=tools(place),
        approve=approve,
        policy=POLICY,
        limits=LIMITS,
        mask=Mask(),
    )
    ends: dict[str, int] = {}
    marks: list[dict[str, Any]] = []
    at, cpu = 0, time.process_time()
    try:
        while model.at < turns:
            end = await _message(engine, random.Random(f"{seed}/message/{model.at}"), model.at)
            ends[end] = ends.get(end, 0) + 1
            if model.at >= turns * (len(marks) + 1) // 10:
                spent = 1000 * (time.process_time() - cpu) / (model.at - at)
                marks.append({"turn": model.at, "rss_bytes": rss(), "cpu_ms_per_turn": round(spent, 2)})
                at, cpu = model.at, time.process_time()
    finally:
        await engine.close()
    kinds = {"turns": model.at, "kinds": model.kinds, "runs_ended": ends}
    return {"seed": seed, **kinds, "session": engine.session.id, "tenths": marks, "compactions": _compactions(engine)}


async def _message(engine: Engine, chance: random.Random, n: int) -> str:
    """One message of the user; now and then it is interrupted at its third tool. Returns how it ended."""
    stop_at, begun = (3 if chance.random() < 0.1 else 0), 0
    try:
        async with aclosing(engine.turn(f"message {n}: go on with the work")) as events:  # type: ignore[type-var]
            async for event in events:
                begun += isinstance(event, ToolStarted)
                if stop_at and begun == stop_at:
                    return "interrupted"
                if isinstance(event, RunFinished):
                    return event.status
    except OpenSageError as error:
        return type(error).__name__
    return "nothing"


def rss() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _compactions(engine: Engine) -> int:
    log = engine.session.journal.path
    return sum(b'"type":"compacted"' in line for line in log.read_bytes().splitlines())


def _load_seconds(log: Path) -> float:
    """CPU seconds to open the session, folds included: the median of three."""
    spent = []
    for _ in range(3):
        began = time.process_time()
        Session(log.parent, log.stem).close()
        spent.append(time.process_time() - began)
    return round(statistics.median(spent), 3)


def _cut(log: Path, folder: Path, size: int) -> Path:
    """A copy of the first `size` bytes of a log, in a workspace of its own."""
    copy = folder / ".opensage" / "sessions" / log.name
    copy.parent.mkdir(parents=True, exist_ok=True)
    with log.open("rb") as source:
        copy.write_bytes(source.read(size))
    return copy


def check(log: Path) -> list[str]:
    """What is wrong with a log: a call without its one result, in the order of the calls."""
    waiting: list[str] = []
    seen: set[str] = set()
    problems = []
    for event in load(log).events:
        data = event.to_dict()
        if data["type"] == "model.reply" and (data.get("calls") or data.get("text")):
            problems += [f"no result for {name}" for name in waiting]
            waiting = [item["id"] for item in data.get("calls", [])]
            problems += [f"id {name} is used twice" for name in waiting if name in seen]
            seen.update(waiting)
        elif data["type"] == "tool.result":
            if data["id"] in waiting:
                waiting.remove(data["id"])
            else:
                problems.append(f"a second result for {data['id']}")
    return problems + [f"no result for {name}" for name in waiting]


def results(log: Path) -> dict[str, int]:
    """How the calls were answered: how many well, by the kit in the tool's place, and so on."""
    found: dict[str, int] = {}
    for event in load(log).events:
        if isinstance(event, ToolResult):
            lost = "sandbox lost" if event.text.startswith("The sandbox was lost") else ""
            how = event.synthetic or lost or ("ok" if event.ok else "failed")
            found[how] = found.get(how, 0) + 1
            found["cut"] = found.get("cut", 0) + bool(event.blob)
    return found


def resume_anywhere(log: Path, folder: Path, times: int, seed: int) -> tuple[int, list[str]]:
    """Cut copies at random bytes and go on with each: how many ended well, and what was wrong with the others."""
    chance, done, problems = random.Random(f"{seed}/cuts"), 0, []
    first = log.read_bytes().index(b'"user.message"') + 200
    for number in range(times):
        size = chance.randrange(first, log.stat().st_size)
        found = resume_at(log, folder / str(number), size)
        done += not found
        problems += [f"cut at byte {size}: {problem}" for problem in found]
    return done, problems


def resume_at(log: Path, folder: Path, size: int) -> list[str]:
    """Go on with a log that was cut; what is wrong with the outcome."""
    copy = _cut(log, folder, size)
    session = Session(copy.parent, copy.stem)
    unfinished = session.summary.status == "running"
    session.close()
    model, place = ScriptedModel([{"text": "that is all"}]), open_sandbox("bubblewrap", folder)
    result = opensage.run(
        None if unfinished else "go on",
        model=model,
        sandbox=place,
        workdir=folder,
        tools=tools(place),
        approve=approve,
        policy=POLICY,
        session=copy.stem,
        mask=Mask(),
    )
    problems = check(copy) + ([] if result.status == "done" else [f"ended {result.status}: {result.reason}"])
    for request in model.requests[-1:]:  # none when the answer was there and only the end of the run was lost
        problems += _unpaired(request["messages"])
    shutil.rmtree(folder)
    return problems


def _unpaired(messages: list[dict[str, Any]]) -> list[str]:
    """Calls and results of a request that do not follow each other one to one."""
    waiting: list[str] = []
    problems = []
    for message in messages:
        if message["role"] == "tool":
            expected = waiting.pop(0) if waiting else ""
            problems += (
                [] if message["tool_call_id"] == expected else [f"result {message['tool_call_id']} is out of place"]
            )
            continue
        problems += [f"the request has no result for {name}" for name in waiting]
        waiting = [item["id"] for item in message.get("tool_calls") or ()]
    return problems + [f"the request has no result for {name}" for name in waiting]
