"""Turns of a script (DESIGN section 8): checked once, before the first call, so that mistakes are named by place."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opensage.errors import ModelError, ScriptError
from opensage.messages import CallChunk, Delta, Usage
from opensage.models.assembler import dump_json
from opensage.models.failures import classify
from opensage.models.openai_chunks import count, delta_from_chunk

_FIELDS = frozenset({"text", "tool_calls", "finish_reason", "usage", "delay_s", "error", "chunks"})


@dataclass(frozen=True, slots=True)
class Turn:
    """One scripted reply, ready to stream.

    Attributes:
        deltas: what is streamed, each with the seconds to wait before it.
        delay_s: seconds before anything is said.
        error: raised after the deltas.
    """

    deltas: tuple[tuple[float, Delta], ...]
    delay_s: float = 0.0
    error: Mapping[str, Any] | None = None

    def failure(self, model: str) -> ModelError | None:
        """The error that ends this turn, or None."""
        if self.error is None:
            return None
        status = self.error.get("status")
        message = str(self.error.get("message", "scripted error"))
        return classify(message, status=status, retry_after=self.error.get("retry_after"), model=model)


@dataclass(frozen=True, slots=True)
class Repeat:
    """A turn and how often it is played; -1 for ever."""

    turn: Turn
    times: int = 1


def read_turns(raw: Any, where: str) -> tuple[Repeat, ...]:
    """Check a list of turns.

    Args:
        raw: the list as read.
        where: names the file and agent in errors.

    Raises:
        ScriptError: naming the turn (counted from 1) and what is wrong with it.
    """
    if not isinstance(raw, Sequence) or isinstance(raw, (str, bytes)):
        raise ScriptError(f"{where}: a script is a list of turns, not {_kind(raw)}")
    return tuple(_repeat(item, f"{where}, turn {number}") for number, item in enumerate(raw, 1))


def _repeat(raw: Any, where: str) -> Repeat:
    if not isinstance(raw, Mapping):
        raise ScriptError(f"{where}: a turn is an object, not {_kind(raw)}")
    if "repeat" not in raw:
        return Repeat(read_turn(raw, where))
    _known(raw, {"repeat", "times"}, where)
    times = raw.get("times", 1)
    if not isinstance(times, int) or isinstance(times, bool) or times < -1:
        raise ScriptError(f"{where}: 'times' is a whole number, or -1 for ever")
    if not isinstance(raw["repeat"], Mapping):
        raise ScriptError(f"{where}: 'repeat' holds a turn, not {_kind(raw['repeat'])}")
    return Repeat(read_turn(raw["repeat"], where), times)


def read_turn(raw: Any, where: str) -> Turn:
    """Check one turn. Raises `ScriptError` naming `where`."""
    if not isinstance(raw, Mapping):
        raise ScriptError(f"{where}: a turn is an object, not {_kind(raw)}")
    _known(raw, _FIELDS, where)
    text = _typed(raw, "text", str, "a string", where) or ""
    finish = _typed(raw, "finish_reason", str, "a string", where)
    calls = tuple(_call(c, i, where) for i, c in enumerate(_typed(raw, "tool_calls", list, "a list", where) or ()))
    deltas = [_chunk(c, where) for c in _typed(raw, "chunks", list, "a list", where) or ()]
    error = _error(_typed(raw, "error", Mapping, "an object", where), where)
    if (error is None and not deltas) or text or calls or finish:
        if error is None and not deltas:
            finish = finish or ("tool_calls" if calls else "stop")
        deltas.append((0.0, Delta(text=text, calls=calls, finish_reason=finish)))
    usage = _usage(_typed(raw, "usage", Mapping, "an object", where), where)
    if usage is not None:
        deltas = _with_usage(deltas, usage)
    return Turn(tuple(deltas), _duration(raw, "delay_s", where) or 0.0, error)


def _with_usage(deltas: list[tuple[float, Delta]], usage: Usage) -> list[tuple[float, Delta]]:
    """Put the usage on the last delta that we made, else behind the raw chunks."""
    if len(deltas) == 1 and deltas[0][1].usage is None and deltas[0][1].extra is None:
        wait, last = deltas[0]
        return [(wait, Delta(last.text, last.calls, last.finish_reason, usage))]
    return [*deltas, (0.0, Delta(usage=usage))]


def _call(raw: Any, index: int, where: str) -> CallChunk:
    place = f"{where}, tool call {index + 1}"
    if not isinstance(raw, Mapping):
        raise ScriptError(f"{place}: a tool call is an object, not {_kind(raw)}")
    _known(raw, {"id", "name", "arguments", "extra"}, place)
    name, call_id, arguments = raw.get("name", ""), raw.get("id"), raw.get("arguments")
    if not isinstance(name, str) or not isinstance(call_id, (str, type(None))):
        raise ScriptError(f"{place}: 'name' is a string, and 'id' a string or null")
    if not isinstance(arguments, str):
        arguments = "{}" if arguments is None and "arguments" not in raw else dump_json(arguments)
    extra = raw.get("extra")
    return CallChunk(index, call_id, name, arguments, extra if isinstance(extra, Mapping) else None)


def _chunk(raw: Any, where: str) -> tuple[float, Delta]:
    if not isinstance(raw, Mapping):
        raise ScriptError(f"{where}: a chunk is an object (an OpenAI streaming chunk or its delta), not {_kind(raw)}")
    body = {k: v for k, v in raw.items() if k != "delay_s"}
    return (_duration(raw, "delay_s", where) or 0.0, delta_from_chunk(body))


def _error(raw: Mapping[str, Any] | None, where: str) -> Mapping[str, Any] | None:
    if raw is None:
        return None
    _known(raw, {"status", "message", "retry_after"}, f"{where}, 'error'")
    status = raw.get("status")
    if status is not None and (not isinstance(status, int) or isinstance(status, bool)):
        raise ScriptError(f"{where}: 'error.status' is an HTTP status such as 429")
    return {**raw, "retry_after": _duration(raw, "retry_after", where)}


def _usage(raw: Mapping[str, Any] | None, where: str) -> Usage | None:
    if raw is None:
        return None
    _known(raw, {"input_tokens", "output_tokens", "cached_tokens", "cost"}, f"{where}, 'usage'")
    cost = raw.get("cost", 0.0)
    if cost is not None and not _is_number(cost):
        raise ScriptError(f"{where}: 'usage.cost' is a number of US dollars, or null when unknown")
    tokens, written, cached = (count(raw.get(f"{kind}_tokens")) for kind in ("input", "output", "cached"))
    return Usage(tokens, written, cached, None if cost is None else float(cost))


def _duration(raw: Mapping[str, Any], key: str, where: str) -> float | None:
    value = raw.get(key)
    if value is None:
        return None
    if not _is_number(value) or value < 0:
        raise ScriptError(f"{where}: '{key}' is a number of seconds")
    return float(value)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def _typed(raw: Mapping[str, Any], key: str, kind: Any, said: str, where: str) -> Any:
    value = raw.get(key)
    if value is not None and not isinstance(value, (list, tuple) if kind is list else kind):
        raise ScriptError(f"{where}: '{key}' is {said}, not {_kind(value)}")
    return value


def _known(raw: Mapping[str, Any], fields: frozenset[str] | set[str], where: str) -> None:
    unknown = sorted(str(key) for key in raw if key not in fields)
    if unknown:
        raise ScriptError(f"{where}: unknown field {unknown[0]!r}; known are {', '.join(sorted(fields))}")


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number" if isinstance(value, (int, float)) else type(value).__name__)
