"""A context with a real sandbox, for each backend that the tools must not notice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from opensage.sandbox import open_sandbox
from opensage.tools import Tool, ToolContext, ToolOutput


class Bench:
    """One agent's tools on one folder. `run` gives an async function a context, and closes everything after it."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder = folder
        self.kind = kind

    def run(self, work: Callable[[ToolContext], Awaitable[object]], **fields: object) -> object:
        async def whole() -> object:
            sandbox = open_sandbox(self.kind, self.folder)
            ctx = ToolContext(sandbox, self.folder, session="s", **fields)
            try:
                return await work(ctx)
            finally:
                if "tasks" in ctx.state:
                    await ctx.state["tasks"].close()
                await sandbox.close()

        return asyncio.run(whole())

    def calls(self, *calls: tuple[Tool, dict], **fields: object) -> list[str]:
        """The texts of some calls, one after the other; a `ToolError` is raised."""

        async def work(ctx: ToolContext) -> list[str]:
            return [text(await tool.invoke(arguments, ctx)) for tool, arguments in calls]

        return self.run(work, **fields)  # type: ignore[return-value]

    def call(self, tool: Tool, **arguments: object) -> str:
        return self.calls((tool, arguments))[0]


def text(value: object) -> str:
    return value.text if isinstance(value, ToolOutput) else str(value)


@pytest.fixture(autouse=True)
def opensage_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENSAGE_HOME", str(tmp_path_factory.mktemp("home")))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """The quick backend: what is under test is the tool."""
    return Bench(tmp_path, "local")


@pytest.fixture(params=["local", "bubblewrap"])
def each_bench(tmp_path: Path, request: pytest.FixtureRequest) -> Bench:
    return Bench(tmp_path, request.param)
