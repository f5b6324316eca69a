"""The functions of a toolkit as tools of an agent."""

from __future__ import annotations

from typing import Any

from opensage.toolkit.signature import Function
from opensage.toolkit.spec import ToolkitSpec
from opensage.toolkit.staging import Staging
from opensage.tools.base import Tool, ToolContext
from opensage.tools.schema import LazySchema


class ToolkitCall:
    """Checks the arguments here, then calls the function in the agent's sandbox."""

    __slots__ = ("function", "spec", "staging")

    def __init__(self, spec: ToolkitSpec, function: Function, staging: Staging) -> None:
        self.spec, self.function, self.staging = spec, function, staging

    async def __call__(self, arguments: dict[str, Any], context: ToolContext) -> object:
        """The result as JSON values; `ToolError` for all that goes wrong inside."""
        values = self.function.binding.validate(arguments)
        return await self.staging.call(context.sandbox, self.spec, self.function.name, values)


def toolkit_tools(spec: ToolkitSpec, staging: Staging) -> list[Tool]:
    """The tools of a toolkit. They run programs in the sandbox, as the shell does."""
    return [
        Tool(
            name=function.title,
            description=function.description,
            parameters=LazySchema(function.binding),
            invoke=ToolkitCall(spec, function, staging),
            parallel=spec.pure,
            source=f"toolkit:{spec.name}",
            changes=True,
        )
        for function in spec.tools
    ]
