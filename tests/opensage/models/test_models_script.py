"""Scripts: every field of a turn, the agents form, Python scripts, and mistakes named by their place."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opensage.errors import ContextOverflow, MissingKey, ModelError, OpenSageError, ScriptError
from opensage.messages import Reply, Request, Usage
from opensage.models import Assembler, ScriptedModel, load_script, open_model
from opensage.protocols import Model

ASK = Request(messages=[{"role": "user", "content": "hi"}])


async def assemble(model: Model, request: Request = ASK) -> Reply:
    assembler = Assembler()
    async for delta in model.stream(request):
        assembler.feed(delta)
    return assembler.reply()


def ask(model: Model, request: Request = ASK) -> Reply:
    return asyncio.run(assemble(model, request))


def script(tmp_path: Path, content: Any, name: str = "script.json") -> Path:
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_a_turn_with_everything() -> None:
    turn = {
        "text": "Adding.",
        "tool_calls": [
            {"id": "c1", "name": "add", "arguments": {"a": 1}},
            {"id": None, "name": "add", "arguments": '{"a": '},
            {"name": ""},
        ],
        "usage": {"input_tokens": 5, "output_tokens": 2, "cost": 0.01},
        "delay_s": 0.05,
    }
    model = ScriptedModel([turn], context_window=100)
    started = time.monotonic()
    reply = ask(model)
    assert time.monotonic() - started >= 0.05
    assert [(c.id, c.name, c.arguments) for c in reply.calls] == [
        ("c1", "add", '{"a": 1}'),
        ("call_2", "add", '{"a": '),
        ("call_3", "", "{}"),
    ]
    assert (reply.text, reply.finish_reason, reply.usage) == ("Adding.", "tool_calls", Usage(5, 2, 0, 0.01))
    assert (model.name, model.context_window) == ("script", 100)
    assert isinstance(model, Model)


def test_an_empty_turn_is_an_empty_reply_and_costs_nothing() -> None:
    reply = ask(ScriptedModel([{}]))
    assert reply == Reply(finish_reason="stop", usage=Usage(cost=0.0))


def test_an_unknown_cost_is_none() -> None:
    assert ask(ScriptedModel([{"usage": {"input_tokens": 1, "cost": None}}])).usage.cost is None


def test_requests_are_kept_in_openai_form() -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
    tool = {"type": "function", "function": {"name": "add", "description": "", "parameters": {}}}
    model = ScriptedModel([{"repeat": {"text": "ok"}, "times": 2}])
    ask(model, Request(messages=messages, tools=[tool]))
    ask(model, Request(messages=[*messages, {"role": "assistant", "content": "ok", "_extra": {"a": 1}}]))
    assert model.requests[0] == {"model": "script", "messages": messages, "tools": [tool]}
    assert model.requests[1]["messages"][1] == {"role": "assistant", "content": "ok"}


def test_past_its_end_names_the_call() -> None:
    model = ScriptedModel([{"text": "one"}])
    ask(model)
    with pytest.raises(ScriptError, match=r"past its end: call 2 came, and it has 1 turns"):
        ask(model)


def test_repeat_a_number_of_times_and_for_ever() -> None:
    model = ScriptedModel([{"repeat": {"text": "a"}, "times": 2}, {"repeat": {"text": "b"}, "times": -1}])
    assert [ask(model).text for _ in range(5)] == ["a", "a", "b", "b", "b"]
    assert ask(ScriptedModel([{"repeat": {"text": "a"}, "times": 0}, {"text": "c"}])).text == "c"


def test_each_agent_plays_its_own_turns() -> None:
    model = ScriptedModel(
        {"agents": {"main": [{"text": "m1"}, {"text": "m2"}], "helper": [{"text": "h1"}]}, "default": [{"text": "d"}]}
    )
    names = ["main", "helper", "other", "main", "third"]
    assert [ask(model, Request(messages=[], agent=n)).text for n in names] == ["m1", "h1", "d", "m2", "d"]
    with pytest.raises(ScriptError, match="default for 'other'"):
        ask(model, Request(messages=[], agent="other"))
    with pytest.raises(ScriptError, match="no turns for agent 'x'"):
        ask(ScriptedModel({"agents": {"main": []}}), Request(messages=[], agent="x"))


def test_raw_chunks_are_streamed_as_a_provider_would() -> None:
    chunks = [
        {"choices": [{"delta": {"content": "hel"}}]},
        {"content": "lo"},
        {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x"'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}], "delay_s": 0.01},
        {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]},
        {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}},
    ]
    reply = ask(ScriptedModel([{"chunks": chunks}]))
    assert (reply.text, reply.calls[0].arguments, reply.finish_reason) == ("hello", '{"x": 1}', "tool_calls")
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (3, 4)


def test_errors_are_those_of_a_provider() -> None:
    turns = [
        {"error": {"status": 429, "message": "slow down", "retry_after": 2}},
        {"error": {"status": 400, "message": "This model's maximum context length is 10 tokens"}},
        {"error": {"status": 401, "message": "no"}},
        {"text": "half", "error": {"status": 500, "message": "oops"}},
    ]
    model = ScriptedModel(turns)
    with pytest.raises(ModelError) as busy:
        ask(model)
    assert (busy.value.retryable, busy.value.retry_after, busy.value.status) == (True, 2.0, 429)
    with pytest.raises(ContextOverflow):
        ask(model)
    with pytest.raises(MissingKey):
        ask(model)
    with pytest.raises(ModelError, match="oops"):
        ask(model)


def test_a_python_script_sees_the_request(tmp_path: Path) -> None:
    source = "def reply(request):\n    return {'text': request['messages'][-1]['content'].upper() + request.model}\n"
    path = script(tmp_path, source, "s.py")
    model = open_model(f"script:{path}")
    assert ask(model).text == f"HIscript:{path}"
    assert model.requests[0]["messages"] == ASK.messages  # type: ignore[attr-defined]


def test_a_json_script_by_its_model_string(tmp_path: Path) -> None:
    path = script(tmp_path, [{"text": "ok"}])
    assert ask(open_model(f"script:{path}")).text == "ok"


BAD = [
    ("{", "not valid JSON"),
    ("3", "list of turns"),
    ("{}", "list of turns"),
    ('{"agent": []}', "list of turns"),
    ('["x"]', "turn 1: a turn is an object"),
    ('[{}, {"txt": "x"}]', "turn 2: unknown field 'txt'"),
    ('[{"text": 3}]', "turn 1: 'text' is a string, not a number"),
    ('[{"tool_calls": [{"name": 3}]}]', "turn 1, tool call 1"),
    ('[{"tool_calls": {}}]', "turn 1: 'tool_calls' is a list"),
    ('[{"repeat": {}, "times": 1.5}]', "turn 1: 'times'"),
    ('[{"repeat": []}]', "turn 1: 'repeat'"),
    ('[{"delay_s": -1}]', "turn 1: 'delay_s'"),
    ('[{"delay_s": 1e999}]', "turn 1: 'delay_s'"),
    ('[{"error": {"status": "x"}}]', "turn 1: 'error.status'"),
    ('[{"usage": {"cost": "x"}}]', "turn 1: 'usage.cost'"),
    ('[{"python": "print()"}]', "turn 1: unknown field 'python'"),
    ('{"agents": {"main": [{"x": 1}]}}', "agent 'main', turn 1"),
    ("[" * 100_000, "not valid JSON"),
]


@pytest.mark.parametrize(("content", "said"), BAD)
def test_a_malformed_script_names_file_and_place(tmp_path: Path, content: str, said: str) -> None:
    path = script(tmp_path, content)
    with pytest.raises(ScriptError, match=r".") as caught:
        load_script(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def reply(", "cannot be loaded"),
        ("x = 1", "must define"),
        ("1/0", "ZeroDivisionError"),
        ("reply = 3", "must define"),
    ],
)
def test_a_malformed_python_script_is_named(tmp_path: Path, source: str, said: str) -> None:
    with pytest.raises(ScriptError, match=said):
        load_script(script(tmp_path, source, "s.py"))


def test_a_python_script_that_fails_is_named(tmp_path: Path) -> None:
    for body, said in (("return 3", "call 1: a turn is an object"), ("return request['nope']", "KeyError")):
        model = load_script(script(tmp_path, f"def reply(request):\n    {body}\n", "s.py"))
        with pytest.raises(ScriptError, match=said):
            ask(model)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(ScriptError, match="cannot be read"):
            load_script(path)
    (tmp_path / "latin.json").write_bytes(b'[{"text": "\xff"}]')
    with pytest.raises(ScriptError, match="not UTF-8"):
        load_script(tmp_path / "latin.json")
    (tmp_path / "bom.json").write_bytes(b"\xef\xbb\xbf" + b'[{"text": "ok"}]')
    assert ask(load_script(tmp_path / "bom.json")).text == "ok"


def test_a_scripted_turn_is_cheap() -> None:
    model = ScriptedModel([{"repeat": {"tool_calls": [{"name": "add", "arguments": {"a": 1}}]}, "times": -1}])

    async def turns(count: int) -> float:
        started = time.process_time()
        for _ in range(count):
            await assemble(model)
        return (time.process_time() - started) / count

    asyncio.run(turns(100))
    assert asyncio.run(turns(2000)) < 0.0002


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
FIELDS = st.sampled_from(
    [
        "text",
        "tool_calls",
        "finish_reason",
        "usage",
        "delay_s",
        "error",
        "chunks",
        "repeat",
        "times",
        "agents",
        "default",
        "name",
        "arguments",
        "id",
        "status",
        "retry_after",
        "cost",
        "input_tokens",
        "choices",
        "delta",
        "main",
        "zzz",
    ]
)
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=4), max_leaves=15
)


@settings(max_examples=400, deadline=None)
@given(ANYTHING)
def test_fuzzed_scripts_load_or_say_why(tmp_path_factory: pytest.TempPathFactory, raw: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.json"
    path.write_text(json.dumps(raw), encoding="utf-8")
    try:
        load_script(path)
    except OpenSageError as error:
        said = str(error)
    else:
        said = str(path)
    assert str(path) in said


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_fuzzed_bytes_load_or_say_why(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz-bytes.json"
    path.write_bytes(raw)
    try:
        load_script(path)
    except OpenSageError as error:
        said = str(error)
    else:
        said = str(path)
    assert str(path) in said
