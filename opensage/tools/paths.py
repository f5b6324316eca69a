"""Paths as models write them, and what went wrong with them, said so that the model can mend it."""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterator
from contextlib import contextmanager

from opensage.errors import ToolError
from opensage.tools.base import ToolContext

SKIPPED = (
    ".git",
    ".opensage",
    "node_modules",
    "__pycache__",
    ".venv",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    ".tox",
)
"""Folders that `list` and `search` leave out."""

_FIND_SECONDS = 5.0
_CHUNK = 1 << 20


async def inside(ctx: ToolContext, path: str) -> str:
    """The path as the sandbox knows it: `~` expanded, the host's name of the workspace put back to the sandbox's.

    Raises:
        ToolError: the path is empty or no path at all.
    """
    if not path.strip():
        raise ToolError("the path is empty: give a path relative to the workspace, e.g. 'src/main.py'")
    if "\0" in path:
        raise ToolError("the path holds a NUL character: no file has such a name")
    try:
        path.encode()
    except UnicodeEncodeError:
        raise ToolError(f"the path {path!r} is not valid Unicode") from None
    if path == "~" or path.startswith("~/"):
        return await _home(ctx) + path[1:]
    host = str(ctx.workdir)
    if host != ctx.sandbox.workdir and (path == host or path.startswith(host + "/")):
        return ctx.sandbox.workdir + path[len(host) :]
    return path


async def _home(ctx: ToolContext) -> str:
    if "home" not in ctx.state:
        result = await ctx.sandbox.exec('printf %s "$HOME"', timeout=_FIND_SECONDS)
        ctx.state["home"] = result.stdout or ctx.sandbox.workdir
    return str(ctx.state["home"])


def shown(path: str, ctx: ToolContext) -> str:
    """A path relative to the workspace where it lies in it."""
    root = ctx.sandbox.workdir.rstrip("/") + "/"
    return path[len(root) :] if path.startswith(root) and len(path) > len(root) else path


@contextmanager
def file_errors(path: str) -> Iterator[None]:
    """Turn the system's refusals into tool errors that say what to do. A missing file is left to the caller."""
    try:
        yield
    except FileNotFoundError:
        raise
    except IsADirectoryError:
        raise ToolError(f"{path} is a folder: use list to see what is in it") from None
    except NotADirectoryError:
        raise ToolError(f"{path}: a part of the path is a file, not a folder") from None
    except PermissionError:
        raise ToolError(f"{path}: permission denied") from None
    except OSError as error:
        reason = {errno.ENOSPC: "the disk is full", errno.ENAMETOOLONG: "the name is too long"}.get(error.errno or 0)
        raise ToolError(f"{path}: {reason or error.strerror or error}") from None
    except ValueError as error:
        raise ToolError(f"{path}: {error}") from None


async def read_all(ctx: ToolContext, path: str, most: int) -> bytes:
    """A whole file of up to `most` bytes.

    Raises:
        ToolError: it is larger, or cannot be read.
        FileNotFoundError: it is not there.
    """
    with file_errors(path):
        data = await ctx.sandbox.read_bytes(path, 0, most + 1)
    if len(data) > most:
        raise ToolError(f"{path} is larger than {most >> 20} MiB: change it with shell (sed, python) instead")
    return data


async def missing(ctx: ToolContext, path: str) -> ToolError:
    """The error for a file that is not there, with the names that come nearest."""
    near = nearest_paths(shown(path, ctx), await all_files(ctx))
    hint = f"; did you mean {' or '.join(near)}?" if near else ": use list or search to find it"
    return ToolError(f"{shown(path, ctx)} does not exist{hint}")


async def all_files(ctx: ToolContext) -> list[str]:
    """Files of the workspace, relative, up to a bound."""
    names = " -o ".join(f"-name {name}" for name in SKIPPED)
    script = f"find . -type d \\( {names} \\) -prune -o -type f -print 2>/dev/null | head -n 5000 | head -c 400000"
    result = await ctx.sandbox.exec(script, timeout=_FIND_SECONDS, cwd=ctx.sandbox.workdir)
    return [line.removeprefix("./") for line in result.stdout.splitlines()]


def nearest_paths(wanted: str, paths: list[str]) -> list[str]:
    """Up to three paths: those with the same file name first, then those spelt alike."""
    name = wanted.rstrip("/").rpartition("/")[2].lower()[:200]
    same = [path for path in paths if path.rpartition("/")[2].lower() == name]
    by_name = {path.rpartition("/")[2].lower(): path for path in reversed(paths)}
    close = [by_name[found] for found in difflib.get_close_matches(name, by_name, n=3, cutoff=0.7)]
    return list(dict.fromkeys(same[:3] + close))[:3]
