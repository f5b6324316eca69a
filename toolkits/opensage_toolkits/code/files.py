"""The files of a workspace: those git would know of, else all but the usual build folders."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .languages import Language, language_of

MOST_FILES = 20_000
MOST_BYTES = 1 << 20
_SEEN = 500_000
"""Entries looked at without git."""
_BUILT = {
    "__pycache__", "node_modules", "venv", "env", "target", "build", "dist", "vendor", "site-packages",
}  # fmt: skip
_GIT_SECONDS = 60.0
GIT = ("git", "-c", "safe.directory=*", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false")
"""git for a workspace whose files may be another user's, and whose settings start no program."""


@dataclass(slots=True)
class Listing:
    """Source files by path from the root, and what is left out, by reason."""

    files: dict[str, tuple[Language, os.stat_result]] = field(default_factory=dict)
    large: list[str] = field(default_factory=list)
    beyond: int = 0
    unnamed: int = 0

    def notes(self) -> list[str]:
        """A line for each reason."""
        lines = []
        if self.beyond:
            lines.append(f"{self.beyond} source files are left out: only the first {MOST_FILES} are indexed")
        if self.large:
            some = ", ".join(self.large[:5]) + (", …" if len(self.large) > 5 else "")
            lines.append(f"{len(self.large)} larger than {MOST_BYTES >> 20} MiB left out: {some}")
        if self.unnamed:
            lines.append(f"{self.unnamed} files left out: their names are not UTF-8")
        return lines


def list_sources(root: Path) -> Listing:
    """The source files below `root`, links left out."""
    found = Listing()
    for path in _paths(root):
        language = language_of(path)
        if language is None:
            continue
        status = _status(root, path)
        if status is None:
            continue
        if not _utf8(path):
            found.unnamed += 1
        elif status.st_size > MOST_BYTES:
            found.large.append(path)
        elif len(found.files) >= MOST_FILES:
            found.beyond += 1
        else:
            found.files[path] = language, status
    return found


def read_regular(root: Path, path: str, most: int = MOST_BYTES) -> bytes | None:
    """The content of a regular file, cut at `most` bytes; None where there is none, also for a link."""
    try:
        handle = os.open(root / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        return file.read(most) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None


def is_binary(data: bytes) -> bool:
    """Whether it is no text."""
    return b"\0" in data[:8192]


def inside(root: Path, path: str) -> str:
    """The path from the root, for one that a caller gave.

    Raises:
        ValueError: it leads out of the workspace, or there is no such file.
    """
    full = Path(os.path.realpath(root / path))
    home = Path(os.path.realpath(root))
    if not full.is_relative_to(home):
        raise ValueError(f"{path} is outside the workspace")
    if not full.exists():
        raise ValueError(f"there is no file {path} in the workspace")
    return full.relative_to(home).as_posix()


def _paths(root: Path) -> Iterator[str]:
    return iter(_from_git(root) or _walked(root))


def _from_git(root: Path) -> list[str]:
    """Paths of tracked and new files; none where git is missing, or ignores all of it."""
    argv = [*GIT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(argv, cwd=root, capture_output=True, timeout=_GIT_SECONDS, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return []
    if done.returncode:
        return []
    return sorted({os.fsdecode(name) for name in done.stdout.split(b"\0") if name})


def _walked(root: Path) -> Iterator[str]:
    seen = 0
    for folder, names, files in os.walk(root):
        names[:] = sorted(name for name in names if not name.startswith(".") and name not in _BUILT)
        seen += len(files) + len(names)
        if seen > _SEEN:
            return
        for name in sorted(files):
            yield os.path.relpath(os.path.join(folder, name), root)


def _status(root: Path, path: str) -> os.stat_result | None:
    try:
        status = os.lstat(root / path)
    except (OSError, ValueError):
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def _utf8(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
