"""Makes room in a history that outgrows the model's window. It cannot fail: at worst it keeps less.

First old tool outputs are left out. If that is not enough, everything before the last turns is replaced by one message
that pins the task, the plan and the user's words verbatim, with a summary written by the model, or, when the model
does not deliver in time, with a plain list of what was done.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from opensage.errors import OpenSageError
from opensage.log.conversation import message_size
from opensage.log.events import Compacted
from opensage.log.session import Session
from opensage.messages import Message, Request
from opensage.protocols import Model
from opensage.side import ask_beside

START_AT = 0.75
"""Share of the window at which compaction starts."""
TAIL = 0.25
"""Share of the window that the last turns may keep."""
SUMMARY_SECONDS = 60.0
_CHARS_PER_TOKEN = 3.2
_PINNED = 6000
_PLAN = re.compile(r"(?im)^\W*plan\b|(?:^\s*(?:\d+[.)]|[-*]) .+\n?){2,}")
_ASK = (
    "Summarise this work of an agent for its own later use: what was found, which files were read or changed and how, "
    "what is still open. Facts only, at most 300 words."
)

Entry = tuple[int, Message]


class Compactor:
    """Decides when to compact a conversation and how."""

    def __init__(
        self,
        session: Session,
        model: Model,
        *,
        seconds: float = SUMMARY_SECONDS,
        pin: Callable[[], str] | None = None,
    ) -> None:
        self._session = session
        self._conversation = session.conversation
        self._model = model
        self._seconds = seconds
        self._pin = pin
        self._chars_per_token = _CHARS_PER_TOKEN

    def calibrate(self, input_tokens: int) -> None:
        """Learn from a reply how many characters a token of this conversation has (schemas included)."""
        if input_tokens > 200:
            self._chars_per_token = min(6.0, max(0.5, self._conversation.size / input_tokens))

    @property
    def room(self) -> int | None:
        """Characters that the window holds, or None when its size is unknown."""
        window = self._model.context_window
        return None if window is None else int(window * self._chars_per_token)

    def due(self) -> bool:
        """Whether the next request would come too close to the window."""
        room = self.room
        return room is not None and self._conversation.size > START_AT * room

    async def compact(self, *, force: bool = False) -> Compacted | None:
        """The event that makes room, or None when nothing can be gained."""
        room = self.room or int(self._conversation.size * (0.5 if force else 1.0))
        if force:
            room = min(room, int(self._conversation.size * 0.8))
        entries = self._conversation.entries
        elided = _old_outputs(entries, int(TAIL * room))
        saved = sum(message_size(m) for seq, m in entries if seq in elided)
        if saved and self._conversation.size - saved < 0.5 * room:
            return Compacted(keep_from=0, elided=sorted(elided), how="old outputs left out")
        return await self._summarise(entries, int(TAIL * room), room)

    async def _summarise(self, entries: list[Entry], tail: int, room: int) -> Compacted | None:
        body = [entry for entry in entries if entry[1]["role"] != "system"]
        cut = _tail_start(body, tail)
        dropped, kept = body[:cut], body[cut:]
        elided = [seq for seq, m in kept if m["role"] == "tool" and message_size(m) > tail]
        if not dropped and not elided:
            return None
        summary, how = ("", "large outputs left out") if not dropped else await self._summary(dropped, room)
        event = Compacted(summary=summary, keep_from=kept[0][0] if kept else 0, elided=elided, how=how)
        left = sum(message_size(m) for seq, m in kept if seq not in elided) + len(summary)
        gained = sum(message_size(m) for _, m in body) - left
        return event if gained > 0 else None

    async def _summary(self, dropped: list[Entry], room: int) -> tuple[str, str]:
        messages = [message for _, message in dropped]
        pinned = _pinned(self._conversation.task, messages, room // 4)
        if self._pin is not None and (kept := self._pin()):
            pinned += f"\n## Agents you called (do not give this work away again)\n{kept[-_PINNED:]}"
        try:
            async with asyncio.timeout(self._seconds):
                told = await self._ask(messages, room)
            how = "summarised"
        except (TimeoutError, OpenSageError):
            told, how = "", "listed, since no summary came"
        return f"{pinned}\n## Work so far\n{told or _digest(messages, room // 8)}", how

    async def _ask(self, messages: list[Message], room: int) -> str:
        transcript = "\n".join(_line(message, 1500) for message in messages)[-room // 2 :]
        ask: list[Message] = [{"role": "system", "content": _ASK}, {"role": "user", "content": transcript}]
        request = Request(messages=ask, tool_choice="none", max_tokens=600, agent="compactor")
        told = await ask_beside(self._session, self._model, request)
        return told[: room // 8]


def _old_outputs(entries: list[Entry], tail: int) -> set[int]:
    """Seqs of the tool outputs outside the last `tail` characters."""
    used, old = 0, set()
    for seq, message in reversed(entries):
        used += message_size(message)
        if used > tail and message["role"] == "tool" and message_size(message) > 400:
            old.add(seq)
    return old


def _tail_start(body: list[Entry], tail: int) -> int:
    """Index of the first kept entry: a turn's beginning, so that no result is parted from its call."""
    used, start = 0, len(body)
    for index in range(len(body) - 1, -1, -1):
        used += message_size(body[index][1])
        if used > tail and start < len(body):
            break
        if body[index][1]["role"] != "tool":
            start = index
    return start


def _pinned(task: str, messages: list[Message], room: int) -> str:
    room = max(400, min(room, _PINNED))
    parts = ["[Earlier messages were compacted. The task goes on; do not start again.]", "## Task", task[:room]]
    said = [m["content"] for m in messages if m["role"] == "user" and m["content"] not in (None, task)]
    said = [text for text in said if not text.startswith(("[Earlier messages were compacted", "<memory>"))]
    if said:
        parts += ["## Also said by the user", "\n".join(said)[-room:]]
    plans = [m["content"] for m in messages if m["role"] == "assistant" and _PLAN.search(m.get("content") or "")]
    plans += [_section(m["content"], "## Plan") for m in messages if "## Plan" in (m.get("content") or "")]
    if plans and plans[-1]:
        parts += ["## Plan", plans[-1][:room]]
    return "\n".join(parts)


def _section(text: str, title: str) -> str:
    body = text.split(title, 1)[1]
    return body.split("\n## ", 1)[0].strip()


def _digest(messages: list[Message], room: int) -> str:
    lines = [_line(message, 160) for message in messages if message["role"] != "user"]
    return "\n".join(lines)[-max(room, 400) :]


def _line(message: Message, limit: int) -> str:
    calls = [f"{c['function']['name']}({c['function']['arguments']})" for c in message.get("tool_calls", ())]
    text = " ".join([message.get("content") or "", *calls]).strip()
    return f"{message['role']}: {text[:limit]}"
