"""pydantic-ai with its own `FunctionModel`."""

from __future__ import annotations

import itertools
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import UsageLimits

PACKAGE = "pydantic-ai-slim"


def run(turns: int, add: Any) -> str:
    """Call `add` once a turn."""
    numbers = itertools.count()

    def reply(_messages: Any, _info: Any) -> ModelResponse:
        number = next(numbers)
        if number >= turns:
            return ModelResponse([TextPart("done")])
        return ModelResponse([ToolCallPart("add", {"a": number, "b": 1}, f"c{number}")])

    agent = Agent(FunctionModel(reply))

    @agent.tool_plain(name="add")
    def add_tool(a: int, b: int) -> int:
        """Add two integers."""
        return int(add(a, b))

    return str(agent.run_sync("add", usage_limits=UsageLimits(request_limit=None)).output)
