"""History as a fold over events: the messages a model sees, always paired, never rebuilt."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, overload

from opensage.log.events import (
    ApprovalDecided,
    BoardRead,
    Compacted,
    Event,
    ModelReply,
    Note,
    RunStarted,
    ToolResult,
    ToolStarted,
    UserMessage,
)
from opensage.log.memory_events import Recalled
from opensage.messages import Message, ToolCall

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
ELIDED = "[output left out to save room; call the tool again if you need it]"


class MessagesView(Sequence[Message]):
    """The first `length` messages of an append-only list: a request keeps it at no cost while the list grows."""

    __slots__ = ("_length", "_messages")

    def __init__(self, messages: list[Message]) -> None:
        self._messages = messages
        self._length = len(messages)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        if isinstance(index, slice):
            return self._messages[: self._length][index]
        if not -self._length <= index < self._length:
            raise IndexError(index)
        return self._messages[index if index >= 0 else self._length + index]

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Message]:
        for position in range(self._length):
            yield self._messages[position]


class Conversation:
    """Folds events into messages. Results join the history in call order once every call of a reply is answered.

    Attributes:
        open: calls of the last reply that have no result yet, by id, in call order.
        started: ids among `open` whose tool had begun.
        decided: approvals given for calls in `open`.
        size: characters in all messages, an estimate of the window used.
    """

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._seqs: list[int] = []
        self._turn: list[ToolCall] = []
        self._results: dict[str, tuple[int, Message]] = {}
        self._seen: set[str] = set()
        self._used: dict[str, int] = {}
        self.open: dict[str, ToolCall] = {}
        self.started: set[str] = set()
        self.decided: dict[str, ApprovalDecided] = {}
        self.size = 0
        self.task = ""
        self.last_text = ""

    def view(self) -> MessagesView:
        """The messages so far, frozen."""
        return MessagesView(self._messages)

    @property
    def system(self) -> str:
        """The system message in force."""
        if self._messages and self._messages[0]["role"] == "system":
            return str(self._messages[0]["content"])
        return ""

    @property
    def tail_role(self) -> str:
        """Role of the last message, "" when there is none."""
        return str(self._messages[-1]["role"]) if self._messages else ""

    @property
    def entries(self) -> list[tuple[int, Message]]:
        """(seq, message) pairs, for compaction."""
        return list(zip(self._seqs, self._messages, strict=True))

    def unique_id(self, wished: str, position: int) -> str:
        """The id itself, or with a suffix when this history has it already (providers reuse ids)."""
        base = wished or f"call_{len(self._seen)}_{position}"
        name, count = base, self._used.get(base, 1)
        while name in self._seen:
            count += 1
            name = f"{base}-{count}"
        self._seen.add(name)
        self._used[base] = count  # the next search begins here: with "call_0" each turn it would grow with the history
        return name

    def apply(self, event: Event) -> None:
        """Take one event into account."""
        handler = _HANDLERS.get(type(event))
        if handler is not None:
            handler(self, event)

    def _on_run(self, event: RunStarted) -> None:
        if not event.system or event.system == self.system:
            return
        rest = 1 if self.system else 0
        self._messages = [{"role": "system", "content": event.system}, *self._messages[rest:]]
        self._seqs = [event.seq, *self._seqs[rest:]]
        self._recount()

    def _on_user(self, event: UserMessage) -> None:
        self.task = self.task or event.text
        self._add(event.seq, {"role": "user", "content": event.text})

    def _on_note(self, event: Note | BoardRead | Recalled) -> None:
        if event.text:  # an agent may have read only its own posts, and providers refuse an empty message
            self._add(event.seq, {"role": "user", "content": event.text})

    def _on_reply(self, event: ModelReply) -> None:
        message: Message = {"role": "assistant", "content": event.text or None}
        if event.extra:
            message["_extra"] = event.extra
        calls = [ToolCall(c["id"], c["name"], c["arguments"], c.get("extra")) for c in event.calls]
        if calls:
            message["tool_calls"] = [_call_message(call) for call in calls]
        if event.text:
            self.last_text = event.text
        if not calls and not event.text:
            return  # an empty reply never enters the history: providers reject it for ever after
        self._turn, self._results, self.started, self.decided = calls, {}, set(), {}
        self.open = {call.id: call for call in calls}
        self._seen.update(self.open)
        self._add(event.seq, message)

    def _on_decided(self, event: ApprovalDecided) -> None:
        self.decided[event.id] = event

    def _on_started(self, event: ToolStarted) -> None:
        self.started.add(event.id)

    def _on_result(self, event: ToolResult) -> None:
        if self.open.pop(event.id, None) is None:
            return  # an answer to nothing: it would poison the history
        message: Message = {"role": "tool", "tool_call_id": event.id, "name": event.name, "content": event.text}
        self._results[event.id] = (event.seq, message)
        if not self.open:
            for call in self._turn:
                self._add(*self._results[call.id])
            self._turn, self._results = [], {}

    def _on_compacted(self, event: Compacted) -> None:
        elided = set(event.elided)
        kept: list[Message] = [m for m in self._messages[:1] if m["role"] == "system"]
        seqs = self._seqs[: len(kept)]
        if event.summary:
            kept.append({"role": "user", "content": event.summary})
            seqs.append(event.keep_from - 1)
        for seq, message in self.entries[1 if self.system else 0 :]:
            if seq >= event.keep_from:
                kept.append({**message, "content": ELIDED} if seq in elided else message)
                seqs.append(seq)
        self._messages, self._seqs = kept, seqs
        self._recount()

    def _add(self, seq: int, message: Message) -> None:
        self._messages.append(message)
        self._seqs.append(seq)
        self.size += message_size(message)

    def _recount(self) -> None:
        self.size = sum(message_size(message) for message in self._messages)


def message_size(message: Message) -> int:
    """Characters of a message, calls included."""
    size = len(message.get("content") or "") + 16
    for call in message.get("tool_calls", ()):
        size += len(call["function"]["name"]) + len(call["function"]["arguments"]) + 24
    return size


def _call_message(call: ToolCall) -> dict[str, Any]:
    name = call.name if _NAME.fullmatch(call.name) else "invalid_tool_name"
    message: dict[str, Any] = {
        "id": call.id,
        "type": "function",
        "function": {"name": name, "arguments": _valid_arguments(call.arguments)},
    }
    if call.extra:
        message["_extra"] = dict(call.extra)
    return message


def _valid_arguments(raw: str) -> str:
    """Arguments as every provider accepts them: a JSON object; anything else is shown inside one."""
    try:
        parsed = json.loads(raw)
    except (ValueError, RecursionError):
        return json.dumps({"invalid_arguments": raw[:2000]})
    if isinstance(parsed, dict):
        return raw
    return "{}" if parsed is None else json.dumps({"invalid_arguments": raw[:2000]})


_HANDLERS: dict[type[Event], Any] = {
    RunStarted: Conversation._on_run,
    UserMessage: Conversation._on_user,
    Note: Conversation._on_note,
    BoardRead: Conversation._on_note,
    Recalled: Conversation._on_note,
    ModelReply: Conversation._on_reply,
    ApprovalDecided: Conversation._on_decided,
    ToolStarted: Conversation._on_started,
    ToolResult: Conversation._on_result,
    Compacted: Conversation._on_compacted,
}
