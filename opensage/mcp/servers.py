"""The MCP servers of a session: their tools join the agent's toolbox."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opensage.errors import ConfigError, OpenSageError, ToolError
from opensage.mcp.names import Names, plain
from opensage.mcp.spec import McpServer
from opensage.secrets import Mask
from opensage.tools.base import Tool, ToolContext
from opensage.tools.toolbox import Toolbox

if TYPE_CHECKING:
    from mcp_types import Tool as ServerTool

    from opensage.mcp.connection import Connection

MISSING = "MCP needs its SDK: pip install 'opensage[mcp]'"
MOST_TOOLS = 128
"""Tools taken of one server: more would fill the window of any model, and providers refuse them."""
_PROGRESS_S = 0.2
"""Seconds between two lines of progress that are shown."""


def require_sdk() -> None:
    """Check that the SDK is installed.

    Raises:
        ConfigError: it is not.
    """
    if find_spec("mcp") is None or find_spec("mcp_types") is None:
        raise ConfigError(MISSING)


class Link:
    """One server over the whole session: connected, or to be connected anew when it is next needed."""

    def __init__(self, server: McpServer, owner: McpServers) -> None:
        self.server = server
        self.names: dict[str, str] = {}
        self._owner = owner
        self._open: Connection | None = None
        self._lock = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def connected(self) -> Connection:
        """The connection, opened if there is none; one of another event loop is dropped.

        Raises:
            OpenSageError: the server cannot be reached.
        """
        from opensage.mcp.connection import Connection

        self._move()
        async with self._lock:
            if self._open is not None and not self._open.usable:
                ending, self._open = self._open, None
                await ending.close()
            owner = self._owner
            if owner.closed:
                raise OpenSageError("the session has ended")
            if self._open is None:
                self._open = await Connection.open(self.server, owner.workdir, owner.env, self._changed)
                owner.took(self, self._open.tools)
            return self._open

    async def close(self) -> None:
        """End the connection, wherever it was opened."""
        self._move()
        connection, self._open = self._open, None
        if connection is not None:
            await connection.close()

    def _move(self) -> None:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            if self._open is not None:
                self._open.cut()
            self._loop, self._lock, self._open = loop, asyncio.Lock(), None

    def _changed(self, connection: Connection) -> None:
        if connection is self._open:
            self._owner.took(self, connection.tools)


class McpServers:
    """Starts servers, keeps their tools in a toolbox, and ends them.

    Args:
        servers: in this order they get their tools' names.
        mask: hides secrets in what is said of them.
        workdir: the folder that a relative `cwd` of theirs is in.
        env: the caller's environment; this process's without it.
    """

    def __init__(
        self,
        servers: Sequence[McpServer],
        mask: Mask | None = None,
        *,
        workdir: Path = Path(),
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.workdir = workdir
        self.env = dict(os.environ if env is None else env)
        self.failed: dict[str, str] = {}
        self.links = [Link(server, self) for server in servers]
        self._mask = mask or Mask()
        self._names = Names()
        self._toolbox: Toolbox | None = None
        self._only: Collection[str] | None = None
        self._mine: dict[str, Tool] = {}
        self._notes: dict[str, list[str]] = {}
        self.closed = False

    async def start(self, toolbox: Toolbox, only: Collection[str] | None = None) -> list[str]:
        """Start all servers at once and add their tools.

        Args:
            toolbox: of the agent.
            only: names of the tools to add, of those there are; all without it.

        Returns:
            What to tell the person: each server that cannot be had, with the reason, and what was left out.
        """
        self.closed = False
        if not self.links:
            return []
        try:
            require_sdk()
        except ConfigError as error:
            self.failed = {link.server.name: str(error) for link in self.links}
            return [f"MCP server {', '.join(self.failed)} left out: {error}"]
        await asyncio.to_thread(import_module, "opensage.mcp.connection")  # the SDK takes a second or two to import
        found = await asyncio.gather(*(self._tried(link) for link in self.links))
        self._toolbox, self._only = toolbox, only
        for link, connection in zip(self.links, found, strict=True):
            if connection is not None:
                self.took(link, connection.tools)
        gone = [f"MCP server {name} left out: {reason}" for name, reason in self.failed.items()]
        return [self._mask.text(text) for text in (*gone, *(note for notes in self._notes.values() for note in notes))]

    def owns(self, name: str) -> bool:
        """Whether a tool of that name would come from one of the servers, as far as can be said before they start."""
        return any(name.startswith(plain(link.server.name, "x")[:-1]) for link in self.links)

    async def close(self) -> None:
        """End all connections and processes. Safe to call twice, and from another task or loop than `start`."""
        self.closed = True  # a call that comes late starts nothing
        await asyncio.gather(*(link.close() for link in self.links))

    def took(self, link: Link, listed: Sequence[ServerTool]) -> None:
        """Put a server's tools, as it lists them now, into the toolbox; those it lists no more go."""
        box = self._toolbox
        if box is None:
            return  # `start` adds them, in the order of the servers
        wanted = self._wanted(link.server, listed)
        ours = self._mine
        names = self._names.assign(link.server.name, wanted, self._is_taken)
        chosen = {names[key]: found for key, found in wanted.items() if self._only is None or names[key] in self._only}
        made = {name: self._made(link, name, found) for name, found in chosen.items()}
        for name in [name for name in link.names if name not in made]:
            self._drop(box, name)
        for name, tool in made.items():
            if name in ours and _same(ours[name], tool):
                continue
            self._drop(box, name)
            box.add(tool)
            ours[name] = tool
        link.names = {name: key for key, name in names.items()}

    def _is_taken(self, name: str) -> bool:
        there = None if self._toolbox is None else self._toolbox.get(name)
        return there is not None and there is not self._mine.get(name)

    def _drop(self, box: Toolbox, name: str) -> None:
        old = self._mine.pop(name, None)
        if old is not None and box.get(name) is old:
            box.remove(name)

    async def _tried(self, link: Link) -> Connection | None:
        try:
            return await link.connected()
        except OpenSageError as error:
            self.failed[link.server.name] = self._mask.text(str(error))
            return None

    def _wanted(self, server: McpServer, listed: Sequence[ServerTool]) -> dict[str, ServerTool]:
        found: dict[str, ServerTool] = {}
        for tool in listed:
            found.setdefault(tool.name, tool)
        notes = []
        if server.tools is not None:
            missing = [name for name in server.tools if name not in found]
            if missing:
                notes.append(f"MCP server {server.name} has no tool {', '.join(missing)}; mend mcp.{server.name}.tools")
            found = {name: found[name] for name in server.tools if name in found}
        if len(found) > MOST_TOOLS:
            notes.append(
                f"MCP server {server.name} offers {len(found)} tools, of which {MOST_TOOLS} are taken; name those you "
                f"want in mcp.{server.name}.tools"
            )
            found = dict(list(found.items())[:MOST_TOOLS])
        self._notes[server.name] = notes
        return found

    def _made(self, link: Link, name: str, found: ServerTool) -> Tool:
        from opensage.mcp.schema import DESCRIPTION, bounded_schema, clean

        schema, note = bounded_schema(found.input_schema)
        told = clean(found.description or found.title or found.name, DESCRIPTION - len(note) - 1)
        hints = found.annotations
        return Tool(
            name=name,
            description=f"{told} {note}".strip() or name,
            parameters=schema,
            invoke=Call(link, found.name),
            parallel=bool(hints and hints.read_only_hint),
            approval="ask",  # it runs outside the sandbox, whatever it says of itself; allow rules decide
            source=f"mcp:{link.server.name}",
            changes=True,
        )


