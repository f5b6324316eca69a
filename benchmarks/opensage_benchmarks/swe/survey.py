"""What changed in a folder that an agent had: read through descriptors, following no link, within bounds."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from opensage_benchmarks.swe.litter import cache_folder, is_test, why_not

MOST_BYTES = 1 << 20
"""Of one file in a patch."""
MOST_NEW = 20_000
"""New files and folders that are looked at; tracked ones are looked at always."""
MOST_HELD = 64 << 20
"""Bytes of changed files that are held at once."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DEEPEST = 40
LINK, RUNS, PLAIN, MODULE = 0o120000, 0o100755, 0o100644, 0o160000


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something of the workspace that is not in the patch: where, why, and how many bytes."""

    path: str
    why: str
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Known:
    """A file of the base tree, as git has it."""

    mode: int
    sha: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or link as it is now. The data of a link is its target."""

    mode: int
    data: bytes = field(repr=False)


@dataclass(slots=True)
class Survey:
    """Differences between a folder and the base tree.

    Attributes:
        known: the base tree.
        keep_tests: whether tests go into the patch.
        changed: what is new or different and goes into the patch.
        removed: files of the base that are gone, in the patch.
        aside: text that stays out of the patch, but is kept; None for a file that was removed.
        ignores: the `.gitignore` files as they are now.
    """

    known: Mapping[str, Known]
    keep_tests: bool = False
    changed: dict[str, Entry] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    aside: dict[str, Entry | None] = field(default_factory=dict)
    left: list[LeftOut] = field(default_factory=list)
    ignores: dict[str, bytes] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)
    _new: int = 0
    _held: int = 0
    _beyond: Counter[str] = field(default_factory=Counter)
    _folders: set[str] = field(default_factory=set)
    _later: deque[str] = field(default_factory=deque)

    def look(self, root: Path) -> None:
        """Walk the folder: what the base has comes first, so that no heap of new files hides it."""
        self._folders = {""} | {above for path in self.known for above in _above(path)}
        with _opened(root) as top:
            for folder in sorted(self._folders):
                self._folder(top, folder)
            while self._later:
                self._folder(top, self._later.popleft())
        self._gone()
        for folder, count in sorted(self._beyond.items()):
            self.left.append(LeftOut(f"{folder}/…", f"{count} new entries beyond the first {MOST_NEW} of all"))

    def _folder(self, top: int, folder: str) -> None:
        try:
            with _below(top, folder) as fd, os.scandir(fd) as entries:
                for entry in entries:
                    self._entry(fd, f"{folder}/{entry.name}" if folder else entry.name, entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:  # a link in a folder's place, or one that stays closed to us
            if folder not in self._folders or not _is_link_error(error):
                self.left.append(LeftOut(f"{folder}/", f"cannot be read: {error.strerror}"))

    def _entry(self, fd: int, path: str, name: str) -> None:
        if name.lower() == ".git":
            return
        known = self.known.get(path)
        if known is None and path not in self._folders:
            self._new += 1
            if self._new > MOST_NEW:
                self._beyond[path.rpartition("/")[0]] += 1
                return
        try:
            status = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            return
        if stat.S_ISDIR(status.st_mode):
            self._subfolder(fd, path, name)
        elif stat.S_ISLNK(status.st_mode):
            self._link(path, known, os.readlink(name, dir_fd=fd))
        elif stat.S_ISREG(status.st_mode):
            self._file(fd, path, name, known, status)
        else:
            self._leave(path, "no regular file")

    def _subfolder(self, fd: int, path: str, name: str) -> None:
        known = self.known.get(path)
        if known is not None and known.mode == MODULE:
            self._seen.add(path)
        elif path in self._folders:
            return
        elif cache_folder(name):
            self._leave(f"{path}/", "cache")
        elif _has(fd, f"{name}/.git"):
            self._leave(f"{path}/", "nested repository")
        elif path.count("/") >= _DEEPEST or len(path) > 2000:
            self._leave(f"{path}/", "nested too deep")
        else:
            self._later.append(path)

    def _link(self, path: str, known: Known | None, target: str) -> None:
        data = os.fsencode(target)
        if known is not None and known.mode == LINK and known.sha == blob_name(data):
            self._seen.add(path)
        elif leaves_tree(path, target):
            self._leave(path, "link out of the tree")
        else:
            self._judge(path, known, Entry(LINK, data))

    def _file(self, fd: int, path: str, name: str, known: Known | None, status: os.stat_result) -> None:
        if status.st_size > MOST_BYTES and (known is None or known.bytes != status.st_size):
            self._leave(path, "over 1 MiB", status.st_size)
            return
        try:
            data = _read(fd, name, max(MOST_BYTES, known.bytes if known else 0))
        except OSError as error:
            self._leave(path, f"cannot be read: {error.strerror}", status.st_size)
            return
        mode = RUNS if status.st_mode & 0o100 else PLAIN
        if known is not None and not status.st_mode & 0o700:  # made unreadable: that says nothing of the mode wished
            mode = known.mode
        if name == ".gitignore":
            self.ignores[path] = data
        if known is not None and known.mode == mode and known.sha == blob_name(data):
            self._seen.add(path)
        elif len(data) > MOST_BYTES:
            self._leave(path, "over 1 MiB", len(data))
        else:
            self._judge(path, known, Entry(mode, data))

    def _judge(self, path: str, known: Known | None, entry: Entry) -> None:
        """Something may go into the patch: by its name, its kind and the room left."""
        self._seen.add(path)
        why = why_not(path) if known is None else "test" if is_test(path) else ""
        if self.keep_tests and why == "test":
            why = ""
        if b"\0" in entry.data:
            why = "binary"
        self._held += len(entry.data)
        if self._held > MOST_HELD:
            self.left.append(LeftOut(path, f"more than {MOST_HELD >> 20} MiB changed in all", len(entry.data)))
        elif not why:
            self.changed[path] = entry
        else:
            self.left.append(LeftOut(path, why, len(entry.data)))
            if why not in ("binary", "odd name"):
                self.aside[path] = entry

    def _leave(self, path: str, why: str, size: int = 0) -> None:
        self._seen.add(path)
        self.left.append(LeftOut(path, why, size))

    def _gone(self) -> None:
        for path in self.known.keys() - self._seen:
            if self.known[path].mode == MODULE:
                continue
            if is_test(path) and not self.keep_tests:
                self.left.append(LeftOut(path, "test, removed"))
                self.aside[path] = None
            else:
                self.removed.add(path)


def blob_name(data: bytes) -> str:
    """What git calls a file with these bytes."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def leaves_tree(path: str, target: str) -> bool:
    """Whether a link at `path` with this target leads out of the tree, or into its repository."""
    if target.startswith("/") or ".git" in target.lower().split("/"):
        return True
    depth = path.count("/")
    for part in target.split("/"):
        depth += -1 if part == ".." else 0 if part in ("", ".") else 1
        if depth < 0:
            return True
    return False


def _above(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


@contextlib.contextmanager
def _opened(root: Path) -> Iterator[int]:
    fd = os.open(root, _FOLDER)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def _below(top: int, folder: str) -> Iterator[int]:
    """A descriptor of a folder, reached without following a link; one that its owner closed is opened again."""
    fd = os.dup(top)
    try:
        for name in folder.split("/") if folder else ():
            inner = _open_anyway(name, _FOLDER, fd, 0o700)
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)


def _read(fd: int, name: str, most: int) -> bytes:
    """The start of a regular file: no more than `most` bytes and one."""
    file = _open_anyway(name, _FILE, fd, 0o600)
    with open(file, "rb") as stream:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise FileNotFoundError(name)
        return stream.read(most + 1)


def _open_anyway(name: str, flags: int, fd: int, mode: int) -> int:
    """Open something of our own even if it was made unreadable."""
    try:
        return os.open(name, flags, dir_fd=fd)
    except PermissionError:
        handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
        try:
            os.chmod(f"/proc/self/fd/{handle}", mode)
        finally:
            os.close(handle)
        return os.open(name, flags, dir_fd=fd)


def _has(fd: int, path: str) -> bool:
    try:
        os.stat(path, dir_fd=fd, follow_symlinks=False)
    except OSError:
        return False
    return True


def _is_link_error(error: OSError) -> bool:
    return error.errno in (errno.ELOOP, errno.ENOTDIR)
