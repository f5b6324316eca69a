"""openai-agents with a model that plays a script; its tracing, which would call its maker, is off."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled

PACKAGE = "openai-agents"


class Script(Model):
    """Calls `add` for a number of turns, then answers."""

    def __init__(self, turns: int) -> None:
        self._turns, self._played = turns, 0

    async def get_response(self, *_: Any, **__: Any) -> ModelResponse:
        """The next reply."""
        number, self._played = self._played, self._played + 1
        item: Any
        if number >= self._turns:
            text = ResponseOutputText(text="done", type="output_text", annotations=[])
            item = ResponseOutputMessage(
                id=f"m{number}", content=[text], role="assistant", status="completed", type="message"
            )
        else:
            arguments = json.dumps({"a": number, "b": 1})
            item = ResponseFunctionToolCall(arguments=arguments, call_id=f"c{number}", name="add", type="function_call")
        return ModelResponse(output=[item], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        """Not used by this benchmark."""
        raise NotImplementedError


def run(turns: int, add: Any) -> str:
    """Call `add` once a turn."""
    set_tracing_disabled(True)

    @function_tool(name_override="add")
    def add_tool(a: int, b: int) -> int:
        """Add two integers."""
        return int(add(a, b))

    agent = Agent(name="adder", instructions="Add.", model=Script(turns), tools=[add_tool])
    return str(Runner.run_sync(agent, "add", max_turns=turns + 10).final_output)
