"""Local models: what they are shown, what is read back, and (live) a real model in this process."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opensage.errors import ContextOverflow, ModelError
from opensage.messages import Delta, Reply, Request, ToolCall
from opensage.models import Assembler, LocalModel, pull
from opensage.models.local_prompt import build, shorten, simplify
from opensage.models.local_stream import ConstrainedReader, StringDecoder
from opensage.models.text_calls import calls_in_text, recover_calls


def tool(name: str, description: str = "Does it.", **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(properties)[:1]}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


SHELL = tool(
    "shell", "Run a shell command. More words that cost time.", command={"type": "string"}, timeout={"type": "integer"}
)
READ = tool("read", "Read a file.", path={"type": "string"})
FINISH = tool("finish", "End.", text={"type": "string"})
HISTORY: list[dict[str, Any]] = [
    {"role": "system", "content": "You are an agent."},
    {"role": "user", "content": "How many files are here?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "shell", "arguments": '{"command": "ls"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "a", "content": "x.py\ny.py"},
]


# --- calls printed as text


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "shell", "arguments": {"command": "ls"}}',
        '  {"name": "shell", "parameters": {"command": "ls"}}\n',
        '```json\n{"name": "shell", "arguments": {"command": "ls"}}\n```',
        'I look.\n```json\n{"name": "shell", "arguments": {"command": "ls"}}\n```',
        '<tool_call>\n{"name": "shell", "arguments": {"command": "ls"}}\n</tool_call>',
        'Sure! <tool_call>{"name": "shell", "arguments": {"command": "ls"}}',
        '{"type": "function", "function": {"name": "shell", "arguments": "{\\"command\\": \\"ls\\"}"}}',
        '{"tool": "shell", "args": {"command": "ls"}}',
    ],
)
def test_probe_n4_a_call_printed_as_text_is_a_call(text: str) -> None:
    reply = recover_calls(Reply(text=text), ["shell"])
    assert [(c.name, json.loads(c.arguments)) for c in reply.calls] == [("shell", {"command": "ls"})]
    assert reply.finish_reason == "tool_calls"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain",
        '{"name": "Bob", "age": 3}',
        "[1, 2]",
        '{"a": 1}',
        'Such a call looks so: {"name": "shell", "arguments": {}}',
        'An example:\n```json\n{"name": "frobnicate", "arguments": {}}\n```',
        'Example:\n```json\n{"name": "shell", "arguments": {}}\n```\nand then more text',
        "```python\nprint(1)\n```",
        '{"name": "shell", "arguments": {"command": "ls"}, "price": 3}',
    ],
)
def test_probe_n4_an_ordinary_answer_stays_one(text: str) -> None:
    assert recover_calls(Reply(text=text), ["shell"]) == Reply(text=text)


def test_wrong_names_and_several_calls_are_left_for_dispatch() -> None:
    assert calls_in_text('{"name": "no_such", "arguments": {}}', ["shell"]) == [ToolCall("call_1", "no_such", "{}")]
    two = '<tool_call>{"name": "a", "arguments": {}}</tool_call>\n<tool_call>{"name": "b", "arguments": {}}</tool_call>'
    assert [c.name for c in calls_in_text(two, [])] == ["a", "b"]
    lines = '{"name": "shell", "arguments": {}}\n{"name": "read", "arguments": {}}'
    assert [c.name for c in calls_in_text(lines, ["shell", "read"])] == ["shell", "read"]
    broken = calls_in_text('<tool_call>{"name": "shell", "arguments": {"command": "ls</tool_call>', ["shell"])
    assert broken == [ToolCall("call_1", "shell", '{"command": "ls')]


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet='{}[]"\\`<tool_call>/ namergus:,\n', max_size=80))
def test_no_text_makes_the_reader_raise(text: str) -> None:
    calls_in_text(text, ["shell"])


# --- what the model is shown


def test_the_history_is_shown_in_the_form_that_is_asked_for() -> None:
    prompt = build(Request(messages=HISTORY, tools=[SHELL, READ, FINISH]))
    assert [m["role"] for m in prompt.messages] == ["system", "user", "assistant", "user"]
    system = prompt.messages[0]["content"]
    assert system.startswith("You are an agent.")
    assert "- shell(command, timeout?): Run a shell command.\n" in system
    assert "finish" not in system
    assert "More words" not in system
    assert prompt.messages[2]["content"] == '{"name": "shell", "arguments": {"command": "ls"}}'
    assert prompt.messages[3]["content"] == "<tool_response>\nx.py\ny.py\n</tool_response>"
    assert prompt.answer == "answer"


def test_an_append_only_conversation_keeps_its_beginning() -> None:
    short = build(Request(messages=HISTORY[:2], tools=[SHELL]))
    long = build(Request(messages=HISTORY, tools=[SHELL]))
    assert long.messages[:2] == short.messages


def test_the_grammar_has_a_branch_for_each_tool_and_the_answer() -> None:
    prompt = build(Request(messages=HISTORY, tools=[SHELL, READ]))
    assert prompt.grammar is not None
    schema = json.loads(prompt.grammar.partition("%json ")[2])
    assert [b["properties"]["name"]["const"] for b in schema["anyOf"]] == ["shell", "read", "answer"]
    none = build(Request(messages=HISTORY, tools=[SHELL], tool_choice="none"))
    assert none.grammar is not None
    assert '"shell"' not in none.grammar
    assert none.messages[0] == build(Request(messages=HISTORY, tools=[SHELL])).messages[0]


def test_a_tool_named_answer_does_not_collide() -> None:
    assert build(Request(messages=HISTORY, tools=[tool("answer")])).answer == "final_answer"


def test_without_tools_the_answer_is_free_text() -> None:
    for prompt in (build(Request(messages=HISTORY)), build(Request(messages=HISTORY, tools=[SHELL]), tools=False)):
        assert prompt.grammar is None
        assert prompt.messages[0]["content"] == "You are an agent."


def test_odd_messages_are_made_to_alternate() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "a"},
        {"role": "user", "content": [{"type": "text", "text": "b"}]},
        {"role": "system", "content": "c"},
        {"role": "assistant", "content": ""},
        {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]},
    ]
    prompt = build(Request(messages=messages))
    assert [m["role"] for m in prompt.messages] == ["user", "assistant"]
    assert prompt.messages[0]["content"] == "a\nb\nc"


def test_long_results_are_shown_in_part_and_always_the_same_part() -> None:
    long = "\n".join(f"line {n}" for n in range(2000))
    first = build(Request(messages=[*HISTORY[:3], {**HISTORY[3], "content": long}], tools=[SHELL]))
    said = first.messages[3]["content"]
    assert len(said) < 2200
    assert said.startswith("<tool_response>\nline 0\n")
    assert said.endswith("\nline 1999\n</tool_response>")
    assert "characters left out" in said
    later = [*HISTORY[:3], {**HISTORY[3], "content": long}, {"role": "assistant", "content": "ok"}]
    assert build(Request(messages=later, tools=[SHELL])).messages[:4] == first.messages
    assert shorten("x" * 5000, 1000).count("x") == 1000
    assert shorten("short", 1000) == "short"


def test_saying_the_same_twice_is_noticed() -> None:
    twice = [*HISTORY, HISTORY[2], HISTORY[3]]
    between = [{"role": "assistant", "tool_calls": [{"id": "b", "function": {"name": "read", "arguments": "{}"}}]}]
    between.append({"role": "tool", "tool_call_id": "b", "content": "text"})
    other = [*HISTORY, *between, HISTORY[2], {**HISTORY[3], "content": "another result"}]
    same = [*HISTORY, *between, HISTORY[2], HISTORY[3]]
    once = build(Request(messages=HISTORY, tools=[SHELL, READ]))
    again = build(Request(messages=twice, tools=[SHELL, READ]))
    assert (once.stuck, again.stuck) == (False, True)
    assert build(Request(messages=same, tools=[SHELL, READ])).stuck
    assert not build(Request(messages=other, tools=[SHELL, READ])).stuck
    assert again.grammar is not None
    assert '"shell"' not in again.grammar
    assert '"read"' in again.grammar
    assert "You have done this before" in again.messages[-1]["content"]
    assert not build(Request(messages=[*twice, {"role": "user", "content": "go on"}], tools=[SHELL])).stuck


@settings(max_examples=100, deadline=None)
@given(
    st.recursive(
        st.none() | st.text(max_size=3) | st.integers(),
        lambda inner: st.dictionaries(
            st.sampled_from(
                ["type", "properties", "items", "anyOf", "required", "$ref", "enum", "additionalProperties"]
            ),
            inner | st.lists(inner, max_size=2),
            max_size=4,
        ),
        max_leaves=8,
    )
)
def test_no_schema_makes_simplify_raise(schema: Any) -> None:
    simplify(schema)


@pytest.mark.parametrize("required", [1, "a", {"a": 1}, [["a"], {}, 3, "b"], None])
def test_what_is_required_wrongly_is_left_out(required: Any) -> None:
    assert simplify({"properties": {"a": {}}, "required": required})["required"] == []


# --- what is read back


def read_back(text: str, size: int, reason: str = "stop") -> tuple[Reply, list[Delta]]:
    reader, assembler, shown = ConstrainedReader("answer", ["shell"]), Assembler(), []
    for at in range(0, len(text), size):
        delta = reader.feed(text[at : at + size])
        if delta is not None:
            shown.append(delta)
            assembler.feed(delta)
    assembler.feed(reader.finish(reason))
    return assembler.reply(), shown


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40), st.integers(1, 7), st.booleans())
def test_an_answer_streams_as_it_is_written(said: str, size: int, plain: bool) -> None:
    text = json.dumps({"name": "answer", "arguments": {"text": said}}, ensure_ascii=plain)
    reply, _ = read_back(text, size)
    lone = said.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert reply.text == (lone if lone.strip() else "")
    assert not reply.calls


def test_an_answer_is_shown_before_it_is_whole() -> None:
    _, shown = read_back('{"name": "answer", "arguments": {"text": "one two three"}}', 4)
    assert len(shown) > 2


def test_a_constrained_call_is_a_call() -> None:
    reply, shown = read_back('{"name": "shell", "arguments": {"command": "ls"}}', 3)
    assert not shown
    assert [(c.name, c.arguments) for c in reply.calls] == [("shell", '{"command": "ls"}')]
    assert reply.finish_reason == "tool_calls"


def test_a_call_cut_by_the_token_limit_is_marked() -> None:
    reply, _ = read_back('{"name": "shell", "arguments": {"command": "l', 3, "length")
    assert reply.finish_reason == "length"
    assert (reply.calls[0].name, reply.calls[0].arguments) == ("shell", '{"command": "l')
    assert read_back('{"name": "answer", "arguments": {"text": "ab', 3, "length")[0] == Reply(
        text="ab", finish_reason="length"
    )


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet='\\u"D83dabn0 ', max_size=30), st.integers(1, 5))
def test_no_string_makes_the_decoder_raise(text: str, size: int) -> None:
    decoder = StringDecoder()
    for at in range(0, len(text), size):
        decoder.feed(text[at : at + size]).encode("utf-8")


# --- a machine without llama.cpp, and files that are none


def test_without_llama_cpp_the_fix_is_named(tmp_path: Path) -> None:
    (tmp_path / "xllamacpp.py").write_text("raise ImportError('no xllamacpp')", encoding="utf-8")
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    code = (
        "import asyncio; from opensage.models import open_model; from opensage.messages import Request\n"
        "async def go():\n"
        f"    model = open_model('local/{tmp_path}/x.gguf')\n"
        "    async for _ in model.stream(Request(messages=[{'role': 'user', 'content': 'x'}])): pass\n"
        "try: asyncio.run(go())\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    path = os.pathsep.join([str(tmp_path), *[p for p in sys.path if p]])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, check=True
    )
    assert done.stdout.startswith("ModelError local models need llama.cpp")
    assert "pip install 'opensage[local]'" in done.stdout


def test_a_file_that_is_no_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"this is no model")
    model = LocalModel(str(tmp_path / "x.gguf"))
    with pytest.raises(ModelError, match=r"x\.gguf cannot be loaded"):
        asyncio.run(collect(model, Request(messages=[{"role": "user", "content": "hi"}])))


# --- live


async def collect(model: LocalModel, request: Request) -> Reply:
    assembler = Assembler()
    async for delta in model.stream(request):
        assembler.feed(delta)
    return assembler.reply()


def user(text: str, *tools: dict[str, Any], **more: Any) -> Request:
    return Request(messages=[{"role": "user", "content": text}], tools=tools, **more)


@pytest.mark.live
def test_probe_g13_a_real_local_model_calls_answers_stops_and_costs_nothing() -> None:
    pull("qwen2.5-coder-0.5b")

    async def session() -> None:
        model = LocalModel("qwen2.5-coder-0.5b", context_window=2048)
        try:
            called = await collect(model, user("Run the command `pytest` in the shell.", SHELL, READ))
            assert called.calls[0].name == "shell"
            assert "pytest" in json.loads(called.calls[0].arguments)["command"]
            assert called.usage.cost == 0.0
            assert called.usage.input_tokens > 50
            answered = await collect(model, user("Run `pytest`", SHELL, READ, tool_choice="none"))
            assert answered.text
            assert not answered.calls
            cut = await collect(model, user("Write a long poem about the sea.", max_tokens=8))
            assert (cut.finish_reason, cut.usage.output_tokens) == ("length", 8)
            await stopped(model)
            with pytest.raises(ContextOverflow):
                await collect(model, user("word " * 4000))
            both = await asyncio.gather(*(collect(model, user("Say hi.", max_tokens=5)) for _ in range(2)))
            assert all(reply.text for reply in both)
        finally:
            await model.close()

    asyncio.run(session())


async def stopped(model: LocalModel) -> None:
    """Breaking off returns at once, and the next call is sound."""
    async with aclosing(model.stream(user("Count from 1 to 1000."))) as deltas:  # type: ignore[type-var]
        async for delta in deltas:
            if delta.text:
                break
        started = time.monotonic()
    assert time.monotonic() - started < 1
    assert (await collect(model, user("Say hi.", max_tokens=5))).text


@pytest.mark.live
def test_leaving_in_mid_generation_is_clean_and_quiet() -> None:
    pull("qwen2.5-coder-0.5b")
    code = (
        "import asyncio; from opensage.models import LocalModel; from opensage.messages import Request\n"
        "async def go():\n"
        "    async for d in LocalModel('qwen2.5-coder-0.5b', context_window=2048).stream(\n"
        "        Request(messages=[{'role': 'user', 'content': 'Count from 1 to 1000.'}])):\n"
        "        if d.text: return\n"
        "asyncio.run(go()); print('left')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "left\n", "")
