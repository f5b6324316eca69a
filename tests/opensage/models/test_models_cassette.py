"""Recording and replaying: the same answers without a provider, misses explained, secrets never kept."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from opensage.errors import ConfigError, ModelError, ScriptError
from opensage.messages import Reply, Request, Usage
from opensage.models import Assembler, Recording, Replaying, ScriptedModel, open_model
from opensage.models.cassette import redact
from opensage.protocols import Model
from opensage.secrets import Mask

TOOL = {"type": "function", "function": {"name": "add", "description": "", "parameters": {}}}


def request(*texts: str, tools: tuple[Any, ...] = ()) -> Request:
    return Request(messages=[{"role": "user", "content": text} for text in texts], tools=tools)


async def assemble(model: Model, asked: Request) -> Reply:
    assembler = Assembler()
    async for delta in model.stream(asked):
        assembler.feed(delta)
    return assembler.reply()


def ask(model: Model, asked: Request) -> Reply:
    return asyncio.run(assemble(model, asked))


CALL = {"text": "a", "tool_calls": [{"id": "c", "name": "add", "arguments": {"a": 1}}], "usage": {"input_tokens": 3}}


def test_what_was_recorded_is_replayed(tmp_path: Path) -> None:
    recorder = Recording(ScriptedModel([CALL, {"text": "b"}, {"text": "c"}], context_window=9), tmp_path / "tape")
    asked = [request("x", tools=(TOOL,)), request("y"), request("y")]
    said = [ask(recorder, r) for r in asked]
    player = Replaying(tmp_path / "tape")
    assert [ask(player, r) for r in asked] == said
    assert said[0].usage == Usage(3)
    assert player.context_window == 9
    assert len(list((tmp_path / "tape").iterdir())) == 3


def test_by_model_strings(tmp_path: Path) -> None:
    script = tmp_path / "s.json"
    script.write_text(json.dumps([{"text": "ok"}]), encoding="utf-8")
    assert ask(open_model(f"record:{tmp_path}/tape:script:{script}"), request("x")).text == "ok"
    assert ask(open_model(f"replay:{tmp_path}/tape"), request("x")).text == "ok"


def test_errors_are_replayed_too(tmp_path: Path) -> None:
    busy = {"error": {"status": 429, "message": "busy", "retry_after": 3}}
    recorder = Recording(ScriptedModel([busy, {"text": "ok"}]), tmp_path)
    with pytest.raises(ModelError):
        ask(recorder, request("x"))
    ask(recorder, request("x"))
    player = Replaying(tmp_path)
    with pytest.raises(ModelError) as caught:
        ask(player, request("x"))
    assert (caught.value.status, caught.value.retry_after, caught.value.retryable) == (429, 3, True)
    assert ask(player, request("x")).text == "ok"


def test_a_miss_says_what_differs(tmp_path: Path) -> None:
    ask(Recording(ScriptedModel([CALL]), tmp_path), request("one", "the quick fox"))
    player = Replaying(tmp_path)
    with pytest.raises(
        ScriptError, match=r"message 2 \(user\) was '.*quick fox.*' when recorded and is now '.*slow.*'"
    ):
        ask(player, request("one", "the slow fox"))
    with pytest.raises(ScriptError, match="it has 1 messages where the nearest recorded one has 2"):
        ask(player, request("one"))
    with pytest.raises(ScriptError, match="'tools' was"):
        ask(player, request("one", "the quick fox", tools=(TOOL,)))
    ask(player, request("one", "the quick fox"))
    with pytest.raises(ScriptError, match="recorded 1 times and came once more"):
        ask(player, request("one", "the quick fox"))


def test_no_cassette_and_damaged_cassettes_are_named(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match="not a folder"):
        Replaying(tmp_path / "none")
    with pytest.raises(ScriptError, match="is empty"):
        ask(Replaying(tmp_path), request("x"))
    ask(Recording(ScriptedModel([CALL]), tmp_path), request("x"))
    tape = next(tmp_path.iterdir())
    for damage in ("{", "[]", json.dumps({"reply": {"text": 3}})):
        tape.write_text(damage, encoding="utf-8")
        with pytest.raises(ScriptError, match=tape.name):
            ask(Replaying(tmp_path), request("x"))


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ConfigError, match="cannot record to"):
        ask(Recording(ScriptedModel([CALL]), tmp_path / "file" / "tape"), request("x"))


def test_secrets_are_never_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "value-of-a-secret")
    keys = ["sk-" + "a1" * 12, "ghp_" + "b2" * 15, "Bearer " + "c3" * 12]
    asked = request(f"env says value-of-a-secret and {' '.join(keys)}")
    turn = {"text": f"seen {keys[0]}", "tool_calls": [{"name": "f", "arguments": {"k": "value-of-a-secret"}}]}
    ask(Recording(ScriptedModel([turn]), tmp_path), asked)
    kept = next(tmp_path.iterdir()).read_text(encoding="utf-8")
    assert "[secret]" in kept
    assert not any(secret in kept for secret in ["value-of-a-secret", "a1a1a1", "b2b2b2", "c3c3c3"])
    assert ask(Replaying(tmp_path), asked).text == "seen [secret]"


def test_ordinary_text_is_not_redacted() -> None:
    text = {"a": ["task-oriented-programming-language", "sk-1", "bearer of news", 3, None]}
    assert redact(text, Mask.of({"PATH": "/usr/bin", "TOKEN": "short"})) == text


def test_another_process_finds_the_same_request(tmp_path: Path) -> None:
    ask(Recording(ScriptedModel([{"text": "ok"}]), tmp_path), request("x", tools=(TOOL,)))
    code = (
        "import asyncio, sys; from opensage.models import Replaying; from opensage.messages import Request\n"
        "async def go():\n"
        f"    asked = Request(messages=[{{'content': 'x', 'role': 'user'}}], tools=({TOOL!r},))\n"
        f"    return [d.text async for d in Replaying({str(tmp_path)!r}).stream(asked)]\n"
        "print(asyncio.run(go()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['ok']"
