"""smolagents: its tool-calling agent, with a model that plays a script."""

from __future__ import annotations

from typing import Any

from smolagents import LogLevel, Model, ToolCallingAgent, tool
from smolagents.models import ChatMessage, ChatMessageToolCall, ChatMessageToolCallFunction, MessageRole
from smolagents.monitoring import TokenUsage

PACKAGE = "smolagents"


class Script(Model):
    """Calls `add` for a number of turns, then answers."""

    def __init__(self, turns: int) -> None:
        super().__init__(model_id="script")
        self._turns, self._played = turns, 0

    def generate(self, messages: Any, **_: Any) -> ChatMessage:
        """The next reply."""
        number, self._played = self._played, self._played + 1
        name, arguments = "add", dict[str, Any](a=number, b=1)
        if number >= self._turns:
            name, arguments = "final_answer", dict[str, Any](answer="done")
        call = ChatMessageToolCall(ChatMessageToolCallFunction(arguments, name), f"c{number}", "function")
        return ChatMessage(MessageRole.ASSISTANT, "", [call], token_usage=TokenUsage(0, 0))


def run(turns: int, add: Any) -> str:
    """Call `add` once a turn."""

    @tool
    def add_tool(a: int, b: int) -> int:
        """Add two integers.

        Args:
            a: The one.
            b: The other.
        """
        return int(add(a, b))

    add_tool.name = "add"
    agent = ToolCallingAgent([add_tool], Script(turns), max_steps=turns + 10, verbosity_level=LogLevel.OFF)
    return str(agent.run("add"))
