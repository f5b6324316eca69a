"""What a session says about other agents: those it made, the child sessions it began, what it read of the board."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from opensage.log.events import (
    AgentCalled,
    AgentCreated,
    AgentFinished,
    AgentRetired,
    BoardPosted,
    BoardRead,
    Event,
)


@dataclass(slots=True)
class Delegation:
    """One child session as its caller sees it.

    Attributes:
        number: place among the caller's children; the child's session id ends in it.
        said: the task, and the messages it was to go on with.
        status: of its last run; "running" until that ended, which after a crash means that it was interrupted.
        ended: when its caller last saw it end, seconds since the epoch.
    """

    number: int
    agent: str
    task: str
    call: str = ""
    background: bool = False
    group: int = 0
    model: str = ""
    place: str = ""
    said: list[str] = field(default_factory=list)
    status: str = "running"
    reason: str = ""
    text: str = ""
    artefacts: list[str] = field(default_factory=list)
    usage: dict[str, Any] = field(default_factory=dict)
    ended: float = 0.0

    @property
    def id(self) -> str:
        """What the caller's model calls it."""
        return f"a{self.number}"


def number_of(wanted: str) -> int:
    """The number in the id of a child, e.g. "a3" or "3"; 0 when it is none."""
    key = wanted.strip().lower().removeprefix("a")
    return int(key) if key.isdecimal() and len(key) < 9 else 0


@dataclass(slots=True)
class Made:
    """An agent as it was made."""

    spec: dict[str, Any]
    by: str
    source: str = ""


class Delegations:
    """Fold of one session."""

    def __init__(self) -> None:
        self.children: dict[int, Delegation] = {}
        self.made: dict[str, Made] = {}
        self.retired: set[str] = set()
        self.topics: dict[str, int] = {}
        self.cursor = 0

    def __iter__(self) -> Iterator[Delegation]:
        return iter(list(self.children.values()))

    def __bool__(self) -> bool:
        return bool(self.children or self.made or self.cursor)

    def of_call(self, call: str) -> list[Delegation]:
        """The children that one tool call began, in order."""
        return [child for child in self if call and child.call == call]

    def apply(self, event: Event) -> None:
        """Take one event into account."""
        match event:
            case AgentCreated():
                self.made[event.agent] = Made(event.spec, event.by, event.source)
            case AgentRetired():
                self.retired.add(event.agent)
            case AgentCalled():
                self._called(event)
            case AgentFinished():
                self._finished(event)
            case BoardPosted():
                self.topics[event.topic] = self.topics.get(event.topic, 0) + 1
            case BoardRead():
                self.cursor = max(self.cursor, event.cursor)
            case _:
                pass

    def _called(self, event: AgentCalled) -> None:
        known = self.children.get(event.number)
        if known is not None:  # it goes on, with a message perhaps
            known.status, known.reason, known.call = "running", "", event.call
            known.background = event.background
            known.said += [event.task] if event.task else []
            return
        self.children[event.number] = Delegation(
            event.number,
            event.agent,
            event.task,
            event.call,
            event.background,
            event.group,
            event.model,
            event.place,
            [event.task],
        )

    def _finished(self, event: AgentFinished) -> None:
        child = self.children.get(event.number)
        if child is None:
            return
        child.status, child.reason, child.text = event.status, event.reason, event.text
        child.artefacts, child.usage = event.artefacts, event.usage
        child.ended = event.time
