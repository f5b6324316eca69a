"""The link to a container's first command, which ends process trees and, when the link breaks, the container."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opensage.errors import SandboxLost
from opensage.sandbox.docker.client import close, cut

SCRIPT = Path(__file__).with_name("warden.sh").read_text()
PATIENCE = 6.0
"""Seconds it gets for an answer."""
MOST_LINE = 1 << 16


@dataclass(frozen=True, slots=True)
class Facts:
    """What a container holds: its shell, the inode of the workspace's folder (0: none), a Python if there is one."""

    shell: str
    inode: int
    python: str | None


class Warden:
    """Sends requests over an attached stream and hands out the answers; usable from any event loop or thread."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._socket = getattr(stream, "_sock", stream)
        self._answers: dict[int, Future[str]] = {0: Future()}
        self._lock = threading.Lock()
        self._next = 0
        self.ended = threading.Event()
        self._reader = threading.Thread(target=self._read, name="opensage-warden", daemon=True)

    def start(self, seconds: float) -> Facts:
        """Wait for the first line.

        Raises:
            SandboxLost: it did not come.
        """
        self._reader.start()
        try:
            shell, inode, python = (*self._answers[0].result(seconds).split(" ", 2), "", "")[:3]
        except TimeoutError:
            raise SandboxLost("the container did not get ready in time") from None
        return Facts(shell or "/bin/sh", int(inode) if inode.isdigit() else 0, python.strip() or None)

    async def end_tree(self, pid: int, since: int) -> None:
        """Kill a command's processes, down to daemons; `since` is its start in clock ticks."""
        await self._ask(f"tree {pid} {since}")

    async def end_all(self) -> None:
        """Kill everything that runs in the container."""
        await self._ask("all")

    async def counts(self) -> tuple[int, int]:
        """How often memory ran out, and how often no process could be started."""
        numbers = [int(word) for word in (await self._ask("counts")).split() if word.isdigit()]
        return (numbers[0], numbers[1]) if len(numbers) == 2 else (0, 0)

    def close(self) -> None:
        """Break the link: the container ends."""
        self.ended.set()
        cut(self._stream)
        if not self._reader.ident:  # nobody reads it
            close(self._stream)

    async def _ask(self, request: str) -> str:
        with self._lock:
            self._next += 1
            number, answer = self._next, Future[str]()
            self._answers[number] = answer
        try:
            if self.ended.is_set():
                raise SandboxLost("the container ended")
            self._socket.sendall(f"{number} {request}\n".encode())
            async with asyncio.timeout(PATIENCE):
                return await asyncio.wrap_future(answer)
        except (OSError, ValueError) as error:  # TimeoutError is an OSError
            raise SandboxLost("its first process does not answer") from error
        finally:
            self._answers.pop(number, None)

    def _read(self) -> None:
        from docker.utils.socket import frames_iter

        rest = b""
        # Whatever breaks the stream means the same: the container is out of reach.
        with contextlib.suppress(OSError, ValueError, TypeError):
            for _kind, data in frames_iter(self._stream, tty=False):
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._take(line.decode(errors="replace"))
                if len(rest) > MOST_LINE:
                    break
        close(self._stream)
        self.ended.set()
        for answer in list(self._answers.values()):
            with contextlib.suppress(InvalidStateError):
                answer.set_exception(SandboxLost("the container ended"))

    def _take(self, line: str) -> None:
        number, _, text = line.partition(" ")
        answer = self._answers.get(int(number)) if number.isdigit() else None
        if answer is not None:
            with contextlib.suppress(InvalidStateError):
                answer.set_result(text)
