"""What a log says at a glance: usage, status, what was left open."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from opensage.log.events import (
    AgentCalled,
    AgentCreated,
    AgentFinished,
    ApprovalDecided,
    Event,
    ModelReply,
    Recovered,
    RunFinished,
    RunStarted,
    SessionStarted,
    SideReply,
    ToolResult,
    UserMessage,
)
from opensage.log.memory_events import Recalled
from opensage.messages import Usage


@dataclass(slots=True)
class Summary:
    """Fold of a whole session.

    Attributes:
        status: status of the last run, "running" when it never finished (alive or crashed), "new" before the first.
        usage: tokens and cost of all replies, those of agents called from here included.
        asked: the last message of the person, or of the caller.
        messages: how many the person, or the caller, gave.
        agents: agents created and called from here.
        run_usage: of the last run only, so that a resumed run keeps its limits.
    """

    session: str = ""
    parent: str = ""
    workdir: str = ""
    kit: str = ""
    started: float = 0.0
    updated: float = 0.0
    task: str = ""
    asked: str = ""
    messages: int = 0
    model: str = ""
    agent: str = "main"
    status: str = "new"
    reason: str = ""
    text: str = ""
    runs: int = 0
    ended: float = 0.0
    turns: int = 0
    tool_calls: int = 0
    usage: Usage = field(default_factory=Usage)
    run_usage: Usage = field(default_factory=Usage)
    run_turns: int = 0
    run_tool_calls: int = 0
    agents: int = 0
    recovered: list[str] = field(default_factory=list)
    recalled: set[str] = field(default_factory=set)
    """Ids of items of the memory that the agent was shown."""
    remembered: list[tuple[str, bool]] = field(default_factory=list)
    """Permission rules a person gave for the rest of the session: (rule, allowed)."""

    def apply(self, event: Event) -> None:
        """Take one event into account."""
        self.updated = max(self.updated, event.time)
        match event:
            case SessionStarted():
                self.session, self.parent, self.workdir = event.session, event.parent, event.workdir
                self.kit, self.started = event.kit, event.time
            case UserMessage():
                self.task = self.task or event.text
                self.asked = event.text
                self.messages += 1
            case RunStarted():
                self._start(event)
            case ModelReply() if event.by:
                pass  # no model was asked
            case ModelReply() | SideReply():
                self._reply(event)
            case ToolResult():
                self.tool_calls += 1
                self.run_tool_calls += 1
            case AgentCreated() | AgentCalled():
                self.agents += 1
            case AgentFinished():
                self._delegated(event)
            case RunFinished():
                self.status, self.reason, self.text = event.status, event.reason, event.text
                self.ended = event.time
            case ApprovalDecided() if event.remember:
                self.remembered.append((event.remember, event.allowed))
            case Recalled():
                self.recalled.update(event.ids)
            case Recovered():
                self.recovered.append(event.detail)
            case _:
                pass

    def _start(self, event: RunStarted) -> None:
        if not (event.resumed and self.status == "running"):
            self.runs += 1
            self.run_usage, self.run_turns, self.run_tool_calls = Usage(), 0, 0
        self.status, self.model, self.agent, self.reason = "running", event.model, event.agent, ""

    def _reply(self, event: ModelReply | SideReply) -> None:
        self.turns += 1
        self.run_turns += 1
        spent = Usage(event.input_tokens, event.output_tokens, event.cached_tokens, event.cost)
        self.usage += spent
        self.run_usage += spent

    def _delegated(self, event: AgentFinished) -> None:
        """A finished child's run, with all below it."""
        spent = usage_of(event.usage)
        turns, calls = count_of(event.usage, "model_calls"), count_of(event.usage, "tool_calls")
        self.turns += turns
        self.run_turns += turns
        self.tool_calls += calls
        self.run_tool_calls += calls
        self.usage += spent
        self.run_usage += spent


def count_of(usage: Mapping[str, Any], name: str) -> int:
    """A count in the usage of a run, 0 when it is missing or no count: a log may hold anything."""
    value = usage.get(name)
    return value if isinstance(value, int) and value > 0 else 0


def usage_of(usage: Mapping[str, Any]) -> Usage:
    """The usage of a run as it stands in the log."""
    cost = usage.get("cost", 0.0)
    known = isinstance(cost, int | float) and math.isfinite(cost)
    got, said, cached = (count_of(usage, name) for name in ("input_tokens", "output_tokens", "cached_tokens"))
    return Usage(got, said, cached, max(0.0, float(cost)) if known else None)


def summarise(events: Iterable[Event]) -> Summary:
    """Fold events into a `Summary`."""
    summary = Summary()
    for event in events:
        summary.apply(event)
    return summary
