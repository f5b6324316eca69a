"""A local model that another process has loaded, and the command that serves it."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from model_servers import Exchange, provider

from opensage.errors import ConfigError, ContextOverflow, ModelError
from opensage.messages import Reply, Request
from opensage.models import LocalModel, pull
from opensage.models.assembler import Assembler
from opensage.models.local_server import ADDRESS, KEY
from opensage.models.serve import serve

MODEL = "qwen2.5-coder-0.5b"
SHELL = {
    "type": "function",
    "function": {
        "name": "shell",
        "description": "Run a command.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
}


def _ask(request: Request) -> Reply:
    async def collect() -> Reply:
        assembler = Assembler()
        async for delta in LocalModel("qwen2.5-coder-0.5b").stream(request):
            assembler.feed(delta)
        return assembler.reply()

    return asyncio.run(collect())


def _user(text: str, **more: Any) -> Request:
    return Request(messages=[{"role": "user", "content": text}], **more)


def test_the_server_gets_the_grammar_and_its_stream_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def play(exchange: Exchange) -> None:
        exchange.begin()
        exchange.delta({"content": '{"name": "shell", "arguments": {"command": "ls"}}'}, model=MODEL)
        exchange.delta({}, "stop", model=MODEL)
        usage = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
        exchange.event({"model": MODEL, "choices": [], "usage": usage})
        exchange.end()

    with provider(play) as served:
        monkeypatch.setenv(ADDRESS, served.url)
        monkeypatch.setenv(KEY, "word")
        reply = _ask(_user("list", tools=[SHELL]))
    assert (reply.calls[0].name, reply.usage.output_tokens) == ("shell", 4)
    body = served.requests[0]
    assert body["model"] == "qwen2.5-coder-0.5b"
    assert "shell" in body["grammar"]


def test_what_a_server_does_wrong_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_long(exchange: Exchange) -> None:
        exchange.fail(400, "the request exceeds the available context size")

    def nonsense(exchange: Exchange) -> None:
        exchange.begin()
        exchange.raw("data: {half\n\n")

    def silent(exchange: Exchange) -> None:
        exchange.begin()
        exchange.delta({"content": "half"}, model=MODEL)

    def another(exchange: Exchange) -> None:
        exchange.begin()
        exchange.delta({"content": "hello"}, model="other-7b")

    with provider(too_long, nonsense, silent, another) as served:
        monkeypatch.setenv(ADDRESS, served.url)
        with pytest.raises(ContextOverflow):
            _ask(_user("x"))
        with pytest.raises(ModelError, match="no JSON"):
            _ask(_user("x"))
        with pytest.raises(ModelError, match="ended without an answer"):
            _ask(_user("x"))
        with pytest.raises(ModelError, match=r"serves other-7b, not qwen2\.5-coder-0\.5b"):
            _ask(_user("x"))
    with pytest.raises(ModelError, match=r"does not answer .*opensage models serve qwen"):
        _ask(_user("x"))


def test_another_address_needs_a_key_and_a_model_must_be_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match="--api-key"):
        serve("qwen2.5-coder-0.5b", host="0.0.0.0")
    monkeypatch.setenv("OPENSAGE_HOME", str(tmp_path))
    with pytest.raises(ModelError, match=r"opensage models pull qwen2\.5-coder-0\.5b"):
        serve("local/qwen2.5-coder-0.5b")


@pytest.fixture
def served() -> Iterator[str]:
    pull("qwen2.5-coder-0.5b")
    command = [sys.executable, "-m", "opensage", "models", "serve", "qwen2.5-coder-0.5b", "--port", "0"]
    with subprocess.Popen([*command, "--window", "2048"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().split()[0]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


@pytest.mark.live
def test_a_served_model_calls_tools_and_stops_when_it_is_left(served: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ADDRESS, served)
    called = _ask(_user("Run the command `pytest` in the shell.", tools=[SHELL]))
    assert called.calls[0].name == "shell"
    cut = _ask(_user("Write a long poem about the sea.", max_tokens=8))
    assert (cut.finish_reason, cut.usage.output_tokens) == ("length", 8)
