"""`read`: numbered lines of a file, a stored output or a skill, bounded."""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path

from opensage.errors import OpenSageError, ToolError
from opensage.tools.base import ToolContext
from opensage.tools.decorate import tool
from opensage.tools.paths import file_errors, inside, missing, shown
from opensage.tools.text import describe_binary, is_binary, sniff

MAX_LINES = 2000
MAX_BYTES = 50_000
_MAX_LINE = 2000
_CHUNK = 1 << 18
_MOST_SCANNED = 1 << 26

Chunk = Callable[[int, int], Awaitable[bytes]]
"""`(offset, limit) -> bytes` of one source."""


@tool(name="read", source="builtin", parallel=True, target="path")
async def read(ctx: ToolContext, path: str, offset: int = 0, limit: int | None = None) -> str:
    """Read a file with line numbers.

    Args:
        ctx: context.
        path: file
        offset: lines to skip
        limit: most lines to show
    """
    source, name = await _source(ctx, path)
    most = MAX_LINES if limit is None or limit <= 0 else min(limit, MAX_LINES)
    with file_errors(name):
        try:
            first = await source(0, _CHUNK)
            if is_binary(first):
                size = f"{len(first)} bytes" if len(first) < _CHUNK else f"more than {_CHUNK >> 10} KiB"
                return f"{name} is a {describe_binary(first)} ({size}), not text"
            return await _Window(name, max(0, offset), most).read(_lines(source, first))
        except FileNotFoundError:
            raise await missing(ctx, name) from None


async def _source(ctx: ToolContext, path: str) -> tuple[Chunk, str]:
    if path.startswith("blob:"):
        return _bytes_source(await _blob(ctx, path.removeprefix("blob:").strip())), path
    if path.startswith("skill:"):
        return _bytes_source(await asyncio.to_thread(_skill, ctx, path.removeprefix("skill:").strip())), path
    place = await inside(ctx, path)

    async def chunk(offset: int, limit: int) -> bytes:
        return await ctx.sandbox.read_bytes(place, offset, limit)

    return chunk, shown(place, ctx)


def _bytes_source(data: bytes) -> Chunk:
    async def chunk(offset: int, limit: int) -> bytes:
        return data[offset : offset + limit]

    return chunk


async def _blob(ctx: ToolContext, digest: str) -> bytes:
    if ctx.blob is None:
        raise ToolError("there are no stored outputs in this session")
    try:
        return bytes(await asyncio.to_thread(ctx.blob, digest))
    except (OpenSageError, OSError, LookupError, ValueError):
        raise ToolError(
            f"there is no stored output {digest[:80]!r}: copy the hash from the result that named it"
        ) from None


def _skill(ctx: ToolContext, name: str) -> bytes:
    """A file of a skill's folder on the host; `ctx.state["skills"]` maps names to folders."""
    from opensage.tools.instructions import read_within

    folders = ctx.state.get("skills")
    title, _, rest = name.partition("/")
    folder = folders.get(title) if isinstance(folders, Mapping) else None
    if not isinstance(folder, Path):
        known = ", ".join(folders) if isinstance(folders, Mapping) else ""
        raise ToolError(f"there is no skill '{title[:80]}'; skills: {known or 'none'}")
    data = read_within(folder / (rest or "SKILL.md"), folder)
    if isinstance(data, str):
        raise ToolError(f"skill:{name}: {data}")
    return data


async def _lines(source: Chunk, first: bytes) -> AsyncIterator[str]:
    """The lines of a source, decoded as it is read; the last one only if it is not empty."""
    encoding, bom = sniff(first)
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    rest, chunk, at = "", first[len(bom) :], len(first)
    while chunk:
        *whole, rest = (rest + decoder.decode(chunk)).split("\n")
        for line in whole:
            yield line.removesuffix("\r")
        if len(rest) > _CHUNK * 4:  # a line without end: only its beginning is shown anyway
            rest = rest[: _MAX_LINE + 1]
        if at >= _MOST_SCANNED:
            raise ToolError(
                f"the place lies beyond the first {_MOST_SCANNED >> 20} MiB: use shell, e.g. sed -n '5,9p' FILE"
            )
        chunk = await source(at, _CHUNK) if at % _CHUNK == 0 else b""
        at += len(chunk)
    rest += decoder.decode(b"", final=True)
    if rest:
        yield rest


class _Window:
    """The part of a file that is shown."""

    def __init__(self, name: str, offset: int, limit: int) -> None:
        self.name = name
        self.offset = offset
        self.limit = limit

    async def read(self, lines: AsyncIterator[str]) -> str:
        """The numbered lines, and a last line that says how to read on."""
        out: list[str] = []
        number = size = 0
        async for line in lines:
            number += 1
            if number <= self.offset:
                continue
            text = f"{number}\t{_short(line)}"
            size += len(text.encode("utf-8", "replace")) + 1
            if len(out) >= self.limit or (size > MAX_BYTES and out):
                return "\n".join([*out, self._more(number - 1)])
            out.append(text)
        return "\n".join(out) or self._nothing(number)

    def _more(self, last: int) -> str:
        return f'[there is more: read on with {{"path": "{self.name}", "offset": {last}}}]'

    def _nothing(self, total: int) -> str:
        if not total:
            return f"({self.name} is empty)"
        return f"({self.name} has only {total} lines; offset {self.offset} is past the end)"


def _short(line: str) -> str:
    return line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]}… [long line, cut]"
