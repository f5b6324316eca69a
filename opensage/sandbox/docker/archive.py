"""Folders as tar streams. What comes out of a container is foreign: nothing in it may land outside its target."""

from __future__ import annotations

import os
import tarfile
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import IO, Any

from opensage.errors import SandboxError
from opensage.sandbox import fileops, tree


def pack(source: Path, name: str, skip: Collection[str] = (), owner: tuple[int, int] = (0, 0)) -> IO[bytes]:
    """A file or folder as a tar, at `name`; links stay links; devices, pipes, sockets and `skip` are left out."""

    def keep(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        inner = member.name[len(name) + 1 :]
        if inner in skip or not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
            return None
        member.uid, member.gid = owner
        member.uname = member.gname = ""
        member.mode &= tree.MODE
        return member

    file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 the caller closes it
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        tar.add(source, arcname=name, filter=keep)
    return file


def unpack(file: IO[bytes], name: str, target: Path) -> None:
    """Put what a tar holds at `name` to `target`, by way of a fresh folder beside it.

    Raises:
        SandboxError: the stream is not what a container should send.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".opensage-", dir=target.parent) as folder:
        try:
            file.seek(0)
            with tarfile.open(fileobj=file, mode="r:") as tar:
                tar.extractall(folder, filter=_safe)
        except (tarfile.TarError, OSError, ValueError) as error:
            raise SandboxError(f"what came out of the container cannot be unpacked: {error}") from error
        parent = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fileops.copy_to(parent, name, target)
        finally:
            os.close(parent)


def _safe(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
    """Plain files, folders and links, each inside the folder. A link may point anywhere: it is never followed."""
    if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
        return None
    checked: Any = tarfile.data_filter if not member.issym() else tarfile.tar_filter
    kept: tarfile.TarInfo | None = checked(member, folder)
    return kept


def mirror(source: Path, target: Path, skip: Collection[str]) -> None:
    """Make one folder equal to another, but for the paths to skip."""
    ours, theirs = (os.open(path, tree.FOLDER) for path in (source, target))
    try:
        tree.mirror(ours, theirs, skip)
    finally:
        os.close(ours)
        os.close(theirs)
