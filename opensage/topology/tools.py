"""The tools with which an agent makes, calls and joins others; each agent has its own, bound to its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from opensage.errors import ToolError
from opensage.log.delegations import number_of
from opensage.log.events import AgentRetired, AgentSaved
from opensage.spec import Limits
from opensage.tools.base import Tool, ToolContext
from opensage.tools.decorate import tool
from opensage.topology.report import listed, spent

if TYPE_CHECKING:
    from opensage.topology.member import Member

AGENT_TOOLS = (
    "create_agent", "call_agent", "await_agents", "resume_agent", "run_ensemble", "post", "list_agents",
    "inspect_agent", "retire_agent", "save_agent",
)  # fmt: skip


class AgentTools:
    """The tools of one member as methods. Their docstrings are in its prompt, so they are short."""

    def __init__(self, member: Member) -> None:
        self._member = member

    async def create_agent(
        self,
        name: str,
        instruction: str,
        description: str = "",
        tools: list[str] | None = None,
        toolkits: list[str] | None = None,
        model: str = "inherit",
        limits: dict[str, Any] | None = None,
        memory_scope: Literal["own", "shared", "none"] = "own",
    ) -> str:
        """Make a sub-agent that you can then call.

        Args:
            name: new, unique
            instruction: what it is and how it works
            description: when to call it
            tools: some of your tools; all without it
            toolkits: some of your toolkits; all without it, none if tools are named
            model: inherit, or a configured model
            limits: e.g. {"max_turns": 10}
            memory_scope: own memory, yours (shared) or none
        """
        data: dict[str, object] = {"name": name, "instruction": instruction, "description": description, "model": model}
        data |= {"tools": tools, "toolkits": toolkits, "limits": _limits(limits)}
        data |= {} if memory_scope == "own" else {"memory_scope": memory_scope}
        spec = self._member.create(data)
        may = "all your tools" if spec.tools is None else ", ".join(spec.tools) or "no tools"
        return f"agent '{spec.name}' is ready ({may}). Give it work with call_agent."

    async def call_agent(self, ctx: ToolContext, name: str, task: str, background: bool = False) -> str:
        """Give a sub-agent a task and get its answer. It knows only what the task says.

        Args:
            ctx: context
            name: of the agent
            task: all it needs to know
            background: return at once; get the answer with await_agents
        """
        member = self._member
        background = background and "await_agents" in member.engine.toolbox  # else nobody could get the answer
        children = member.resumed_call(ctx.call_id) or [member.begin(name, task, ctx.call_id, background=background)]
        if background:
            return f"{children[0].delegation.id} ({name}) works in the background; await_agents gets its answer"
        await member.wait(children, ctx.progress, own=True)
        return member.report(children)

    async def await_agents(self, ctx: ToolContext, ids: list[str] | None = None, timeout: float | None = None) -> str:
        """Wait for agents in the background and get their answers.

        Args:
            ctx: context
            ids: e.g. ["a1"]; all without it
            timeout: seconds at most
        """
        member = self._member
        wanted = [member.delegation(i) for i in ids] if ids else [c for c in member.children if c.background]
        if not wanted:
            raise ToolError("no agent works in the background; call_agent(..., background=true) starts one")
        children = [member.at_work(delegation) for delegation in wanted]
        await member.wait(children, ctx.progress, own=False, seconds=timeout)
        return member.report(children)

    async def resume_agent(self, ctx: ToolContext, id: str, message: str = "") -> str:
        """Let an agent you called go on in its conversation.

        Args:
            ctx: context
            id: e.g. a1
            message: what it should do next
        """
        member = self._member
        delegation = member.delegation(id)
        child = member.working.get(delegation.number)
        if child is not None and child.busy:
            raise ToolError(f"{delegation.id} is still at work; await_agents waits for it")
        children = member.resumed_call(ctx.call_id)
        if not children and not message.strip() and delegation.status == "done":
            raise ToolError(f"{delegation.id} is done; say in message what it should do next")
        children = children or [member.go_on(delegation, message.strip() or None, call=ctx.call_id)]
        await member.wait(children, ctx.progress, own=True)
        return member.report(children)

    async def run_ensemble(
        self,
        ctx: ToolContext,
        task: str,
        n: int | None = None,
        members: list[str] | None = None,
        models: list[str] | None = None,
        merge: str = "all",
        test: str = "",
        seconds: float | None = None,
    ) -> str:
        """Let several agents do the same task, each in its own copy of the files, and merge what they come to.

        Args:
            ctx: context
            task: all they need to know
            n: how many copies of yourself
            members: or names of agents
            models: configured models, given out in turn
            merge: all, vote (most frequent answer), judge (a model picks) or best_by_test
            test: command that exits with 0 when the work is good
            seconds: time limit
        """
        from opensage.topology.ensemble import Ensemble, Plan

        plan = Plan(task, tuple(members or ()), n, tuple(models or ()), merge, test, seconds)
        return await Ensemble(self._member, plan).run(ctx)

    async def post(self, topic: str, text: str) -> str:
        """Post to the board that all agents of this run read.

        Args:
            topic: a word
            text: short; say where the long form is
        """
        self._member.post(topic, text)
        return "posted"

    async def list_agents(self, query: str = "") -> str:
        """List agents you can call and those you called.

        Args:
            query: words to look for in saved agents
        """
        member = self._member
        if query:
            found = [
                f"- {s.spec.name} ({s.source}): {s.spec.description}" for s in member.team.library.search(query)[:20]
            ]
            return "\n".join(found) or f"no saved agent fits {query!r}"
        lines = [f"- {name}: {member.team.described(name)}" for name in member.team.names()]
        called = listed(member.children)
        parts = ["Agents:", *(lines or ["none yet: make one with create_agent"])]
        return "\n".join([*parts, "Called by you:", called] if called else parts)

    async def inspect_agent(self, name: str) -> str:
        """Show an agent, or a call like a1 with its whole answer.

        Args:
            name: of the agent, or id of a call
        """
        member = self._member
        if number_of(name):
            child = member.delegation(name)
            return f"{listed([child])}\n{spent(child)}\n{child.reason}\n{child.text}".strip()
        known = member.team.find(name)
        spec = known.spec.model_dump(mode="json", exclude_none=True)
        lines = [f"{key}: {value}" for key, value in spec.items() if value not in ("", None)]
        calls = listed(child for child in member.children if child.agent == name)
        return "\n".join([*lines, f"made by: {known.by or known.source}", *([calls] if calls else [])])

    async def retire_agent(self, name: str) -> str:
        """End an agent you made: what it does now is cancelled, and it can be called no more.

        Args:
            name: of the agent
        """
        from opensage.topology.member import end

        member = self._member
        member.team.retire(name, member.spec.name)
        member.tell(AgentRetired(agent=name))
        await end(child for child in member.working.values() if child.spec.name == name)
        return f"agent '{name}' is retired"

    async def save_agent(self, name: str) -> str:
        """Keep an agent for later sessions.

        Args:
            name: of the agent
        """
        member = self._member
        known = member.team.find(name)
        if known.source == "project":
            return f"'{name}' is saved already"
        path = member.team.library.save(known.spec)
        about = known.spec.description or " ".join(known.spec.instruction.split())[:500]
        member.tell(AgentSaved(agent=name, path=str(path), description=about))
        return f"saved as {path.name}: later sessions can call '{name}'"


_OPTIONS: dict[str, dict[str, Any]] = {
    "call_agent": {"parallel": True, "resumable": True, "target": "name"},
    "await_agents": {"parallel": True, "resumable": True},
    "resume_agent": {"parallel": True, "resumable": True},
    "run_ensemble": {"parallel": False, "resumable": True, "changes": True, "target": "task"},
    "create_agent": {"target": "name", "resumable": True},
    "retire_agent": {"target": "name"},
    "save_agent": {"target": "name", "resumable": True},
}


def topology_tools(member: Member) -> list[Tool]:
    """The tools of one agent."""
    topology = AgentTools(member)
    made = [_bound(topology, name) for name in AGENT_TOOLS]
    if not member.memory_name:
        made[0] = replace(made[0], parameters=_Without(made[0].parameters, "memory_scope"))
    return made


class _Without(Mapping[str, Any]):
    """A schema without one of its properties, made when first looked into."""

    def __init__(self, schema: Mapping[str, Any], name: str) -> None:
        self._schema, self._name = schema, name

    def __getitem__(self, key: str) -> Any:
        value = self._schema[key]
        return {k: v for k, v in value.items() if k != self._name} if key == "properties" else value

    def __iter__(self) -> Iterator[str]:
        return iter(self._schema)

    def __len__(self) -> int:
        return len(self._schema)


def _bound(topology: AgentTools, name: str) -> Tool:
    options = {"parallel": False, "source": "agents", **_OPTIONS.get(name, {})}
    return tool(name=name, **options)(getattr(topology, name))


def _limits(limits: dict[str, Any] | None) -> dict[str, Any] | None:
    """What a model asked for, without what it left out: a limit it does not name is no wish."""
    if limits is None:
        return None
    unknown = [key for key in limits if key not in Limits.model_fields]
    if unknown:
        raise ToolError(f"unknown limit {unknown[0]!r}; there are {', '.join(Limits.model_fields)}")
    return {**dict.fromkeys(Limits.model_fields), **limits}


__all__ = ["AGENT_TOOLS", "AgentTools", "topology_tools"]
