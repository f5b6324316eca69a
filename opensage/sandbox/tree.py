"""Copies of folders through descriptors: no step follows a link, whatever somebody swaps in meanwhile."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Collection, Iterator

FICLONE = 0x40049409
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
BLOCK = 1 << 20
MODE = 0o1777
"""Mode bits that are copied: a program that borrows its owner's rights is never made by a copy."""


def write_new(folder: int, name: str, data: bytes) -> None:
    """Put `data` at `name` in the folder behind the descriptor, whole or not at all; mode bits are kept."""
    old = _status(folder, name)
    if old is not None and stat.S_ISDIR(old.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    temporary = f".{name[:100]}.{secrets.token_hex(4)}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=folder)
    try:
        with open(fd, "wb") as file:
            file.write(data)
            if old is not None and stat.S_ISREG(old.st_mode):
                _keep_owner_and_mode(file.fileno(), old)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise


def copy_entry(source: int, name: str, target: int, new_name: str, skip: Collection[str] = (), path: str = "") -> None:
    """Copy an entry of one folder to another. Links stay links; devices, pipes and sockets are left out."""
    mode = os.stat(name, dir_fd=source, follow_symlinks=False).st_mode
    if stat.S_ISDIR(mode):
        _copy_folder(source, name, target, new_name, mode & MODE, skip, path)
    elif stat.S_ISLNK(mode):
        _remove_other(target, new_name)
        os.symlink(os.readlink(name, dir_fd=source), new_name, dir_fd=target)
    elif stat.S_ISREG(mode):
        _copy_file(source, name, target, new_name)


def copy_contents(source: int, target: int, skip: Collection[str] = (), path: str = "") -> None:
    """Copy everything in one folder into another, but for the paths to skip, which start where the copy started."""
    for name in os.listdir(source):
        if path + name not in skip:
            with contextlib.suppress(FileNotFoundError):  # removed since it was listed
                copy_entry(source, name, target, name, skip, f"{path}{name}/")


def mirror(source: int, target: int, skip: Collection[str] = (), path: str = "") -> None:
    """Make one folder equal to another. What is equal already is left alone, and so are the paths to skip."""
    wanted = os.listdir(source)
    for name in set(os.listdir(target)).difference(wanted):
        here = path + name
        if not any(kept == here or kept.startswith(f"{here}/") for kept in skip):
            _remove(target, name)
    for name in wanted:
        ours, theirs = _status(source, name), _status(target, name)
        if ours is None:
            continue
        folder = stat.S_ISDIR(ours.st_mode)
        if theirs is not None and stat.S_ISDIR(theirs.st_mode) != folder:
            _remove(target, name)
        if folder and theirs is not None and stat.S_ISDIR(theirs.st_mode):
            _mirror_folder(source, target, name, skip, path)
        elif not _same(source, target, name):
            copy_entry(source, name, target, name)


def digest(folder: int) -> str:
    """A name for a folder's content: paths, kinds, mode bits, links and bytes."""
    hasher = hashlib.sha256()
    _feed(hasher, folder, "")
    return hasher.hexdigest()


def _status(folder: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _keep_owner_and_mode(fd: int, old: os.stat_result) -> None:
    if (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
        with contextlib.suppress(OSError):
            os.fchown(fd, old.st_uid, old.st_gid)
    os.fchmod(fd, old.st_mode & MODE)


def _remove(folder: int, name: str) -> None:
    status = _status(folder, name)
    if status is None:
        return
    if not stat.S_ISDIR(status.st_mode):
        os.unlink(name, dir_fd=folder)
        return
    with contextlib.suppress(OSError):
        os.chmod(name, status.st_mode & MODE | 0o700, dir_fd=folder, follow_symlinks=False)
    shutil.rmtree(name, dir_fd=folder)


def _remove_other(folder: int, name: str) -> None:
    """Make room for a link or a file: whatever is there goes, a folder is refused."""
    status = _status(folder, name)
    if status is not None and stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    if status is not None:
        os.unlink(name, dir_fd=folder)


def _copy_folder(
    source: int, name: str, target: int, new_name: str, mode: int, skip: Collection[str], path: str
) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(new_name, 0o700, dir_fd=target)
    with _folder(source, name) as ours, _folder(target, new_name) as theirs:
        copy_contents(ours, theirs, skip, path)
        os.fchmod(theirs, mode)
        os.utime(theirs, ns=_times(ours))


def _mirror_folder(source: int, target: int, name: str, skip: Collection[str], path: str) -> None:
    with _folder(source, name) as ours, _folder(target, name) as theirs:
        os.fchmod(theirs, os.fstat(theirs).st_mode & MODE | 0o700)
        mirror(ours, theirs, skip, f"{path}{name}/")
        os.fchmod(theirs, os.fstat(ours).st_mode & MODE)
        os.utime(theirs, ns=_times(ours))


def _same(source: int, target: int, name: str) -> bool:
    """Whether two files or links are equal in kind, mode bits and content."""
    ours, theirs = _status(source, name), _status(target, name)
    if ours is None or theirs is None or ours.st_mode != theirs.st_mode or ours.st_size != theirs.st_size:
        return False
    if stat.S_ISLNK(ours.st_mode):
        return os.readlink(name, dir_fd=source) == os.readlink(name, dir_fd=target)
    if not stat.S_ISREG(ours.st_mode):
        return False
    with open(os.open(name, READ, dir_fd=source), "rb") as one, open(os.open(name, READ, dir_fd=target), "rb") as two:
        while block := one.read(BLOCK):
            if two.read(BLOCK) != block:
                return False
        return not two.read(1)


@contextlib.contextmanager
def _folder(parent: int, name: str) -> Iterator[int]:
    fd = os.open(name, FOLDER, dir_fd=parent)
    try:
        yield fd
    finally:
        os.close(fd)


def _copy_file(source: int, name: str, target: int, new_name: str) -> None:
    ours = os.open(name, READ, dir_fd=source)
    try:
        status = os.fstat(ours)
        if not stat.S_ISREG(status.st_mode):
            return
        _remove_other(target, new_name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        theirs = os.open(new_name, flags, 0o600, dir_fd=target)
        try:
            _copy_bytes(ours, theirs)
            os.fchmod(theirs, status.st_mode & MODE)
            os.utime(theirs, ns=(status.st_atime_ns, status.st_mtime_ns))
        finally:
            os.close(theirs)
    finally:
        os.close(ours)


def _copy_bytes(source: int, target: int) -> None:
    """Share the blocks where the file system can, else copy."""
    try:
        fcntl.ioctl(target, FICLONE, source)
    except OSError:
        while block := os.read(source, BLOCK):
            view = memoryview(block)
            while view:
                view = view[os.write(target, view) :]


def _times(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_atime_ns, status.st_mtime_ns


def _feed(hasher: hashlib._Hash, folder: int, path: str) -> None:
    for name in sorted(os.listdir(folder)):
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        here = f"{path}/{name}"
        hasher.update(f"{here}\0{status.st_mode:o}\0".encode(errors="surrogateescape"))
        if stat.S_ISLNK(status.st_mode):
            hasher.update(os.fsencode(os.readlink(name, dir_fd=folder)))
        elif stat.S_ISREG(status.st_mode):
            hasher.update(f"{status.st_size}\0".encode())
            fd = os.open(name, READ, dir_fd=folder)
            with open(fd, "rb") as file:
                while block := file.read(BLOCK):
                    hasher.update(block)
        elif stat.S_ISDIR(status.st_mode):
            with _folder(folder, name) as fd:
                _feed(hasher, fd, here)
