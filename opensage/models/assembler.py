"""One assembler for every provider: streamed deltas in, one `Reply` out.

Providers disagree about how a tool call is streamed. Some number the pieces, some only name them, some repeat the id or
the name in each piece, some send a whole object again and again. All of that is settled here and nowhere else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from opensage.messages import CallChunk, Delta, Reply, ToolCall, Usage

_FINISH = {
    "length": ("length", "max_tokens", "max_output_tokens", "model_length", "token_limit", "truncated", "incomplete"),
    "tool_calls": ("tool_calls", "function_call", "tool_use", "tool_call"),
    "content_filter": (
        "content_filter",
        "content_filtered",
        "safety",
        "recitation",
        "refusal",
        "blocklist",
        "prohibited_content",
        "spii",
        "guardrail_intervened",
    ),
}
_REASONS = {word: reason for reason, words in _FINISH.items() for word in words}
_JOINED_TEXT = "reasoning_content"
_from_json = json.JSONDecoder(strict=False).decode


def normalise_finish(reason: str | None) -> str:
    """Map a provider's word for why it stopped to "stop", "tool_calls", "length" or "content_filter"."""
    return _REASONS.get(str(reason or "stop").strip().lower(), "stop")


def is_object(text: str) -> bool:
    """Whether the text is one complete JSON object (control characters inside strings allowed)."""
    return isinstance(parse_json(text), dict)


def parse_json(text: str) -> Any:
    """Parse JSON, tolerant of control characters inside strings; None when it is not JSON."""
    try:
        return _from_json(text)
    except (ValueError, RecursionError):
        return None


def dump_json(value: Any) -> str:
    """JSON text of any value; what JSON cannot hold becomes its `str`."""
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return str(value)


@dataclass(slots=True)
class _Slot:
    """One call being assembled. `whole` says that what stands here so far is one complete object."""

    id: str | None = None
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    whole: bool = False
    extra: dict[str, Any] | None = None

    def named(self, name: str) -> None:
        """Take a name that comes whole, repeated, growing, or in pieces."""
        if self.pieces or name == self.name:
            return
        self.name = name if name.startswith(self.name) else self.name + name

    def argue(self, arguments: Any) -> None:
        """Take a piece of arguments; a complete object replaces a complete object."""
        if not isinstance(arguments, str):
            self.pieces, self.whole = [dump_json(arguments)], True
        elif not self.pieces or (self.whole and arguments.lstrip().startswith("{")):
            self.pieces, self.whole = [arguments], _looks_whole(arguments)
        else:
            self.pieces.append(arguments)
            self.whole = self.whole and not arguments.strip()

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)


def _looks_whole(piece: str) -> bool:
    bare = piece.strip()
    return bare.startswith("{") and bare.endswith("}") and is_object(bare)


