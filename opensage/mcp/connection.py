"""One connection to a server, which one task opens, keeps and closes: whoever asks for it, and from wherever."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mcp import MCPError
from mcp.client import Client
from mcp.shared.dispatcher import ProgressFnT
from mcp_types import (
    CONNECTION_CLOSED,
    INVALID_REQUEST,
    CallToolResult,
    Implementation,
    Tool,
    ToolListChangedNotification,
)
from pydantic import ValidationError

from opensage.errors import ConfigError, OpenSageError, ToolError
from opensage.mcp.http import HttpServer
from opensage.mcp.schema import clean
from opensage.mcp.spec import INHERITED, McpServer, filled
from opensage.mcp.stdio import StdioServer

MOST_LISTED = 10_000
"""Tools that are looked at, of one server."""
CLOSED = "it was closed"
_MOST_PAGES = 200
_PAUSE = 0.5
"""Seconds between two listings, however often a server says that its tools changed."""
_LEAVING = 15.0
"""Seconds a connection has to close."""

# What the SDK logs on its own account would land in the middle of a terminal; who sets up logging still gets it.
for _name in ("mcp", "client"):
    logging.getLogger(_name).addHandler(logging.NullHandler())


class Connection:
    """A server that was reached. `tools` is its list as last read; `gone` is set, with `reason`, when it ended.

    Args:
        server: whom to connect to.
        workdir: the folder that a relative `cwd` is in.
        env: the caller's environment, of which a process gets only what it must.
        on_change: called when the server said that its tools changed and they were read again.
    """

    def __init__(
        self, server: McpServer, workdir: Path, env: Mapping[str, str], on_change: Callable[[Connection], None]
    ) -> None:
        self.server = server
        self.tools: list[Tool] = []
        self.loop = asyncio.get_running_loop()
        self.gone = asyncio.Event()
        self.reason = ""
        self._ready = asyncio.Event()
        self._wake = asyncio.Event()
        self._on_change = on_change
        self._transport = _transport(server, workdir, env)
        self._client: Client | None = None
        self._owner = asyncio.create_task(self._own(), name=f"mcp {server.name}")

    @classmethod
    async def open(
        cls, server: McpServer, workdir: Path, env: Mapping[str, str], on_change: Callable[[Connection], None]
    ) -> Connection:
        """Connect and read the list of tools.

        Raises:
            OpenSageError: the server cannot be reached; the message says why.
        """
        server.checked()
        made = cls(server, workdir, env, on_change)
        try:
            async with asyncio.timeout(server.timeout_s):
                await made._ready.wait()
        except TimeoutError:
            await made.close()
            raise OpenSageError(
                f"it did not answer within {server.timeout_s:g} s; start it by hand to see why, or raise timeout_s"
            ) from None
        except asyncio.CancelledError:
            made.cut()
            raise
        if made.reason:
            raise OpenSageError(made.reason)
        return made

    @property
    def usable(self) -> bool:
        """Whether it can be called; one that is about to close cannot."""
        return self._client is not None and not self._transport.ended.is_set() and not self._owner.done()

    async def call(self, tool: str, arguments: dict[str, Any], progress: ProgressFnT) -> CallToolResult:
        """Call a tool; cancelling this cancels the request at the server.

        Raises:
            ToolError: no answer in time, an error of the protocol, or the server ended meanwhile.
        """
        if self._client is None:
            raise ToolError(self._died())
        call = asyncio.create_task(self._client.call_tool(tool, arguments, progress_callback=progress))
        ended = asyncio.create_task(self.gone.wait())
        try:
            await asyncio.wait({call, ended}, timeout=self.server.timeout_s, return_when=asyncio.FIRST_COMPLETED)
            return await self._outcome(call, ended)
        finally:
            for task in (call, ended):
                task.cancel()
            await asyncio.wait({call, ended}, timeout=_LEAVING)

    async def _outcome(self, call: asyncio.Task[CallToolResult], ended: asyncio.Task[Any]) -> CallToolResult:
        if not call.done():
            if ended.done():
                raise ToolError(self._died())
            raise ToolError(
                f"The MCP server {self.server.name} gave no answer within {self.server.timeout_s:g} s; the call was "
                "cancelled, but what it began may go on"
            )
        try:
            return call.result()
        except MCPError as error:
            if error.code not in (CONNECTION_CLOSED, INVALID_REQUEST):
                raise ToolError(f"The MCP server {self.server.name} says: {clean(error.message, 2000)}") from None
            if self._transport.ended.is_set():
                await asyncio.wait({ended}, timeout=_LEAVING)  # it will know how its process ended
            await self.close()  # it is gone, or has forgotten this session
            raise ToolError(self._died(clean(error.message, 200) if self.reason == CLOSED else "")) from None
        except (ValidationError, RuntimeError, ValueError) as error:
            raise ToolError(f"The MCP server {self.server.name} gave a wrong answer: {clean(error, 500)}") from None

    def _died(self, said: str = "") -> str:
        return (
            f"The MCP server {self.server.name} ended during the call ({said or self.reason}); whether the call did "
            "anything is not known. The next call starts it anew"
        )

    async def close(self) -> None:
        """End the connection, and the process if there is one."""
        self._owner.cancel()
        await asyncio.wait({self._owner}, timeout=_LEAVING)
        self._transport.kill()

    def cut(self) -> None:
        """End it without waiting, from any thread or loop."""
        if self.loop.is_closed():
            return
        if self.loop.is_running():
            self.loop.call_soon_threadsafe(self._owner.cancel)
        else:
            self._transport.kill()

    async def _own(self) -> None:
        """Everything that is opened here is closed here, in the same task."""
        try:
            async with self._transport.streams() as streams:
                await self._talk(contextlib.nullcontext(streams))
        except Exception as error:  # noqa: BLE001 foreign code: whatever it raises is why the server is not there
            self.reason = self._why(error)
        else:
            self.reason = self._transport.last_words
        finally:
            self.reason = self.reason or (self._transport.last_words if self._transport.ended.is_set() else CLOSED)
            self.gone.set()
            self._ready.set()

    async def _talk(self, transport: Any) -> None:
        client = Client(
            transport,
            cache=None,
            read_timeout_seconds=self.server.timeout_s,
            message_handler=self._heard,
            client_info=Implementation(name="opensage", version=_version()),
        )
        async with client:
            # The SDK would run the server's own schema over each result: patterns that never end, and results lost
            # for a detail. The model reads the result in any case.
            setattr(client.session, "validate_tool_result", _unchecked)  # noqa: B010 a method, for mypy
            self.tools = await _listed(client)
            self._client = client
            self._ready.set()
            await self._keep(client)

    async def _keep(self, client: Client) -> None:
        """Stay until the transport ends, reading the tools again when they changed."""
        tasks = [asyncio.create_task(self._transport.ended.wait()), asyncio.create_task(self._subscribe(client))]
        try:
            while not self._transport.ended.is_set():
                changed = asyncio.create_task(self._wake.wait())
                await asyncio.wait({tasks[0], changed}, return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
                if self._wake.is_set() and not self._transport.ended.is_set():
                    self._wake.clear()
                    with contextlib.suppress(MCPError, ValidationError):  # the old list holds
                        self.tools = await _listed(client)
                        self._on_change(self)
                    await asyncio.wait({tasks[0]}, timeout=_PAUSE)
        finally:
            self._client = None
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _subscribe(self, client: Client) -> None:
        """Ask for word of changes; older servers send it unasked (`_heard`)."""
        with contextlib.suppress(MCPError, RuntimeError, TimeoutError):
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self._wake.set()

    async def _heard(self, message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            self._wake.set()

    def _why(self, error: Exception) -> str:
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, OpenSageError):
            return str(error)
        if isinstance(error, ValidationError):
            return "it answered with something that is not of the protocol; is it an MCP server?"
        said = clean(error, 300)
        if not self._ready.is_set() and isinstance(error, MCPError) and error.code != CONNECTION_CLOSED:
            said = f"it says: {said}"
        else:
            said = ""
        return "; ".join(part for part in (said, self._transport.last_words) if part)


def _transport(server: McpServer, workdir: Path, env: Mapping[str, str]) -> StdioServer | HttpServer:
    """How to reach the server.

    Raises:
        ConfigError: a variable that it needs is not set.
    """
    where = f"mcp.{server.name}"
    if server.url is not None:
        return HttpServer(server.url, filled(server.headers, env, f"{where}.headers"))
    if server.command is None:
        raise ConfigError(f"[{where}] needs either command (a program) or url (an address)")
    clean_env = {name: env[name] for name in INHERITED if name in env}
    its_env = {**clean_env, **filled(server.env, env, f"{where}.env")}
    folder = Path("/") if server.cwd is None else workdir / Path(server.cwd).expanduser()
    return StdioServer([server.command, *server.args], its_env, str(folder))


async def _listed(client: Client) -> list[Tool]:
    """All tools, page by page, as far as is reasonable."""
    found: list[Tool] = []
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        page = await client.list_tools(cursor=cursor)
        found += page.tools
        cursor = page.next_cursor
        if not cursor or len(found) >= MOST_LISTED:
            break
    return found[:MOST_LISTED]


async def _unchecked(_name: str, _result: CallToolResult) -> None:
    return None


def _version() -> str:
    from opensage import __version__

    return __version__
