"""What travels between the loop and a model. Messages are dicts in OpenAI chat-completions form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Message = dict[str, Any]
"""`{"role": "system"|"user"|"assistant"|"tool", "content": str, ...}` (OpenAI chat completions)."""

FinishReason = Literal["stop", "tool_calls", "length", "content_filter"]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and money of one call, or a sum of calls.

    `cost` is in US dollars, or None when the model's price is unknown; a local model costs 0.0.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost: float | None = 0.0

    def __add__(self, other: Usage) -> Usage:
        cost = None if self.cost is None or other.cost is None else self.cost + other.cost
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            cost,
        )

    @property
    def tokens(self) -> int:
        """Input plus output tokens."""
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call as the model wrote it.

    `arguments` is the raw JSON text: it is parsed at dispatch, where a mistake can be answered. `extra` holds opaque
    provider fields of this call that must be sent back unchanged. `agent` names the sub-agent that asks, for whoever
    approves the call; "" for the main one.
    """

    id: str
    name: str
    arguments: str = "{}"
    extra: Mapping[str, Any] | None = None
    agent: str = ""


@dataclass(frozen=True, slots=True)
class CallChunk:
    """A streamed piece of a tool call. `arguments` may be a piece of text, or a complete object."""

    index: int | None = None
    id: str | None = None
    name: str | None = None
    arguments: str | Mapping[str, Any] | None = None
    extra: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Delta:
    """A streamed piece of a reply. `reset` says: forget what came so far, the call is being tried again.

    `usage` is what the provider reported last (cumulative reports replace, they are not added).
    `extra` holds opaque provider fields of the message.
    """

    text: str = ""
    calls: Sequence[CallChunk] = ()
    finish_reason: str | None = None
    usage: Usage | None = None
    extra: Mapping[str, Any] | None = None
    reset: bool = False
    note: str = ""
    """For people, e.g. "rate limited, trying again in 2 s"; never sent to the model."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One assembled reply. `finish_reason` is normalised: "tool_calls" whenever there are calls, unless cut off."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    finish_reason: str = "stop"
    usage: Usage = field(default_factory=Usage)
    extra: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """One model call.

    Attributes:
        messages: the conversation, system message first; append-only, never mutated by a model.
        tools: OpenAI function schemas, `{"type": "function", "function": {name, description, parameters}}`.
        tool_choice: "auto", or "none" when the model must answer in text.
        max_tokens: upper bound of the reply, or None for the model's own.
        temperature: None for the model's own.
    """

    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: Literal["auto", "none"] = "auto"
    max_tokens: int | None = None
    temperature: float | None = None
    agent: str = "main"
