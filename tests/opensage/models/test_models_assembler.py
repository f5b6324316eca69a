"""The stream assembler: every provider's way of streaming calls, and no sequence that makes it raise."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opensage.messages import CallChunk, Delta, Reply, Usage
from opensage.models.assembler import Assembler, normalise_finish
from opensage.models.openai_chunks import delta_from_chunk, wire


def assemble(*deltas: Delta) -> Reply:
    assembler = Assembler()
    for delta in deltas:
        assembler.feed(delta)
    return assembler.reply()


def calls(*chunks: CallChunk) -> list[tuple[str, str, str]]:
    reply = assemble(*(Delta(calls=(chunk,)) for chunk in chunks), Delta(finish_reason="tool_calls"))
    return [(c.id, c.name, c.arguments) for c in reply.calls]


def test_probe_c1_interleaved_indices_are_two_calls() -> None:
    assert calls(
        CallChunk(0, "a", "one", ""),
        CallChunk(1, "b", "two", ""),
        CallChunk(0, None, None, '{"x"'),
        CallChunk(1, None, None, '{"y"'),
        CallChunk(0, None, None, ": 1}"),
        CallChunk(1, None, None, ": 2}"),
    ) == [("a", "one", '{"x": 1}'), ("b", "two", '{"y": 2}')]


def test_probe_c3_the_last_complete_object_wins() -> None:
    stock = '{"stock":"MSFT"}'
    assert calls(CallChunk(0, "a", "price", "{}"), CallChunk(0, "a", None, stock)) == [("a", "price", stock)]
    assert calls(CallChunk(0, "a", "price", {}), CallChunk(0, "a", "price", {"stock": "MSFT"})) == [
        ("a", "price", '{"stock": "MSFT"}')
    ]
    assert (
        calls(CallChunk(0, "a", "price", "{}"), CallChunk(0, None, None, '{"sto'), CallChunk(0, arguments='ck":1}'))[0][
            2
        ]
        == '{"stock":1}'
    )


def test_nested_objects_in_pieces_are_not_taken_for_complete_ones() -> None:
    pieces = ['{"a": ', "{}", ', "b": ', '{"c": 1}', "}"]
    assert calls(CallChunk(0, "x", "f"), *(CallChunk(0, arguments=p) for p in pieces))[0][2] == "".join(pieces)


def test_without_an_index_the_id_tells_calls_apart() -> None:
    assert calls(
        CallChunk(None, "a", "one", '{"x":'),
        CallChunk(None, "b", "two", '{"y":'),
        CallChunk(None, "a", None, "1}"),
        CallChunk(None, "b", None, "2}"),
    ) == [("a", "one", '{"x":1}'), ("b", "two", '{"y":2}')]


def test_without_index_and_id_complete_calls_stay_apart() -> None:
    assert calls(CallChunk(name="ls", arguments={"p": 1}), CallChunk(name="ls", arguments={"p": 2})) == [
        ("call_1", "ls", '{"p": 1}'),
        ("call_2", "ls", '{"p": 2}'),
    ]
    assert [c[1] for c in calls(CallChunk(name="a", arguments={}), CallChunk(name="b", arguments={}))] == ["a", "b"]


def test_every_call_at_index_zero_is_told_apart_by_its_id() -> None:
    assert calls(CallChunk(0, "a", "f", '{"x":1}'), CallChunk(0, "b", "g", '{"x":2}')) == [
        ("a", "f", '{"x":1}'),
        ("b", "g", '{"x":2}'),
    ]


def test_one_id_for_two_calls_is_made_two_ids() -> None:
    assert calls(CallChunk(0, "c0", "f", "{}"), CallChunk(1, "c0", "g", "{}"), CallChunk(2, "c0_2", "h", "{}")) == [
        ("c0", "f", "{}"),
        ("c0_3", "g", "{}"),
        ("c0_2", "h", "{}"),
    ]
    assert [c[0] for c in calls(CallChunk(None, "c", "f", '{"x":1}'), CallChunk(None, "c", "g", '{"x":1}'))] == [
        "c",
        "c_2",
    ]
    assert [c[0] for c in calls(CallChunk(0, None, "f", "{}"), CallChunk(1, "call_1", "g", "{}"))] == [
        "call_1_2",
        "call_1",
    ]


def test_names_in_pieces_and_repeated_names() -> None:
    assert calls(CallChunk(0, "a", "get_"), CallChunk(0, None, "weather"), CallChunk(0, arguments="{}"))[0][1] == (
        "get_weather"
    )
    assert calls(CallChunk(0, "a", "f", '{"x"'), CallChunk(0, "a", "f", ":1}"))[0] == ("a", "f", '{"x":1}')
    assert calls(CallChunk(0, "a", "get"), CallChunk(0, "a", "get_weather", "{}"))[0][1] == "get_weather"


@pytest.mark.parametrize("arguments", [[], "x", None, 3, True, '"x"', "null"])
def test_arguments_that_are_no_object_reach_dispatch(arguments: Any) -> None:
    found = calls(CallChunk(0, "a", "f", arguments))
    expected = "{}" if arguments is None else arguments if isinstance(arguments, str) else json.dumps(arguments)
    assert found == [("a", "f", expected)]


def test_usage_is_cumulative_and_the_last_wins() -> None:
    reply = assemble(Delta(usage=Usage(10, 1)), Delta(usage=Usage(10, 5)), Delta(usage=Usage(0, 9, cost=None)))
    assert reply.usage == Usage(10, 9, cost=None)


@pytest.mark.parametrize(
    ("said", "means"),
    [
        ("end_turn", "stop"),
        ("MAX_TOKENS", "length"),
        ("max_tokens", "length"),
        ("tool_use", "tool_calls"),
        ("SAFETY", "content_filter"),
        ("", "stop"),
        (None, "stop"),
        ("something new", "stop"),
    ],
)
def test_finish_reasons_are_normalised(said: str | None, means: str) -> None:
    assert normalise_finish(said) == means


def test_the_finish_reason_fits_the_calls() -> None:
    call = Delta(calls=(CallChunk(0, "a", "f", "{}"),))
    assert assemble(call, Delta(finish_reason="stop")).finish_reason == "tool_calls"
    assert assemble(Delta(text="x"), Delta(finish_reason="tool_calls")).finish_reason == "stop"


def test_half_calls_at_length_are_kept_and_marked() -> None:
    half = Delta(calls=(CallChunk(0, "a", "f", '{"x": "un'),))
    reply = assemble(half, Delta(finish_reason="max_tokens"))
    assert (reply.finish_reason, reply.calls[0].arguments) == ("length", '{"x": "un')
    assert assemble(half).finish_reason == "length"
    assert assemble(half, Delta(finish_reason="tool_calls")).finish_reason == "tool_calls"


@pytest.mark.parametrize("text", ["", " ", "\n\n"])
def test_probe_a18_empty_text_is_not_kept(text: str) -> None:
    assert assemble(Delta(text=text), Delta(text="")).text == ""


def test_reset_forgets_everything() -> None:
    before = Delta(text="a", calls=(CallChunk(0, "a", "f", "{}"),), usage=Usage(1, 1), extra={"k": [1]})
    assert assemble(before, Delta(reset=True, note="again"), Delta(text="b")) == Reply(text="b")


def test_opaque_fields_are_kept_per_message_and_per_call() -> None:
    reply = assemble(
        Delta(extra={"provider": "p", "reasoning_content": "I ", "thinking_blocks": [1]}),
        Delta(extra={"provider": "p", "reasoning_content": "think", "thinking_blocks": [2]}),
        Delta(calls=(CallChunk(0, "a", "f", "{}", extra={"signature": "s"}),)),
        Delta(calls=(CallChunk(0, extra={"more": 1}),)),
    )
    assert reply.extra == {"provider": "p", "reasoning_content": "I think", "thinking_blocks": [1, 2]}
    assert reply.calls[0].extra == {"signature": "s", "more": 1}


def test_the_work_per_chunk_is_constant() -> None:
    def seconds(count: int) -> float:
        assembler = Assembler()
        started = time.process_time()
        for _ in range(count):
            assembler.feed(Delta(text="word ", calls=(CallChunk(0, None, None, "piece{} "),)))
        assembler.reply()
        return time.process_time() - started

    seconds(1000)
    assert seconds(100_000) < 30 * max(seconds(10_000), 0.005)


def test_chunks_with_nulls_and_wrong_types_are_read() -> None:
    for raw in (
        {"choices": None},
        {"choices": []},
        {"choices": [None]},
        {"choices": [{"delta": None, "finish_reason": None}]},
        {"choices": [{"delta": {"content": None, "tool_calls": None}}]},
        {"choices": [{"delta": {"tool_calls": [None, {"index": "x", "function": None}]}}]},
        {"usage": None},
        {"content": [{"type": "text", "text": "a"}, {"type": "image"}]},
    ):
        delta_from_chunk(raw)


def test_our_notes_never_leave() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}, "_extra": {"s": 1}}
    message = {"role": "assistant", "content": "", "tool_calls": [call], "_extra": {"t": 1}}
    assert "_extra" not in str(wire([message]))
    assert "_extra" in message


ARGUMENTS = st.one_of(
    st.none(),
    st.text(max_size=8),
    st.sampled_from(["{}", "{", "}", '{"a": 1}', '{"a"', ": 1}", "[1]", "null", " "]),
    st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3), max_size=2),
    st.lists(st.integers(), max_size=2),
)
CHUNKS = st.builds(
    CallChunk,
    index=st.none() | st.integers(-1, 3),
    id=st.none() | st.sampled_from(["", "a", "b", "call_1", "a_2"]),
    name=st.none() | st.sampled_from(["", "f", "g", "get_", "get_weather"]),
    arguments=ARGUMENTS,  # type: ignore[arg-type]
    extra=st.none() | st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
)
DELTAS = st.builds(
    Delta,
    text=st.text(max_size=4),
    calls=st.lists(CHUNKS, max_size=3),
    finish_reason=st.none() | st.sampled_from(["stop", "length", "tool_use", "?"]),
    usage=st.none() | st.builds(Usage, st.integers(0, 9), st.integers(0, 9)),
    extra=st.none()
    | st.dictionaries(
        st.sampled_from(["a", "reasoning_content"]), st.text(max_size=2) | st.lists(st.integers(), max_size=2)
    ),
    reset=st.booleans(),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(DELTAS, max_size=12))
def test_no_sequence_raises_and_ids_are_unique(deltas: list[Delta]) -> None:
    reply = assemble(*deltas)
    ids = [call.id for call in reply.calls]
    assert all(ids)
    assert len(ids) == len(set(ids))
    assert all(isinstance(call.arguments, str) for call in reply.calls)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=30), st.lists(st.integers(1, 6), max_size=10), st.integers(0, 3))
def test_arguments_cut_anywhere_come_back_whole(value: str, cuts: list[int], index: int) -> None:
    text = json.dumps({"value": value, "inner": {"a": [1, {}]}})
    pieces, rest = [], text
    for cut in cuts:
        pieces.append(rest[:cut])
        rest = rest[cut:]
    chunks = [CallChunk(index, arguments=piece) for piece in [*pieces, rest]]
    assert calls(CallChunk(index, "a", "f"), *chunks) == [("a", "f", text)]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "delta", "content", "tool_calls", "function", "name", "arguments", "index", "id", "usage"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(["choices", "usage", "content", "tool_calls", "x"]), JSON))
def test_no_chunk_makes_the_reader_raise(raw: dict[str, Any]) -> None:
    assemble(delta_from_chunk(raw))