class Call:
    """A tool's function: the call at its server."""

    __slots__ = ("_link", "_tool")

    def __init__(self, link: Link, tool: str) -> None:
        self._link = link
        self._tool = tool

    async def __call__(self, arguments: dict[str, Any], context: ToolContext) -> str:
        """The answer as text; `ToolError` when the server says so, cannot be reached or ends."""
        from opensage.mcp.result import answer

        name = self._link.server.name
        try:
            connection = await self._link.connected()
        except ToolError:
            raise
        except OpenSageError as error:
            raise ToolError(f"The MCP server {name} cannot be started: {error}") from None
        result = await connection.call(self._tool, arguments, _Shown(self._tool, context))
        text = answer(result)
        if result.is_error:
            raise ToolError(text or f"{self._tool} failed and did not say why")
        return text


class _Shown:
    """Shows a call's progress, not more often than a person can read."""

    def __init__(self, tool: str, context: ToolContext) -> None:
        self._tool, self._context, self._last = tool, context, 0.0

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        from opensage.mcp.schema import clean

        now = time.monotonic()
        if now - self._last < _PROGRESS_S:
            return
        self._last = now
        share = f"{progress:g}" if total is None else f"{progress:g}/{total:g}"
        self._context.progress(clean(f"{self._tool}: {message or ''} ({share})", 200))


def _same(old: Tool, new: Tool) -> bool:
    return (old.description, old.parameters, old.parallel) == (new.description, new.parameters, new.parallel)
