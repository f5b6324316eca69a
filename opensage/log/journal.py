"""The writer of one session's log: one file, one writer, every prefix loadable."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from opensage.errors import SessionBusy, SessionError
from opensage.files import read_regular, why
from opensage.log.events import Event, Recovered, decode, encode

if TYPE_CHECKING:
    from opensage.secrets import Mask

SYNC_EVERY = 1.0
"""Seconds that a power cut may cost; a killed process loses nothing, since every line is one write."""
_KEEP_TORN = 2000


class LogFile:
    """The system calls the journal makes, in one place so that tests can fail or kill at each of them."""

    def __init__(self, path: Path) -> None:
        # Not through a link, and no pipe is waited for: the folder may have come from anybody.
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        self.fd = os.open(path, flags, 0o600)

    def lock(self) -> None:
        """Take the writer's lock or raise `BlockingIOError`."""
        fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def write(self, data: bytes) -> int:
        """Append some or all of the bytes; returns how many."""
        return os.write(self.fd, data)

    @property
    def gone(self) -> bool:
        """Whether nobody will find what is written any more."""
        return os.fstat(self.fd).st_nlink == 0

    def truncate(self, size: int) -> None:
        """Cut the file."""
        os.ftruncate(self.fd, size)

    def sync(self) -> None:
        """Bring the data to the disk."""
        os.fdatasync(self.fd)

    def close(self) -> None:
        """Close, which frees the lock."""
        os.close(self.fd)


@dataclass(slots=True)
class Loaded:
    """What a log file held: its events, where the sound part ends, and what could not be read."""

    events: list[Event]
    end: int = 0
    torn: bytes = b""
    bad_lines: list[int] | None = None


def load(path: Path) -> Loaded:
    """Read a log. Unreadable lines are skipped and named; a last line without its newline is torn.

    Raises:
        SessionError: the file cannot be read, or holds no event at all although it is not empty.
    """
    try:
        data = read_regular(path, links=False)
    except OSError as error:
        raise SessionError(f"cannot read session log {path}: {error.strerror}") from None
    return parse(data)


def parse(data: bytes) -> Loaded:
    """Decode the bytes of a log (see `load`)."""
    end = data.rfind(b"\n") + 1
    out = Loaded([], end, data[end:], [])
    assert out.bad_lines is not None
    for number, line in enumerate(data[:end].split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            event = decode(line)
        except SessionError:
            out.bad_lines.append(number)
            continue
        if not out.events or event.seq > out.events[-1].seq:
            out.events.append(event)
        else:
            out.bad_lines.append(number)
    return out


class Journal:
    """Appends events to one log file. Not thread-safe: one event loop owns it. With a mask no secret gets into it.

    Raises:
        SessionBusy: another process or run holds the log.
        SessionError: the file cannot be opened or written.
    """

    def __init__(self, path: Path, mask: Mask | None = None) -> None:
        self.path = path
        self._mask = mask
        self._file = self._open(path)
        try:
            loaded = load(path)
        except SessionError:
            self._file.close()
            raise
        self.events = loaded.events
        self._size = loaded.end
        self._next = self.events[-1].seq + 1 if self.events else 0
        self._synced = time.monotonic()
        self._closed = False
        self._mend(loaded)

    @staticmethod
    def _open(path: Path) -> LogFile:
        try:
            file = LogFile(path)
        except OSError as error:
            raise SessionError(f"cannot open session log {path}: {why(error)}.") from None
        try:
            file.lock()
        except OSError as error:
            file.close()
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise SessionBusy(
                    f"session {path.stem} is in use by another run; wait for it, or continue a copy with "
                    f"`opensage fork {path.stem}`"
                ) from None
            raise SessionError(f"cannot lock session log {path}: {error.strerror}") from None
        return file

    def _mend(self, loaded: Loaded) -> None:
        if loaded.torn:
            self._file.truncate(loaded.end)
            lost = loaded.torn[:_KEEP_TORN].decode("utf-8", "replace")
            detail = f"the last line was torn ({len(loaded.torn)} bytes) and was dropped"
            self.append(Recovered(detail=detail, lost=lost))
        known = any("unreadable line" in e.detail for e in self.events if isinstance(e, Recovered))
        if loaded.bad_lines and not known:
            shown = ", ".join(str(n) for n in loaded.bad_lines[:10])
            self.append(Recovered(detail=f"{len(loaded.bad_lines)} unreadable line(s) skipped: {shown}"))

    def append(self, event: Event) -> Event:
        """Write one event; returns it with `seq` and `time` set. A failed write leaves the file as it was."""
        if self._closed:
            raise SessionError(f"session {self.path.stem} is closed")
        event.seq, event.time = self._next, round(time.time(), 3)
        line = encode(event)
        if self._mask is not None and self._mask.hits(line):
            self._mask.event(event)
            line = encode(event)
        try:
            self._write(line)
            self._sync(event.durable)
        except OSError as error:
            self._roll_back()
            raise SessionError(f"cannot write session log {self.path}: {why(error)} and resume.") from None
        self._size += len(line)
        self._next += 1
        return event

    def _write(self, line: bytes) -> None:
        written = self._file.write(line)
        while written < len(line):
            written += self._file.write(line[written:])

    def _sync(self, durable: bool) -> None:
        now = time.monotonic()
        if durable or now - self._synced > SYNC_EVERY:
            self._file.sync()
            self._synced = now
            if self._file.gone:
                raise SessionError(
                    f"session log {self.path} was deleted while the session ran, so nothing more can be kept. "
                    "Start a new session."
                )

    def _roll_back(self) -> None:
        try:
            self._file.truncate(self._size)
        except OSError as error:
            raise SessionError(f"session log {self.path} cannot be written: {why(error)}.") from None

    def close(self) -> None:
        """Bring everything to the disk and free the lock."""
        if not self._closed:
            self._closed = True
            try:
                self._file.sync()
            finally:
                self._file.close()
