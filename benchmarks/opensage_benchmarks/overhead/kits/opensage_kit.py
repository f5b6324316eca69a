"""OpenSage with its scripted model; like in use, every event goes to the session's log on disk.

Without its graph memory, which is written beside the run, and which the other kits have not.
"""

from __future__ import annotations

import tempfile
from typing import Any

import opensage
from opensage import Limits
from opensage.models import ScriptedModel
from opensage.sandbox import ScriptedSandbox

PACKAGE = "opensage"


def script(turns: int) -> ScriptedModel:
    """Calls `add` for a number of turns, then answers."""
    calls = [{"tool_calls": [{"id": f"c{n}", "name": "add", "arguments": {"a": n, "b": 1}}]} for n in range(turns)]
    return ScriptedModel([*calls, {"text": "done"}])


def run(turns: int, add: Any) -> str:
    """Call `add` once a turn."""

    @opensage.tool(name="add")
    def add_tool(a: int, b: int) -> int:
        """Add two integers."""
        return int(add(a, b))

    with tempfile.TemporaryDirectory() as folder:
        limits = Limits(max_turns=turns + 10)
        return opensage.run(
            "add",
            model=script(turns),
            tools=[add_tool],
            sandbox=ScriptedSandbox(),
            workdir=folder,
            limits=limits,
            memory=False,
        ).text
