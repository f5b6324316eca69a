"""Reading files that somebody else may have put there."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_regular(path: Path, most: int, *, links: bool = True) -> bytes:
    """A whole regular file. A pipe or a device is never waited for, an endless one never read.

    Args:
        path: the file.
        most: bytes it may have.
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
            data = file.read(most + 1)
    finally:
        os.close(handle)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it has more than {most} bytes", str(path))
    return data
