"""One run of one agent: everything the loop and the dispatcher need, in one place."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opensage.approval import Approver, Policy
from opensage.budget import Budget
from opensage.coach import Coach
from opensage.compaction import Compactor
from opensage.errors import SandboxLost, ToolError
from opensage.guard import LoopGuard
from opensage.log.events import ApprovalDecided, Event, RunFinished
from opensage.log.session import Session
from opensage.messages import Reply, ToolCall
from opensage.models.text_calls import recover_calls
from opensage.permissions import Rule, Workspace
from opensage.protocols import Model, Sandbox
from opensage.secrets import Mask
from opensage.spec import AgentSpec
from opensage.tools.base import ToolContext
from opensage.tools.toolbox import Toolbox

if TYPE_CHECKING:
    from opensage.topology.member import Member

MAX_LOSSES = 2


@dataclass(slots=True)
class Run:
    """State of a run. `model` is already wrapped (budget, retry, time-outs).

    Attributes:
        reply: the reply of the current turn.
        tools_on: whether the current turn offered tools.
        lost: set when the sandbox was lost a second time; the loop then stops.
        state: what tools keep between calls.
    """

    session: Session
    spec: AgentSpec
    model: Model
    toolbox: Toolbox
    sandbox: Sandbox
    workdir: Path
    budget: Budget
    policy: Policy = field(default_factory=Policy)
    approve: str | Approver = "deny"
    ask: Callable[[str], Awaitable[str]] | None = None
    progress: Callable[[str], None] = lambda _text: None
    max_tokens: int | None = None
    state: dict[str, Any] = field(default_factory=dict)
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    guard: LoopGuard = field(default_factory=LoopGuard)
    coach: Coach | None = None
    mask: Mask = field(default_factory=Mask)
    member: Member | None = None
    outbox: list[Event] = field(default_factory=list)
    compactor: Compactor = field(init=False)
    reply: Reply | None = None
    tools_on: bool = True
    lost: SandboxLost | None = None
    finished: RunFinished | None = None
    losses: int = 0

    def __post_init__(self) -> None:
        pin = None if self.member is None else self.member.pinned
        self.compactor = Compactor(self.session, self.model, pin=pin)

    async def context(self, call: ToolCall) -> ToolContext:
        """What the tool of this call may touch."""
        return ToolContext(
            sandbox=self.sandbox,
            workdir=self.workdir,
            session=self.session.id,
            agent=self.spec.name,
            call_id=call.id,
            state=self.state,
            ask=self.ask,
            progress=self.progress,
            blob=self.blob,
            record=self.tell,
        )

    def blob(self, name: str) -> bytes:
        """A stored output of this session, or a long post of the message board."""
        try:
            return self.session.blobs.get(name)
        except ToolError:
            if self.member is None:
                raise
            return self.member.team.board.blobs.get(name)

    def tell(self, event: Event) -> Event:
        """Record an event that arises beside the loop; it is shown with the loop's next one."""
        self.outbox.append(self.session.record(event))
        return event

    def told(self, before: int) -> list[Event]:
        """What was told before the event with this number, and not shown yet."""
        events = [event for event in self.outbox if event.seq < before]
        self.outbox = self.outbox[len(events) :]
        return events

    async def advice(self) -> str:
        """Why an answer is sent back, or "" when it stands."""
        if self.member is not None and (text := self.member.advice()):
            return text
        return "" if self.coach is None else await self.coach.advice(self)

    async def relieved(self) -> bool:
        """Whether, after waiting for agents at work, there is budget again: what they did not use comes back."""
        if self.member is None or not self.member.working:
            return False
        return await self.member.settle() and not self.budget.exhausted()

    def normalise(self, reply: Reply) -> Reply:
        """The reply without secrets, with calls printed as text made real, and ids new to this history."""
        if self.mask:
            reply = self.mask.reply(reply)
        if self.tools_on:
            reply = recover_calls(reply, self.toolbox.names)
        unique = self.session.conversation.unique_id
        calls = tuple(
            ToolCall(unique(call.id, place), call.name, call.arguments, call.extra)
            for place, call in enumerate(reply.calls)
        )
        return Reply(reply.text, calls, reply.finish_reason, reply.usage, reply.extra)

    def unknown_tool(self, name: str) -> str:
        """What to tell the model about a tool that does not exist."""
        names = ", ".join(self.toolbox.shown) or "none"
        near = self.toolbox.nearest(name)
        return (
            f"There is no tool named {name[:80]!r}." + (f" Did you mean {near}?" if near else "") + f" Tools: {names}."
        )

    def remember(self, decided: ApprovalDecided) -> None:
        """Keep a rule for the rest of the session; it can never undo a deny."""
        if decided.remember:
            rules = self.policy.always if decided.allowed else self.policy.deny
            rules.append(Rule.parse(decided.remember))

    @property
    def place(self) -> Workspace:
        """What paths in permission rules are relative to."""
        return Workspace(self.workdir, self.sandbox.workdir)

    def sandbox_lost(self, error: SandboxLost) -> None:
        """Count a loss: the first restarts the sandbox, the second ends the run."""
        self.losses += 1
        if self.losses >= MAX_LOSSES:
            self.lost = error

    async def end(self, status: str = "done", reason: str = "", text: str | None = None) -> RunFinished:
        """End what still works below, so that the end of the run tells all that was spent, and record it."""
        if self.member is not None:
            await self.member.finish()
        return self.finish(status, reason, text)

    def finish(self, status: str = "done", reason: str = "", text: str | None = None) -> RunFinished:
        """Record the end of the run. Without `text`, the last thing the model said is the (partial) answer."""
        self.finished = self.session.record(
            RunFinished(
                status=status,
                reason=reason,
                text=self.session.conversation.last_text if text is None else text,
                session=self.session.id,
                usage=self.budget.report(),
            )
        )
        return self.finished
