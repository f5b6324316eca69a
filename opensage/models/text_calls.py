"""Tool calls that a model printed as text: the Hermes `<tool_call>` form, bare JSON, and JSON in a fence."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from opensage.messages import Reply, ToolCall
from opensage.models.assembler import dump_json, parse_json

_HERMES = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|$)", re.DOTALL)
_FENCE = re.compile(r"```(?:json|tool_call|tool)?[ \t]*\n(.*?)\n?```", re.DOTALL)
_NAME_KEYS = ("name", "tool", "tool_name", "function")
_ARGUMENT_KEYS = ("arguments", "parameters", "args", "input")
_OTHER_KEYS = frozenset({"id", "type", "thought"})


def calls_in_text(text: str, names: Collection[str]) -> list[ToolCall]:
    """The calls that a text consists of; empty when it is an ordinary answer.

    A tagged call counts wherever it stands, with any name: dispatch answers a wrong one. Untagged JSON counts when it
    is the whole text, or stands alone in the last fence and names a known tool, so that an example is not run.

    Args:
        text: what the model said.
        names: the tools that it was given.
    """
    bare = text.strip()
    if "<tool_call>" in bare:
        return _numbered([call for body in _HERMES.findall(bare) for call in _tagged(body)])
    whole = _calls(bare)
    if whole:
        return _numbered(whole if _plausible(bare, names) else [])
    fences = _FENCE.findall(bare)
    if not fences or not bare.endswith("```"):
        return []
    found = _calls(fences[-1].strip())
    only = len(fences) == 1 and bare.startswith("```")
    return _numbered(found if only or all(name in names for name, _ in found) else [])


def recover_calls(reply: Reply, names: Collection[str]) -> Reply:
    """The reply with calls that were printed as text made real; unchanged when there are none."""
    if reply.calls or reply.finish_reason != "stop" or not reply.text:
        return reply
    calls = calls_in_text(reply.text, names)
    if not calls:
        return reply
    before = reply.text.partition("<tool_call>")[0].strip() if "<tool_call>" in reply.text else ""
    return replace(reply, text=before, calls=tuple(calls), finish_reason="tool_calls")


def _plausible(text: str, names: Collection[str]) -> bool:
    """Whether untagged JSON that is the whole text is meant as a call: a known name, or exactly the shape of a call."""
    value = parse_json(text)
    rows = value if isinstance(value, list) else [value]
    found = _calls(text)
    return any(name in names for name, _ in found) or all("arguments" in row for row in rows if isinstance(row, dict))


def _tagged(body: str) -> list[tuple[str, str]]:
    found = _calls(body)
    if found:
        return found
    match = re.search(r'"name"\s*:\s*"([^"]*)"', body)
    # Cut or broken JSON: keep what stands there, so that dispatch can show the model its mistake.
    return [(match.group(1), body[match.end() :].partition(":")[2].strip() or body)] if match else []


def _calls(text: str) -> list[tuple[str, str]]:
    """(name, arguments) of each call in a JSON text: one object, a list of them, or one per line."""
    if not text.startswith(("{", "[")):
        return []
    value = parse_json(text)
    rows = value if isinstance(value, list) else [value] if value is not None else _lines(text)
    calls = [_call(row) for row in rows]
    return [call for call in calls if call is not None] if calls and all(calls) else []


def _lines(text: str) -> list[Any]:
    """JSON values written one behind the other."""
    decoder, at, values = json.JSONDecoder(strict=False), 0, []
    try:
        while at < len(text):
            value, at = decoder.raw_decode(text, at)
            values.append(value)
            while at < len(text) and text[at] in " \t\r\n,;":
                at += 1
    except (ValueError, RecursionError):
        return []
    return values


def _call(row: Any) -> tuple[str, str] | None:
    if not isinstance(row, Mapping):
        return None
    inner = row.get("function")
    body = inner if isinstance(inner, Mapping) else row
    name = next((body[key] for key in _NAME_KEYS if isinstance(body.get(key), str)), None)
    key = next((key for key in _ARGUMENT_KEYS if key in body), None)
    if not name or key is None:
        return None
    if set(row) - set(_NAME_KEYS) - set(_ARGUMENT_KEYS) - _OTHER_KEYS:
        return None
    arguments = body[key]
    return name, arguments if isinstance(arguments, str) else dump_json(arguments)


def _numbered(found: list[tuple[str, str]]) -> list[ToolCall]:
    return [ToolCall(f"call_{number}", name, arguments) for number, (name, arguments) in enumerate(found, 1)]
