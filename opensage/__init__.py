"""OpenSage: agents that build their own sub-agents and toolkits, on one small loop, in sandboxes.

Importing this package does nothing but define names: every module behind them is loaded when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from opensage.lazy import lazily

if TYPE_CHECKING:
    from opensage.approval import Decision, Policy
    from opensage.engine import Result, arun, run, stream
    from opensage.errors import OpenSageError, ToolError
    from opensage.spec import AgentSpec, Limits
    from opensage.tools import Tool, ToolContext, tool

__version__ = "0.1.0"

_HOMES = {
    "AgentSpec": "spec",
    "Decision": "approval",
    "Limits": "spec",
    "OpenSageError": "errors",
    "Policy": "approval",
    "Result": "engine",
    "Tool": "tools",
    "ToolContext": "tools",
    "ToolError": "errors",
    "arun": "engine",
    "run": "engine",
    "stream": "engine",
    "tool": "tools",
}

__all__ = [
    "AgentSpec",
    "Decision",
    "Limits",
    "OpenSageError",
    "Policy",
    "Result",
    "Tool",
    "ToolContext",
    "ToolError",
    "__version__",
    "arun",
    "run",
    "stream",
    "tool",
]

__getattr__ = lazily(__name__, _HOMES)
