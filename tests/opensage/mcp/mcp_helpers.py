"""Shorthands for tests with real servers."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from opensage.mcp import McpServer, McpServers
from opensage.sandbox import ScriptedSandbox
from opensage.tools import Tool, Toolbox, ToolContext

RAW = str(Path(__file__).with_name("mcp_raw_server.py"))
SAMPLE = str(Path(__file__).with_name("mcp_sample_server.py"))


def stdio_server(name: str = "sample", *words: str, **more: Any) -> McpServer:
    return McpServer(name=name, command=sys.executable, args=(SAMPLE, "stdio", *words), **more)


def raw_server(
    folder: Path, *tools: str | dict[str, Any], name: str = "raw", more: Any = None, **setup: Any
) -> McpServer:
    """A quick server with these tools; `more` are settings of the client."""
    made = [{"name": t, "inputSchema": {"type": "object"}} if isinstance(t, str) else t for t in tools]
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"tools": made, "mark": str(folder / "mark"), **setup}))
    return McpServer(name=name, command=sys.executable, args=("-S", RAW, str(path)), **(more or {}))


@asynccontextmanager
async def started(*servers: McpServer, box: Toolbox | None = None) -> AsyncIterator[tuple[Toolbox, list[str]]]:
    """The toolbox with the servers' tools, and the warnings."""
    toolbox = Toolbox() if box is None else box
    mcp = McpServers(servers)
    try:
        yield toolbox, await mcp.start(toolbox)
    finally:
        await mcp.close()


def context(lines: list[str] | None = None) -> ToolContext:
    made = ToolContext(sandbox=ScriptedSandbox(), workdir=Path())
    if lines is not None:
        made.progress = lines.append
    return made


async def use(box: Toolbox, name: str, lines: list[str] | None = None, /, **arguments: Any) -> str:
    tool = box.get(name)
    assert isinstance(tool, Tool), box.names
    return str(await tool.invoke(arguments, context(lines)))


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


async def gone(*pids: int) -> bool:
    for _ in range(300):
        if not any(map(is_alive, pids)):
            return True
        await asyncio.sleep(0.02)
    return False


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def http_process(
    port: int, command: list[str] | None = None, env: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    words = command or [sys.executable, SAMPLE, "http", str(port)]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env=env or {**os.environ})
    try:
        for _ in range(1200):
            with socket.socket() as one:
                if one.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None, process.stderr
            time.sleep(0.05)
        yield process
    finally:
        process.kill()
        process.communicate()
