"""A server made with the SDK, for the tests: `python mcp_sample_server.py [stdio | http PORT] [wild]`."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

server = MCPServer("sample")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@server.tool()
def greet(name: str) -> dict[str, str]:
    """Say hello."""
    return {"text": f"hello {name}"}


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def environment() -> list[str]:
    """The names of the server's environment variables, and its pid."""
    return [*sorted(os.environ), f"pid={os.getpid()}", f"cwd={os.getcwd()}"]


@server.tool()
def value(name: str) -> str:
    """A variable of the environment."""
    return os.environ.get(name, "")


@server.tool()
def fail() -> str:
    """Always fails."""
    raise ToolError("the disk is on fire")


@server.tool()
def picture() -> Image:
    """A picture."""
    return Image(data=b"\x89PNG" + b"\0" * 96, format="png")


@server.tool()
def huge(size: int) -> str:
    """Much text."""
    return "x" * size


@server.tool()
def die() -> str:
    """Ends the server."""
    print("goodbye cruel world", file=sys.stderr, flush=True)
    os._exit(3)


@server.tool()
async def slow(seconds: float, ctx: Context) -> str:
    """Takes a while; a file says whether it was cancelled."""
    try:
        await ctx.report_progress(1, 2, "half\x1b[31m way")
        await asyncio.sleep(seconds)
    except BaseException:
        path = os.environ.get("CANCELLED", "")
        if path:
            with open(path, "w") as file:
                file.write("cancelled")
        raise
    return "done"


@server.tool()
def child() -> int:
    """Starts a process of its own that stays; its pid."""
    return subprocess.Popen(["sleep", "300"]).pid


@server.tool()
def noise() -> str:
    """Prints where the protocol is."""
    os.write(1, b"this is no JSON\n")
    return "said"


@server.tool()
async def grow(ctx: Context) -> str:
    """Adds a tool and says so."""
    server.add_tool(lambda: "new", name="grown", description="New.")
    server.remove_tool("noise")
    await ctx.notify_tools_changed()
    return "grown"


def wild() -> None:
    """Names as servers give them."""
    for name in ("get-user", "get.user", "get_user", "x" * 70, "x" * 71, "öffne", "查询", "搜索"):
        server.add_tool(lambda name=name: f"I am {name}", name=name, description=f"{name}\x07\u202e evil")


if __name__ == "__main__":
    if "wild" in sys.argv:
        wild()
    if "http" in sys.argv:
        server.run("streamable-http", port=int(sys.argv[sys.argv.index("http") + 1]))
    else:
        server.run("stdio")
