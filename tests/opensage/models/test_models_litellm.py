"""The real litellm against a real server that misbehaves. One module, so that its slow import is paid once."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from email.utils import formatdate
from typing import Any

import pytest
from model_servers import Exchange, provider

from opensage.errors import ContextOverflow, MissingKey, ModelError, ModelNotFound
from opensage.messages import Reply, Request
from opensage.models import Assembler, Gate, IdleTimeout, LitellmModel, Retrying, open_model
from opensage.protocols import Model

TOOL = {
    "type": "function",
    "function": {"name": "add", "description": "Add.", "parameters": {"type": "object", "properties": {}}},
}
ASK = Request(messages=[{"role": "user", "content": "hi"}], tools=[TOOL])


def remote(url: str, name: str = "openai/fake-1") -> LitellmModel:
    return LitellmModel(name, api_base=url, options={"api_key": "sk-test"})


async def assemble(model: Model, request: Request = ASK) -> Reply:
    assembler = Assembler()
    try:
        async for delta in model.stream(request):
            assembler.feed(delta)
    finally:
        await model.close()
    return assembler.reply()


def ask(model: Model, request: Request = ASK) -> Reply:
    return asyncio.run(assemble(model, request))


def says(text: str) -> Any:
    def behaviour(exchange: Exchange) -> None:
        exchange.begin()
        exchange.delta({"role": "assistant", "content": ""})
        for word in text.split(" "):
            exchange.delta({"content": word + " "})
        exchange.delta({}, "stop")
        exchange.end({"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18})

    return behaviour


def fails(status: int, message: str, headers: dict[str, str] | None = None) -> Any:
    return lambda exchange: exchange.fail(status, message, headers)


def piece(index: int, arguments: str, **more: Any) -> dict[str, Any]:
    call_id = more.pop("id", None)
    name = more.pop("name", None)
    function = {"arguments": arguments} | ({"name": name} if name else {})
    return {"index": index, "function": function, **({"id": call_id, "type": "function"} if call_id else {}), **more}


def test_a_plain_reply_with_usage_and_unknown_price() -> None:
    with provider(says("hello there")) as server:
        reply = ask(remote(server.url))
    assert reply.text == "hello there "
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.cost) == (11, 7, None)
    sent = server.requests[0]
    assert sent["stream"] is True
    assert sent["stream_options"] == {"include_usage": True}
    assert sent["tools"][0]["function"]["name"] == "add"


def test_a_known_price_is_counted() -> None:
    with provider(says("hello")) as server:
        reply = ask(remote(server.url, "openai/gpt-4o-mini"))
    assert reply.usage.cost == pytest.approx(11 * 0.15e-6 + 7 * 0.6e-6)


def test_probe_c1_interleaved_calls_stay_two() -> None:
    def interleaved(exchange: Exchange) -> None:
        exchange.begin()
        exchange.delta({"tool_calls": [piece(0, "", id="a", name="one"), piece(1, "", id="b", name="two")]})
        for part in ('{"x"', ": 1}"):
            exchange.delta({"tool_calls": [piece(0, part)]})
            exchange.delta({"tool_calls": [piece(1, part)]})
        exchange.delta({}, "tool_calls")
        exchange.end()

    with provider(interleaved) as server:
        reply = ask(remote(server.url))
    assert [(c.id, c.name, c.arguments) for c in reply.calls] == [("a", "one", '{"x": 1}'), ("b", "two", '{"x": 1}')]
    assert reply.finish_reason == "tool_calls"


def test_probe_c7_a_cut_stream_is_an_error_and_its_half_call_is_forgotten() -> None:
    def cut(exchange: Exchange) -> None:
        exchange.begin()
        exchange.delta({"content": "I delete "})
        exchange.delta({"tool_calls": [piece(0, '{"path": "/ho', id="a", name="delete")]})

    with provider(cut, says("all is well")) as server:
        with pytest.raises(ModelError) as caught:
            ask(remote(server.url))
        assert caught.value.retryable
        reply = ask(Retrying(remote(server.url), Gate(base=0.01)))
    assert (reply.text, reply.calls) == ("all is well ", ())


def test_probe_c7_in_one_run_the_retry_resets_what_was_streamed() -> None:
    def cut(exchange: Exchange) -> None:
        exchange.begin()
        exchange.delta({"tool_calls": [piece(0, '{"path": "/ho', id="a", name="delete")]})

    with provider(cut, says("fine")) as server:
        reply = ask(Retrying(remote(server.url), Gate(base=0.01)))
    assert (reply.text, reply.calls, reply.finish_reason) == ("fine ", (), "stop")
    assert len(server.requests) == 2


def test_probe_c6_a_stalled_stream_times_out_and_is_retryable() -> None:
    def stall(exchange: Exchange) -> None:
        exchange.begin()
        exchange.delta({"tool_calls": [piece(0, '{"pa', id="a", name="read")]})
        exchange.raw('data: {"id": "chatcmpl-1", "choi')
        time.sleep(3)

    with provider(stall) as server:
        started = time.monotonic()
        with pytest.raises(ModelError, match="stalled") as caught:
            ask(IdleTimeout(remote(server.url), 0.7))
        assert time.monotonic() - started < 2.5
    assert caught.value.retryable


def test_probe_c6_cancelling_a_stalled_stream_is_prompt() -> None:
    def stall(exchange: Exchange) -> None:
        exchange.begin()
        exchange.delta({"content": "half"})
        time.sleep(3)

    async def cancelled(url: str) -> float:
        task = asyncio.create_task(assemble(remote(url)))
        await asyncio.sleep(0.7)
        started = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return time.monotonic() - started

    with provider(stall) as server:
        assert asyncio.run(cancelled(server.url)) < 1.0


OVERFLOWS = [
    "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
    "prompt is too long: 210000 tokens > 200000 maximum",
    "the request exceeds the available context size, try increasing it",
]


@pytest.mark.parametrize("wording", OVERFLOWS)
def test_probe_f2_overflow_is_recognised_over_http(wording: str) -> None:
    with provider(fails(400, wording)) as server, pytest.raises(ContextOverflow):
        ask(remote(server.url))


def test_probe_f2_an_unknown_400_is_not_overflow() -> None:
    with provider(fails(400, "Invalid value for 'tools[0].function.name'")) as server:
        with pytest.raises(ModelError) as caught:
            ask(remote(server.url))
    assert not isinstance(caught.value, ContextOverflow)
    assert not caught.value.retryable
    assert caught.value.status == 400


def test_a_refused_key_names_the_variable() -> None:
    with provider(fails(401, "Incorrect API key provided: sk-test")) as server:
        with pytest.raises(MissingKey, match="OPENAI_API_KEY"):
            ask(remote(server.url))


def test_a_missing_key_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with provider(says("never")) as server:
        for model in ("openai/gpt-4o-mini", "anthropic/claude-haiku-4-5", "gemini/gemini-2.5-flash"):
            with pytest.raises(MissingKey, match="_API_KEY"):
                ask(LitellmModel(model, api_base=server.url))
    assert not server.requests


def test_an_unknown_model_at_the_provider_is_not_found() -> None:
    with provider(fails(404, "The model `fake-1` does not exist")) as server, pytest.raises(ModelNotFound):
        ask(remote(server.url))


def test_nobody_listening_is_retryable() -> None:
    with pytest.raises(ModelError) as caught:
        ask(remote("http://127.0.0.1:9/v1"))
    assert caught.value.retryable


@pytest.mark.parametrize("date", [False, True])
def test_probe_n3_retry_after_is_read_from_the_answer(date: bool) -> None:
    def busy(exchange: Exchange) -> None:  # the date is made when it is sent: the import before that takes seconds
        exchange.fail(429, "slow down", {"Retry-After": formatdate(time.time() + 7, usegmt=True) if date else "6"})

    with provider(busy) as server, pytest.raises(ModelError) as caught:
        ask(remote(server.url))
    assert caught.value.retryable
    assert caught.value.status == 429
    assert caught.value.retry_after is not None
    assert 4 <= caught.value.retry_after <= 7


def test_probe_n3_five_agents_wait_together_and_leave_apart() -> None:
    busy = [fails(429, "slow down", {"Retry-After": "1"})] * 5
    gate = Gate(spread=0.5)

    async def five(url: str) -> list[Reply]:
        models = [Retrying(remote(url), gate) for _ in range(5)]
        return list(await asyncio.gather(*(assemble(model) for model in models)))

    with provider(*busy, says("ok")) as server:
        replies = asyncio.run(five(server.url))
    assert [reply.text for reply in replies] == ["ok "] * 5
    first, second = server.times[:5], sorted(server.times[5:])
    assert len(second) == 5
    assert second[0] - max(first) >= 0.9
    assert second[-1] - second[0] > 0.02


SIGNATURE = {"google": {"thought_signature": "c2lnbmF0dXJl"}}


def test_probe_n1_opaque_fields_go_back_to_the_same_provider_only() -> None:
    def signed(exchange: Exchange) -> None:
        exchange.begin()
        call = piece(0, "{}", id="a", name="add", extra_content=SIGNATURE)
        exchange.delta({"role": "assistant", "reasoning_content": "I think", "tool_calls": [call]})
        exchange.delta({}, "tool_calls")
        exchange.end()

    def demanding(exchange: Exchange) -> None:
        call = exchange.body["messages"][1]["tool_calls"][0]
        says("thanks")(exchange) if call.get("extra_content") == SIGNATURE else exchange.fail(400, "no signature")

    with provider(signed, demanding) as server:
        reply = ask(remote(server.url))
        call = reply.calls[0]
        assistant = {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                    "_extra": call.extra,
                }
            ],
            "_extra": reply.extra,
        }
        result = {"role": "tool", "tool_call_id": call.id, "content": "5"}
        history = Request(messages=[*ASK.messages, assistant, result], tools=[TOOL])
        assert ask(remote(server.url), history).text == "thanks "
        ours = server.requests[1]["messages"][1]
        assert ours["reasoning_content"] == "I think"
    with provider(says("other")) as other:
        ask(LitellmModel("deepseek/fake", api_base=other.url, options={"api_key": "x"}), history)
    assert "c2lnbmF0dXJl" not in str(other.requests[0])
    assert "_extra" not in str(server.requests) + str(other.requests)
    assert "_extra" in assistant


def test_probe_n6_an_unpriced_model_runs_and_has_no_cost() -> None:
    with provider(says("ok")) as server:
        model = open_model("openai/no-such-model-in-any-table", api_base=server.url)
        model._options["api_key"] = "x"
        assert model.context_window is None
        assert ask(model).usage.cost is None


def test_a_stopped_stream_leaves_the_next_call_working() -> None:
    async def broken_off(url: str) -> Reply:
        model = remote(url)
        async with aclosing(model.stream(ASK)) as deltas:
            async for delta in deltas:
                if delta.text:
                    break
        return await assemble(model)

    with provider(says("one two three")) as server:
        assert asyncio.run(broken_off(server.url)).text == "one two three "


def test_two_event_loops_one_after_the_other() -> None:
    with provider(says("ok")) as server:
        assert [ask(remote(server.url)).text for _ in range(2)] == ["ok ", "ok "]


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    with provider(fails(500, "oops"), fails(400, "bad")) as server:
        for _ in range(2):
            with pytest.raises(ModelError):
                ask(remote(server.url))
    assert capfd.readouterr() == ("", "")
