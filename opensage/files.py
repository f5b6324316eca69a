"""Reading files that somebody else may have put there, and writing them whole."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from opensage.errors import ConfigError


def why(error: OSError) -> str:
    """Why something could not be written, and what to do about it; for the end of a message."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full. Free space"
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return f"{error.strerror}. Make it writable"
    return f"{error.strerror or error}. Mend that"


def is_plain(path: Path) -> bool:
    """Whether a regular file is there, and no link to one."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def read_regular(path: Path, most: int | None = None, *, links: bool = True) -> bytes:
    """A whole regular file. A pipe or a device is never waited for, an endless one never read.

    Args:
        path: the file.
        most: bytes it may have; any number without it.
        links: whether the last part of the path may be a link.

    Raises:
        OSError: it cannot be read, is not a regular file, is larger, or is a link (ELOOP).
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if links else os.O_NOFOLLOW)
    handle = os.open(path, flags)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        with open(handle, "rb", closefd=False) as file:
            data = file.read(-1 if most is None else most + 1)
    finally:
        os.close(handle)
    if most is not None and len(data) > most:
        raise OSError(errno.EFBIG, f"it has more than {most} bytes", str(path))
    return data


def read_text(path: Path, most: int | None = None) -> str:
    """The text of a file, without a byte order mark.

    Args:
        path: the file.
        most: bytes it may have.

    Raises:
        ConfigError: it cannot be read, is no regular file, is larger, or is no UTF-8.
    """
    try:
        return read_regular(path, most).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text (byte {error.start}): save it as such") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}; name a file of text") from error


def replace_file(path: Path, data: str | bytes) -> None:
    """Put a file in its place in one step: whoever reads it sees the old one or the new one.

    Raises:
        OSError: it cannot be written; what was there stays.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(data.encode() if isinstance(data, str) else data)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write_whole(path: Path, data: str | bytes) -> None:
    """`replace_file`, for what a person asked to be written.

    Raises:
        ConfigError: it cannot be written.
    """
    try:
        replace_file(path, data)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {why(error)} or name another file") from error
