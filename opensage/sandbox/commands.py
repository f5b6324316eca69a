"""A command on its way to the supervisor, and its result on the way back."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

from opensage.errors import ToolError

SCRIPT_INLINE = 100_000
"""Longer scripts go through a file in memory: the kernel takes 128 KiB an argument."""


def request(
    command: str | Sequence[str], env: Mapping[str, str] | None, cwd: str | None, shell: str = ""
) -> tuple[dict[str, Any], bytes | None]:
    """The request for a command, and a long script apart. The shell is this machine's unless one is named.

    Raises:
        ToolError: it is nothing that could be run.
    """
    argv, script = _script(command, shell) if isinstance(command, str) else (list(command), None)
    extra = dict(env or {})
    words = [*argv, *extra, *extra.values(), cwd or ""]
    if not argv or not all(isinstance(word, str) for word in words):
        raise ToolError("a command is a script or a list of strings that is not empty, and its environment strings")
    if any("\0" in word for word in words) or any("=" in key for key in extra):
        raise ToolError("a command, its folder and its environment must not contain NUL, nor variable names '='")
    return {"argv": argv, "env": extra, "cwd": cwd or "."}, script


def _script(text: str, shell: str) -> tuple[list[str], bytes | None]:
    shell = shell or ("/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh")
    try:
        data = text.encode(errors="surrogateescape")
    except UnicodeEncodeError as error:
        raise ToolError(f"the script is not text: {error}") from error
    return ([shell, "/dev/fd/3"], data) if len(data) > SCRIPT_INLINE else ([shell, "-c", text], None)


def shown(command: str | Sequence[str]) -> str:
    """A command as a person would type it."""
    return command if isinstance(command, str) else shlex.join(command)


def with_notes(text: str, notes: Sequence[str]) -> str:
    """What a command printed, and the kit's own lines after it."""
    if text and notes and not text.endswith("\n"):
        text += "\n"
    return text + "".join(f"opensage: {note}\n" for note in notes)


async def to_the_end(work: Awaitable[None]) -> None:
    """Finish `work` even if this task is cancelled meanwhile, then let the cancellation out."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled
