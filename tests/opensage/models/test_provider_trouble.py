"""Whole runs against a provider that misbehaves: the real litellm, real tools, a real log."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import aclosing
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from helpers_run import assert_paired
from model_servers import Behaviour, Exchange, Provider, provider

import opensage
from opensage import Limits, tool
from opensage.errors import ModelError
from opensage.log.events import Event, ModelReply, RunFinished, TextDelta, ToolResult
from opensage.log.journal import load
from opensage.messages import Request
from opensage.models import Gate, LitellmModel, retry

SIGNED = {"google": {"thought_signature": "c2lnbmVk"}}
WORDS = "working on it"


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    """litellm is imported and has made a call: both take seconds, over which no stall is to be measured."""

    async def one_call(server: Provider) -> None:
        model = remote(server)
        async with aclosing(model.stream(Request([{"role": "user", "content": "hi"}]))) as deltas:  # type: ignore[type-var]
            async for _ in deltas:
                pass
        await model.close()

    with provider(final) as server:
        asyncio.run(one_call(server))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Back-offs of a hundredth of a second."""
    for name in ("openai", "anthropic"):
        monkeypatch.setitem(retry._gates, name, Gate(base=0.01, spread=0.1))


def remote(server: Provider, idle: float = 2.0) -> LitellmModel:
    model = LitellmModel("openai/fake-1", api_base=server.url, options={"api_key": "sk-test-1234"})
    model.idle_s = idle  # type: ignore[attr-defined]
    return model


# --- good turns, each with a quirk of its own


def piece(index: Any, number: int, call_id: str | None) -> dict[str, Any]:
    function = {"name": "note", "arguments": json.dumps({"n": number})}
    named = {"id": call_id, "type": "function"} if call_id else {}
    return {"index": index, "function": function, "extra_content": SIGNED, **named}


def turn(*numbers: int, index: Callable[[int], Any] = lambda place: place, ids: str = "c{}") -> Behaviour:
    """Calls of `note`, with thoughts and signatures that must come back and usage that grows from chunk to chunk."""

    def behaviour(exchange: Exchange) -> None:
        if not echoed(exchange.body):
            exchange.fail(400, "a thought signature is missing")
            return
        exchange.begin()
        exchange.delta({"role": "assistant", "reasoning_content": "let me "}, usage=usage(1))
        exchange.delta({"reasoning_content": "think", "content": WORDS}, usage=usage(2))
        for place, number in enumerate(numbers):
            exchange.delta({"tool_calls": [piece(index(place), number, ids.format(place) or None)]}, usage=usage(3))
        exchange.delta({}, "tool_calls", usage=usage(4))
        exchange.end(usage(5))

    return behaviour


def usage(written: int) -> dict[str, int]:
    return {"prompt_tokens": 100, "completion_tokens": written, "total_tokens": 100 + written}


def echoed(body: dict[str, Any]) -> bool:
    replies = [message for message in body["messages"] if message.get("tool_calls")]
    calls = [call for message in replies for call in message["tool_calls"]]
    thoughts = all(message.get("reasoning_content") == "let me think" for message in replies)
    return thoughts and all(call.get("extra_content") == SIGNED for call in calls)


def final(exchange: Exchange) -> None:
    exchange.begin()
    for word in ("all ", "is ", "done"):
        exchange.delta({"content": word})
    exchange.delta({}, "stop")
    exchange.end(usage(5))


GOOD = [
    turn(1, 2),
    turn(3, 4, index=lambda _place: None),  # null for an index
    turn(5, 6, ids="c0"),  # one id for two calls, known from an earlier turn
    turn(7, 8, ids=""),  # no ids at all
    turn(9),
]


# --- trouble


def half(exchange: Exchange) -> None:
    exchange.begin()
    exchange.delta({"role": "assistant", "content": "half a "})
    exchange.delta({"tool_calls": [{**piece(0, 99, "c9"), "function": {"name": "note", "arguments": '{"n": 9'}}]})


def stalls(exchange: Exchange) -> None:
    half(exchange)
    exchange.raw('data: {"id": "chatcmpl-1", "choi')
    time.sleep(3.0)


def breaks_off_as_error(exchange: Exchange) -> None:
    half(exchange)
    exchange.event({"error": {"message": "the server is overloaded", "type": "server_error", "code": "503"}})


def writes_nonsense(exchange: Exchange) -> None:
    half(exchange)
    exchange.raw("data: {this is no JSON}\n\n")


def fails(status: int, message: str = "no", **headers: str) -> Behaviour:
    return lambda exchange: exchange.fail(status, message, {k.replace("_", "-"): v for k, v in headers.items()})


def answers(status: int, kind: str, body: str) -> Behaviour:
    return lambda exchange: exchange.answer(status, kind, body)


TROUBLE: dict[str, Behaviour] = {
    "stall in a chunk": stalls,
    "cut in a call": half,
    "error in the stream": breaks_off_as_error,
    "nonsense in the stream": writes_nonsense,
    "429": fails(429, "slow down"),
    "429 for a second": lambda exchange: fails(429, "slow down", Retry_After="1")(exchange),
    "429 until a date": lambda exchange: fails(
        429, "slow down", Retry_After=formatdate(time.time() + 1.5, usegmt=True)
    )(exchange),
    "500": fails(500, "oops"),
    "500 without a body": answers(500, "application/json", ""),
    "529": fails(529, "overloaded"),
    "a page for a stream": answers(200, "text/html", "<html>please log in</html>"),
    "a page of the gateway": answers(502, "text/html", "<html>bad gateway</html>"),
    "an empty stream": answers(200, "text/event-stream", ""),
    "text for an error": answers(503, "text/plain", "busy"),
    "hangs up": lambda exchange: exchange.hang_up(),
}


class Notes:
    """The tool of these runs, and what it did."""

    def __init__(self) -> None:
        self.taken: list[int] = []

    def tool(self) -> opensage.Tool:
        @tool
        def note(n: int) -> str:
            """Take a note."""
            self.taken.append(n)
            return f"noted {n}"

        return note


def go(server: Provider, folder: Path, notes: Notes, task: str | None = "take notes", **more: Any) -> list[Event]:
    async def all_of_it() -> list[Event]:
        options = {"model": remote(server), "workdir": folder, "sandbox": "local", "tools": [notes.tool()], **more}
        return [event async for event in opensage.stream(task, **options)]

    return asyncio.run(all_of_it())


def assert_sound(events: list[Event], server: Provider, folder: Path) -> None:
    """The log can be read whole, every call has one result, and the provider never saw anything odd."""
    log = load(next((folder / ".opensage/sessions").glob("*.jsonl")))
    assert (log.bad_lines, log.torn) == ([], b"")
    asked = [call["id"] for event in log.events if isinstance(event, ModelReply) for call in event.calls]
    assert len(set(asked)) == len(asked)
    assert asked == [event.id for event in log.events if isinstance(event, ToolResult)]
    assert_paired(server)  # type: ignore[arg-type]
    assert "half a" not in json.dumps([request["messages"] for request in server.requests])
    assert isinstance(events[-1], RunFinished)


def on_screen(events: list[Event]) -> str:
    text, whole = "", ""
    for event in events:
        if isinstance(event, TextDelta):
            text = event.text if event.reset else text + event.text
        elif isinstance(event, ModelReply):
            whole, text = whole + text, ""
    return whole


@pytest.mark.parametrize("name", TROUBLE)
def test_each_trouble_in_the_middle_of_a_task(name: str, tmp_path: Path) -> None:
    notes = Notes()
    with provider(TROUBLE[name], GOOD[0], TROUBLE[name], TROUBLE[name], GOOD[1], TROUBLE[name], final) as server:
        events = go(server, tmp_path, notes)
    assert (events[-1].status, events[-1].text) == ("done", "all is done")  # type: ignore[attr-defined]
    assert notes.taken == [1, 2, 3, 4]
    assert on_screen(events) == WORDS * 2 + "all is done"
    assert len(server.requests) >= 7
    assert_sound(events, server, tmp_path)
    if name == "429 for a second":
        assert server.times[1] - server.times[0] >= 1


@pytest.mark.parametrize("seed", range(3))
def test_a_task_among_troubles_of_every_kind(seed: int, tmp_path: Path) -> None:
    chance, notes = random.Random(seed), Notes()
    played: list[Behaviour] = []
    for good in [*GOOD, final]:
        played += [*(TROUBLE[name] for name in chance.sample(sorted(TROUBLE), chance.randint(0, 3))), good]
    with provider(*played) as server:
        events = go(server, tmp_path, notes)
    last = events[-1]
    assert isinstance(last, RunFinished)
    assert (last.status, last.text) == ("done", "all is done")
    assert notes.taken == list(range(1, 10))
    assert on_screen(events) == WORDS * len(GOOD) + "all is done"
    assert len(server.requests) == len(played)
    replies = [event for event in events if isinstance(event, ModelReply)]
    assert [(reply.input_tokens, reply.output_tokens) for reply in replies] == [(100, 5)] * 6
    assert (last.usage["input_tokens"], last.usage["output_tokens"]) == (600, 30)
    assert_sound(events, server, tmp_path)


