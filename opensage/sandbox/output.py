"""Output of a command: bounded while it is read, and read without ever blocking the loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

CHUNK = 1 << 16
FLOOD = 64 << 20


class BoundedOutput:
    """The head and the tail of a stream, at most `limit` bytes each; what lies between is counted and dropped."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.total = 0
        self._head = bytearray()
        self._tail = bytearray()

    @property
    def dropped(self) -> int:
        """Bytes that are not kept."""
        return max(0, self.total - len(self._head) - self.limit)

    def add(self, chunk: bytes) -> None:
        """Take the next bytes of the stream."""
        self.total += len(chunk)
        room = self.limit - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        if chunk:
            self._tail += chunk[-self.limit :]
            if len(self._tail) > 2 * self.limit:  # trimmed now and then, not at each chunk
                del self._tail[: -self.limit]

    def text(self) -> str:
        """Decoded with replacement; a line in the middle says how much was cut."""
        tail = bytes(self._tail[-self.limit :])
        if not self.dropped:
            return (bytes(self._head) + tail).decode(errors="replace")
        cut = f"\n[... {self.dropped} bytes cut ...]\n"
        return _without_half_end(bytes(self._head)) + cut + _without_half_start(tail)


def _without_half_end(data: bytes) -> str:
    """Decode bytes whose last character may be cut."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:
            width = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[: -back if width > back else len(data)].decode(errors="replace")
        if byte < 0x80:
            break
    return data.decode(errors="replace")


def _without_half_start(data: bytes) -> str:
    """Decode bytes whose first character may be cut."""
    start = 0
    while start < min(3, len(data)) and 0x80 <= data[start] < 0xC0:
        start += 1
    return data[start:].decode(errors="replace")


class PipeReader:
    """Reads the host's end of a pipe into `sink` on the event loop, and closes it at its end."""

    def __init__(self, fd: int, sink: Callable[[bytes], None]) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self.sink = sink
        self.ended = asyncio.Event()
        self.pause = 0.0
        self._total = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Read on this loop from now on."""
        self._loop = loop
        if self.fd >= 0:
            loop.add_reader(self.fd, self._ready)

    def take_waiting(self) -> None:
        """Read what lies in the pipe now, a mebibyte at most."""
        for _ in range(16):
            if self.fd < 0 or not self._read():
                return

    def discard(self) -> None:
        """Throw away what comes from now on, slowly: the writer lives on and must not meet a closed pipe."""
        self.sink = _nowhere
        self.pause = 0.05

    def close(self) -> None:
        """Stop reading. Safe to call twice."""
        if self._timer is not None:
            self._timer.cancel()
        if self.fd >= 0:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.remove_reader(self.fd)
            os.close(self.fd)
            self.fd = -1
        self.ended.set()

    def _read(self) -> bool:
        """Read one chunk; false when there is none now or ever."""
        try:
            chunk = os.read(self.fd, CHUNK)
        except BlockingIOError:
            return False
        if not chunk:
            self.close()
            return False
        self._total += len(chunk)
        self.sink(chunk)
        return True

    def _ready(self) -> None:
        for _ in range(1 if self.pause else 16):
            if not self._read():
                break
        # A flood would starve everybody else on this loop: past its first part it gets a mebibyte each 10 ms.
        pause = self.pause or (0.01 if self._total > FLOOD else 0.0)
        if pause and self.fd >= 0 and self._loop is not None:
            self._loop.remove_reader(self.fd)
            self._timer = self._loop.call_later(pause, self.start, self._loop)


def _nowhere(_chunk: bytes) -> None:
    """Drop a chunk."""


class PipeWriter:
    """Writes bytes into the host's end of a pipe on the event loop, then closes it."""

    def __init__(self, fd: int, data: bytes) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self._left = memoryview(data)
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Write on this loop from now on."""
        self._loop = loop
        loop.add_writer(self.fd, self._ready)

    def close(self) -> None:
        """Close the pipe: the reader sees end of file. Safe to call twice."""
        if self.fd >= 0:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.remove_writer(self.fd)
            os.close(self.fd)
            self.fd = -1

    def _ready(self) -> None:
        try:
            self._left = self._left[os.write(self.fd, self._left[:CHUNK]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:  # the program does not want the rest
            self._left = self._left[:0]
        if not self._left:
            self.close()
