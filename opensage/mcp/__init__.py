"""MCP (Model Context Protocol): servers' tools for agents, and an agent as a server. Needs the extra `mcp`.

The SDK is imported when a server is first started; describing one needs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opensage.mcp.spec import McpServer, McpServerSettings, secrets_of, servers_of

if TYPE_CHECKING:
    from opensage.mcp.servers import McpServers

__all__ = ["McpServer", "McpServerSettings", "McpServers", "secrets_of", "servers_of"]


def __getattr__(name: str) -> Any:
    """Import the client when it is first asked for."""
    if name != "McpServers":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from opensage.mcp.servers import McpServers

    return McpServers
