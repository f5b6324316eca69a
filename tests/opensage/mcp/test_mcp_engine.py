"""MCP tools in whole runs: in the one toolbox of the agent, and of the agents it makes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from helpers_run import call, calls, results, say
from topology_helpers import answers, create, delegate, seen, team

import opensage
from opensage import AgentSpec
from opensage.mcp import McpServer
from opensage.models import ScriptedModel
from opensage.sandbox import ScriptedSandbox

SERVER = """
from mcp.server.mcpserver import MCPServer
app = MCPServer("sums")
@app.tool()
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b
@app.tool()
def die() -> str:
    "Die."
    import os
    os._exit(3)
app.run()
"""


def server(tmp_path: Path) -> McpServer:
    path = tmp_path / "server.py"
    path.write_text(SERVER)
    return McpServer(name="sums", command=sys.executable, args=(str(path),), timeout_s=120)


def test_an_agent_and_its_sub_agent_call_a_server(tmp_path: Path) -> None:
    agents: dict[str, Any] = {
        "main": [
            calls(call("sums__add", {"a": 2, "b": 3})),
            create("w", tools=["sums__add"]),
            delegate("w"),
            say("over"),
        ],
        "w": [calls(call("sums__add", {"a": 4, "b": 5})), say("nine")],
    }
    result, model = team(agents, tmp_path, mcp=[server(tmp_path)], approve="allow")
    assert result.status == "done"
    assert answers(model)[0] == "5"
    assert answers(model, "w") == ["9"]
    assert [t["function"]["name"] for t in seen(model, "w")[0]["tools"]] == ["sums__add"]


def test_a_server_that_dies_is_a_tool_error_and_comes_back(tmp_path: Path) -> None:
    turns = [calls(call("sums__die")), calls(call("sums__add", {"a": 1, "b": 1})), say("over")]
    model = ScriptedModel(turns)
    result = opensage.run(
        "go", model=model, workdir=tmp_path, sandbox=ScriptedSandbox(), mcp=[server(tmp_path)], approve="allow",
        agent=AgentSpec(tools=("sums__add", "sums__die")),
    )  # fmt: skip
    assert result.status == "done"
    assert "sums" in results(model)[0]
    assert results(model)[1] == "2"


def test_a_server_that_is_not_there_leaves_the_run_alone(tmp_path: Path) -> None:
    model = ScriptedModel([say("over")])
    missing = McpServer(name="gone", command=str(tmp_path / "nothing"))
    result = opensage.run("go", model=model, workdir=tmp_path, sandbox=ScriptedSandbox(), mcp=[missing])
    assert result.status == "done"
