"""Workshops, shelves and contexts on real folders and sandboxes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from opensage.log.events import Event
from opensage.sandbox import open_sandbox
from opensage.toolkit.workshop import Shelf, Workshop
from opensage.tools import Toolbox, ToolContext, builtin_tools

MEAN = '''
def mean(values: list[float]) -> float:
    """Mean of numbers.

    Args:
        values: at least one
    """
    return sum(values) / len(values)
'''
MEAN_TESTS = "from ..tools import mean\n\ndef test_mean():\n    assert mean([1, 3]) == 2\n"


class Bench:
    """A project and a home; `run` gives an async function a context, and closes the sandbox after it."""

    def __init__(self, root: Path) -> None:
        self.workdir, self.home = root / "work", root / "home"
        self.workdir.mkdir()
        self.home.mkdir()
        self.events: list[Event] = []
        self.shelf = self.new_shelf(self.new_workshop())

    def new_workshop(self, session: str = "s1", **options: Any) -> Workshop:
        return Workshop(self.workdir, self.home, session, **options)

    def new_shelf(self, workshop: Workshop, names: list[str] | None = None, **options: Any) -> Shelf:
        shelf = Shelf(workshop, Toolbox(builtin_tools()), names, **options)
        for tool in shelf.tools():
            shelf.toolbox.add(tool)
        return shelf

    def run(self, work: Callable[[ToolContext], Awaitable[Any]], kind: str = "bubblewrap", **options: Any) -> Any:
        async def whole() -> Any:
            sandbox = open_sandbox(kind, self.workdir, **options)
            try:
                return await work(self.context(sandbox))
            finally:
                await sandbox.close()

        return asyncio.run(whole())

    def context(self, sandbox: Any) -> ToolContext:
        def record(event: Event) -> Event:
            self.events.append(event)
            return event

        return ToolContext(sandbox, self.workdir, session="s1", record=record)

    def put(self, folder: Path, files: dict[str, str | bytes], name: str = "", description: str = "For tests.") -> Path:
        """A toolkit's folder, with a SKILL.md when a name is given."""
        if name:
            files = {"SKILL.md": f"---\nname: {name}\ndescription: {description}\n---\n# Use it\n", **files}
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(text if isinstance(text, bytes) else text.encode())
        return folder

    def user(self, name: str, files: dict[str, str | bytes], **more: Any) -> Path:
        return self.put(self.home / "toolkits" / name, files, name, **more)


async def use(shelf: Shelf, ctx: ToolContext, tool_name: str, /, **arguments: Any) -> Any:
    tool = shelf.toolbox.get(tool_name)
    assert tool is not None, f"{tool_name} is not among {shelf.toolbox.names}"
    return await tool.invoke(arguments, ctx)


def create(shelf: Shelf, ctx: ToolContext, name: str = "stats-kit", files: Any = MEAN, tests: Any = MEAN_TESTS) -> Any:
    return use(shelf, ctx, "create_toolkit", name=name, description="Numbers.", files=files, tests=tests)