class Assembler:
    """Collects the deltas of one reply. The work per delta is constant; no sequence of deltas makes it raise.

    Args:
        id_prefix: ids of calls that came without one are `<id_prefix>_1`, `<id_prefix>_2`, ...
    """

    def __init__(self, id_prefix: str = "call") -> None:
        self._prefix = id_prefix
        self._clear()

    def _clear(self) -> None:
        self._text: list[str] = []
        self._slots: list[_Slot] = []
        self._by_index: dict[int, _Slot] = {}
        self._by_id: dict[str, _Slot] = {}
        self._finish: str | None = None
        self._usage: Usage | None = None
        self._extra: dict[str, Any] = {}
        self._thought: list[str] = []

    def feed(self, delta: Delta) -> None:
        """Take one delta."""
        if delta.reset:
            self._clear()
        if delta.text:
            self._text.append(delta.text)
        for chunk in delta.calls or ():
            self._feed_call(chunk)
        if delta.finish_reason:
            self._finish = delta.finish_reason
        if delta.usage is not None:
            self._usage = _newer(self._usage, delta.usage)
        if delta.extra:
            self._feed_extra(delta.extra)

    def _feed_call(self, chunk: CallChunk) -> None:
        slot = self._find(chunk)
        if chunk.id:
            slot.id = slot.id or chunk.id
            self._by_id[chunk.id] = slot
        if chunk.name:
            slot.named(chunk.name)
        if chunk.arguments is not None and chunk.arguments != "":
            slot.argue(chunk.arguments)
        if chunk.extra:
            slot.extra = {**(slot.extra or {}), **chunk.extra}

    def _find(self, chunk: CallChunk) -> _Slot:
        """The call that this piece belongs to, made when there is none."""
        slot = self._candidate(chunk)
        if slot is None or _starts_another(slot, chunk):
            slot = _Slot()
            self._slots.append(slot)
        if chunk.index is not None:
            self._by_index[chunk.index] = slot
        return slot

    def _candidate(self, chunk: CallChunk) -> _Slot | None:
        if chunk.index is not None:
            return self._by_index.get(chunk.index)
        last = self._slots[-1] if self._slots else None
        if not chunk.id:
            return last
        if last is not None and last.id is None and not chunk.name:
            return last
        return self._by_id.get(chunk.id)

    def _feed_extra(self, extra: Mapping[str, Any]) -> None:
        for key, value in extra.items():
            old = self._extra.get(key)
            if key == _JOINED_TEXT and isinstance(value, str):
                self._thought.append(value)
            elif isinstance(old, list) and isinstance(value, list):
                old.extend(value)
            elif isinstance(old, dict) and isinstance(value, Mapping):
                old.update(value)
            else:
                self._extra[key] = _own(value)

    def reply(self) -> Reply:
        """The reply as far as it came. May be called at any time, also after a cut or a cancellation."""
        text = "".join(self._text)
        slots = [slot for slot in self._slots if slot.id or slot.name or slot.pieces]
        ids = _unique_ids([slot.id for slot in slots], self._prefix)
        calls = tuple(
            ToolCall(id=i, name=s.name, arguments=s.arguments or "{}", extra=s.extra)
            for i, s in zip(ids, slots, strict=True)
        )
        extra = dict(self._extra)
        if self._thought:
            extra[_JOINED_TEXT] = "".join(self._thought)
        return Reply(
            text=text if text.strip() else "",
            calls=calls,
            finish_reason=self._reason(calls),
            usage=self._usage or Usage(),
            extra=extra or None,
        )

    def _reason(self, calls: tuple[ToolCall, ...]) -> str:
        reason = normalise_finish(self._finish)
        if not calls:
            return "stop" if reason == "tool_calls" else reason
        if reason in ("length", "content_filter"):
            return reason
        # A stream that ended without saying why may have been cut inside a call: that call must not run.
        cut = self._finish is None and any(parse_json(call.arguments) is None for call in calls)
        return "length" if cut else "tool_calls"


def _starts_another(slot: _Slot, chunk: CallChunk) -> bool:
    """Whether a piece that points at this call in fact begins the next one."""
    if chunk.id and slot.id and chunk.id != slot.id:
        return True
    named = bool(chunk.name)
    if named and slot.pieces and chunk.name != slot.name:
        return True
    if chunk.index is not None:
        return False
    return named and _is_second_whole(slot, chunk)


def _is_second_whole(slot: _Slot, chunk: CallChunk) -> bool:
    """For pieces without an index: a complete call after a complete call, not the same one growing."""
    new = chunk.arguments
    if isinstance(new, str):
        new = parse_json(new) if new.lstrip().startswith("{") else None
    if not isinstance(new, Mapping):
        return False
    if not slot.pieces:
        return bool(slot.name) and chunk.name != slot.name
    old = parse_json(slot.arguments) if slot.whole else None
    if not isinstance(old, dict):
        return False
    grows = bool(chunk.id) and all(key in new and new[key] == value for key, value in old.items())
    return not grows


def _newer(old: Usage | None, new: Usage) -> Usage:
    """Cumulative reports replace each other; a count that a later report leaves out stays."""
    if old is None:
        return new
    return Usage(
        new.input_tokens or old.input_tokens,
        new.output_tokens or old.output_tokens,
        new.cached_tokens or old.cached_tokens,
        new.cost,
    )


def _own(value: Any) -> Any:
    if isinstance(value, list):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value


def _unique_ids(ids: list[str | None], prefix: str) -> list[str]:
    """Keep the first use of each id; later uses get `_2`, `_3`, ...; calls without an id are numbered."""
    taken = {i for i in ids if i}
    seen: set[str] = set()
    unique: list[str] = []
    for number, given in enumerate(ids, 1):
        chosen = given or f"{prefix}_{number}"
        if chosen in seen or (not given and chosen in taken):
            chosen = _suffixed(chosen, taken | seen)
        seen.add(chosen)
        unique.append(chosen)
    return unique


def _suffixed(base: str, used: set[str]) -> str:
    number = 2
    while f"{base}_{number}" in used:
        number += 1
    return f"{base}_{number}"
