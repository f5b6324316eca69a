"""OpenAI chat-completion chunks to deltas. The de-facto wire form of most providers, read with tolerance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from opensage.messages import CallChunk, Delta, Message, Usage

_CALL_FIELDS = frozenset({"index", "id", "type", "function"})
_FUNCTION_FIELDS = frozenset({"name", "arguments"})
_DELTA_FIELDS = frozenset({"role", "content", "tool_calls", "function_call", "refusal", "audio", "text", "calls"})


def delta_from_chunk(chunk: Mapping[str, Any], price: float | None = 0.0) -> Delta:
    """Convert one chunk: a whole `chat.completion.chunk`, or only its `delta`.

    Args:
        chunk: the JSON object as it came; null and missing fields are the same.
        price: cost put on the usage when the chunk carries none (US dollars; None when unknown).
    """
    if "choices" not in chunk and "usage" not in chunk:
        return delta_from_body(chunk, chunk.get("finish_reason"), None)
    choices = chunk.get("choices") or []
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], Mapping) else {}
    body = choice.get("delta") or choice.get("message") or {}
    return delta_from_body(
        body if isinstance(body, Mapping) else {}, choice.get("finish_reason"), usage_from(chunk.get("usage"), price)
    )


def delta_from_body(body: Mapping[str, Any], finish: Any, usage: Usage | None) -> Delta:
    """Convert the `delta` object of a choice."""
    calls = body.get("tool_calls") or body.get("calls") or ()
    chunks = [_call(c) for c in calls if isinstance(c, Mapping)] if isinstance(calls, (list, tuple)) else []
    old_style = body.get("function_call")
    if isinstance(old_style, Mapping):
        chunks.append(_call({"index": 0, "function": old_style}))
    extra = {k: v for k, v in body.items() if k not in _DELTA_FIELDS and k != "finish_reason" and v is not None}
    return Delta(
        text=text_of(body.get("content") or body.get("text") or body.get("refusal")),
        calls=tuple(chunks),
        finish_reason=finish if isinstance(finish, str) else None,
        usage=usage,
        extra=extra or None,
    )


def text_of(content: Any) -> str:
    """The text of a `content` field: a string, a list of parts, or nothing."""
    if isinstance(content, str):
        return content
    if not isinstance(content, Iterable) or isinstance(content, (bytes, Mapping)):
        return ""
    return "".join(part["text"] for part in content if isinstance(part, Mapping) and isinstance(part.get("text"), str))


def _call(raw: Mapping[str, Any]) -> CallChunk:
    function = raw.get("function")
    body = function if isinstance(function, Mapping) else raw
    index, call_id, name = raw.get("index"), raw.get("id"), body.get("name")
    extra = {k: v for k, v in raw.items() if k not in _CALL_FIELDS | _FUNCTION_FIELDS and v is not None}
    inner = {k: v for k, v in body.items() if k not in _FUNCTION_FIELDS and v is not None} if body is function else {}
    if inner:
        extra["function"] = inner
    return CallChunk(
        index=index if isinstance(index, int) and not isinstance(index, bool) else None,
        id=str(call_id) if call_id not in (None, "") else None,
        name=name if isinstance(name, str) else None,
        arguments=body.get("arguments"),
        extra=extra or None,
    )


def usage_from(raw: Any, cost: float | None = 0.0) -> Usage | None:
    """Token counts of an OpenAI `usage` object, or None when there is none."""
    if not isinstance(raw, Mapping):
        return None
    details = raw.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else raw.get("cached_tokens")
    given = raw.get("cost", cost)
    return Usage(
        count(raw.get("prompt_tokens", raw.get("input_tokens"))),
        count(raw.get("completion_tokens", raw.get("output_tokens"))),
        count(cached),
        float(given) if isinstance(given, (int, float)) and not isinstance(given, bool) else None,
    )


def count(value: Any) -> int:
    """A token count from the outside: never negative, never anything but an int."""
    try:
        return max(0, int(value))
    except (TypeError, ValueError, OverflowError):
        return 0


def wire(messages: Iterable[Message]) -> list[Message]:
    """The messages as a provider may see them: our own `_extra` notes removed; the originals are not touched."""
    return [_wire_one(m) for m in messages]


def _wire_one(message: Message) -> Message:
    calls = message.get("tool_calls")
    if "_extra" not in message and not calls:
        return message
    clean = {k: v for k, v in message.items() if k != "_extra"}
    if isinstance(calls, list):
        clean["tool_calls"] = [{k: v for k, v in c.items() if k != "_extra"} for c in calls]
    return clean
