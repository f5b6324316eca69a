"""Answers of every kind, and hostile ones; probe K1."""

from __future__ import annotations

import asyncio
import base64
import logging
from pathlib import Path
from typing import Any

import pytest
from mcp_helpers import context, gone, raw_server, started, use

from opensage.errors import ToolError
from opensage.mcp import McpServers
from opensage.tools import Toolbox

DATA = base64.b64encode(b"\x89PNG" * 30).decode()


@pytest.mark.parametrize("how", ["runs", "tasks", "task dies", "threads", "stopped loop"])
def test_probe_k1_opened_in_one_task_and_closed_in_another(
    how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    box = Toolbox()
    servers = McpServers([raw_server(tmp_path, "pid")])

    async def opened() -> int:
        assert await servers.start(box) == []
        return int(await use(box, "raw__pid"))

    async def in_tasks() -> list[int]:
        pids = [await asyncio.create_task(opened())]
        pids.append(int(await asyncio.create_task(use(box, "raw__pid"))))
        assert pids[0] == pids[1]
        await asyncio.create_task(servers.close())
        return pids

    async def dying() -> list[int]:
        async def starter() -> None:
            pids.append(await opened())
            await asyncio.sleep(60)

        pids: list[int] = []
        task = asyncio.create_task(starter())
        while not pids:
            await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.wait({task})
        assert int(await use(box, "raw__pid")) == pids[0]  # the server outlives who asked for it
        await servers.close()
        return pids

    if how == "runs":
        pids = [asyncio.run(opened())]
        pids.append(int(asyncio.run(use(box, "raw__pid"))))  # started anew: the first went with its loop
        asyncio.run(servers.close())
    elif how == "tasks":
        pids = asyncio.run(in_tasks())
    elif how == "task dies":
        pids = asyncio.run(dying())
    elif how == "threads":
        import threading

        found: list[int] = []
        leave = threading.Event()

        async def there() -> None:
            found.append(await opened())
            while not leave.is_set():
                await asyncio.sleep(0.02)

        thread = threading.Thread(target=lambda: asyncio.run(there()))
        thread.start()
        while not found:
            assert thread.is_alive()
        asyncio.run(servers.close())  # while the loop it was opened in goes on
        pids = found
        assert asyncio.run(gone(*pids))
        leave.set()
        thread.join()
    else:
        loop = asyncio.new_event_loop()
        pids = [loop.run_until_complete(opened())]
        loop.run_until_complete(servers.close())
        loop.close()
    assert asyncio.run(gone(*pids))
    with pytest.raises(ToolError, match="the session has ended"):
        asyncio.run(use(box, "raw__pid"))
    assert caplog.records == []


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({"content": []}, ""),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "a\nb"),
        (
            {"content": [{"type": "image", "data": DATA, "mimeType": "image/png"}]},
            "[image image/png, 120 bytes; not shown]",
        ),
        ({"content": [{"type": "audio", "data": DATA, "mimeType": "a/b"}]}, "[audio a/b, 120 bytes; not shown]"),
        ({"content": [{"type": "resource_link", "name": "n", "uri": "file:///x"}]}, "[resource n: file:///x]"),
        ({"content": [{"type": "resource", "resource": {"uri": "a:b", "text": "T"}}]}, "[resource a:b]\nT"),
        (
            {"content": [{"type": "resource", "resource": {"uri": "a:b", "blob": DATA, "mimeType": "x/y"}}]},
            "[resource a:b x/y, 120 bytes; not shown]",
        ),
        ({"content": [], "structuredContent": {"a": [1, "é"]}}, '{"a": [1, "é"]}'),
        ({"content": [{"type": "text", "text": "done"}], "structuredContent": {"n": 1}}, 'done\n{"n": 1}'),
        ({"content": [{"type": "text", "text": '{"n":1}'}], "structuredContent": {"n": 1}}, '{"n":1}'),
        ({"content": [{"type": "text", "text": "5"}], "structuredContent": {"result": 5}}, "5"),
        ({"content": [{"type": "text", "text": "hi"}], "structuredContent": {"result": "hi"}}, "hi"),
    ],
    ids=str,
)
def test_answers_of_every_kind(result: dict[str, Any], said: str, tmp_path: Path) -> None:
    async def main() -> str:
        async with started(raw_server(tmp_path, "answer")) as (box, _):
            return await use(box, "raw__answer", result=result)

    assert asyncio.run(main()) == said


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({"content": [{"type": "text", "text": "no such user"}], "isError": True}, "^no such user$"),
        ({"content": [], "isError": True}, "answer failed and did not say why"),
        ({"content": "text"}, "gave a wrong answer"),
        ({"content": [{"type": "hologram"}]}, "gave a wrong answer"),
        ([], "gave a wrong answer|no answer"),
    ],
    ids=str,
)
def test_errors_and_nonsense_are_tool_errors_and_the_server_stays(result: Any, said: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with started(raw_server(tmp_path, "answer", "pid", more={"timeout_s": 3})) as (box, _):
            pid = await use(box, "raw__pid")
            with pytest.raises(ToolError, match=said):
                await use(box, "raw__answer", result=result)
            assert await use(box, "raw__pid") == pid

    asyncio.run(main())


def test_the_servers_own_schema_of_results_is_not_run(tmp_path: Path) -> None:
    evil = {"type": "object", "properties": {"x": {"type": "string", "pattern": "^(a+)+$"}}}
    tool = {"name": "answer", "inputSchema": {"type": "object"}, "outputSchema": evil}

    async def main() -> str:
        async with started(raw_server(tmp_path, tool)) as (box, _):
            result = {"content": [], "structuredContent": {"x": "a" * 40 + "!"}}
            return await asyncio.wait_for(use(box, "raw__answer", result=result), 10)

    assert "aaa!" in asyncio.run(main())


def test_a_storm_of_progress_and_a_message_without_end(tmp_path: Path) -> None:
    async def main() -> None:
        async with started(raw_server(tmp_path, "progress", "long line", "pid")) as (box, _):
            lines: list[str] = []
            assert await use(box, "raw__progress", lines) == "done"
            assert 0 < len(lines) < 200
            assert all(len(line) <= 200 and "\x1b" not in line for line in lines)
            with pytest.raises(ToolError, match="a message of more than 16777216 bytes"):
                await use(box, "raw__long_line")
            assert int(await use(box, "raw__pid"))

    asyncio.run(main())


def test_what_is_printed_before_the_protocol_does_no_harm(tmp_path: Path) -> None:
    async def main() -> list[str]:
        first = "Welcome!\n{not json}\n[]\n\xff\n" + '{"jsonrpc": "2.0", "method": 5}\n' + "[" * 5000 + "\n"
        async with started(raw_server(tmp_path, "pid", first=first)) as (box, warnings):
            tool = box.get("raw__pid")
            assert tool is not None
            assert int(str(await tool.invoke({}, context())))
            return warnings

    assert asyncio.run(main()) == []
