"""A child at work: an engine of its own on a session of its own, beside its caller's."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opensage.approval import Policy
from opensage.budget import Budget
from opensage.engine import Engine
from opensage.errors import OpenSageError
from opensage.log.delegations import Delegation
from opensage.log.events import AgentFinished, ApprovalAsked, Event, ModelReply, RunFinished, ToolResult
from opensage.log.session import Session
from opensage.permissions import Rule
from opensage.protocols import Sandbox
from opensage.spec import AgentSpec
from opensage.topology.member import Member
from opensage.topology.restart import unseen

if TYPE_CHECKING:
    from opensage.runtime import Run

_TEXT = 12_000
_CHANGED = re.compile(r"(?m)^\+\+\+ (?:b/)?(.+)$")
_ROLE = (
    "You are the agent '{name}', called by '{caller}' for one task. Your last message is the answer it gets: say what "
    "you did and found."
)


class Child:
    """A child session's work in this process. `task` ends when its run does; the outcome stands in `delegation`."""

    def __init__(self, caller: Member, delegation: Delegation, spec: AgentSpec, share: Budget) -> None:
        self.caller, self.delegation, self.spec, self.share = caller, delegation, spec, share
        self.task: asyncio.Task[None] | None = None
        self.show: Callable[[str], None] = lambda _text: None
        self.workdir: Path | None = None
        self.sandbox: Sandbox | None = None
        self.ending = "cancelled", "ended by its caller"
        """Status and reason of one that is cancelled."""
        self.outcome = AgentFinished(number=delegation.number, agent=spec.name)
        self._told = False
        self.verdict = ""

    @classmethod
    def finished(cls, caller: Member, delegation: Delegation) -> Child:
        """A child that ended in an earlier process."""
        return cls(caller, delegation, AgentSpec(name=delegation.agent), Budget())

    @property
    def busy(self) -> bool:
        """Whether it has not ended."""
        return self.task is not None and not self.task.done()

    @property
    def session(self) -> str:
        """Id of its session."""
        return f"{self.caller.engine.session.id}.{self.delegation.number}"

    def start(self, *, workdir: Path | None = None, sandbox: Sandbox | None = None) -> None:
        """Begin; in its own workspace and sandbox when they are given."""
        self.workdir, self.sandbox = workdir, sandbox
        self.task = asyncio.create_task(self._work(), name=f"agent {self.session}")
        self.task.add_done_callback(_look)

    async def _work(self) -> None:
        """One run; however it ends, its caller's log says how."""
        outcome, seats = self.outcome, self.caller.team.seats
        try:
            try:
                await seats.take()
                await self._run()
            finally:
                seats.free()
        except asyncio.CancelledError:
            outcome.status, outcome.reason = self.ending
            raise
        except OpenSageError as error:
            outcome.status, outcome.reason = "failed", str(error)
        except Exception as error:  # noqa: BLE001 of a person's function, e.g. `approve`: its caller is told
            outcome.status, outcome.reason = "failed", f"{type(error).__name__}: {error}"
        finally:
            self.close()

    def close(self) -> None:
        """Tell its caller how it ended; also of one that was ended before it began. Safe to call twice."""
        if self._told or self.task is None:
            return
        self._told = True
        if not self.outcome.status:
            self.outcome.status, self.outcome.reason = self.ending
        self.share.close()
        self.outcome.usage = self.outcome.usage or self.share.report()  # one that was cut off spent something too
        self.caller.tell(self.outcome)

    async def _run(self) -> None:
        engine, outcome = Delegate(self), self.outcome
        try:
            summary = engine.session.summary
            unheard = self.delegation.said[summary.messages :]  # after a crash: what it was not told
            if not unheard and summary.status != "running" and unseen(summary, self.delegation):
                outcome.status, outcome.reason, outcome.text = summary.status, summary.reason, summary.text[:_TEXT]
                self.share.charge(summary.run_usage, summary.run_turns, summary.run_tool_calls, above=False)
                return  # it had ended when the process did
            async with aclosing(engine.turn("\n\n".join(unheard) or None)) as events:  # type: ignore[type-var]
                async for event in events:
                    self._see(event)
        finally:
            await engine.close()

    def _see(self, event: Event) -> None:
        outcome = self.outcome
        match event:
            case RunFinished():
                outcome.status, outcome.reason, outcome.usage = event.status, event.reason, event.usage
                outcome.text = event.text if len(event.text) <= _TEXT else f"{event.text[:_TEXT]}\n[cut]"
            case ToolResult() if event.diff and event.ok:
                for path in _CHANGED.findall(event.diff):
                    if path not in outcome.artefacts:
                        outcome.artefacts.append(path)
            case ModelReply():
                for call in event.calls:
                    self.show(f"[{self.spec.name}] > {call['name']} {call['arguments'][:120]}")
            case ApprovalAsked():
                self.show(f"[{self.spec.name}] asks to run {event.name}")
            case _:
                pass


def _look(task: asyncio.Task[None]) -> None:
    """What leaves the task leaves the whole run too, or stands in the log: it is not lost when nobody waits for it."""
    if not task.cancelled():
        task.exception()


class Delegate(Engine):
    """The engine of a child: it shares what its caller has, within the bounds of its spec."""

    def __init__(self, child: Child) -> None:
        above = child.caller.engine
        self.child, self._caller = child, above
        self.spec, self.limits = child.spec, child.share.limits
        self.approve, self.ask, self.mask = above.approve, above.ask, above.mask
        self.tracing, self.keeper = above.tracing, above.keeper
        self.spans = None if self.tracing is None else self.tracing.spans(self.mask)
        self.workdir = child.workdir or above.workdir
        self.model = child.caller.team.model(child.spec.model, above.model)
        self._own_sandbox = child.sandbox
        self.bare = child.sandbox or above.bare
        self.sandbox = self._traced(self.bare)
        self.policy, self.state, self.warning = above.policy, {}, ""
        self._mcp, self._closed, self._mcp_started = None, False, False  # servers are its caller's
        folder = child.caller.team.folder
        new = not (folder / f"{child.session}.jsonl").exists()
        self.session = Session(
            folder, child.session, create=new, workdir=self.workdir, mask=self.mask or None, parent=above.session.id
        )
        try:
            self._join(Member(self, child.caller.team, child.caller), above.toolbox, child.caller)
        except OpenSageError:
            self.session.close()
            raise

    def _budget(self, keep: bool) -> Budget:
        budget, summary = self.child.share, self.session.summary
        if keep or unseen(summary, self.child.delegation):  # those above know of it already: see `charge_interrupted`
            budget.charge(summary.run_usage, summary.run_turns, summary.run_tool_calls, above=False)
        return budget

    def _policy(self) -> Policy:
        run = self._caller_run()
        for rule, allowed in self.session.summary.remembered:
            rules = run.policy.always if allowed else run.policy.deny
            if (parsed := Rule.parse(rule)) not in rules:
                rules.append(parsed)
        return run.policy  # the same object: what a person decides here holds for all

    def _run_options(self) -> dict[str, Any]:
        return {"asking": self._caller_run().asking}

    def _caller_run(self) -> Run:
        run = self.child.caller.run
        assert run is not None
        return run

    def _role(self) -> str:
        return _ROLE.format(name=self.spec.name, caller=self._caller.spec.name)

    async def close(self) -> None:
        """End what this agent alone has."""
        if self._closed:
            return
        self._closed = True
        try:
            self.shelf.close()
            await self._close_state()
            if self._own_sandbox is not None:
                await self._own_sandbox.close()
        finally:
            self.session.close()
