"""Tools: functions an agent may call, the built-in ones, and what a workspace tells its agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opensage.tools.base import Tool, ToolContext, ToolOutput
from opensage.tools.decorate import tool
from opensage.tools.result import result_text
from opensage.tools.schema import call_schema_example
from opensage.tools.toolbox import Toolbox

if TYPE_CHECKING:
    from opensage.tools.builtin import builtin_tools
    from opensage.tools.instructions import Instructions, Skill, load_instructions
    from opensage.tools.tasks import TaskTable

__all__ = [
    "Instructions",
    "Skill",
    "TaskTable",
    "Tool",
    "ToolContext",
    "ToolOutput",
    "Toolbox",
    "builtin_tools",
    "call_schema_example",
    "load_instructions",
    "result_text",
    "tool",
]

_LATER = {
    "builtin_tools": "builtin",
    "Instructions": "instructions",
    "Skill": "instructions",
    "load_instructions": "instructions",
    "TaskTable": "tasks",
}


def __getattr__(name: str) -> Any:
    """Import what not every program needs when it is first asked for."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
