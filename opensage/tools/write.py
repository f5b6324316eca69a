"""`write` and `edit`: change a file, and say compactly what changed."""

from __future__ import annotations

import asyncio

from opensage.errors import ToolError
from opensage.tools.base import ToolContext, ToolOutput
from opensage.tools.decorate import tool
from opensage.tools.diff import unified_diff
from opensage.tools.edit import EditResult, NotFound, apply_edit
from opensage.tools.paths import file_errors, inside, missing, read_all, shown
from opensage.tools.syntax import newly_broken
from opensage.tools.text import TextFile, is_binary

CAREFUL = "careful"
"""Key of the context's state: when it is set, an edit that breaks a Python file is refused instead of warned of."""
_MOST = 32 << 20


@tool(name="write", source="builtin", parallel=False, changes=True, target="path")
async def write(ctx: ToolContext, path: str, content: str) -> ToolOutput:
    """Write a whole file, making its folders.

    Args:
        ctx: context.
        path: file
        content: the full text
    """
    return await _create(ctx, await inside(ctx, path), content)


@tool(name="edit", source="builtin", parallel=False, changes=True, target="path")
async def edit(ctx: ToolContext, path: str, old: str, new: str, all: bool = False) -> ToolOutput:
    """Replace text in a file.

    Args:
        ctx: context.
        path: file
        old: lines as they are in the file, enough to be unique
        new: lines to put there
        all: replace every occurrence
    """
    place = await inside(ctx, path)
    name = shown(place, ctx)
    try:
        data = await read_all(ctx, place, _MOST)
    except FileNotFoundError:
        if old:
            raise await missing(ctx, place) from None
        return await _create(ctx, place, new)
    if is_binary(data):
        raise ToolError(f"{name} is not a text file")
    file = TextFile.of(data)
    try:
        result = await asyncio.to_thread(apply_edit, file.text, old, new, all)
    except NotFound as error:
        raise ToolError(f"{name}: {error}") from None
    problem = await asyncio.to_thread(newly_broken, name, file.text, result.text)
    if problem and _is_python(name) and ctx.state.get(CAREFUL):
        raise ToolError(
            f"{name} was not changed: with this edit it would no longer compile ({problem}). "
            "Copy old exactly from the file and write new as whole statements with the same indentation."
        )
    changed = file.data(result.text)
    with file_errors(name):
        await ctx.sandbox.write_bytes(place, changed)
    diff = await asyncio.to_thread(unified_diff, file.text, result.text, name)
    return ToolOutput(_summary(name, result) + _warning(name, problem), _printable(diff))


async def _create(ctx: ToolContext, place: str, content: str) -> ToolOutput:
    name = shown(place, ctx)
    before = await _before(ctx, place)
    data = TextFile("").data(content)
    with file_errors(name):
        await ctx.sandbox.write_bytes(place, data)
    diff = await asyncio.to_thread(unified_diff, before or "", content, name)
    problem = await asyncio.to_thread(newly_broken, name, None, content)
    return ToolOutput(_written(name, before, content) + _warning(name, problem), _printable(diff))


async def _before(ctx: ToolContext, place: str) -> str | None:
    """The text that a write replaces, for its diff; None when there is no such file, "" when it is not text."""
    try:
        data = await read_all(ctx, place, _MOST)
    except FileNotFoundError:
        return None
    except ToolError as error:
        if "larger" in str(error):
            return ""
        raise
    return "" if is_binary(data) else _printable(TextFile.of(data).text)


def _written(name: str, before: str | None, content: str) -> str:
    was = "" if before is None else f" (it had {_count_lines(before)})"
    lines = _count_lines(content)
    return f"wrote {lines} line{'' if lines == 1 else 's'} to {name}{was}"


def _count_lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n") and text != "")


def _summary(name: str, result: EditResult) -> str:
    places = f"{result.count} places, the first" if result.count > 1 else "1 place"
    how = "" if result.how == "exact" else f" (matched in spite of {result.how})"
    return f"edited {name}: {places} at line {result.line}{how}"


def _printable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _warning(name: str, problem: str) -> str:
    """A line for the model when a file cannot be read any more."""
    verb = "compile" if _is_python(name) else "parse"
    return f"\nwarning: {name} does not {verb} now: {problem}" if problem else ""


def _is_python(name: str) -> bool:
    return name.endswith((".py", ".pyi"))
