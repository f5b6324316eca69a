"""The events of a session: one dataclass a kind, one JSON object a line.

A line is `{"seq": int, "time": unix seconds, "type": str, ...fields}`; fields at their default are left out.
Unknown types and unknown fields survive a round trip, so that an older kit can read a newer log.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

from opensage.errors import SessionError

LOG_VERSION = 1
_KINDS: dict[str, type[Event]] = {}


@dataclass(slots=True, kw_only=True)
class Event:
    """One line of the log. `seq` and `time` are set when it is appended; -1 means it lives only on screen."""

    type: ClassVar[str] = ""
    durable: ClassVar[bool] = False
    """Whether the line must reach the disk before the run goes on."""
    seq: int = -1
    time: float = 0.0

    def __init_subclass__(cls, **kwargs: Any) -> None:
        if "type" in cls.__dict__:
            _KINDS[cls.type] = cls

    def to_dict(self, *, full: bool = False) -> dict[str, Any]:
        """The event as its JSON object; `full` keeps the fields at their default, which the log leaves out."""
        out: dict[str, Any] = {"seq": self.seq, "time": self.time, "type": self.type}
        for name, default in _fields(type(self)):
            value = getattr(self, name)
            if full or value != default:
                out[name] = value
        return out


@dataclass(slots=True, kw_only=True)
class SessionStarted(Event):
    """First line of every log."""

    type: ClassVar[str] = "session.started"
    durable: ClassVar[bool] = True
    session: str = ""
    version: int = LOG_VERSION
    kit: str = ""
    workdir: str = ""
    parent: str = ""
    forked_at: int = -1


@dataclass(slots=True, kw_only=True)
class RunStarted(Event):
    """A run begins or goes on. `system` is the system message, left out when it is the one before.

    `setup` is what else a reader needs to do it again: versions, permission rules, names of the tools.
    """

    type: ClassVar[str] = "run.started"
    durable: ClassVar[bool] = True
    session: str = ""
    agent: str = "main"
    model: str = ""
    sandbox: str = ""
    limits: dict[str, Any] = field(default_factory=dict)
    system: str = ""
    setup: dict[str, Any] = field(default_factory=dict)
    resumed: bool = False


@dataclass(slots=True, kw_only=True)
class UserMessage(Event):
    """What the person said."""

    type: ClassVar[str] = "user.message"
    durable: ClassVar[bool] = True
    text: str = ""


@dataclass(slots=True, kw_only=True)
class Note(Event):
    """A remark of the kit to the model (nudge, cut-off, last turn), sent as a user message."""

    type: ClassVar[str] = "note"
    text: str = ""
    reason: str = ""


@dataclass(slots=True, kw_only=True)
class ModelReply(Event):
    """A whole reply. `calls` are `{id, name, arguments}`; `cost` is null when the price is unknown.

    `by` is "workflow" when code made it and no model was asked.
    """

    type: ClassVar[str] = "model.reply"
    model: str = ""
    text: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)
    finish_reason: str = "stop"
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost: float | None = 0.0
    extra: dict[str, Any] | None = None
    by: str = ""


@dataclass(slots=True, kw_only=True)
class SideReply(Event):
    """An answer beside the conversation (a summary, a diagnosis): it costs, but is no part of the history.

    `prompt` is the question, where a workflow asked it.
    """

    type: ClassVar[str] = "model.side"
    purpose: str = ""
    prompt: str = ""
    model: str = ""
    text: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost: float | None = 0.0


@dataclass(slots=True, kw_only=True)
class ModelFailed(Event):
    """A model call that failed for good; `text` is what had been streamed, kept for people and never replayed."""

    type: ClassVar[str] = "model.failed"
    error: str = ""
    text: str = ""


@dataclass(slots=True, kw_only=True)
class ApprovalAsked(Event):
    """A call waits for a person."""

    type: ClassVar[str] = "approval.asked"
    durable: ClassVar[bool] = True
    id: str = ""
    name: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class ApprovalDecided(Event):
    """The answer; `arguments` when the person edited the call, `remember` a rule for the rest of the session."""

    type: ClassVar[str] = "approval.decided"
    durable: ClassVar[bool] = True
    id: str = ""
    allowed: bool = False
    reason: str = ""
    arguments: dict[str, Any] | None = None
    remember: str = ""


@dataclass(slots=True, kw_only=True)
class ToolStarted(Event):
    """Written before a tool runs, so that after a crash we know what may have taken effect."""

    type: ClassVar[str] = "tool.started"
    id: str = ""
    name: str = ""
    source: str = ""
    """Where the tool is from when it is a toolkit's or an MCP server's: "toolkit:NAME", "mcp:SERVER"."""


@dataclass(slots=True, kw_only=True)
class ToolResult(Event):
    """The answer to one call. `blob` is the hash of the whole output when `text` holds only head and tail."""

    type: ClassVar[str] = "tool.result"
    id: str = ""
    name: str = ""
    text: str = ""
    ok: bool = True
    synthetic: str = ""
    """Why the kit answered in the tool's place: "interrupted", "cancelled", "denied", "invalid", "limit"."""
    blob: str = ""
    size: int = 0
    duration: float = 0.0
    diff: str = ""


