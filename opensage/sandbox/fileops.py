"""Reading, writing and copying through descriptors that a supervisor has opened and checked."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from opensage.errors import PathRefused
from opensage.sandbox import tree


def checked(path: str) -> str:
    """A path that the kernel could be asked for."""
    if not path or "\0" in path:
        raise PathRefused("a path must not be empty or contain NUL")
    return path


@contextlib.contextmanager
def named(path: str) -> Iterator[None]:
    """Give an OSError from below the path that the caller wrote."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error


async def in_thread(folder: int, function: Callable[..., None], *arguments: Any) -> None:
    """Run blocking work that uses a descriptor, and close the descriptor after the work, not after a cancelled wait."""

    def work() -> None:
        try:
            function(*arguments)
        finally:
            os.close(folder)

    await asyncio.to_thread(work)


def read(fd: int, offset: int, limit: int | None) -> bytes:
    """Read from a file, and close it."""
    with open(fd, "rb") as file:
        os.set_blocking(fd, True)
        file.seek(offset)
        return file.read() if limit is None else file.read(limit)


def copy_from(source: Path, folder: int, name: str) -> None:
    """Copy a file or folder of the host to a name in a folder of the workspace."""
    parent = os.open(source.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        tree.copy_entry(parent, source.name, folder, name)
    finally:
        os.close(parent)


def copy_to(folder: int, name: str, target: Path) -> None:
    """Copy what has this name in a folder of the workspace to the host."""
    target.parent.mkdir(parents=True, exist_ok=True)
    parent = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        tree.copy_entry(folder, name, parent, target.name)
    finally:
        os.close(parent)
