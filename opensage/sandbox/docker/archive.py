"""Folders as tar streams. What comes out of a container is foreign: nothing in it may land outside its target."""

from __future__ import annotations

import os
import posixpath
import tarfile
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import IO

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
                _extract(tar, folder)
        except (tarfile.TarError, OSError, ValueError) as error:
            raise SandboxError(f"what came out of the container cannot be unpacked: {error}") from error
        parent = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fileops.copy_to(parent, name, target)
        finally:
            os.close(parent)


def _extract(tar: tarfile.TarFile, folder: str) -> None:
    """Plain files, folders and links, each inside the folder. A link may point anywhere: it is never followed.

    By hand, since the filters of the standard library are newer than Python 3.11.
    """
    links: set[str] = set()
    for member in tar:
        if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
            continue
        member.name = _inner(member.name, links)
        if member.islnk():
            member.linkname = _inner(member.linkname, links)
        if member.issym():
            links.add(member.name)
        member.uid, member.gid = os.geteuid(), os.getegid()
        member.uname = member.gname = ""
        member.mode = member.mode & tree.MODE | (0o700 if member.isdir() else 0o600)
        tar.extract(member, folder, numeric_owner=True)


def _inner(name: str, links: Collection[str]) -> str:
    """A member's name, normalised.

    Raises:
        ValueError: it leads out of the folder, or through a link.
    """
    path = posixpath.normpath(name)
    parts = path.split("/")
    above = ("/".join(parts[:count]) for count in range(1, len(parts) + 1))
    if path.startswith("/") or parts[0] == ".." or any(place in links for place in above):
        raise ValueError(f"{name[:100]!r} leads out of its folder")
    return path


def mirror(source: Path, target: Path, skip: Collection[str]) -> None:
    """Make one folder equal to another, but for the paths to skip."""
    ours, theirs = (os.open(path, tree.FOLDER) for path in (source, target))
    try:
        tree.mirror(ours, theirs, skip)
    finally:
        os.close(ours)
        os.close(theirs)