@dataclass(slots=True, kw_only=True)
class Compacted(Event):
    """History before `keep_from` was replaced by `summary`; the outputs of the events in `elided` by a pointer."""

    type: ClassVar[str] = "compacted"
    durable: ClassVar[bool] = True
    summary: str = ""
    keep_from: int = 0
    elided: list[int] = field(default_factory=list)
    how: str = ""


@dataclass(slots=True, kw_only=True)
class Recovered(Event):
    """What was lost or interrupted, found when the log was opened."""

    type: ClassVar[str] = "recovered"
    durable: ClassVar[bool] = True
    detail: str = ""
    lost: str = ""


@dataclass(slots=True, kw_only=True)
class RunFinished(Event):
    """A run ended. `status`: done, limit, stuck, failed, cancelled or empty."""

    type: ClassVar[str] = "run.finished"
    durable: ClassVar[bool] = True
    status: str = "done"
    reason: str = ""
    text: str = ""
    usage: dict[str, Any] = field(default_factory=dict)
    session: str = ""


@dataclass(slots=True, kw_only=True)
class AgentCreated(Event):
    """An agent came to be: made by the agent of this session, or taken from a library. `spec` is an `AgentSpec`."""

    type: ClassVar[str] = "agent.created"
    durable: ClassVar[bool] = True
    agent: str = ""
    by: str = ""
    spec: dict[str, Any] = field(default_factory=dict)
    source: str = ""


@dataclass(slots=True, kw_only=True)
class AgentCalled(Event):
    """A child session begins. Its id is this session's with `.number` at the end.

    `call` is the tool call that asked for it, so that a resumed call finds its children; `group` numbers an ensemble;
    `place` is its own copy of the workspace, relative to `.opensage`, or "" when it shares the caller's.
    """

    type: ClassVar[str] = "agent.called"
    durable: ClassVar[bool] = True
    number: int = 0
    agent: str = ""
    task: str = ""
    call: str = ""
    background: bool = False
    group: int = 0
    model: str = ""
    place: str = ""


@dataclass(slots=True, kw_only=True)
class AgentFinished(Event):
    """A run of a child session ended; `usage` is what this run and all below it spent."""

    type: ClassVar[str] = "agent.finished"
    durable: ClassVar[bool] = True
    number: int = 0
    agent: str = ""
    status: str = ""
    reason: str = ""
    text: str = ""
    artefacts: list[str] = field(default_factory=list)
    usage: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class AgentRetired(Event):
    """An agent can be called no more."""

    type: ClassVar[str] = "agent.retired"
    agent: str = ""


@dataclass(slots=True, kw_only=True)
class AgentSaved(Event):
    """An agent was written to the project's library."""

    type: ClassVar[str] = "agent.saved"
    agent: str = ""
    path: str = ""
    description: str = ""


@dataclass(slots=True, kw_only=True)
class BoardPosted(Event):
    """This agent posted to a topic of the message board."""

    type: ClassVar[str] = "board.posted"
    topic: str = ""


@dataclass(slots=True, kw_only=True)
class BoardRead(Event):
    """What others posted, shown to this agent as a user message; `cursor` is the byte up to which it has read."""

    type: ClassVar[str] = "board.read"
    text: str = ""
    cursor: int = 0


@dataclass(slots=True, kw_only=True)
class Unknown(Event):
    """A line of a kind this kit does not know."""

    type: ClassVar[str] = "unknown"
    data: dict[str, Any] = field(default_factory=dict)

    def to_dict(self, *, full: bool = False) -> dict[str, Any]:
        """The object as it was read."""
        return {**self.data, "seq": self.seq, "time": self.time}


