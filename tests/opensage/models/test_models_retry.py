"""Retries, the shared gate, fallback, stalls, and the budget's hook before every attempt."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import pytest

from opensage.errors import ContextOverflow, LimitReached, MissingKey, ModelError, ModelNotFound
from opensage.messages import Delta, Reply, Request
from opensage.models import Assembler, Fallback, Gate, IdleTimeout, Retrying, ScriptedModel, robust
from opensage.models.failures import classify, is_overflow, retry_after
from opensage.models.retry import gate_for
from opensage.protocols import Model

ASK = Request(messages=[{"role": "user", "content": "hi"}])
BUSY = {"error": {"status": 429, "message": "slow down"}}
OK = {"text": "ok"}


async def collect(model: Model) -> tuple[Reply, list[Delta]]:
    assembler, deltas = Assembler(), []
    async for delta in model.stream(ASK):
        assembler.feed(delta)
        deltas.append(delta)
    return assembler.reply(), deltas


def run(model: Model) -> tuple[Reply, list[Delta]]:
    return asyncio.run(collect(model))


def retrying(turns: list[Any], **options: Any) -> tuple[Retrying, ScriptedModel]:
    inner = ScriptedModel(turns)
    return Retrying(inner, Gate(base=0.01), **options), inner


def test_a_retryable_error_is_tried_again_with_a_note() -> None:
    model, inner = retrying([BUSY, BUSY, OK])
    reply, deltas = run(model)
    assert reply.text == "ok"
    assert len(inner.requests) == 3
    assert next(d.note for d in deltas if d.note).endswith("(2 of 5)")
    assert not any(d.reset for d in deltas)


def test_what_a_failed_try_streamed_is_forgotten() -> None:
    model, _ = retrying([{"text": "half", **BUSY}, OK])
    reply, deltas = run(model)
    assert reply.text == "ok"
    assert sum(d.reset for d in deltas) == 1


@pytest.mark.parametrize("status", [400, 401, 404, 422])
def test_other_errors_are_not_tried_again(status: int) -> None:
    model, inner = retrying([{"error": {"status": status, "message": "bad"}}, OK])
    with pytest.raises(ModelError):
        run(model)
    assert len(inner.requests) == 1


def test_tries_are_bounded_and_the_message_names_the_fix() -> None:
    model, inner = retrying([{"repeat": BUSY, "times": -1}], tries=3)
    with pytest.raises(ModelError, match="given up after 3 tries") as caught:
        run(model)
    assert len(inner.requests) == 3
    assert caught.value.status == 429


def test_a_long_wait_asked_by_the_provider_ends_the_call_at_once() -> None:
    model, inner = retrying([{"error": {"status": 429, "message": "busy", "retry_after": 3600}}, OK], max_wait_s=60)
    started = time.monotonic()
    with pytest.raises(ModelError, match="asks to wait 3600 s"):
        run(model)
    assert time.monotonic() - started < 1
    assert len(inner.requests) == 1


def test_probe_g1_the_budget_is_asked_before_every_attempt() -> None:
    asked: list[int] = []

    def budget() -> None:
        asked.append(1)
        if len(asked) > 3:
            raise LimitReached("max_calls: 3 of 3 model calls used")

    model, inner = retrying([{"repeat": BUSY, "times": -1}], before_attempt=budget)
    with pytest.raises(LimitReached, match="3 of 3"):
        run(model)
    assert len(inner.requests) == 3


def test_probe_n3_one_gate_for_all_agents_of_a_provider() -> None:
    assert gate_for("openai") is gate_for("openai")
    assert gate_for("openai") is not gate_for("anthropic")
    gate = Gate(base=0.01, spread=0.5)
    limited = {"delay_s": 0.1, "error": {"status": 429, "message": "busy", "retry_after": 0.4}}
    times: list[float] = []

    class Clocked(ScriptedModel):
        async def stream(self, request: Request) -> AsyncIterator[Delta]:
            times.append(time.monotonic())
            async for delta in super().stream(request):
                yield delta

    async def five() -> list[tuple[Reply, list[Delta]]]:
        return list(await asyncio.gather(*(collect(Retrying(Clocked([limited, OK]), gate)) for _ in range(5))))

    replies = asyncio.run(five())
    assert [reply.text for reply, _ in replies] == ["ok"] * 5
    first, second = times[:5], sorted(times[5:])
    assert second[0] - max(first) >= 0.39
    assert second[-1] - second[0] > 0.005


def test_a_burst_of_failures_doubles_the_backoff_once() -> None:
    gate = Gate(base=10, ceiling=1000)
    started = time.monotonic()
    waits = [gate.failed(started, None) for _ in range(5)]
    assert all(9.9 < wait <= 10 for wait in waits)
    assert 19.9 < gate.failed(time.monotonic(), None) <= 20


def test_a_closed_gate_holds_a_call_that_has_not_failed_itself() -> None:
    gate = Gate()
    gate.failed(time.monotonic(), 0.3)
    started = time.monotonic()
    assert run(Retrying(ScriptedModel([OK]), gate))[0].text == "ok"
    assert time.monotonic() - started >= 0.29


def test_fallback_goes_to_the_next_model() -> None:
    first = ScriptedModel([{"text": "half", **BUSY}], context_window=100, name="first")
    second = ScriptedModel([OK], context_window=50, name="second")
    model = Fallback([first, second])
    reply, deltas = run(model)
    assert reply.text == "ok"
    assert (model.name, model.context_window) == ("first", 50)
    assert any("trying second" in d.note and d.reset for d in deltas)


def test_fallback_keeps_overflow_and_reports_all_failures() -> None:
    overflow = ScriptedModel([{"error": {"status": 400, "message": "prompt is too long: 9 tokens > 8 maximum"}}])
    spare = ScriptedModel([OK])
    with pytest.raises(ContextOverflow):
        run(Fallback([overflow, spare]))
    assert not spare.requests
    bad = [ScriptedModel([{"error": {"status": 500, "message": f"oops {i}"}}]) for i in range(2)]
    with pytest.raises(ModelError, match=r"oops 0.*oops 1"):
        run(Fallback(bad))


def test_probe_c6_a_stall_in_mid_stream_is_a_retryable_error() -> None:
    chunks = [{"content": "a"}, {"content": "b", "delay_s": 30}]
    closed: list[str] = []

    class Watched(ScriptedModel):
        async def stream(self, request: Request) -> AsyncIterator[Delta]:
            try:
                async for delta in super().stream(request):
                    yield delta
            finally:
                closed.append("closed")

    started = time.monotonic()
    with pytest.raises(ModelError, match="stalled") as caught:
        run(IdleTimeout(Watched([{"chunks": chunks}]), 0.2))
    assert caught.value.retryable
    assert closed == ["closed"]
    assert time.monotonic() - started < 2


def test_a_slow_but_living_stream_is_no_stall() -> None:
    chunks = [{"content": "x", "delay_s": 0.1}] * 5
    assert run(IdleTimeout(ScriptedModel([{"chunks": chunks}]), 0.4))[0].text == "xxxxx"


def test_a_timeout_of_the_model_itself_is_not_taken_for_a_stall() -> None:
    class Raising(ScriptedModel):
        async def stream(self, request: Request) -> AsyncIterator[Delta]:
            raise TimeoutError("mine")
            yield Delta()

    with pytest.raises(TimeoutError, match="mine"):
        run(IdleTimeout(Raising([]), 5))


def test_robust_wraps_for_a_run() -> None:
    asked: list[int] = []
    inner = ScriptedModel([{"error": {"status": 503, "message": "x", "retry_after": 0}}, OK])
    model = robust(inner, lambda: asked.append(1))
    assert run(model)[0].text == "ok"
    assert len(asked) == 2
    assert isinstance(model, Model)
    assert len(model.requests) == 2  # type: ignore[attr-defined]


def test_breaking_off_closes_the_inner_stream() -> None:
    closed: list[str] = []

    class Watched(ScriptedModel):
        async def stream(self, request: Request) -> AsyncIterator[Delta]:
            try:
                yield Delta(text="a")
                await asyncio.sleep(30)
            finally:
                closed.append("closed")

    async def cancelled() -> None:
        task = asyncio.create_task(collect(robust(Watched([]))))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert closed == ["closed"]


OVERFLOWS = [
    # OpenAI
    "This model's maximum context length is 128000 tokens. However, your messages resulted in 140001 tokens.",
    "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "Error code: 400 - {'error': {'code': 'context_length_exceeded'}}",
    # Anthropic
    "prompt is too long: 215049 tokens > 200000 maximum",
    "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length",
    # Gemini
    "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    # llama.cpp
    "request (3030 tokens) exceeds the available context size (1024 tokens), try increasing it",
    "the request exceeds the available context size. try increasing the context size or enable context shift",
    # Bedrock
    "Input is too long for requested model.",
    "The model returned the following errors: input is too long for requested model",
    # vLLM
    "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4900 in the messages).",
    "The decoder prompt (length 9000) is longer than the maximum model length of 8192.",
    # others
    "Please reduce the length of the messages or completion.",
    "Range of input length should be [1, 30720]",
    "prompt token count of 140000 exceeds the limit of 128000",
    "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
    "too many tokens: size limit exceeded by 512 tokens",
]
NOT_OVERFLOWS = [
    "Invalid value: 'tool'. Supported values are: 'system', 'assistant'",
    "messages: text content blocks must be non-empty",
    "Rate limit reached for gpt-4o in organization x on tokens per min (TPM): Limit 30000, Used 29000",
    "Too many tokens per day, please wait before trying again.",
    "max_tokens is too large: 99999. This model supports at most 16384 completion tokens",
    "You exceeded your current quota, please check your plan",
    "Unsupported parameter: 'temperature'",
    "tool_use ids must be unique",
    "",
]


@pytest.mark.parametrize("wording", OVERFLOWS)
def test_probe_f2_overflow_wordings(wording: str) -> None:
    assert is_overflow(wording, 400)
    assert isinstance(classify(wording, status=400), ContextOverflow)


@pytest.mark.parametrize("wording", NOT_OVERFLOWS)
def test_probe_f2_other_wordings_are_not_overflow(wording: str) -> None:
    assert not is_overflow(wording, 400)


def test_errors_are_told_apart() -> None:
    assert isinstance(classify("Incorrect key", status=401, model="openai/x"), MissingKey)
    assert isinstance(classify("API key not valid. Please pass a valid API key.", status=400), MissingKey)
    assert isinstance(classify("The model `x` does not exist", status=404), ModelNotFound)
    assert "ANTHROPIC_API_KEY" in str(classify("no", status=401, model="anthropic/x"))
    assert classify("busy", status=529).retryable
    assert not classify("bad", status=400).retryable
    assert "\n" not in str(classify("a\nb\n" * 9999, status=400))
    assert len(str(classify("a " * 9999, status=400))) < 800


def test_retry_after_in_every_form() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    date = format_datetime(datetime(2026, 1, 1, 0, 0, 30, tzinfo=UTC), usegmt=True)
    assert retry_after({"Retry-After": "2"}) == 2
    assert retry_after({"retry-after": "1.5"}) == 1.5
    assert retry_after({"retry-after-ms": "250", "retry-after": "9"}) == 0.25
    assert retry_after({"Retry-After": date}, now) == pytest.approx(30)
    assert retry_after({"Retry-After": "Wed, 01 Jan 2020 00:00:00 GMT"}, now) == 0
    for bad in ("soon", "", "nan", "inf", "-1", "99999999999999999999 GMT"):
        assert retry_after({"Retry-After": bad}) in (None, 0)
    assert retry_after(None) is None
