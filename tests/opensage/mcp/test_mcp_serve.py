"""`opensage mcp serve` and `list` as programs, driven by the SDK's own client."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp_helpers import RAW, free_port, http_process, raw_server
from test_cli import ROOT, one_line, opensage, script

from opensage import Limits
from opensage.engine import Engine
from opensage.mcp.serve import AgentServer, Offer
from opensage.models import ScriptedModel

WRITE = {"tool_calls": [{"name": "write", "arguments": {"path": "made.txt", "content": "hello"}}]}
SLEEP = {"text": "so I wait", "tool_calls": [{"name": "shell", "arguments": {"command": "sleep 200; echo > late.txt"}}]}
TOOLS = '''
def mean(values: list[float]) -> float:
    """Mean of numbers."""
    return sum(values) / len(values)
'''


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "opensage", "mcp", *words]


def environment(folder: Path) -> dict[str, str]:
    places = os.pathsep.join(str(ROOT / name) for name in ("", "memory"))
    return {"PATH": os.environ["PATH"], "PYTHONPATH": places, "OPENSAGE_HOME": str(folder / "home")}


@contextlib.asynccontextmanager
async def client(folder: Path, *words: str, **more: Any) -> AsyncIterator[Client]:
    program, *args = command("serve", *words)
    server = StdioServerParameters(command=program, args=args, cwd=str(folder), env=environment(folder))
    async with Client(server, **more) as connected:
        yield connected


def serving(folder: Path, *turns: Any, **options: Any) -> AgentServer:
    """A server in this process, of an agent with a scripted model."""

    def engine(session: str | None) -> Engine:
        return Engine(
            model=ScriptedModel(list(turns)), workdir=folder, session=session, sandbox="bubblewrap", **options
        )

    return AgentServer(Offer(engine, workdir=folder))


def test_run_agent_and_its_answers(tmp_path: Path) -> None:
    async def main() -> None:
        async with Client(serving(tmp_path, WRITE, {"text": "made it"}).protocol) as server:
            [tool] = (await server.list_tools()).tools
            assert tool.name == "run_agent"
            assert tool.input_schema["required"] == ["task"]
            first = await server.call_tool("run_agent", {"task": "make a file"})
            assert first.content[0].text == "made it"
            told = first.structured_content
            assert (told["status"], told["reason"], told["usage"]["model_calls"]) == ("done", "", 2)
            again = await server.call_tool("run_agent", {"task": "once more", "session": told["session"]})
            assert again.structured_content["session"] == told["session"]
            for wrong in ({}, {"task": " "}, {"task": 5}, {"task": "x", "session": 5}):
                assert (await server.call_tool("run_agent", wrong)).is_error
            gone = await server.call_tool("run_agent", {"task": "x", "session": "../../etc/passwd"})
            assert gone.is_error
            assert "session" in gone.content[0].text
            unknown = await server.call_tool("nothing", {})
            assert unknown.content[0].text == "There is no tool 'nothing'. Tools: run_agent."
        async with Client(serving(tmp_path, WRITE, WRITE, limits=Limits(max_turns=1)).protocol) as server:
            found = await server.call_tool("run_agent", {"task": "x"})
            assert found.is_error
            assert found.structured_content["status"] == "limit"
            assert found.content[0].text.startswith("[limit: max_turns")
        async with Client(serving(tmp_path, {"error": {"status": 401, "message": "bad key"}}).protocol) as server:
            found = await server.call_tool("run_agent", {"task": "x"})
            assert found.is_error
            assert "bad key" in found.content[0].text

    asyncio.run(main())


def test_what_is_printed_never_reaches_the_protocol(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(
        "import os, subprocess, sys\nprint('at import')\n\ndef reply(request):\n"
        "    print('in the model'); sys.stdout.flush(); os.write(1, b'raw\\n'); subprocess.run(['echo', 'child'])\n"
        "    return {'text': 'ok'}\n"
    )

    first = {"jsonrpc": "2.0", "id": 1, "method": "initialize"}
    first["params"] = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    params = {"name": "run_agent", "arguments": {"task": "x"}, "_meta": {"progressToken": 7}}
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
    with subprocess.Popen(
        command("serve", "-m", "script:m.py"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env=environment(tmp_path),
        text=True,
    ) as process:
        assert process.stdin
        assert process.stdout
        for message in (first, ready, call):
            process.stdin.write(json.dumps(message) + "\n")
        process.stdin.flush()
        begun, step, answer = [json.loads(process.stdout.readline()) for _ in range(3)]
        assert (begun["id"], step["params"]["message"], answer["id"]) == (1, "ok", 2)
        assert answer["result"]["structuredContent"]["status"] == "done"
        rest, said = process.communicate()
        assert rest == ""
        assert "in the model" in said
        assert "child" in said
        assert process.returncode == 0


@pytest.mark.parametrize("how", ["cancelled", "end of input", "signal"])
def test_a_request_that_is_given_up_ends_its_run(tmp_path: Path, how: str) -> None:
    model = script(tmp_path, SLEEP, {"text": "late"})

    async def started(server: Client) -> asyncio.Task[Any]:
        call = asyncio.create_task(server.call_tool("run_agent", {"task": "x"}))
        for _ in range(1200):
            if any("tool.started" in path.read_text() for path in (tmp_path / ".opensage/sessions").glob("*.jsonl")):
                return call
            await asyncio.sleep(0.05)
        raise AssertionError("the run did not begin")

    async def main() -> None:
        async with client(tmp_path, "-m", model) as server:
            call = await started(server)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            if how == "cancelled":
                for _ in range(600):
                    if "run.finished" in _log(tmp_path):
                        break
                    await asyncio.sleep(0.05)
                assert '"status": "cancelled"' in _log(tmp_path) or '"status":"cancelled"' in _log(tmp_path)
                assert len((await server.list_tools()).tools) == 1

    def by_hand() -> None:
        process = subprocess.Popen(
            command("serve", "-m", model),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=tmp_path,
            env=environment(tmp_path),
            text=True,
        )
        assert process.stdin
        assert process.stdout
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        params = {"name": "run_agent", "arguments": {"task": "x"}, "_meta": meta}
        process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}) + "\n")
        process.stdin.flush()
        for _ in range(1200):
            if "tool.started" in _log(tmp_path):
                break
            time.sleep(0.05)
        if how == "signal":
            process.send_signal(signal.SIGTERM)
        else:
            process.stdin.close()
        process.wait(60)
        with contextlib.suppress(OSError):
            process.stdin.close()
        process.stdout.close()

    if how == "cancelled":
        asyncio.run(main())
    else:
        by_hand()
    assert '"cancelled"' in _log(tmp_path)
    assert not (tmp_path / "late.txt").exists()


def _log(folder: Path) -> str:
    return "".join(path.read_text() for path in (folder / ".opensage/sessions").glob("*.jsonl"))


def test_http_an_agent_and_a_toolkit(tmp_path: Path) -> None:
    kit = tmp_path / "home/toolkits/means"
    kit.mkdir(parents=True)
    (kit / "SKILL.md").write_text("---\nname: means\ndescription: Means.\n---\nUse it.\n")
    (kit / "tools.py").write_text(TOOLS)
    agents = tmp_path / ".opensage/agents"
    agents.mkdir(parents=True)
    (agents / "scribe.md").write_text("---\nname: scribe\ndescription: Writes well.\n---\nWrite.\n")
    model = script(tmp_path, {"text": "hi"})
    port = free_port()
    words = command("serve", "-m", model, "--agent", "scribe", "--toolkit", "means", "--http", str(port))

    async def main() -> None:
        async with Client(f"http://127.0.0.1:{port}/mcp") as server:
            agent, mean = (await server.list_tools()).tools
            assert agent.description.endswith("Writes well.")
            assert mean.name == "means__mean"
            assert mean.input_schema["required"] == ["values"]
            found = await server.call_tool("means__mean", {"values": [1, 2, 6]})
            assert (found.content[0].text, found.is_error) == ("3.0", False)
            wrong = await server.call_tool("means__mean", {"values": "much"})
            assert wrong.is_error
            assert "values" in wrong.content[0].text
            done = await server.call_tool("run_agent", {"task": "x"})
            assert done.content[0].text == "hi"
        import httpx2

        async with httpx2.AsyncClient() as web:  # a page in a browser, by a name that leads here
            for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
                answer = await web.post(f"http://127.0.0.1:{port}/mcp", json={}, headers=headers)
                assert answer.status_code in (403, 421)

    with _cwd(tmp_path), http_process(port, words, environment(tmp_path)) as process:
        asyncio.run(main())
        done = opensage("mcp", "serve", "-m", model, "--http", str(port), cwd=tmp_path)
        assert f"port {port} cannot be used" in one_line(done)
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        assert process.stderr
        assert f"serving http://127.0.0.1:{port}/mcp" in process.stderr.read().decode()


@contextlib.contextmanager
def _cwd(folder: Path) -> Any:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--agent", "nobody"), "no agent 'nobody'"),
        (("--toolkit", "nothing"), "there is no toolkit 'nothing' that can be used"),
    ],
)
def test_a_wrong_option_is_one_line(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    done = opensage("mcp", "serve", "-m", script(tmp_path, {"text": "x"}), *words, cwd=tmp_path)
    assert said in one_line(done)
    assert done.stdout == ""


def test_list_shows_the_servers_of_the_configuration(tmp_path: Path) -> None:
    assert "no MCP servers" in opensage("mcp", "list", cwd=tmp_path).stdout
    raw = raw_server(
        tmp_path, {"name": "get.user", "description": "A \x1b[31muser.", "inputSchema": {"type": "object"}}
    )
    (tmp_path / "home").mkdir()
    (tmp_path / "home/config.toml").write_text(
        "[mcp.dead]\ncommand = 'sh'\nargs = ['-c', 'echo $API_KEY >&2; exit 5']\nenv = {API_KEY = 'written-in-the-file'}\n"
        f"[mcp.raw]\ncommand = {sys.executable!r}\nargs = ['-S', {RAW!r}, {raw.args[-1]!r}]\ntools = ['get.user', 'gone']\n"
    )
    done = opensage("mcp", "list", cwd=tmp_path, COLUMNS="120")
    assert done.returncode == 1
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["raw", "raw__get_user", "A", "[31muser."] in lines or ["raw", "raw__get_user", "A", "user."] in lines
    assert [
        "dead",
        "-",
        "its",
        "process",
        "ended",
        "with",
        "exit",
        "code",
        "5;",
        "it",
        "said:",
        "[masked",
        "API_KEY]",
    ] in lines
    assert "has no tool gone" in done.stderr
