"""`opensage mcp`: an agent as a server, and the servers of the configuration."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opensage.errors import ConfigError

if TYPE_CHECKING:  # imported late, to keep --help fast
    from opensage.config import Settings
    from opensage.mcp.serve import Offer
    from opensage.tools import Tool

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="MCP: be a server, or look at those configured.")
Workdir = Annotated[Path, typer.Option("--workdir", "-w", help="The folder to work on.")]
Config = Annotated[list[str] | None, typer.Option("-c", help="key=value over the configuration files.")]


@app.command("serve")
def serve(
    agent: Annotated[str | None, typer.Option("--agent", "-a", help="A saved agent.")] = None,
    toolkit: Annotated[list[str] | None, typer.Option("--toolkit", "-t", help="Offer this toolkit's tools.")] = None,
    http: Annotated[int | None, typer.Option("--http", help="Serve HTTP on this port; 0 takes a free one.")] = None,
    workdir: Workdir = Path("."),
    model: Annotated[str | None, typer.Option("--model", "-m", help="Model string.")] = None,
    sandbox: Annotated[str | None, typer.Option(help="auto, docker, docker:IMAGE, bubblewrap or local.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Approve what would be asked.")] = False,
    config: Config = None,
) -> None:
    """Serve an agent, and tools of toolkits, over standard input and output or HTTP on 127.0.0.1."""
    from opensage.cli.common import settings_for
    from opensage.mcp.servers import require_sdk

    require_sdk()
    settings = settings_for(workdir, {"model": model, "sandbox": sandbox}, config or [])
    asyncio.run(_served(_offer(settings, workdir, agent, toolkit or [], yes=yes), http))


@app.command("list")
def list_command(workdir: Workdir = Path("."), config: Config = None) -> None:
    """Start the configured servers and show their tools. Exit code: 0 all there, 1 some cannot be had."""
    from opensage.cli.common import settings_for
    from opensage.mcp.servers import require_sdk

    settings = settings_for(workdir, {}, config or [])
    if not settings.mcp:
        typer.echo('no MCP servers; name one in ~/.opensage/config.toml: [mcp.NAME] command = "..." or url = "..."')
        return
    require_sdk()
    raise typer.Exit(asyncio.run(_listed(settings, workdir)))


async def _listed(settings: Settings, workdir: Path) -> int:
    from rich.console import Console
    from rich.table import Table

    from opensage.cli import masking
    from opensage.cli.stream import clean
    from opensage.engine import checked_folder
    from opensage.mcp import McpServers, secrets_of, servers_of
    from opensage.tools import Toolbox, builtin_tools

    box = Toolbox(builtin_tools())
    found = servers_of(settings.mcp)
    mask = masking.use_patterns(settings.secrets.patterns, secrets_of(found, os.environ))
    servers = McpServers(found, mask, workdir=checked_folder(workdir))
    try:
        warnings = await servers.start(box)
    finally:
        await servers.close()
    table = Table("server", "tool", "description", box=None)
    for link in servers.links:
        name = link.server.name
        rows = [(tool.name, " ".join(tool.description.split())[:100]) for tool in box if tool.source == f"mcp:{name}"]
        for row in rows or [("-", servers.failed.get(name, "it offers no tools"))]:
            table.add_row(*map(clean, (name, *row)))
    Console(highlight=False, markup=False).print(table)
    for warning in warnings:
        if not any(reason in warning for reason in servers.failed.values()):
            typer.echo(clean(warning), err=True)
    return int(bool(servers.failed))


def _offer(settings: Settings, workdir: Path, agent: str | None, toolkits: Sequence[str], *, yes: bool) -> Offer:
    from opensage.approval import Policy
    from opensage.cli import masking
    from opensage.cli.common import open_engine
    from opensage.engine import checked_folder
    from opensage.sandbox import open_sandbox
    from opensage.topology.library import find_agent

    folder = checked_folder(workdir)
    about = "" if agent is None else find_agent(agent, folder).description
    rules = settings.permissions
    mask = masking.use_patterns(settings.secrets.patterns)
    approve = "allow" if yes else "deny"
    tools = [tool for name in toolkits for tool in _toolkit(name, folder)]
    from opensage.mcp.serve import Offer  # last: the SDK takes a second or two to import

    return Offer(
        engine=lambda session: open_engine(settings, workdir, approve=approve, session=session, agent=agent),
        about=about,
        tools=tools,
        sandbox=open_sandbox(settings.sandbox, folder) if tools else None,
        workdir=folder,
        policy=Policy.parse(rules.allow, rules.ask, rules.deny),
        mask=mask,
    )


def _toolkit(name: str, folder: Path) -> list[Tool]:
    """The tools of a toolkit, which runs in the sandbox.

    Raises:
        ConfigError: there is none that may be used.
    """
    from opensage.models.registry import home_dir
    from opensage.toolkit.calls import toolkit_tools
    from opensage.toolkit.library import Library
    from opensage.toolkit.spec import key_of
    from opensage.toolkit.staging import Staging

    library = Library(folder, home_dir())
    for entry in library.usable():
        if entry.spec is not None and key_of(entry.name) == key_of(name):
            return toolkit_tools(entry.spec, Staging())
    names = ", ".join(entry.name for entry in library.usable()) or "none"
    raise ConfigError(f"there is no toolkit '{name}' that can be used; there are: {names}")


async def _served(offer: Offer, port: int | None) -> None:
    """Serve until the client goes, or a signal comes."""
    from opensage.mcp.serve import AgentServer

    server = AgentServer(offer)
    if port is not None:  # uvicorn heeds signals itself
        try:
            await server.http(port, lambda address: print(f"serving {address}", file=sys.stderr, flush=True))
        finally:
            await server.stop()
        return
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    serving = asyncio.create_task(server.stdio())
    ended = asyncio.create_task(told.wait())
    await asyncio.wait({serving, ended}, return_when=asyncio.FIRST_COMPLETED)
    await server.stop()
    if told.is_set():  # a thread still waits for input, which nothing can wake
        os._exit(130)
    ended.cancel()
    await serving
