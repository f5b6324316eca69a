from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from opensage.sandbox import open_sandbox

Body = Callable[[Any], Awaitable[Any]]


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace, with the user's OpenSage folder next to it."""
    monkeypatch.setenv("OPENSAGE_HOME", str(tmp_path / "home"))
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def inside(work: Path) -> Callable[..., Any]:
    """Run an async function with an open sandbox, and close the sandbox."""

    def run(kind: str, body: Body, **options: Any) -> Any:
        async def main() -> Any:
            sandbox = open_sandbox(kind, work, **options)
            try:
                return await body(sandbox)
            finally:
                await sandbox.close()

        return asyncio.run(main())

    return run


@pytest.fixture(params=["bubblewrap", "local", "docker"])
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "docker":
        request.getfixturevalue("docker_host")
    return str(request.param)


@pytest.fixture(params=["bubblewrap", "local"])
def process_kind(request: pytest.FixtureRequest) -> str:
    """The kinds that are processes of this machine, with records of their own."""
    return str(request.param)
