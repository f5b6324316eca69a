"""`ask` and `finish`: the tools that speak to people."""

from __future__ import annotations

from opensage.errors import ToolError
from opensage.tools.base import ToolContext
from opensage.tools.decorate import tool


@tool(name="ask", source="builtin", parallel=False)
async def ask(ctx: ToolContext, question: str) -> str:
    """Ask the user, only if you cannot go on without."""
    if ctx.ask is None:
        raise ToolError("nobody is there to answer: decide yourself, go on, and say in the end what you assumed")
    try:
        answer = await ctx.ask(question)
    except EOFError:
        raise ToolError("the person has left: decide yourself, go on, and say in the end what you assumed") from None
    return answer.strip() or "(no answer: decide yourself)"


@tool(name="finish", source="builtin", parallel=False)
async def finish(text: str) -> str:
    """End the task with your final answer."""
    return text
