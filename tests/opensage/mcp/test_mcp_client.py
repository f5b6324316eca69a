"""The client against real server processes: the SDK's own, and one that misbehaves."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp_helpers import free_port, gone, http_process, is_alive, raw_server, started, stdio_server, use

from opensage.errors import ToolError
from opensage.mcp import McpServer, McpServers
from opensage.tools import Toolbox, builtin_tools


def test_tools_of_an_sdk_process_join_the_toolbox_and_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-key")
    monkeypatch.setenv("MY_TOKEN", "token-of-mine")
    (tmp_path / "inner").mkdir()

    async def main() -> None:
        box = Toolbox(builtin_tools())
        servers = McpServers([stdio_server(env={"GIVEN": "a ${MY_TOKEN} b"}, cwd="inner")], workdir=tmp_path)
        lines: list[str] = []
        assert await servers.start(box) == []
        try:
            tool = box.get("sample__add")
            assert tool is not None
            told = (tool.description, tool.source, tool.approval, tool.changes, tool.parallel)
            assert told == ("Add two integers.", "mcp:sample", "ask", True, False)
            assert tool.parameters["properties"] == {"a": {"type": "integer"}, "b": {"type": "integer"}}
            assert tool.parameters["required"] == ["a", "b"]
            reader = box.get("sample__environment")
            assert reader is not None
            assert reader.parallel
            assert await use(box, "sample__add", a=2, b=3) == "5"
            assert await use(box, "sample__greet", name="you") == '{\n  "text": "hello you"\n}'
            assert await use(box, "sample__picture") == "[image image/png, 100 bytes; not shown]"
            assert await use(box, "sample__value", name="GIVEN") == "a token-of-mine b"
            said = await use(box, "sample__environment")
            assert "OPENAI_API_KEY" not in said
            assert "MY_TOKEN" not in said
            assert f"cwd={tmp_path}/inner" in said
            with pytest.raises(ToolError, match="the disk is on fire"):
                await use(box, "sample__fail")
            with pytest.raises(ToolError, match="validation error"):
                await use(box, "sample__add", a="much", b=1)
            assert await use(box, "sample__noise") == "said"  # what is no message is passed over
            assert len(await use(box, "sample__huge", size=3_000_000)) < 1_000_100
            assert await use(box, "sample__slow", lines, seconds=0.1) == "done"
            assert lines == ["slow: half[31m way (1/2)"]
            await use(box, "sample__grow")
            await _until(lambda: "sample__grown" in box)
            assert await use(box, "sample__grown") == "new"
            assert "sample__noise" not in box
            with pytest.raises(ToolError, match=r"(?s)exit code 3; it said: .*goodbye cruel world"):
                await use(box, "sample__die")
            assert await use(box, "sample__add", a=1, b=1) == "2"
            assert "sample__noise" in box
            assert "sample__grown" not in box
        finally:
            await servers.close()

    asyncio.run(main())


async def _until(done: Any) -> None:
    for _ in range(300):
        if done():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not happen")


def test_http_a_server_that_goes_and_comes_back_and_grows() -> None:
    port = free_port()
    server = McpServer(name="web", url=f"http://127.0.0.1:{port}/mcp", headers={"X-Mine": "yes"}, timeout_s=10)

    async def main() -> None:
        box = Toolbox()
        servers = McpServers([server])
        lines: list[str] = []
        try:
            with http_process(port) as process:
                assert await servers.start(box) == []
                assert await use(box, "web__add", a=2, b=3) == "5"
                assert await use(box, "web__slow", lines, seconds=0.1) == "done"
                assert lines == ["slow: half[31m way (1/2)"]
                with pytest.raises(ToolError, match="the disk is on fire"):
                    await use(box, "web__fail")
                await use(box, "web__grow")
                await _until(lambda: "web__grown" in box)
                with pytest.raises(ToolError, match="The MCP server web ended during the call"):
                    await use(box, "web__die")
                assert process.wait(5) == 3
                with pytest.raises(ToolError, match=r"cannot be started: .*does not answer"):
                    await use(box, "web__add", a=2, b=3)
            with http_process(port):
                assert await use(box, "web__add", a=2, b=4) == "6"
                assert "web__grown" not in box
        finally:
            await servers.close()

    asyncio.run(main())


def test_a_death_in_a_call_is_a_tool_error_and_the_next_call_starts_it_anew(tmp_path: Path) -> None:
    async def main() -> None:
        async with started(raw_server(tmp_path, "die", "pid")) as (box, _):
            before = await use(box, "raw__pid")
            with pytest.raises(ToolError, match=r"exit code 3; it said: goodbye cruel world\); whether the call did"):
                await use(box, "raw__die")
            assert await use(box, "raw__pid") != before

    asyncio.run(main())


def test_a_death_between_calls_is_not_noticed(tmp_path: Path) -> None:
    async def main() -> None:
        async with started(raw_server(tmp_path, "pid")) as (box, _):
            for wait in (0.0, 0.3):
                import os

                pid = int(await use(box, "raw__pid"))
                os.kill(pid, 9)
                assert await gone(pid)
                await asyncio.sleep(wait)
                if wait:
                    assert int(await use(box, "raw__pid")) != pid
                else:  # whoever comes before the pipe is seen to be closed may be told of it
                    assert await _tried(box, "raw__pid") != str(pid)

    asyncio.run(main())


async def _tried(box: Toolbox, name: str) -> str:
    try:
        return await use(box, name)
    except ToolError as error:
        return str(error)


def test_calls_that_overlap_all_learn_of_the_death_and_one_process_is_started(tmp_path: Path) -> None:
    async def main() -> None:
        async with started(raw_server(tmp_path, "die", "hang", "pid")) as (box, _):
            slow = [asyncio.create_task(use(box, "raw__hang")) for _ in range(3)]
            await asyncio.sleep(0.2)
            found = await asyncio.gather(*slow, use(box, "raw__die"), return_exceptions=True)
            assert [type(error) for error in found] == [ToolError] * 4
            pids = await asyncio.gather(*(use(box, "raw__pid") for _ in range(5)))
            assert len(set(pids)) == 1

    asyncio.run(main())


def test_a_slow_call_ends_in_time_and_the_server_hears_of_it(tmp_path: Path) -> None:
    mark = tmp_path / "mark"

    async def main(how: str) -> None:
        async with started(raw_server(tmp_path, "hang", "pid", more={"timeout_s": 2 if how == "late" else 60})) as (
            box,
            _,
        ):
            before = await use(box, "raw__pid")
            call = asyncio.create_task(use(box, "raw__hang"))
            if how == "cancelled":
                await asyncio.sleep(0.2)
                call.cancel()
            with pytest.raises(ToolError if how == "late" else asyncio.CancelledError, match=r"within 2 s|^$"):
                await call
            await _until(mark.exists)
            assert await use(box, "raw__pid") == before
            mark.unlink()

    asyncio.run(main("late"))
    asyncio.run(main("cancelled"))


@pytest.mark.parametrize("how", ["closed", "cancelled", "twice", "thrice", "forgotten"])
def test_no_process_is_left(tmp_path: Path, how: str) -> None:
    pids: list[int] = []

    async def main() -> None:
        box = Toolbox()
        servers = McpServers([raw_server(tmp_path, "child", "hang", "stubborn")])
        await servers.start(box)
        pids.extend(map(int, (await use(box, "raw__child")).split()))
        if how == "forgotten":
            return
        if how in ("twice", "thrice"):
            await use(box, "raw__stubborn")
        try:
            await use(box, "raw__hang")
        finally:
            await servers.close()

    async def outer() -> None:
        task = asyncio.create_task(main())
        await _until(lambda: len(pids) == 2)
        await asyncio.sleep(0.3)
        assert how == "forgotten" or all(map(is_alive, pids))
        task.cancel()
        for _ in range(["twice", "thrice"].index(how) + 1 if how in ("twice", "thrice") else 0):
            await asyncio.sleep(0.1)
            task.cancel()
        if how == "closed":
            await asyncio.wait({task})
            assert await gone(*pids)
            servers = McpServers([])
            await servers.close()
            await servers.close()

    asyncio.run(outer())
    assert asyncio.run(gone(*pids))


def test_a_start_that_is_cut_off_leaves_no_process(tmp_path: Path) -> None:
    mark = tmp_path / "pid"

    async def main() -> int:
        server = McpServer(name="slow", command="sh", args=("-c", f"echo $$ > {mark}; exec sleep 300"))
        servers = McpServers([server])
        starting = asyncio.create_task(servers.start(Toolbox()))
        await _until(lambda: mark.exists() and mark.read_text().strip())
        pid = int(mark.read_text())
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert await gone(pid)
        await servers.close()
        return pid

    asyncio.run(main())


def test_tools_that_come_and_go_are_seen_whatever_the_hurry(tmp_path: Path) -> None:
    later = [{"name": "later", "inputSchema": {"type": "object"}}, {"name": "grow", "inputSchema": {"type": "object"}}]

    async def main() -> None:
        async with started(raw_server(tmp_path, "grow", "die", later=later)) as (box, _):
            assert box.names == ["raw__grow", "raw__die"]
            version = box.version
            await use(box, "raw__grow")
            await _until(lambda: "raw__later" in box)
            await asyncio.sleep(0.7)
            assert box.names == ["raw__grow", "raw__later"]
            assert box.version == version + 2  # nothing that stayed as it was is touched

    asyncio.run(main())


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ({"command": "no-such-program-anywhere"}, "cannot start no-such-program-anywhere: .* install it"),
        ({"command": "true"}, "exit code 0"),
        ({"command": "sh", "args": ("-c", "echo no licence >&2; exit 7")}, "exit code 7; it said: no licence"),
        ({"command": "sleep", "args": ("60",), "timeout_s": 0.5}, "did not answer within 0.5 s"),
        ({"command": "yes"}, "it prints other things than messages"),
        ({"command": "sh", "args": ("-c", "head -c 20000000 /dev/zero")}, "a message of more than 16777216 bytes"),
        ({"command": "true", "cwd": "/no/such/folder"}, "folder /no/such/folder is not there"),
        ({"command": "true", "env": {"A": "${NOT_SET_ANYWHERE}"}}, "needs the variable NOT_SET_ANYWHERE"),
        ({"command": "true", "env": {"A=B": "x"}}, "cannot be passed on"),
        ({}, "needs either command"),
        ({"command": "true", "url": "http://x"}, "and not both"),
        ({"command": " "}, "command is empty"),
        ({"command": "a\0b"}, "NUL"),
        ({"url": "ftp://x"}, "is no address"),
        ({"url": "http://127.0.0.1:9/mcp?key=hidden"}, "http://127.0.0.1:9/mcp does not answer"),
    ],
)
def test_a_server_that_cannot_start_is_a_warning_and_the_others_are_there(
    server: dict[str, Any], said: str, tmp_path: Path
) -> None:
    async def main() -> list[str]:
        async with started(
            McpServer(name="bad", **server), raw_server(tmp_path, "pid"), box=Toolbox(builtin_tools())
        ) as (
            box,
            warnings,
        ):
            assert box.names[-1] == "raw__pid"
            assert len(box) == len(builtin_tools()) + 1
            return warnings

    [warning] = asyncio.run(main())
    assert warning.startswith("MCP server bad left out: ")
    assert re.search(said, warning), warning
    assert "hidden" not in warning


def test_without_the_sdk_the_warning_says_what_to_install(tmp_path: Path) -> None:
    code = """
import asyncio, sys
from importlib.abc import MetaPathFinder
from opensage.mcp import McpServers, McpServer
from opensage.tools import Toolbox
assert asyncio.run(McpServers([]).start(Toolbox())) == []
assert "mcp" not in sys.modules and "pydantic_core" in sys.modules
import importlib.util
real = importlib.util.find_spec
import opensage.mcp.servers as servers
servers.find_spec = lambda name: None if name.startswith("mcp") else real(name)
[said] = asyncio.run(McpServers([McpServer(name="a", command="true"), McpServer(name="b", command="true")]).start(Toolbox()))
assert said == "MCP server a, b left out: MCP needs its SDK: pip install 'opensage[mcp]'", said
assert "mcp" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
