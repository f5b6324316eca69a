"""One agent at work, as part of its team: whom it may call, whom it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from opensage.errors import ConfigError, LimitReached, ToolError
from opensage.log.delegations import Delegation, number_of
from opensage.log.events import (
    AgentCalled,
    AgentCreated,
    BoardPosted,
    BoardRead,
    Event,
)
from opensage.spec import AgentSpec, Limits
from opensage.toolkit.spec import key_of
from opensage.topology import restart
from opensage.topology.agent_file import make_spec
from opensage.topology.report import listed, reported

if TYPE_CHECKING:
    from opensage.budget import Budget
    from opensage.engine import Engine
    from opensage.memory.reach import Reach
    from opensage.runtime import Run
    from opensage.tools.base import Tool
    from opensage.topology.child import Child
    from opensage.topology.team import Known, Team

_LISTED = 20
SAME_TASK = 2
"""How often an agent may give the same task to the same agent."""
_GRACE = 10.0
_COUNTS = ("max_turns", "max_cost", "max_tokens", "max_tool_calls", "max_seconds")
_STILL = (
    "[Agents are still at work: {names}. Call await_agents to get what they find; if you answer again instead, they "
    "are ended.]"
)


class Member:
    """One agent's place in the team. `run` is set while it works."""

    def __init__(self, engine: Engine, team: Team, above: Member | None = None) -> None:
        self.engine, self.team, self.above = engine, team, above
        self.depth: int = 0 if above is None else above.depth + 1
        self.run: Run | None = None
        self.working: dict[int, Child] = {}
        self._away = 0
        self._warned = False

    @property
    def spec(self) -> AgentSpec:
        """Who it is."""
        return self.engine.spec

    @property
    def limits_allow(self) -> bool:
        """Whether it may have others below it."""
        limits = self.engine.limits
        return limits.max_agents != 0 and (limits.max_depth is None or self.depth < limits.max_depth)

    @property
    def memory_name(self) -> str:
        """Whose part of the memory it has: its own, its creator's, or ("") none; never any when its caller has none."""
        if self.engine.keeper is None or self.spec.memory_scope == "none":
            return ""
        shared = self.spec.memory_scope == "shared"
        if self.above is None:  # whom nobody made shares with the usual agent
            return AgentSpec().name if shared else self.spec.name
        return self.above.memory_name if shared or not self.above.memory_name else self.spec.name

    def reach(self) -> Reach | None:
        """What of the memory it may read and write."""
        from opensage.memory.reach import Reach

        engine, name = self.engine, self.memory_name
        if engine.keeper is None or not name:
            return None
        return Reach(engine.keeper.place, name, self.spec.name, engine, engine.mask)

    def memory_tools(self) -> list[Tool]:
        """The tools by which it remembers."""
        reach = self.reach()
        if reach is None:
            return []
        from opensage.memory.tools import memory_tools

        return memory_tools(reach)

    @property
    def children(self) -> Iterator[Delegation]:
        """Its child sessions, whatever became of them."""
        return iter(self.engine.session.delegations)

    def line(self) -> list[Member]:
        """It and those above it."""
        return [self] if self.above is None else [self, *self.above.line()]

    @property
    def budget(self) -> Budget:
        """What it may spend."""
        assert self.run is not None
        return self.run.budget

    def tell(self, event: Event) -> None:
        """Record an event in its session."""
        if self.run is None:
            self.engine.session.record(event)
        else:
            self.run.tell(event)

    # --- making agents ---

    def create(self, data: dict[str, object]) -> AgentSpec:
        """Make an agent of what a model asks for.

        Raises:
            ToolError: it is not valid, exceeds what this agent has, or there are too many.
        """
        try:
            spec = make_spec(data, "create_agent")
        except ConfigError as error:
            raise ToolError(str(error)) from None
        self.team.check_new(spec.name)
        self.check_within(spec)
        cap = self.engine.limits.max_agents
        if cap is not None and self.team.created >= cap:
            raise ToolError(f"max_agents: {self.team.created} of {cap} agents were created; use those there are")
        self._register(spec, "model")
        self.team.created += 1
        return spec

    def _register(self, spec: AgentSpec, source: str) -> None:
        from opensage.topology.team import Known

        made = {"name": spec.name, **spec.model_dump(mode="json", exclude_none=True, exclude_unset=True)}
        self.tell(AgentCreated(agent=spec.name, by=self.spec.name, spec=made, source=source))
        self.team.known[spec.name] = Known(spec, self.spec.name, source)

    def check_within(self, spec: AgentSpec, *, trusted: bool = False) -> None:
        """Refuse an agent that may do more than this one: names, models and limits are a subset.

        Raises:
            ToolError: it lists what is allowed.
        """
        own = self.engine.toolbox.names
        if extra := [name for name in spec.tools or () if name not in own]:
            raise ToolError(
                f"agent '{spec.name}' wants tools you do not have: {', '.join(extra)}; yours: {', '.join(own)}"
            )
        kits = self.engine.toolkit_names()
        if extra := [name for name in spec.toolkits or () if key_of(name) not in kits]:
            there = ", ".join(sorted(kits)) or "none"
            raise ToolError(f"agent '{spec.name}' wants toolkits you do not have: {', '.join(extra)}; yours: {there}")
        allowed = ("inherit", self.engine.model.name, *self.team.models)
        if spec.model not in allowed and not trusted:
            raise ToolError(f"model {spec.model!r} is not configured for agents; use one of {', '.join(allowed)}")
        asked = spec.limits or Limits.none()
        for name in _COUNTS:
            mine, theirs = getattr(self.engine.limits, name), getattr(asked, name)
            if mine is not None and theirs is not None and theirs > mine and name in asked.model_fields_set:
                raise ToolError(f"agent '{spec.name}' wants {name}={theirs:g}, you have {mine:g}; ask for at most that")

    # --- calling agents ---

    def begin(self, name: str, task: str, call: str, *, background: bool = False) -> Child:
        """Start a child session.

        Raises:
            ToolError: who is called, how deep or how often is not allowed, or nothing is left to give.
        """
        known = self._callable(name, task)
        self.count(1)
        share = self.share(known.spec, 1 / (self._calls_to_come() + (3 if background else 1)))
        delegation = self.record_call(known.spec, task, call, background=background)
        return self.launch(delegation, known.spec, share)

    def _calls_to_come(self) -> int:
        """Calls of agents in this turn that have no child yet, this one included: they share alike."""
        delegations = self.engine.session.delegations
        waiting = self.engine.session.conversation.open.values()
        return max(1, sum(call.name == "call_agent" and not delegations.of_call(call.id) for call in waiting))

    def _callable(self, name: str, task: str) -> Known:
        if not task.strip():
            raise ToolError("the task is empty; say what the agent is to do, with all it needs to know")
        self.check_cycle(name)
        known = self.team.find(name)
        self.check_within(known.spec, trusted=known.trusted)
        self.check_depth()
        same = [child for child in self.children if child.agent == name and child.task == task]
        if len(same) >= SAME_TASK:
            last = same[-1]
            raise ToolError(
                f"you gave '{name}' this same task {len(same)} times; {last.id} answered ({last.status}): "
                f"{last.text[:500]}\nGive another task, or go on with resume_agent('{last.id}', ...)"
            )
        if name not in self.team.known:
            self._register(known.spec, known.source)
        return known

    def check_cycle(self, name: str) -> None:
        """Refuse to call an agent that waits for this one's answer."""
        chain = [member.spec.name for member in self.line()]
        if name in chain:
            path = " -> ".join([*reversed(chain), name])
            raise ToolError(
                f"a cycle: {path}. '{name}' waits for this very answer; do it yourself or call another agent"
            )

    def check_depth(self) -> None:
        """Refuse to go deeper than the limits allow."""
        cap = self.engine.limits.max_depth
        if cap is not None and self.depth >= cap:
            raise ToolError(f"max_depth: {cap} levels of delegation are used; do it yourself")

    def count(self, more: int) -> None:
        """Count agents that are about to be called.

        Raises:
            ToolError: there would be too many; none was counted.
        """
        cap = self.engine.limits.max_agents
        if cap is not None and self.team.called + more > cap:
            raise ToolError(
                f"max_agents: {self.team.called} of {cap} agents were called in this run; do the rest yourself"
            )
        self.team.called += more

    def share(self, spec: AgentSpec, portion: float = 0.5, before: Delegation | None = None) -> Budget:
        """A share of the budget for an agent; `before` is the child that goes on with it.

        Raises:
            ToolError: too little is left.
        """
        session = self.engine.session.id
        spent = restart.Spent() if before is None else restart.of_child(self.team.folder, session, before)
        try:
            return self.budget.share(spec.limits, portion=portion, spent=spent)
        except LimitReached as error:
            raise ToolError(f"{error.reason}: finish with what you have") from None

    def record_call(self, spec: AgentSpec, task: str, call: str, **more: Any) -> Delegation:
        """Give a child its number, in the log; `more` are fields of `AgentCalled`."""
        number = 1 + max((child.number for child in self.children), default=0)
        event = AgentCalled(number=number, agent=spec.name, task=task, call=call, **{"model": spec.model, **more})
        self.tell(event)
        return self.engine.session.delegations.children[number]

    def launch(self, delegation: Delegation, spec: AgentSpec, share: Budget, **place: Any) -> Child:
        """Put a child to work on what it was told last; `place` is its own `workdir` and `sandbox`."""
        from opensage.topology.child import Child

        child = self.working[delegation.number] = Child(self, delegation, spec, share)
        child.start(**place)
        return child

    def at_work(self, delegation: Delegation) -> Child:
        """The child at work, or as it ended; one that a crash interrupted goes on."""
        return self.working.get(delegation.number) or self._settled(delegation)

    def go_on(self, delegation: Delegation, message: str | None = None, *, call: str = "") -> Child:
        """Let a child session that is not at work go on, with a message or where a crash left it.

        Raises:
            ToolError: it was part of an ensemble, may do more than its caller now, or nothing is left to give.
        """
        if delegation.place:
            raise ToolError(
                f"{delegation.id} was part of an ensemble; its copy of the workspace is kept, but it does not go on"
            )
        spec = self.spec_of(delegation)
        self.check_depth()
        share = self.share(spec, before=delegation)
        if message is not None or call:
            again = AgentCalled(number=delegation.number, agent=delegation.agent, task=message or "", call=call)
            self.tell(again)
        return self.launch(delegation, spec, share)

    def spec_of(self, delegation: Delegation) -> AgentSpec:
        """Who a child session is; what its log says of it has no more rights than a model that asks."""
        known = self.team.find(delegation.agent)
        spec = known.spec.model_copy(update={"model": delegation.model or known.spec.model})
        self.check_within(spec, trusted=known.trusted and spec.model == known.spec.model)
        return spec

    def delegation(self, wanted: str) -> Delegation:
        """A child by its id, "a3" or 3, or by the name of its agent (the last one).

        Raises:
            ToolError: there is none; those there are, are listed.
        """
        number = number_of(wanted)
        if number in self.engine.session.delegations.children:
            return self.engine.session.delegations.children[number]
        named = [child for child in self.children if child.agent == wanted.strip()]
        if named:
            return named[-1]
        there = ", ".join(f"{child.id} ({child.agent})" for child in self.children) or "none were called"
        raise ToolError(f"no call {wanted[:80]!r} of yours; there are: {there}")

    def resumed_call(self, call: str) -> list[Child]:
        """The children of a tool call that an earlier process left open; finished ones are not started again."""
        found = self.engine.session.delegations.of_call(call)
        return [self.at_work(delegation) for delegation in found]

    def _settled(self, delegation: Delegation) -> Child:
        from opensage.topology.child import Child

        if delegation.status == "running":
            return self.go_on(delegation)
        return Child.finished(self, delegation)

    def begin_run(self) -> None:
        """A new run of the main agent has its own limits, also of how many agents may be made and called."""
        if self.above is None:
            self.team.created = self.team.called = 0

    def charge_interrupted(self, budget: Budget) -> None:
        """After a restart: count what children spent whose end this session's log does not know."""
        session = self.engine.session
        budget.charge(*restart.of_children(self.team.folder, session.id, session.delegations), above=False)

    # --- waiting ---

    def _stand(self) -> None:
        """While it waits for others its seat is free."""
        self._away += 1
        if self._away == 1:
            self.team.seats.free()

    async def _sit(self, *, at_once: bool) -> None:
        self._away -= 1
        if self._away == 0 and at_once:
            self.team.seats.take_now()
        elif self._away == 0:
            await self.team.seats.take(again=True)

    async def wait(
        self, children: Iterable[Child], show: Callable[[str], None], *, own: bool, seconds: float | None = None
    ) -> None:
        """Wait until all have ended, or for `seconds`. Cancelled, it ends them first when they are its `own`."""
        waited = [child for child in children if child.task is not None]
        for child in waited:
            child.show = show
        tasks = {child.task for child in waited if child.task is not None}
        if not tasks:
            return
        self._stand()
        at_once = True  # who is being ended must not wait for a seat, nor who gave a time
        try:
            await asyncio.wait(tasks, timeout=seconds)
            at_once = seconds is not None
            for task in tasks:
                if task.done() and not task.cancelled():
                    task.result()  # raises what could not be told, e.g. that the log cannot be written
        except asyncio.CancelledError:
            if own:
                await end(waited)
            raise
        finally:
            await self._sit(at_once=at_once)

    async def settle(self) -> bool:
        """Wait for children at work, which may give back some budget; whether there were any."""
        busy = [child for child in self.working.values() if child.busy]
        await self.wait(busy, lambda _text: None, own=False)
        return bool(busy)

    def advice(self) -> str:
        """What to say, once, when it answers while others still work for it."""
        busy = [child for child in self.working.values() if child.busy]
        if not busy or self._warned:
            return ""
        self._warned = True
        return _STILL.format(names=", ".join(f"{child.delegation.id} ({child.delegation.agent})" for child in busy))

    async def finish(self) -> None:
        """Its run is over: what still works below it is ended."""
        await end(self.working.values())
        self.working.clear()
        self._warned = False

    # --- talking ---

    def post(self, topic: str, text: str) -> None:
        """Post to the board."""
        post = self.team.board.post(self.spec.name, topic, text)
        self.tell(BoardPosted(topic=post.topic))

    def news(self) -> BoardRead | None:
        """What others posted since it last looked."""
        cursor = self.engine.session.delegations.cursor
        text, at = self.team.board.delta(self.spec.name, cursor)
        if at == cursor:
            return None
        return BoardRead(text=f"[Message board]\n{text}" if text else "", cursor=at)

    def prompt(self) -> str:
        """What the system message says about agents that are there already."""
        if "call_agent" not in self.engine.toolbox:
            return ""
        names = [name for name in self.team.names() if self._has_tools_of(name)]
        lines = [f"- {name}: {self.team.described(name)}" for name in names[:_LISTED]]
        return "\n".join(["Agents you can call with call_agent:", *lines]) if lines else ""

    def _has_tools_of(self, name: str) -> bool:
        """Whether an agent wants no tool that this one has not, without which it cannot be called."""
        spec = self.team.find(name).spec
        return spec.tools is None or set(spec.tools) <= set(self.engine.toolbox.names)

    def pinned(self) -> str:
        """What must survive compaction: who was called, and what became of it."""
        return listed(self.children)

    def report(self, children: Iterable[Child]) -> str:
        """The results as the model reads them."""
        return "\n\n".join(reported(child.delegation) for child in children)


async def end(children: Iterable[Child]) -> None:
    """Cancel what works and wait for it."""
    children = list(children)
    tasks = [child.task for child in children if child.task is not None and not child.task.done()]
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_GRACE)
    for child in children:
        if not child.busy:
            child.close()
