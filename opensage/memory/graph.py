"""The execution graph as a fold over the logs of a tree of sessions: what becomes an item, what joins items.

An item's key is its place in its log, `SESSION#SEQ` (a call: `SESSION#SEQ.N`), so folding again gives the same items.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from opensage.log.events import (
    AgentCalled,
    AgentCreated,
    AgentFinished,
    AgentSaved,
    BoardRead,
    Compacted,
    Event,
    ModelReply,
    RunFinished,
    RunStarted,
    ToolResult,
    ToolStarted,
    UserMessage,
)
from opensage.log.toolkit_events import ToolkitMade, ToolkitRetired
from opensage_memory.item import CALLED, NEXT, PART_OF, REPLY_TO, SUMMARIZES, USED, WORKED_FOR
from opensage_memory.writing import New, without_recalled

MOST = 100_000
"""Characters of what was said; the log has the rest."""
HEAD = 2_000
"""Characters of a call's arguments, and of a result."""
PROJECT = ""
"""Name of the part of a memory that is for all agents of a project."""


class Ref(NamedTuple):
    """An item by what it is and where it comes from."""

    kind: str
    key: str


class Node(NamedTuple):
    """An item, and whose it is: an agent's name, or `PROJECT`."""

    owner: str
    new: New


class Link(NamedTuple):
    """An edge. It is left out when an end is not there, or began to be after `before` (seconds since 1970)."""

    source: Ref
    type: str
    target: Ref
    before: float = math.inf


Piece = Node | Link


@dataclass(slots=True)
class LogFold:
    """One session."""

    session: str
    above: LogFold | None = None
    owner: str = "main"
    agent: str = "main"
    run: Ref | None = None
    running: bool = False
    run_at: float = 0.0
    task: Ref | None = None
    last: Ref | None = None
    said: list[tuple[int, Ref]] = field(default_factory=list)
    calls: dict[str, tuple[Ref, str]] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    children: dict[int, str] = field(default_factory=dict)
    used: dict[str, None] = field(default_factory=dict)
    untrusted: bool = False

    def place(self, event: Event) -> str:
        """The key of what an event says."""
        return f"{self.session}#{event.seq}"


