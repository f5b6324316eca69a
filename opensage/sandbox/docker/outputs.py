"""Where the output of a command in a container goes."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import IO

from opensage.protocols import ExecResult, OutputHook
from opensage.sandbox.commands import with_notes
from opensage.sandbox.output import BoundedOutput

WAITING_CHUNKS = 256
"""Chunks that may wait for the event loop before the command has to."""


class Outputs:
    """What a command prints, bounded; also handed on as it comes."""

    def __init__(self, limit: int, on_output: OutputHook | None) -> None:
        self._kept = {name: BoundedOutput(limit) for name in ("stdout", "stderr", "engine")}
        self._hook = on_output
        self._loop = asyncio.get_running_loop()
        self._tell: Callable[[BaseException], None] = _nobody
        self._room = threading.BoundedSemaphore(WAITING_CHUNKS)

    def on_error(self, tell: Callable[[BaseException], None]) -> None:
        """Whom to tell when the hook raises."""
        self._tell = tell

    def take(self, name: str, chunk: bytes) -> None:
        """Called in the command's thread."""
        self._kept[name].add(chunk)
        if self._hook is not None and name != "engine" and self._room.acquire(timeout=1.0):
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._hand_on, name, chunk)

    def forget(self) -> None:
        """Begin again."""
        for name, output in self._kept.items():
            self._kept[name] = BoundedOutput(output.limit)

    def engine_said(self) -> str:
        """What the engine itself said."""
        return self._kept["engine"].text()

    def result(self, code: int, timed_out: bool, duration: float, notes: list[str]) -> ExecResult:
        """All of it."""
        stdout, stderr = self._kept["stdout"], self._kept["stderr"]
        engine = " ".join(self.engine_said().split())
        if engine:
            notes = [f"the command could not be started: {engine[:400]}", *notes]
        cut = bool(stdout.dropped or stderr.dropped)
        text = with_notes(stderr.text(), notes)
        return ExecResult(code, stdout.text(), text, timed_out, cut, round(duration, 6))

    def _hand_on(self, name: str, chunk: bytes) -> None:
        self._room.release()
        if self._hook is None:
            return
        try:
            self._hook(name, chunk)
        except BaseException as error:  # noqa: BLE001 foreign code: its error leaves through `exec`
            self._hook = None
            self._tell(error)


def _nobody(error: BaseException) -> None:
    raise error


class Raw:
    """What a file script prints: bytes, in memory or into a file."""

    def __init__(self, into: IO[bytes] | None) -> None:
        self._into = into
        self._data = bytearray()
        self._errors = BoundedOutput(2000)

    def take(self, name: str, chunk: bytes) -> None:
        """Called in the command's thread."""
        if name != "stdout":
            self._errors.add(chunk)
        elif self._into is None:
            self._data += chunk
        else:
            self._into.write(chunk)

    def forget(self) -> None:
        """Begin again."""
        self._data.clear()

    def on_error(self, tell: Callable[[BaseException], None]) -> None:
        """It has no hook."""

    def data(self) -> bytes:
        """The bytes."""
        return bytes(self._data)

    def engine_said(self) -> str:
        """What the engine itself said, among the rest."""
        return self._errors.text()

    def errors(self) -> str:
        """The rest."""
        return self._errors.text()
