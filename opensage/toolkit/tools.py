"""The tools by which an agent makes, finds and reads toolkits. Their descriptions are short: each prompt has them."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath

from opensage.errors import ToolError
from opensage.toolkit.gate import draft
from opensage.toolkit.spec import key_of
from opensage.toolkit.workshop import Item, Shelf
from opensage.tools.base import Tool, ToolContext
from opensage.tools.decorate import tool

_STATE = "toolkits"
_MOST_LISTED = 60
_FOUND = 10
_MOST_SHOWN = 16_000


@tool(source="builtin", parallel=False, changes=True, target="name")
async def create_toolkit(
    ctx: ToolContext, name: str, description: str, files: dict[str, str] | str, tests: dict[str, str] | str
) -> str:
    """Make tools of your own from Python code. They are tested in the sandbox, then you can call them at once.

    Args:
        ctx: context.
        name: lower-case, e.g. "matrix-tools"
        description: one line, when to use it
        files: text of tools.py (functions with type hints and docstrings), or path to text of each file
        tests: text of a test file; it begins e.g. with "from ..tools import mean"
    """
    shelf = _shelf(ctx)
    known = shelf.workshop.items.get(key_of(name))
    if known is not None:
        hint = "choose another name" + (", or use update_toolkit" if known.made and shelf.sees(known) else "")
        raise ToolError(f"there is a toolkit '{known.spec.name}' already: {hint}")
    item, report = await shelf.make(ctx, draft(name, description, files, tests))
    return _made(item, report.text())


@tool(source="builtin", parallel=False, changes=True, target="name")
async def update_toolkit(
    ctx: ToolContext, name: str, files: dict[str, str] | str = "", tests: dict[str, str] | str = ""
) -> str:
    """Change a toolkit that agents made: a new version, tested as a new one is.

    Args:
        ctx: context.
        name: which
        files: new text of tools.py, or path to text of what changes; an empty text removes a file
        tests: new text of the tests, or path to text
    """
    shelf = _shelf(ctx)
    old = shelf.get(name)
    if not old.made:
        raise ToolError(f"'{old.spec.name}' is {old.spec.source}, not made by agents: make one of your own instead")
    if not files and not tests:
        raise ToolError("nothing changes: pass files or tests")
    made = draft(old.spec.name, old.spec.description, files, tests, base=old.spec.files)
    item, report = await shelf.make(ctx, made, old)
    return _made(item, report.text())


@tool(source="builtin", parallel=True)
async def list_toolkits(ctx: ToolContext) -> str:
    """List the toolkits there are, with their tools."""
    items = _shelf(ctx).items()
    lines = [_listed(item) for item in items[:_MOST_LISTED]]
    more = [f"and {len(items) - _MOST_LISTED} more: use search_toolkits"] if len(items) > _MOST_LISTED else []
    return "\n".join([*lines, *more]) or "there are no toolkits yet: create_toolkit makes one"


@tool(source="builtin", parallel=True, target="name")
async def inspect_toolkit(ctx: ToolContext, name: str, file: str = "", copy_to: str = "") -> str:
    """Read how to use a toolkit, and get its tools.

    Args:
        ctx: context.
        name: which
        file: show this file of it instead
        copy_to: copy its files into this folder of the workspace
    """
    shelf = _shelf(ctx)
    item = shelf.get(name)
    if copy_to:
        return await _copied(ctx, item, copy_to)
    if file:
        return _file(item, file)
    shelf.open(item)
    return _cut(item.spec.described())


@tool(source="builtin", parallel=False, target="name")
async def retire_toolkit(ctx: ToolContext, name: str) -> str:
    """Put a toolkit that agents made away.

    Args:
        ctx: context.
        name: which
    """
    shelf = _shelf(ctx)
    item = shelf.get(name)
    await shelf.retire(ctx, item)
    return (
        f"toolkit '{item.spec.name}' is retired; its {item.spec.version} version(s) stay in {item.spec.folder.parent}"
    )


@tool(source="builtin", parallel=True)
async def search_toolkits(ctx: ToolContext, query: str) -> str:
    """Find toolkits by what they are for.

    Args:
        ctx: context.
        query: a few words
    """
    words = {word for word in re.findall(r"\w+", query.lower()) if len(word) > 2}
    scored = [(_score(item, words), item) for item in _shelf(ctx).items()]
    best = sorted((pair for pair in scored if pair[0]), key=lambda pair: -pair[0])[:_FOUND]
    return "\n".join(_listed(item) for _, item in best) or f"no toolkit is about {query[:80]!r}: try other words"


_ALL = (create_toolkit, update_toolkit, list_toolkits, inspect_toolkit, retire_toolkit)


def shelf_tools(shelf: Shelf, *, search: bool) -> list[Tool]:
    """The tools above for one agent; what they have in common (schemas) is shared by all agents."""
    return [
        replace(each, invoke=partial(_bound, shelf, each)) for each in (*_ALL, *([search_toolkits] if search else []))
    ]


async def _bound(shelf: Shelf, bound: Tool, arguments: dict[str, object], context: ToolContext) -> object:
    context.state[_STATE] = shelf
    return await bound.invoke(arguments, context)


def _shelf(ctx: ToolContext) -> Shelf:
    found: Shelf = ctx.state[_STATE]
    return found


def _made(item: Item, report: str) -> str:
    tools = "\n".join(f"- {each.title}: {each.signature}" for each in item.spec.tools)
    ready = f"toolkit '{item.spec.name}' version {item.spec.version} is ready: {report}"
    return f"{ready}\nCall its tools by these names:\n{tools}"


def _listed(item: Item) -> str:
    spec = item.spec
    version = f" v{spec.version}" if spec.version else ""
    tools = ", ".join(each.title for each in spec.tools[:20]) or "no tools, instructions only"
    return f"{spec.name}{version} ({spec.source}): {spec.description[:200]} [{tools}]"


def _score(item: Item, words: set[str]) -> int:
    """Words of the query in the name count three, in descriptions one; beginnings of words count too."""
    spec = item.spec
    name = set(re.findall(r"[a-z0-9]+", spec.name))
    text = " ".join([spec.description, *(f"{each.name} {each.description}" for each in spec.tools)])
    there = set(re.findall(r"[a-z0-9]+", text.lower()))
    return sum(3 * _near(word, name) + _near(word, there) for word in words)


def _near(word: str, words: set[str]) -> bool:
    return word in words or (len(word) > 3 and any(other.startswith(word[:5]) for other in words))


def _file(item: Item, path: str) -> str:
    data = item.spec.files.get(path.strip().removeprefix("./"))
    if data is None:
        raise ToolError(f"toolkit {item.spec.name} has no file '{path[:100]}'; it has: {', '.join(item.spec.files)}")
    if b"\0" in data:
        return f"{path} is binary ({len(data)} bytes)"
    return _cut(data.decode("utf-8", "replace"))


async def _copied(ctx: ToolContext, item: Item, folder: str) -> str:
    for path, data in item.spec.files.items():
        await ctx.sandbox.write_bytes(str(PurePosixPath(folder) / path), data)
    return f"copied {len(item.spec.files)} files of {item.spec.name} into {folder}"


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}\n[cut: {len(text)} characters in all]"
