"""An agent, and tools of toolkits, as an MCP server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import anyio
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams, TextContent
from mcp_types import Tool as ServedTool

from opensage.approval import Policy
from opensage.errors import ConfigError, OpenSageError, ToolError
from opensage.log.events import Event, ModelReply, Progress, RunFinished, ToolStarted
from opensage.permissions import Workspace
from opensage.protocols import Sandbox
from opensage.secrets import Mask
from opensage.tools import Tool, ToolContext, ToolOutput, result_text

MOST_CHARS = 1_000_000
"""Characters of one answer."""
_LINE = 200
_ABOUT = "Give a task to an agent that works on the files of its folder on its own, and get its answer."
Context = ServerRequestContext[Any, Any]

RUN_AGENT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "task": {"type": "string", "description": "What is to be done, with everything the agent must know."},
        "session": {"type": "string", "description": "Go on with the session of an earlier answer."},
    },
    "required": ["task"],
    "additionalProperties": False,
}


class Runs(Protocol):
    """What runs a task: an `Engine`."""

    def turn(self, task: str | None) -> AsyncIterator[Event]:
        """The events of one task; the last is `RunFinished`."""
        ...

    async def close(self) -> None:
        """Free what it holds."""


@dataclass(slots=True)
class Offer:
    """What is served.

    Attributes:
        engine: opens an engine, for the session of that id or, with None, a new one.
        about: what the agent is for, in a line.
        tools: tools beside `run_agent`.
        sandbox: where those run; needed if there are any.
        workdir: the workspace on the host.
        policy: permission rules for those; what would be asked is refused, since nobody is there to answer.
        mask: hides secrets in what is sent.
    """

    engine: Callable[[str | None], Runs]
    about: str = ""
    tools: Iterable[Tool] = ()
    sandbox: Sandbox | None = None
    workdir: Path = Path()
    policy: Policy = field(default_factory=Policy)
    mask: Mask = field(default_factory=Mask)


class AgentServer:
    """Answers requests: `run_agent` runs the agent, each other tool is called in the sandbox."""

    def __init__(self, offer: Offer) -> None:
        from opensage import __version__

        self._offer = offer
        self._tools = {tool.name: tool for tool in offer.tools}
        self._working: set[asyncio.Task[CallToolResult]] = set()
        self.protocol: Server[Any] = Server(
            "opensage", version=__version__, on_list_tools=self._list, on_call_tool=self._call
        )

    async def stdio(self) -> None:
        """Serve on the standard streams until the input ends. Whatever else is printed goes to standard error."""
        async with stdio_server() as (incoming, outgoing):
            await self.protocol.run(incoming, outgoing, self.protocol.create_initialization_options())

    async def http(self, port: int, announce: Callable[[str], None]) -> None:
        """Serve streamable HTTP on this machine's loopback address until cancelled.

        Args:
            port: 0 for any that is free.
            announce: called with the address.

        Raises:
            ConfigError: the port cannot be used.
        """
        import uvicorn

        with socket.socket() as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listening.bind(("127.0.0.1", port))
            except (OSError, OverflowError) as error:
                raise ConfigError(f"port {port} cannot be used: {error}; choose another with --http") from None
            announce(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp")
            app = self.protocol.streamable_http_app()
            config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=10)
            await uvicorn.Server(config).serve(sockets=[listening])

    async def stop(self) -> None:
        """Cancel all that runs, and wait until it has ended."""
        for task in self._working:
            task.cancel()
        if self._working:
            await asyncio.wait(set(self._working))
        if self._offer.sandbox is not None:
            await self._offer.sandbox.close()

    async def _list(self, _ctx: Context, _params: PaginatedRequestParams | None) -> ListToolsResult:
        about = f"{_ABOUT} {self._offer.about}".strip()
        served = [ServedTool(name="run_agent", description=about, input_schema=RUN_AGENT)]
        for tool in self._tools.values():
            served.append(ServedTool(name=tool.name, description=tool.description, input_schema=dict(tool.parameters)))
        return ListToolsResult(tools=served)

    async def _call(self, ctx: Context, params: CallToolRequestParams) -> CallToolResult:
        arguments = dict(params.arguments or {})
        tool = self._tools.get(params.name)
        if params.name != "run_agent" and tool is None:
            names = ", ".join(["run_agent", *self._tools])
            return self._answer(f"There is no tool {params.name[:80]!r}. Tools: {names}.", failed=True)
        work = self._run(ctx, arguments) if tool is None else self._use(tool, arguments)
        try:
            return await self._whole(work)
        except (OpenSageError, OSError) as error:
            return self._answer(str(error), failed=True)

    async def _whole(self, work: Coroutine[Any, Any, CallToolResult]) -> CallToolResult:
        """The work's result. Cancelled, it has the time to close what it opened, which no scope of the SDK allows."""
        task = asyncio.create_task(work)
        self._working.add(task)
        try:
            return await asyncio.shield(task)
        finally:
            task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait({task})
            self._working.discard(task)

    async def _run(self, ctx: Context, arguments: Mapping[str, Any]) -> CallToolResult:
        task, session = arguments.get("task"), arguments.get("session")
        if not isinstance(task, str) or not task.strip() or not isinstance(session, str | None):
            return self._answer("run_agent needs task, a text, and may have session, the id of one", failed=True)
        engine = self._offer.engine(session or None)
        last: RunFinished | None = None
        try:
            async with aclosing(engine.turn(task)) as events:  # type: ignore[type-var]
                steps = 0
                async for event in events:
                    last = event if isinstance(event, RunFinished) else last
                    if line := _line(event):
                        steps += 1
                        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                            await ctx.session.report_progress(steps, message=self._offer.mask.text(line))
        finally:
            await engine.close()
        if last is None:
            return self._answer("the run ended without a result", failed=True)
        return self._finished(last)

    def _finished(self, last: RunFinished) -> CallToolResult:
        done = last.status == "done"
        text = last.text if done else f"[{last.status}: {last.reason}]\n{last.text}".rstrip()
        told = {"status": last.status, "reason": last.reason, "session": last.session, "usage": last.usage}
        return self._answer(text, failed=not done, structured=told)

    async def _use(self, tool: Tool, arguments: dict[str, Any]) -> CallToolResult:
        sandbox = self._offer.sandbox
        if sandbox is None:
            return self._answer(f"{tool.name} has no sandbox to run in", failed=True)
        place = Workspace(self._offer.workdir, sandbox.workdir)
        ruling = self._offer.policy.ruling(tool, arguments, isolated=sandbox.isolated, place=place)
        if ruling.verdict != "allow":
            return self._answer(f"Not permitted: {ruling.why}, and nobody is there to approve it", failed=True)
        try:
            value = await tool.invoke(arguments, ToolContext(sandbox=sandbox, workdir=self._offer.workdir))
        except ToolError as error:
            return self._answer(str(error), failed=True)
        return self._answer(value.text if isinstance(value, ToolOutput) else result_text(value))

    def _answer(self, text: str, *, failed: bool = False, structured: dict[str, Any] | None = None) -> CallToolResult:
        shown = self._offer.mask.text(text)
        if len(shown) > MOST_CHARS:
            shown = f"{shown[:MOST_CHARS]}\n[... {len(shown) - MOST_CHARS} more characters were left out]"
        content = [TextContent(type="text", text=shown)]
        told = None if structured is None else self._offer.mask.data(structured)
        return CallToolResult(content=list(content), structured_content=told, is_error=failed)


def _line(event: Event) -> str:
    """What to show of an event, "" for nothing."""
    if isinstance(event, ToolStarted):
        return event.name
    text = event.text if isinstance(event, ModelReply | Progress) else ""
    return " ".join(text.split())[:_LINE]
