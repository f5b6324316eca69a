"""Shorthands for scripted runs in a temporary folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import opensage
from opensage.models import ScriptedModel
from opensage.sandbox import ScriptedSandbox


def call(name: str, arguments: Any = None, id: str | None = None) -> dict[str, Any]:
    return {"id": id, "name": name, "arguments": {} if arguments is None else arguments}


def calls(*items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"tool_calls": list(items), **more}


def say(text: str, **more: Any) -> dict[str, Any]:
    return {"text": text, **more}


def go(turns: Any, tmp_path: Path, task: str | None = "do it", **options: Any) -> tuple[opensage.Result, ScriptedModel]:
    model = turns if isinstance(turns, ScriptedModel) else ScriptedModel(turns)
    options.setdefault("sandbox", "local" if options.pop("real", False) else ScriptedSandbox())
    result = opensage.run(task, model=model, workdir=tmp_path, **options)
    assert_paired(model)
    return result, model


def results(model: ScriptedModel, request: int = -1) -> list[str]:
    return [m["content"] for m in model.requests[request]["messages"] if m["role"] == "tool"]


def assert_paired(model: ScriptedModel) -> None:
    """Every request the model saw is one that providers accept: calls answered once, in order, ids unique."""
    for request in model.requests:
        waiting: list[str] = []
        seen: set[str] = set()
        for message in request["messages"]:
            if message["role"] == "tool":
                assert waiting, "a result without its call"
                assert message["tool_call_id"] == waiting.pop(0)
                continue
            assert not waiting, f"calls without a result: {waiting}"
            for item in message.get("tool_calls") or ():
                assert item["id"] not in seen, "an id is used twice"
                assert item["function"]["name"]
                assert isinstance(json.loads(item["function"]["arguments"]), dict)
                seen.add(item["id"])
                waiting.append(item["id"])
            assert message.get("content") or message.get("tool_calls"), "an empty message"
        assert not waiting
