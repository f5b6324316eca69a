"""Probes A, B and G: what models do to tool calls."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from helpers_run import call, calls, go, results, say

import opensage
from opensage import Limits, tool
from opensage.messages import ToolCall
from opensage.models import ScriptedModel


@tool
def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@tool
def ok() -> str:
    """Always fine."""
    return "fine"


@tool
def boom() -> str:
    """Always fails."""
    raise ValueError("no luck")


def test_a_run_answers_with_a_tool(tmp_path: Path) -> None:
    result, model = go([calls(call("add", {"a": 2, "b": 3})), say("It is 5.")], tmp_path, tools=[add])
    assert (result.status, result.text) == ("done", "It is 5.")
    assert results(model) == ["5"]
    assert result.usage["model_calls"] == 2
    assert result.usage["tool_calls"] == 1


def test_probe_a1_unterminated_arguments(tmp_path: Path) -> None:
    turns = [calls(call("add", '{"a": 1, "b": ')), calls(call("add", {"a": 1, "b": 2})), say("3")]
    result, model = go(turns, tmp_path, tools=[add])
    assert result.status == "done"
    bad, good = results(model)
    assert "not valid JSON" in bad
    assert '{"a": 1, "b": ' in bad
    assert good == "3"


def test_probe_a2_unknown_tool_lists_the_names(tmp_path: Path) -> None:
    result, model = go([calls(call("no_such_tool")), say("ok")], tmp_path, tools=[add])
    assert result.status == "done"
    assert "no_such_tool" in results(model)[0]
    assert "add" in results(model)[0]


def test_probe_a3_empty_name_never_enters_the_history(tmp_path: Path) -> None:
    result, model = go([calls(call("", "{}")), say("ok")], tmp_path, tools=[add])
    assert result.status == "done"
    message = model.requests[-1]["messages"][-2]
    assert message["tool_calls"][0]["function"]["name"] == "invalid_tool_name"


@pytest.mark.parametrize("raw", ["[]", '"x"', "3", "[1, 2]"])
def test_probe_a7_arguments_that_are_no_object(tmp_path: Path, raw: str) -> None:
    result, model = go([calls(call("add", raw)), say("ok")], tmp_path, tools=[add])
    assert result.status == "done"
    assert "JSON object" in results(model)[0]


@pytest.mark.parametrize("raw", ["null", "", "  "])
def test_probe_a7_null_and_empty_are_no_arguments(tmp_path: Path, raw: str) -> None:
    result, model = go([calls(call("ok", raw)), say("ok")], tmp_path, tools=[ok])
    assert result.status == "done"
    assert results(model) == ["fine"]


def test_probe_a8_raw_newline_and_nul_inside_a_string(tmp_path: Path) -> None:
    @tool
    def echo(text: str) -> str:
        """Echo."""
        return text

    _, model = go([calls(call("echo", '{"text": "a\nb\\u0000c\td"}')), say("ok")], tmp_path, tools=[echo])
    assert results(model) == ["a\nbc\td"]


def test_probe_a9_call_cut_by_the_token_limit_is_not_run(tmp_path: Path) -> None:
    turns = [calls(call("add", '{"a": 1, "b"'), finish_reason="length"), say("ok")]
    result, model = go(turns, tmp_path, tools=[add])
    assert result.status == "done"
    assert "cut off at the output limit" in results(model)[0]
    assert result.usage["tool_calls"] == 0


def test_probe_a10_text_cut_by_the_limit_is_kept_and_the_session_lives(tmp_path: Path) -> None:
    model = ScriptedModel([say("half an ans", finish_reason="length"), say("whole")])
    first, _ = go(model, tmp_path)
    assert (first.status, first.text) == ("limit", "half an ans")
    assert "length" in first.reason
    second, _ = go(model, tmp_path, session=first.session_id)
    assert (second.status, second.text) == ("done", "whole")


def test_probe_a13_reused_ids(tmp_path: Path) -> None:
    turns = [
        calls(call("add", {"a": 1, "b": 1}, "c0"), call("add", {"a": 2, "b": 2}, "c0")),
        calls(call("add", {"a": 3, "b": 3}, "c0")),
        say("ok"),
    ]
    _, model = go(turns, tmp_path, tools=[add])
    assert results(model) == ["2", "4", "6"]
    ids = [m["tool_call_id"] for m in model.requests[-1]["messages"] if m["role"] == "tool"]
    assert ids[0] == "c0"
    assert len(set(ids)) == 3


def test_probe_a15_a16_empty_replies_are_asked_again_then_said(tmp_path: Path) -> None:
    result, _ = go([calls(call("ok")), say(""), say("done")], tmp_path, tools=[ok])
    assert (result.status, result.text) == ("done", "done")
    result, _ = go([calls(call("ok")), {"repeat": say(""), "times": -1}], tmp_path, tools=[ok])
    assert result.status == "empty"
    assert "empty reply" in result.reason


def test_probe_b1_three_calls_one_fails(tmp_path: Path) -> None:
    result, model = go([calls(call("ok"), call("ok"), call("boom")), say("ok")], tmp_path, tools=[ok, boom])
    assert results(model) == ["fine", "fine", "ValueError: no luck"]
    assert result.status == "done"


@pytest.mark.parametrize("error", [ValueError, TimeoutError, KeyError, SystemExit, asyncio.InvalidStateError])
def test_probe_b2_any_exception_is_an_answer(tmp_path: Path, error: type[BaseException]) -> None:
    @tool
    async def bad() -> str:
        """Fail."""
        raise error("x")

    _, model = go([calls(call("ok"), call("bad"), call("ok")), say("ok")], tmp_path, tools=[ok, bad])
    assert [r == "fine" for r in results(model)] == [True, False, True]


def test_probe_b2_only_interrupts_escape_and_the_history_stays_usable(tmp_path: Path) -> None:
    @tool
    def stop() -> str:
        """Interrupt."""
        raise KeyboardInterrupt

    model = ScriptedModel([calls(call("ok"), call("stop"), call("ok")), say("hello again")])
    with pytest.raises(KeyboardInterrupt):
        go(model, tmp_path, tools=[ok, stop])
    (log,) = (tmp_path / ".opensage" / "sessions").glob("*.jsonl")
    second, _ = go(model, tmp_path, task="hi", session=log.stem, tools=[ok, stop])
    assert second.text == "hello again"


def test_probe_b3_no_orphans(tmp_path: Path) -> None:
    target = tmp_path / "late.txt"

    @tool
    async def late() -> str:
        """Write late."""
        await asyncio.sleep(0.4)
        target.write_text("x")
        return "written"

    @tool
    async def fails() -> str:
        """Fail at once."""
        raise ValueError("no")

    _, model = go([calls(call("fails"), call("late")), say("ok")], tmp_path, tools=[late, fails])
    existed = target.exists()
    time.sleep(0.6)
    assert target.exists() == existed
    assert results(model)[1] == "written"


def test_probe_b8_two_finish_calls_the_first_wins_and_the_other_is_visible(tmp_path: Path) -> None:
    turns = [calls(call("finish", {"text": "one"}), call("finish", {"text": "two"}))]
    result, _ = go(turns, tmp_path)
    assert (result.status, result.text) == ("done", "one")
    texts = [e.text for e in result.events if e.type == "tool.result"]
    assert texts == ["one", "two"]


def test_probe_b9_a_turn_has_one_budget_for_all_outputs(tmp_path: Path) -> None:
    @tool
    def big() -> str:
        """Return 60 KB."""
        return "x" * 60_000

    _, model = go([calls(*[call("big")] * 8), say("ok")], tmp_path, tools=[big])
    assert sum(len(r) for r in results(model)) < 52_000
    assert all("blob:" in r for r in results(model))


def test_probe_f8_a_huge_output_is_stored_whole(tmp_path: Path) -> None:
    @tool
    def huge() -> str:
        """Return 5 MB."""
        return "head" + "x" * 5_000_000 + "tail"

    result, model = go([calls(call("huge")), say("ok")], tmp_path, tools=[huge])
    (text,) = results(model)
    assert len(text) < 20_000
    assert text.startswith("head")
    assert text.endswith("tail")
    (blob,) = (tmp_path / ".opensage" / "sessions" / f"{result.session_id}.blobs").iterdir()
    assert blob.stat().st_size == 5_000_008


def test_probe_d18_and_g3_the_turn_limit_leaves_a_partial_answer(tmp_path: Path) -> None:
    turns = [{"repeat": calls(call("add", {"a": 1, "b": 1}), text="working on it"), "times": -1}]
    result, model = go(turns, tmp_path, tools=[add], limits=Limits(max_turns=3))
    assert (result.status, result.text) == ("limit", "working on it")
    assert "max_turns" in result.reason
    assert len(model.requests) == 3
    assert "last turn" in model.requests[-1]["messages"][-1]["content"]


def test_probe_g1_the_cap_is_checked_before_each_attempt(tmp_path: Path) -> None:
    costly = calls(call("ok"), usage={"input_tokens": 10, "output_tokens": 10, "cost": 0.04})
    result, model = go([{"repeat": costly, "times": -1}], tmp_path, tools=[ok], limits=Limits(max_cost=0.1))
    assert result.status == "limit"
    assert "max_cost" in result.reason
    assert len(model.requests) == 3


def test_probe_g6_the_same_call_for_ever(tmp_path: Path) -> None:
    result, model = go([{"repeat": calls(call("ok")), "times": -1}], tmp_path, tools=[ok])
    assert result.status == "stuck"
    assert len(model.requests) == 6
    notes = [m for m in model.requests[3]["messages"] if m["role"] == "user"]
    assert "same call" in notes[-1]["content"]


def test_probe_g13_a_cost_of_zero_is_fine(tmp_path: Path) -> None:
    result, _ = go([say("ok", usage={"input_tokens": 1, "output_tokens": 1, "cost": 0.0})], tmp_path)
    assert result.usage["cost"] == 0.0


def test_the_wall_clock_ends_a_hanging_tool(tmp_path: Path) -> None:
    @tool
    async def hang() -> str:
        """Hang."""
        await asyncio.sleep(60)
        return ""

    began = time.monotonic()
    result, _ = go([calls(call("hang")), say("never")], tmp_path, tools=[hang], limits=Limits(max_seconds=0.5))
    assert time.monotonic() - began < 10
    assert result.status == "limit"
    assert "max_seconds" in result.reason


def test_probe_e1_e2_cancelling_stops_tools_and_keeps_the_history(tmp_path: Path) -> None:
    target = tmp_path / "ticks"

    @tool
    async def tick() -> str:
        """Write for ever."""
        while True:
            with target.open("a") as file:
                file.write("x")
            await asyncio.sleep(0.05)

    model = ScriptedModel([calls(call("tick")), say("hello")])

    async def main() -> str:
        task = asyncio.create_task(opensage.arun("go", model=model, workdir=tmp_path, tools=[tick], sandbox="local"))
        while not target.exists():
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        size = target.stat().st_size
        await asyncio.sleep(0.4)
        assert target.stat().st_size == size
        (log,) = (tmp_path / ".opensage" / "sessions").glob("*.jsonl")
        again = await opensage.arun(
            "hi", model=model, workdir=tmp_path, session=log.stem, tools=[tick], sandbox="local"
        )
        return again.text

    assert asyncio.run(main()) == "hello"


def test_probe_e3_stop_during_the_first_of_five(tmp_path: Path) -> None:
    effects = tmp_path / "effects"
    model = ScriptedModel([calls(*[call("shell", {"command": f"echo x >> {effects}; sleep 5"})] * 5)])

    async def main() -> None:
        run = opensage.arun("go", model=model, workdir=tmp_path, sandbox="local", approve="allow")
        task = asyncio.create_task(run)
        while not effects.exists():
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert effects.read_text() == "x\n"
    (log,) = (tmp_path / ".opensage" / "sessions").glob("*.jsonl")
    assert '"status":"cancelled"' in log.read_text().splitlines()[-1]


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "add", "arguments": {"a": 2, "b": 3}}',
        '<tool_call>{"name": "add", "arguments": {"a": 2, "b": 3}}</tool_call>',
    ],
)
def test_probe_n4_a_call_printed_as_text_is_run(tmp_path: Path, text: str) -> None:
    result, model = go([say(text), say("5")], tmp_path, tools=[add])
    assert (result.status, result.text) == ("done", "5")
    assert results(model) == ["5"]


def test_approvals_ask_edit_and_remember(tmp_path: Path) -> None:
    asked: list[str] = []

    @tool(approval="ask")
    def gated(n: int) -> str:
        """Gated."""
        return f"ran {n}"

    def approve(wanted: ToolCall) -> object:
        asked.append(wanted.arguments)
        n = len(asked)
        return [True, False, {"n": 7}, opensage.Decision(True, "for ever", remember="gated")][n - 1]

    turns = [calls(call("gated", {"n": n})) for n in range(6)]
    _, model = go([*turns, say("ok")], tmp_path, tools=[gated], approve=approve)
    texts = results(model)
    assert texts[0] == "ran 0"
    assert texts[1].startswith("Not permitted")
    assert texts[2].endswith("\nran 7")
    assert texts[3:] == ["ran 3", "ran 4", "ran 5"]
    assert len(asked) == 4


def test_approval_decided_before_a_crash_is_kept(tmp_path: Path) -> None:
    @tool(approval="ask")
    def gated() -> str:
        """Gated."""
        return "ran"

    def die(_: ToolCall) -> bool:
        raise KeyboardInterrupt

    model = ScriptedModel([calls(call("gated")), say("after")])
    with pytest.raises(KeyboardInterrupt):
        go(model, tmp_path, tools=[gated], approve=die)
    (log,) = (tmp_path / ".opensage" / "sessions").glob("*.jsonl")
    kept = [line for line in log.read_text().splitlines() if "tool.result" not in line and "finished" not in line]
    log.write_text("\n".join(kept) + "\n")  # as a kill during the question would have left it
    result, model = go(model, tmp_path, task=None, session=log.stem, tools=[gated], approve=lambda _: True)
    assert result.text == "after"
    assert results(model) == ["ran"]


def test_deny_beats_everything(tmp_path: Path) -> None:
    policy = opensage.Policy.parse(allow=["ok"], deny=["ok"])
    _, model = go([calls(call("ok")), say("x")], tmp_path, tools=[ok], approve="allow", policy=policy)
    assert results(model)[0].startswith("Not permitted")
