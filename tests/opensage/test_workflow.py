"""Agents whose steps code drives: logged, approved, limited and resumed like any other."""

from __future__ import annotations

import asyncio
import importlib.metadata
from pathlib import Path
from typing import Any

import pytest
from helpers_run import call, calls, go, say

import opensage
from opensage import AgentSpec, Limits
from opensage.errors import ConfigError, OpenSageError
from opensage.log.folds import Summary
from opensage.log.store import SessionStore
from opensage.models import ScriptedModel
from opensage.workflow import Outcome, Steps, find

AGENT = AgentSpec(name="worker", workflow="test-steps")


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Install a workflow for the length of a test."""

    def install(function: Any) -> None:
        class Point:
            name = "test-steps"

            @staticmethod
            def load() -> Any:
                return function

        real = importlib.metadata.entry_points
        monkeypatch.setattr(
            importlib.metadata,
            "entry_points",
            lambda **by: [Point] if by.get("group") == "opensage.workflows" else real(**by),
        )

    return install


def _only(workdir: Path) -> Summary:
    """The summary of the one session there is."""
    (summary,) = SessionStore(workdir / ".opensage" / "sessions").summaries()
    return summary


def test_questions_and_calls_are_in_the_log_and_in_the_budget(tmp_path: Path, offer: Any) -> None:
    async def work(steps: Steps) -> str:
        steps.say("begin")
        word = await steps.ask(f"A word for {steps.task}?", purpose="naming")
        result = await steps.call("write", {"path": "a.txt", "content": word}, say="I write it.")
        return f"{result.text} {steps.small} {steps.resumed}"

    offer(work)
    used = {"input_tokens": 3, "output_tokens": 4, "cost": 0.25}
    model = ScriptedModel({"agents": {"naming": [say("blue", usage=used)]}})
    result, _ = go(model, tmp_path, real=True, agent=AGENT, approve="allow")
    assert (tmp_path / "a.txt").read_text() == "blue"
    assert (result.status, result.text) == ("done", "wrote 1 line to a.txt False False")
    assert result.usage["model_calls"] == 1
    assert result.usage["cost"] == 0.25
    side = next(event for event in result.events if event.type == "model.side")
    assert (side.purpose, side.prompt, side.text) == ("naming", "A word for do it?", "blue")
    kinds = [event.type for event in result.events]
    assert "model.reply" in kinds
    assert kinds[-3:] == ["tool.started", "tool.result", "run.finished"]
    summary = _only(tmp_path)
    assert (summary.turns, summary.tool_calls, summary.usage.output_tokens) == (1, 1, 4)


def test_calls_need_leave(tmp_path: Path, offer: Any) -> None:
    async def work(steps: Steps) -> str:
        return (await steps.call("shell", {"command": "touch made"})).text

    offer(work)
    result, _ = go([], tmp_path, real=True, agent=AGENT, approve=lambda _call: False)
    assert "Not permitted" in result.text
    assert not (tmp_path / "made").exists()


def test_a_limit_ends_it_with_its_reason(tmp_path: Path, offer: Any) -> None:
    async def work(steps: Steps) -> str:
        for _ in range(10):
            await steps.ask("again?")
        return "never"

    offer(work)
    model = [{"repeat": say("yes"), "times": -1}]
    result, _ = go(model, tmp_path, agent=AGENT, limits=Limits(max_turns=3))
    assert (result.status, result.usage["model_calls"]) == ("limit", 3)
    assert "max_turns" in result.reason


def test_a_slow_answer_ends_at_the_time_limit(tmp_path: Path, offer: Any) -> None:
    async def work(steps: Steps) -> str:
        return await steps.ask("slow?")

    offer(work)
    result, _ = go([{"text": "late", "delay_s": 30}], tmp_path, agent=AGENT, limits=Limits(max_seconds=0.5))
    assert (result.status, "max_seconds" in result.reason) == ("limit", True)


def test_an_outcome_is_what_it_says(tmp_path: Path, offer: Any) -> None:
    async def work(_steps: Steps) -> Outcome:
        return Outcome("stuck", "no way on", "half")

    offer(work)
    result, _ = go([], tmp_path, agent=AGENT)
    assert (result.status, result.reason, result.text) == ("stuck", "no way on", "half")


def test_the_model_may_take_over(tmp_path: Path, offer: Any) -> None:
    async def work(steps: Steps) -> Outcome:
        await steps.call("write", {"path": "a.txt", "content": "1"})
        return await steps.loop()

    offer(work)
    model = [calls(call("read", {"path": "a.txt"})), say("It says 1.")]
    result, model = go(model, tmp_path, real=True, agent=AGENT, approve="allow")
    assert (result.status, result.text) == ("done", "It says 1.")
    roles = [message["role"] for message in model.requests[0]["messages"]]
    assert roles == ["system", "user", "assistant", "tool"]  # what code did is in its history
    assert [event.type for event in result.events].count("run.finished") == 1


def test_an_interrupted_one_is_told_and_its_open_call_is_answered(tmp_path: Path, offer: Any) -> None:
    seen: list[bool] = []

    async def work(steps: Steps) -> str:
        seen.append(steps.resumed)
        if not steps.resumed:
            await steps.call("shell", {"command": "sleep 60"})
        return "over"

    offer(work)

    async def first() -> str:
        events = opensage.stream(
            "t", agent=AGENT, model=ScriptedModel([]), workdir=tmp_path, sandbox="bubblewrap", approve="allow",
            memory=False,
        )  # fmt: skip
        async for event in events:
            if event.type == "tool.started":
                await events.aclose()  # type: ignore[attr-defined]
                break
        return _only(tmp_path).session

    session = asyncio.run(first())
    result = opensage.run(
        None,
        session=session,
        agent=AGENT,
        model=ScriptedModel([]),
        workdir=tmp_path,
        sandbox="bubblewrap",
        memory=False,
    )
    assert (result.status, seen[-1]) == ("done", True)


def test_a_defect_of_a_workflow_is_shown_and_the_log_is_closed(tmp_path: Path, offer: Any) -> None:
    async def work(_steps: Steps) -> str:
        raise ZeroDivisionError("a defect")

    offer(work)
    with pytest.raises(OpenSageError, match=r"test-steps broke off \(ZeroDivisionError: a defect\)"):
        go([], tmp_path, agent=AGENT)
    assert _only(tmp_path).status == "failed"


def test_an_unknown_one_names_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no workflow 'nix'; there are: .*coder"):
        find("nix")
    with pytest.raises(ConfigError, match="no workflow 'nix'"):
        go([], tmp_path, agent=AgentSpec(workflow="nix"))
