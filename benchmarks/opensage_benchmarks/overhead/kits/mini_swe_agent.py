"""mini-swe-agent with its own deterministic model; the environment adds two numbers and keeps nothing on disk."""

from __future__ import annotations

import os
from typing import Any

os.environ["MSWEA_SILENT_STARTUP"] = "1"

from minisweagent.agents.default import DefaultAgent
from minisweagent.exceptions import Submitted
from minisweagent.models.test_models import DeterministicModel, make_output

PACKAGE = "mini-swe-agent"


class Adder:
    """An environment whose every command is `add A B`, or `done`."""

    config: Any = None

    def __init__(self, count: Any) -> None:
        self._count = count

    def execute(self, action: dict[str, str], cwd: str = "") -> dict[str, Any]:
        """Run one command."""
        command, *numbers = action["command"].split()
        if command == "done":
            raise Submitted({"role": "exit", "content": "done", "extra": {"exit_status": "Submitted"}})
        return {"output": str(self._count(*map(int, numbers))), "returncode": 0, "exception_info": ""}

    def get_template_vars(self, **_: Any) -> dict[str, Any]:
        """Nothing: less work than with its real environments."""
        return {}

    def serialize(self) -> dict[str, Any]:
        """Nothing."""
        return {}


def run(turns: int, add: Any) -> str:
    """Call `add` once a turn."""
    commands = [*(f"add {n} 1" for n in range(turns)), "done"]
    outputs = [make_output("", [{"command": command}], cost=0.0) for command in commands]
    model = DeterministicModel(outputs=outputs, cost_per_call=0.0)
    agent = DefaultAgent(model, Adder(add), system_template="Add.", instance_template="{{task}}")
    return str(agent.run("add")["exit_status"])
