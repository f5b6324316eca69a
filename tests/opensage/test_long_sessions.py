"""What a day in one session found: nothing outlives a closed run, and a chat survives a sandbox that is lost again."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import aclosing
from pathlib import Path

import pytest
from helpers_run import assert_paired, call, calls, go, results, say

from opensage import Limits, tool
from opensage.engine import Engine
from opensage.errors import SandboxLost
from opensage.log.conversation import Conversation
from opensage.log.events import ToolStarted
from opensage.models import ScriptedModel
from opensage.sandbox import ScriptedSandbox, open_sandbox
from opensage.secrets import Mask


@pytest.mark.parametrize("at_once", [1, 3])
def test_closing_the_events_ends_the_tools_before_the_next_message(tmp_path: Path, at_once: int) -> None:
    """Whoever stops reading in the middle of a call has its tool ended, its answer written, and the log to himself."""
    ended: list[str] = []

    @tool
    async def slow(n: int) -> str:
        """Slow."""
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("slow")
        return "done"

    model = ScriptedModel([calls(*[call("slow", {"n": n}) for n in range(at_once)]), say("hello")])

    async def main() -> None:
        engine = Engine(model=model, sandbox=ScriptedSandbox(), workdir=tmp_path, tools=[slow])
        async with aclosing(engine.turn("go")) as events:  # type: ignore[type-var]
            async for event in events:
                if isinstance(event, ToolStarted):
                    break
        assert ended
        before = engine.session.journal.path.read_text()
        async with aclosing(engine.turn("hi")) as events:  # type: ignore[type-var]
            kinds = [event.type async for event in events]
        assert before.count('"tool.result"') == at_once
        assert '"status":"cancelled"' in before.splitlines()[-1]
        assert "tool.result" not in kinds  # nothing of the first message comes late
        await engine.close()

    asyncio.run(main())
    assert_paired(model)
    assert all("cancelled" in text for text in results(model))


def test_a_sandbox_lost_twice_ends_the_run_but_not_the_chat(tmp_path: Path) -> None:
    sandbox = open_sandbox("bubblewrap", tmp_path)

    @tool(parallel=False)
    async def lose() -> str:
        """Kill it."""
        pid = getattr(sandbox, "pid", None)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        return "killed"

    start, echo = calls(call("shell", {"command": "true"})), calls(call("shell", {"command": "echo back"}))
    model, second = ScriptedModel([start, *[calls(call("lose")), start] * 6]), ScriptedModel([echo, say("fine")])

    async def main() -> list[str]:
        engine = Engine(model=model, sandbox=sandbox, workdir=tmp_path, tools=[lose], mask=Mask())
        try:
            with pytest.raises(SandboxLost):
                async for _ in engine.turn("go"):
                    pass
            await engine.use_model(second)
            return [event.type async for event in engine.turn("again")]
        finally:
            await engine.close()

    assert asyncio.run(main())[-1] == "run.finished"
    assert results(second)[-1] == "back"


def test_the_messages_of_a_long_history_stay_within_the_window(tmp_path: Path) -> None:
    @tool
    async def step(n: int) -> str:
        """Step."""
        return f"{n} " * 200

    turns = [calls(call("step", {"n": n}), usage={"input_tokens": 0, "output_tokens": 1}) for n in range(300)]
    model = ScriptedModel([*turns, *[say("end")] * 3], context_window=8000)  # summaries take turns of it too
    result, _ = go(model, tmp_path, tools=[step], limits=Limits(max_turns=2000))
    assert result.text == "end"
    sizes = [sum(len(m.get("content") or "") for m in request["messages"]) for request in model.requests]
    assert max(sizes) < 8000 * 3.2


def test_an_id_that_is_used_each_turn_costs_the_same_each_turn() -> None:
    """Providers restart their ids at each reply: the search for a free one must not grow with the history."""
    conversation = Conversation()
    began = time.process_time()
    ids = [conversation.unique_id(wished, 0) for _ in range(20_000) for wished in ("c0", "", "c0-2")]
    assert time.process_time() - began < 3
    assert len(set(ids)) == len(ids)
    assert ids[:4] == ["c0", "call_1_0", "c0-2", "c0-3"]


@pytest.mark.parametrize("again", [False, True])
def test_a_run_whose_end_alone_was_lost_is_done_with_its_answer(tmp_path: Path, again: bool) -> None:
    """Killed after the answer, before the end of the run; or at the beginning of the next, before its message."""
    go([say("the answer")], tmp_path)
    (log,) = (tmp_path / ".opensage" / "sessions").glob("*.jsonl")
    if again:
        go([say("second")], tmp_path, "more", session=log.stem)
    lines = log.read_text().splitlines()
    kept = next(n for n, line in enumerate(lines) if '"user.message"' in line and (not again or '"more"' in line))
    log.write_text("\n".join(lines[:kept] if again else lines[:-1]) + "\n")
    result, model = go(ScriptedModel([]), tmp_path, None, session=log.stem)
    assert (result.status, result.text, result.reason) == ("done", "the answer", "nothing was left to do")
    assert model.requests == []