@dataclass(slots=True, kw_only=True)
class TextDelta(Event):
    """Streamed text; on screen only. `reset` says that what came before is taken back."""

    type: ClassVar[str] = "text.delta"
    text: str = ""
    reset: bool = False


@dataclass(slots=True, kw_only=True)
class Progress(Event):
    """A line for people, e.g. a retry or a tool's progress; on screen only."""

    type: ClassVar[str] = "progress"
    text: str = ""
    id: str = ""


_to_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_FIELDS: dict[type, list[tuple[str, Any]]] = {}
_TYPES: dict[type, dict[str, tuple[tuple[type, ...], type | None]]] = {}


def _fields(kind: type[Event]) -> list[tuple[str, Any]]:
    found = _FIELDS.get(kind)
    if found is None:
        found = [(f.name, _default(f)) for f in dataclasses.fields(kind) if f.name not in ("seq", "time")]
        _FIELDS[kind] = found
    return found


def _default(spec: dataclasses.Field[Any]) -> Any:
    if spec.default_factory is not dataclasses.MISSING:
        return spec.default_factory()
    return spec.default


def encode(event: Event) -> bytes:
    """One line of UTF-8 JSON with its newline.

    Raises:
        SessionError: the event holds something JSON cannot say; nothing was written.
    """
    data = event.to_dict()
    try:
        return (_to_json(data) + "\n").encode()
    except UnicodeEncodeError:  # a lone surrogate from a tool or a model: escape instead
        return json.dumps(data, allow_nan=False, separators=(",", ":")).encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise SessionError(f"event {event.type} cannot be stored: {error}. Store only JSON values.") from None


def decode(line: bytes) -> Event:
    """Read one line.

    Raises:
        SessionError: it is not a JSON object with `seq`, `time` and `type` of the right types.
    """
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise SessionError(f"not a log line: {error}") from None
    if not isinstance(data, dict) or not _head_is_right(data):
        raise SessionError("not a log line: seq, time or type is missing or of the wrong type")
    kind = _KINDS.get(data["type"])
    if kind is None or not _fields_are_right(kind, data):
        return Unknown(seq=data["seq"], time=float(data["time"]), data=data)
    known = {name: data[name] for name, _ in _fields(kind) if name in data}
    return kind(seq=data["seq"], time=float(data["time"]), **known)


def _head_is_right(data: Mapping[str, Any]) -> bool:
    seq, time = data.get("seq"), data.get("time")
    if not isinstance(seq, int) or isinstance(seq, bool) or not isinstance(data.get("type"), str):
        return False
    return isinstance(time, int | float) and not isinstance(time, bool) and math.isfinite(_as_float(time))


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


_ACCEPTS: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "bool": (bool,),
    "float": (int, float),
    "float | None": (int, float, type(None)),
    "list[int]": (list,),
    "list[str]": (list,),
    "list[dict[str, Any]]": (list,),
    "dict[str, Any]": (dict,),
    "dict[str, Any] | None": (dict, type(None)),
}
_ITEMS: dict[str, type] = {"list[int]": int, "list[str]": str, "list[dict[str, Any]]": dict}


def _fields_are_right(kind: type[Event], data: Mapping[str, Any]) -> bool:
    types = _TYPES.get(kind)
    if types is None:
        named = {f.name: cast("str", f.type) for f in dataclasses.fields(kind)}
        types = _TYPES[kind] = {name: (_ACCEPTS[text], _ITEMS.get(text)) for name, text in named.items()}
    for name, value in data.items():
        accepted, item = types.get(name, ((object,), None))
        if not isinstance(value, accepted) or _is_no_number(value, accepted):
            return False
        if item is not None and not all(isinstance(part, item) for part in cast("list[object]", value)):
            return False
    return "calls" not in types or all(_is_call(call) for call in data.get("calls", ()))


def _is_no_number(value: object, accepted: tuple[type, ...]) -> bool:
    """Whether it is true or false where a number is wanted."""
    return isinstance(value, bool) and bool not in accepted and object not in accepted


def _is_call(call: object) -> bool:
    if not isinstance(call, dict):
        return False
    return all(isinstance(call.get(key), str) for key in ("id", "name", "arguments"))