def test_a_server_that_does_not_stream_is_asked_again_for_the_whole(tmp_path: Path) -> None:
    def whole(exchange: Exchange) -> None:
        answered = any(message["role"] == "tool" for message in exchange.body["messages"])
        calls = [{k: v for k, v in piece(0, 1, "c0").items() if k != "index"}]
        message = {"content": "all is done"} if answered else {"content": None, "tool_calls": calls}
        choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
        body = {"id": "x", "object": "chat.completion", "created": 1, "model": "fake", "choices": [choice]}
        exchange.answer(200, "application/json", json.dumps({**body, "usage": usage(5)}))

    notes = Notes()
    with provider(whole) as server:
        events = go(server, tmp_path, notes)
    assert (events[-1].text, notes.taken) == ("all is done", [1])  # type: ignore[attr-defined]
    assert [request["stream"] for request in server.requests if request.get("stream")] == [True, True]
    assert_sound(events, server, tmp_path)


def test_thoughts_signed_by_anthropic_go_back_whole(tmp_path: Path) -> None:
    def said(exchange: Exchange, *events: dict[str, Any]) -> None:
        exchange.begin()
        start = {"id": "m", "type": "message", "role": "assistant", "model": "x", "content": [], "stop_reason": None}
        tokens = {"usage": {"input_tokens": 100, "output_tokens": 1}}
        stop = (
            "tool_use"
            if any(event.get("content_block", {}).get("type") == "tool_use" for event in events)
            else "end_turn"
        )
        end = {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 5}}
        for event in (
            {"type": "message_start", "message": {**start, **tokens}},
            *events,
            end,
            {"type": "message_stop"},
        ):
            exchange.raw(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n")

    def block(index: int, kind: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
        begin = {"type": "content_block_start", "index": index, "content_block": kind}
        pieces = [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        return [begin, *pieces, {"type": "content_block_stop", "index": index}]

    def thinks(exchange: Exchange) -> None:
        thought = [{"type": "thinking_delta", "thinking": part} for part in ("let me ", "think")]
        thought.append({"type": "signature_delta", "signature": "c2ln"})
        call = [{"type": "input_json_delta", "partial_json": part} for part in ('{"n"', ": 1}")]
        said(
            exchange,
            *block(0, {"type": "thinking", "thinking": "", "signature": ""}, *thought),
            *block(1, {"type": "tool_use", "id": "toolu_1", "name": "note", "input": {}}, *call),
        )

    def checks(exchange: Exchange) -> None:
        reply = next(message for message in exchange.body["messages"] if message["role"] == "assistant")
        if {"type": "thinking", "thinking": "let me think", "signature": "c2ln"} not in reply["content"]:
            exchange.fail(400, f"messages.1.content.0: expected thinking, got {reply['content']}")
            return
        said(exchange, *block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "all is done"}))

    notes = Notes()
    with provider(thinks, fails(529, "overloaded"), checks) as server:
        options = {"api_key": "sk-test-1234", "thinking": {"type": "enabled", "budget_tokens": 1024}}
        model = LitellmModel("anthropic/claude-sonnet-4-5", api_base=server.url.removesuffix("/v1"), options=options)
        events = go(server, tmp_path, notes, model=model)
    assert (events[-1].status, events[-1].text, notes.taken) == ("done", "all is done", [1])  # type: ignore[attr-defined]
    log = load(next((tmp_path / ".opensage/sessions").glob("*.jsonl")))
    assert [event.id for event in log.events if isinstance(event, ToolResult)] == ["toolu_1"]


@pytest.mark.parametrize(
    ("status", "wording"),
    [
        (400, "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."),
        (400, "prompt is too long: 210000 tokens > 200000 maximum"),
        (400, "the request exceeds the available context size, try increasing it"),
        (413, "Request Entity Too Large"),
    ],
)
def test_probe_f2_overflow_in_a_run_makes_room_and_goes_on(status: int, wording: str, tmp_path: Path) -> None:
    @tool
    def note(n: int) -> str:
        """Take a note."""
        return f"{n}: " + "much " * 2000

    turns = [turn(number) for number in range(6)]
    refuse = fails(status, wording)
    with provider(*turns, refuse, final) as server:
        options: Any = {"model": remote(server), "workdir": tmp_path, "sandbox": "local", "tools": [note]}
        result = opensage.run("compare the notes", **options)
    assert (result.status, result.text) == ("done", "all is done")
    sizes = [len(json.dumps(request["messages"])) for request in server.requests]
    assert sizes[-1] < sizes[-2] / 1.2
    assert "compare the notes" in json.dumps(server.requests[-1])
    assert_sound(result.events, server, tmp_path)


def test_trouble_without_end_ends_the_run_and_a_resume_goes_on(tmp_path: Path) -> None:
    notes = Notes()
    with provider(GOOD[0], *[fails(500, "oops")] * 5) as server:
        with pytest.raises(ModelError, match="given up after 5 tries") as caught:
            go(server, tmp_path, notes)
        assert caught.value.status == 500
        assert len(server.requests) == 6
    session = next((tmp_path / ".opensage/sessions").glob("*.jsonl")).stem
    with provider(final) as server:
        events = go(server, tmp_path, notes, task=None, session=session)
        assert_sound(events, server, tmp_path)
    assert notes.taken == [1, 2]
    assert (events[-1].status, events[-1].text) == ("done", "all is done")  # type: ignore[attr-defined]


def test_a_bad_request_is_not_tried_again(tmp_path: Path) -> None:
    with provider(fails(400, "Invalid value for 'tools[0].function.name'")) as server:
        with pytest.raises(ModelError, match="Invalid value"):
            go(server, tmp_path, Notes())
    assert len(server.requests) == 1


def test_time_is_up_while_a_stream_stalls(tmp_path: Path) -> None:
    began = time.monotonic()
    with provider(GOOD[0], stalls) as server:
        model = remote(server, idle=60)
        events = go(server, tmp_path, Notes(), model=model, limits=Limits(max_seconds=0.8))
    assert time.monotonic() - began < 4
    assert events[-1].status == "limit"  # type: ignore[attr-defined]
    assert_sound(events, server, tmp_path)


def test_probe_c7_cancelled_in_a_stall_the_half_call_is_never_run(tmp_path: Path) -> None:
    notes = Notes()

    async def interrupted(server: Provider) -> str:
        options: Any = {"model": remote(server), "workdir": tmp_path, "sandbox": "local", "tools": [notes.tool()]}
        async with aclosing(opensage.stream("take notes", **options)) as events:  # type: ignore[type-var]
            async for event in events:
                if isinstance(event, TextDelta) and "half" in event.text:
                    break
        return next((tmp_path / ".opensage/sessions").glob("*.jsonl")).stem

    with provider(GOOD[0], stalls, GOOD[4], final) as server:
        session = asyncio.run(interrupted(server))
        events = go(server, tmp_path, notes, task="go on", session=session)
    assert notes.taken == [1, 2, 9]
    assert_sound(events, server, tmp_path)


def test_the_command_line_among_troubles(tmp_path: Path) -> None:
    def shell(exchange: Exchange) -> None:
        exchange.begin()
        arguments = json.dumps({"command": "echo line >> made.txt; cat made.txt"})
        call = {"index": 0, "id": "c0", "type": "function", "function": {"name": "shell", "arguments": arguments}}
        exchange.delta({"role": "assistant", "content": WORDS, "tool_calls": [call]}, "tool_calls")
        exchange.end(usage(5))

    root = Path(__file__).parents[3]
    key = "sk-test-of-the-command-line"
    with provider(
        fails(429, "slow down", Retry_After="0"), shell, half, answers(502, "text/html", "<html>"), shell, final
    ) as server:
        env = {
            **{k: v for k, v in os.environ.items() if not k.startswith("OPENSAGE_")},
            "OPENSAGE_HOME": str(tmp_path / "home"),
            "OPENAI_API_KEY": key,
            "OPENAI_BASE_URL": server.url,
            "PYTHONPATH": os.pathsep.join([str(root), str(root / "memory")]),
        }
        words = ["run", "write lines", "-m", "openai/fake-1", "--sandbox", "bubblewrap", "--json"]
        done = subprocess.run(
            [sys.executable, "-m", "opensage", *words],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert (events[-1]["status"], events[-1]["text"]) == ("done", "all is done")
    assert (tmp_path / "made.txt").read_text() == "line\nline\n"
    assert len([event for event in events if event["type"] == "tool.result"]) == 2
    assert "trying again" in done.stdout
    assert key not in done.stdout + done.stderr
    assert_paired(server)  # type: ignore[arg-type]
