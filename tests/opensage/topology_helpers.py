"""Shorthands for runs in which agents call agents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from helpers_run import call, calls

import opensage
from opensage.log.journal import load
from opensage.models import ScriptedModel
from opensage.sandbox import ScriptedSandbox
from opensage.topology.graph import Topology


def create(name: str, **more: Any) -> dict[str, Any]:
    return calls(call("create_agent", {"name": name, "instruction": f"you are {name}", **more}))


def delegate(name: str, task: str = "work", **more: Any) -> dict[str, Any]:
    return calls(call("call_agent", {"name": name, "task": task, **more}))


def team(
    agents: dict[str, Any], tmp_path: Path, task: str | None = "do it", **options: Any
) -> tuple[opensage.Result, ScriptedModel]:
    model = ScriptedModel({"agents": agents})
    options.setdefault("sandbox", ScriptedSandbox())
    if brought := options.pop("brought", None):
        options["agents"] = brought
    return opensage.run(task, model=model, workdir=tmp_path, **options), model


def seen(model: ScriptedModel, agent: str) -> list[Any]:
    """The requests of one agent: those whose system message speaks of it."""
    return [r for r in model.requests if f"You are the agent '{agent}'" in r["messages"][0]["content"]]


def answers(model: ScriptedModel, agent: str = "") -> list[str]:
    """The tool results in the last request of an agent, of the main one without a name."""
    requests = (
        seen(model, agent)
        if agent
        else [r for r in model.requests if "You are the agent '" not in r["messages"][0]["content"]]
    )
    return [m["content"] for m in requests[-1]["messages"] if m["role"] == "tool"]


def sessions(tmp_path: Path) -> Path:
    return tmp_path / ".opensage" / "sessions"


def topology(tmp_path: Path, result: opensage.Result) -> Topology:
    return Topology(sessions(tmp_path), result.session_id)


def events(tmp_path: Path, session: str) -> list[Any]:
    return load(sessions(tmp_path) / f"{session}.jsonl").events