class TreeFold:
    """A root session with those of its sub-agents. Events are to come in the order of their times."""

    def __init__(self) -> None:
        self._logs: dict[str, LogFold] = {}
        self._shared: set[str] = set()

    def apply(self, session: str, event: Event) -> list[Piece]:
        """What one event adds to the graph."""
        log = self._log(session)
        handler = _HANDLERS.get(type(event))
        return [] if handler is None else list(handler(self, log, event))

    def _log(self, session: str) -> LogFold:
        if session not in self._logs:
            above = session.rpartition(".")[0]
            self._logs[session] = LogFold(session, self._log(above) if above else None)
        return self._logs[session]

    def _created(self, log: LogFold, event: AgentCreated) -> Iterator[Piece]:
        if event.spec.get("memory_scope") == "shared":
            self._shared.add(event.agent)
        yield from ()

    def _started(self, log: LogFold, event: RunStarted) -> Iterator[Piece]:
        above = log.above
        log.agent = event.agent
        log.owner = above.owner if above is not None and event.agent in self._shared else event.agent
        if event.resumed and log.running:
            return
        before, log.run, log.running = log.run, Ref("run", log.place(event)), True
        log.run_at, log.used = event.time, {}
        session = Ref("session", log.session)
        if before is None:
            yield _node(log, event, "session", f"Session {log.session}", key=log.session, link=False)
            if above is not None:
                yield Link(session, PART_OF, Ref("session", above.session))
        yield self._run(log, event.time, "running", model=event.model)
        yield Link(log.run, PART_OF, session)
        if before is not None:
            yield Link(before, NEXT, log.run)
        if above is not None and above.run is not None:
            yield Link(above.run, CALLED, log.run)

    def _run(self, log: LogFold, at: float, status: str, **data: Any) -> Node:
        assert log.run is not None
        text = f"Run of {log.agent} in session {log.session}: {status}"
        return _made(log, "run", log.run.key, log.run_at, text, "agent", data={"status": status, **data}, link=False)

    def _user(self, log: LogFold, event: UserMessage) -> Iterator[Piece]:
        trust, author = ("user", "user") if log.above is None else ("agent", log.above.agent)
        log.task = Ref("message", log.place(event))
        yield from self._said(log, event, "message", event.text, trust, author)

    def _board(self, log: LogFold, event: BoardRead) -> Iterator[Piece]:
        if event.text:
            yield from self._said(log, event, "message", event.text, "agent", "board")

    def _reply(self, log: LogFold, event: ModelReply) -> Iterator[Piece]:
        names = [str(call["name"]) for call in event.calls]
        if not names and not event.text:
            return
        turn = Ref("turn", log.place(event))
        text = event.text or f"(calls {', '.join(names)})"
        data = {} if event.text else {"silent": True}
        yield from self._said(log, event, "turn", text, "agent", log.agent, data=data)
        if log.task is not None and (not names or "finish" in names):
            yield Link(turn, REPLY_TO, log.task)
        for number, call in enumerate(event.calls):
            ref = Ref("tool_call", f"{turn.key}.{number}")
            log.calls[call["id"]] = (ref, str(call["name"]))
            told = f"{call['name']} {call['arguments']}"[:HEAD]
            yield _node(log, event, ref.kind, told, key=ref.key, data={"name": call["name"]}, link=False)
            yield Link(ref, PART_OF, turn)

    def _said(
        self, log: LogFold, event: Event, kind: str, text: str, trust: str, author: str, **more: Any
    ) -> Iterator[Piece]:
        """Something that was said: it is part of the run, and follows what was said before."""
        ref = Ref(kind, log.place(event))
        yield _node(log, event, kind, text, trust=trust, author=author, **more)
        if log.run is not None:
            yield Link(ref, PART_OF, log.run)
        if log.last is not None:
            yield Link(log.last, NEXT, ref)
        log.last = ref
        log.said.append((event.seq, ref))

    def _tool_started(self, log: LogFold, event: ToolStarted) -> Iterator[Piece]:
        log.sources[event.id] = event.source
        yield from ()

    def _result(self, log: LogFold, event: ToolResult) -> Iterator[Piece]:
        call, name = log.calls.pop(event.id, (None, ""))
        source = log.sources.pop(event.id, "")
        if call is None:
            return
        outside = source.startswith("mcp:")
        log.untrusted |= outside
        kit = source.removeprefix("toolkit:")
        if event.ok and kit != source:
            log.used[f"toolkit:{kit}"] = None
        ref = Ref("observation", log.place(event))
        data: dict[str, Any] = {"name": name, "ok": event.ok}
        data |= {"blob": event.blob, "size": event.size} if event.blob else {}
        data |= {"synthetic": event.synthetic} if event.synthetic else {}
        trust = "untrusted" if outside else "tool"
        yield _node(log, event, ref.kind, event.text, trust=trust, author=name, data=data, link=False, most=HEAD)
        yield Link(ref, REPLY_TO, call)
        yield Link(ref, PART_OF, Ref("turn", call.key.rpartition(".")[0]))

    def _compacted(self, log: LogFold, event: Compacted) -> Iterator[Piece]:
        gone = [ref for seq, ref in log.said if seq < event.keep_from]
        if not event.summary or not gone:
            return
        log.said = [entry for entry in log.said if entry[0] >= event.keep_from]
        summary = Ref("summary", log.place(event))
        trust = "untrusted" if log.untrusted else "agent"
        yield _node(log, event, "summary", event.summary, trust=trust, data={"how": event.how}, link=False)
        yield from (Link(summary, SUMMARIZES, ref) for ref in gone)

    def _called(self, log: LogFold, event: AgentCalled) -> Iterator[Piece]:
        log.children[event.number] = event.agent
        yield from ()

    def _child_finished(self, log: LogFold, event: AgentFinished) -> Iterator[Piece]:
        if event.status == "done":
            log.used[f"agent:{log.children.get(event.number, event.agent)}"] = None
        yield from ()

    def _finished(self, log: LogFold, event: RunFinished) -> Iterator[Piece]:
        if log.run is None:
            return
        log.running = False
        data = {"reason": event.reason, "usage": event.usage, "ended": event.time}
        yield self._run(log, event.time, event.status, **data)
        mine = {f"agent:{log.agent}": None} if log.above is None else {}
        for key in {**mine, **log.used}:
            yield Link(log.run, USED, Ref("procedure", key), event.time)
            if event.status == "done" and log.task is not None:
                yield Link(Ref("procedure", key), WORKED_FOR, log.task, event.time)

    def _saved(self, log: LogFold, event: AgentSaved) -> Iterator[Piece]:
        text = f"Agent {event.agent}, called with call_agent: {event.description}"
        data = {"agent": event.agent, "session": log.session}
        yield _made(log, "procedure", f"agent:{event.agent}", event.time, text, "agent", owner=PROJECT, data=data)

    def _toolkit(self, log: LogFold, event: ToolkitMade) -> Iterator[Piece]:
        text = f"Toolkit {event.name}: {event.description} Tools: {', '.join(event.tools) or 'none'}"
        data = {"toolkit": event.name, "version": event.version, "hash": event.hash, "session": log.session}
        yield _made(log, "procedure", f"toolkit:{event.name}", event.time, text, "agent", owner=PROJECT, data=data)

    def _toolkit_retired(self, log: LogFold, event: ToolkitRetired) -> Iterator[Piece]:
        text, data = f"Toolkit {event.name} was retired.", {"retired": True}
        yield _made(log, "procedure", f"toolkit:{event.name}", event.time, text, "agent", owner=PROJECT, data=data)


def _node(
    log: LogFold,
    event: Event,
    kind: str,
    text: str,
    *,
    key: str = "",
    trust: str = "agent",
    author: str = "",
    most: int = MOST,
    **more: Any,
) -> Node:
    return _made(
        log, kind, key or log.place(event), event.time, text, trust, author=author or log.agent, most=most, **more
    )


def _made(
    log: LogFold, kind: str, key: str, at: float, text: str, trust: str, *, owner: str | None = None,
    author: str = "", most: int = MOST, data: dict[str, Any] | None = None, link: bool = True,
) -> Node:  # fmt: skip
    kept = without_recalled(text[:MOST])[:most]
    kept = kept if kept.strip() else f"({kind}: recalled from memory)"
    new = New(kept, kind, key, at, None, trust, author or log.agent, (key,), data=data or {}, link=link)
    return Node(log.owner if owner is None else owner, new)


_HANDLERS: dict[type[Event], Callable[[TreeFold, LogFold, Any], Iterator[Piece]]] = {
    AgentCalled: TreeFold._called,
    AgentCreated: TreeFold._created,
    AgentFinished: TreeFold._child_finished,
    AgentSaved: TreeFold._saved,
    BoardRead: TreeFold._board,
    Compacted: TreeFold._compacted,
    ModelReply: TreeFold._reply,
    RunFinished: TreeFold._finished,
    RunStarted: TreeFold._started,
    ToolResult: TreeFold._result,
    ToolStarted: TreeFold._tool_started,
    ToolkitMade: TreeFold._toolkit,
    ToolkitRetired: TreeFold._toolkit_retired,
    UserMessage: TreeFold._user,
}
