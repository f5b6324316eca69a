"""Copies of a workspace for agents that work side by side, and what they changed in them."""

from __future__ import annotations

import contextlib
import filecmp
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from opensage.errors import ToolError
from opensage.files import why
from opensage.sandbox import tree
from opensage.sandbox.paths import inside, interpreter_folders
from opensage.tools.diff import unified_diff

HIDDEN = ".opensage"
_MADE = frozenset({"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".git", HIDDEN})
"""Folders that belong to no result: caches, and what a copy must not bring back."""
_MOST_BYTES = 4_000_000_000
_MOST_FILES = 200_000
_DIFF = 200_000
_LARGEST_TEXT = 5_000_000


@dataclass(slots=True)
class Changes:
    """What differs between two folders: relative path to "added", "changed" or "removed"."""

    paths: dict[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.paths)


class Copies:
    """A copy of the workspace as it was, and one for each member, in a folder below `.opensage/work`.

    Blocks are shared where the file system can. The copies stay until the session is removed, so that what the losers
    did can be looked at.
    """

    def __init__(self, workdir: Path, folder: Path) -> None:
        self.workdir, self.folder = workdir, folder
        self.base = folder / "base"
        self.ended = False
        """Set from outside to end the copying."""

    def place(self, member: int) -> Path:
        """The folder of a member."""
        return self.folder / f"m{member}"

    def make(self, members: list[int]) -> None:
        """Copy the workspace for all of them; others may change it meanwhile, so all copies are of the first one.

        Raises:
            ToolError: it is too large, or cannot be copied; nothing is left.
        """
        if any(folder.is_symlink() for folder in self.folder.parents[:2]):  # put there by somebody else
            raise ToolError(f"the workspace cannot be copied: {self.folder.parent} is a link, or in one")
        try:
            if not self.base.exists():
                self._check_size()
                copy_folder(self.workdir, self.base, (HIDDEN, *inside(self.workdir, interpreter_folders())))
            for target in map(self.place, members):
                if not self.ended and not target.exists():
                    copy_folder(self.base, target)
        except (OSError, RecursionError) as error:
            shutil.rmtree(self.folder, ignore_errors=True)
            said = why(error) if isinstance(error, OSError) else "folders are nested too deeply"
            raise ToolError(f"the workspace cannot be copied: {said}; do the task without an ensemble") from None

    def _check_size(self) -> None:
        size = 0
        for files, path in enumerate(_files(self.workdir, self.workdir), 1):
            with contextlib.suppress(OSError):
                size += os.lstat(path).st_size
            if files > _MOST_FILES or size > _MOST_BYTES:
                raise ToolError(
                    f"the workspace is too large to copy (more than {_MOST_FILES} files or {_MOST_BYTES >> 30} GiB): "
                    "do the task without an ensemble, or work in a smaller folder"
                )

    def changes(self, member: int) -> Changes:
        """What a member changed."""
        return compare(self.base, self.place(member))

    def diff(self, member: int, most: int = _DIFF) -> str:
        """The same as a unified diff, cut at `most` characters."""
        parts: list[str] = []
        for path in self.changes(member).paths:
            parts.append(_file_diff(self.base / path, self.place(member) / path, path))
            if sum(map(len, parts)) > most:
                break
        text = "".join(parts)
        return text if len(text) <= most else f"{text[:most]}\n[diff cut here; the whole copy is kept]\n"

    def size(self, member: int) -> int:
        """How much a member changed: characters of the diffs, and bytes of files that have none to show."""
        own = self.place(member)
        return sum(_weight(self.base / path, own / path, path) for path in self.changes(member).paths)

    def apply(self, member: int) -> tuple[list[str], list[str]]:
        """Bring a member's changes into the workspace.

        Returns:
            Paths that were changed, and paths left alone because somebody else changed them since.
        """
        done: list[str] = []
        left: list[str] = []
        changes = self.changes(member).paths.items()
        for path, kind in sorted(changes, key=lambda change: change[1] != "removed"):  # a file may replace a folder
            (done if self._apply(path, kind, self.place(member)) else left).append(path)
        return done, left

    def _apply(self, path: str, kind: str, source: Path) -> bool:
        target = self.workdir / path
        if not _same(self.base / path, target) or not _beside(self.workdir, target) or _is_folder(target):
            return False
        *folders, name = Path(path).parts
        try:
            if kind == "removed":
                target.unlink()
                self._prune(Path(path), source)
                return True
            (self.workdir / Path(*folders)).mkdir(parents=True, exist_ok=True)
            with _opened((source / path).parent) as origin, _opened(target.parent) as place:
                tree.copy_entry(origin, name, place, name)
        except OSError:
            return False
        return True

    def _prune(self, path: Path, source: Path) -> None:
        """Remove the folders above that are empty now and that the member has not."""
        for parent in path.parents[:-1]:
            if _is_folder(source / parent):
                return
            try:
                (self.workdir / parent).rmdir()
            except OSError:
                return


def copy_folder(source: Path, target: Path, skip: tuple[str, ...] = ()) -> None:
    """Copy a folder, whole or not at all."""
    half = target.with_name(f".{target.name}.half")
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    with _opened(source) as origin, _opened(half) as place:
        tree.copy_contents(origin, place, skip)
    half.rename(target)


def compare(base: Path, other: Path) -> Changes:
    """What makes `other` different; caches and the kit's own folder do not count."""
    changes = Changes()
    before = {os.path.relpath(path, base) for path in _files(base, base)}
    after = {os.path.relpath(path, other) for path in _files(other, other)}
    for path in sorted(before | after):
        if path not in after:
            changes.paths[path] = "removed"
        elif path not in before:
            changes.paths[path] = "added"
        elif not _same(base / path, other / path):
            changes.paths[path] = "changed"
    return changes


def _files(folder: Path, root: Path) -> Iterator[str]:
    """Files and links below a folder; no link is followed."""
    for place, folders, names in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        folders[:] = [name for name in folders if name not in _MADE and name not in links]
        for name in (*names, *links):
            path = os.path.join(place, name)
            with contextlib.suppress(OSError):
                mode = os.lstat(path).st_mode
                if stat.S_ISREG(mode) or stat.S_ISLNK(mode):
                    yield path


def _same(one: Path, other: Path) -> bool:
    """Whether two paths hold the same: nothing, the same link, or the same bytes with the same right to run.

    A folder counts as nothing. What cannot be read is the same as nothing else.
    """
    ours, theirs = _status(one), _status(other)
    if ours is None or theirs is None:
        return ours is None and theirs is None
    if stat.S_ISLNK(ours.st_mode) or stat.S_ISLNK(theirs.st_mode):
        both = stat.S_ISLNK(ours.st_mode) and stat.S_ISLNK(theirs.st_mode)
        return both and os.readlink(one) == os.readlink(other)
    if not (stat.S_ISREG(ours.st_mode) and stat.S_ISREG(theirs.st_mode)):
        return False
    try:
        return ours.st_mode & 0o100 == theirs.st_mode & 0o100 and filecmp.cmp(one, other, shallow=False)
    except OSError:
        return False


def _status(path: Path) -> os.stat_result | None:
    """What is there; None for nothing, and for a folder."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return None if stat.S_ISDIR(status.st_mode) else status


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _beside(root: Path, target: Path) -> bool:
    """Whether the target's folder lies in the workspace for real: no link leads out of it."""
    real = os.path.realpath(target.parent)
    return real == str(root) or real.startswith(f"{root}{os.sep}")


def _file_diff(old: Path, new: Path, path: str) -> str:
    before, after = _text(old), _text(new)
    return f"Binary file {path} differs\n" if before is None or after is None else unified_diff(before, after, path)


def _text(path: Path) -> str | None:
    """Of a file or link, "" when there is none; None when it is no text, too large, or cannot be read."""
    if (status := _status(path)) is None:
        return ""
    try:
        if stat.S_ISLNK(status.st_mode):
            return os.readlink(path)
        data = path.read_bytes() if status.st_size <= _LARGEST_TEXT else b"\0"
    except OSError:
        return None
    return None if b"\0" in data[:8192] else data.decode("utf-8", "replace")


def _weight(old: Path, new: Path, path: str) -> int:
    text = _file_diff(old, new, path)
    if not text or "\n@@ " in text:
        return len(text)
    return sum(status.st_size for status in (_status(old), _status(new)) if status is not None)


class _opened:
    """A folder's descriptor for the length of a `with`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> int:
        self.fd = os.open(self.path, tree.FOLDER)
        return self.fd

    def __exit__(self, *_error: object) -> None:
        os.close(self.fd)
