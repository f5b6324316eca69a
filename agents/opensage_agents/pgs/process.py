"""A Python process in a sandbox that answers lines of JSON, and is ended from outside when it does not."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import stat
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from opensage.errors import SandboxError
from opensage.protocols import ExecResult, Sandbox

LONGEST = 8 << 20
"""Bytes of one line; whoever sends more is ended."""
_INSIDE = "opensage_agents/pgs/inside"
_START = "import sys; sys.path[:0] = [sys.argv[1]]; sys.dont_write_bytecode = True; sys.path += sys.argv[2:]; "


class Ended(Exception):
    """The process is gone: `result` says how."""

    def __init__(self, result: ExecResult) -> None:
        super().__init__(f"the process ended with code {result.exit_code}")
        self.result = result


def install(folder: Path, *modules: str) -> None:
    """Write the modules that run inside, and a pipe for what is asked of them, into a new folder."""
    package = folder / _INSIDE
    package.mkdir(parents=True)
    for each in ("opensage_agents", "opensage_agents/pgs", _INSIDE):
        (folder / each / "__init__.py").write_text("")
    for name in modules:
        source = resources.files("opensage_agents.pgs.inside").joinpath(f"{name}.py").read_bytes()
        (package / f"{name}.py").write_bytes(source)


@dataclass(slots=True)
class JsonProcess:
    """`module.main(folder)` in the sandbox. `folder` can be read inside, not written; `paths` hold more packages."""

    sandbox: Sandbox
    folder: Path
    module: str
    seconds: float
    paths: tuple[str, ...] = ()
    _lines: asyncio.Queue[bytes] = field(default_factory=asyncio.Queue)
    _rest: bytearray = field(default_factory=bytearray)
    _pipe: int = -1
    _task: asyncio.Task[ExecResult] | None = None

    async def start(self) -> None:
        """Start it; what it says comes by `receive`."""
        pipe = self.folder / "calls"
        pipe.unlink(missing_ok=True)
        os.mkfifo(pipe, 0o644)
        self._lines, self._rest = asyncio.Queue(), bytearray()
        # Open for both, so that it opens before there is a reader.
        self._pipe = os.open(pipe, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        if not stat.S_ISFIFO(os.fstat(self._pipe).st_mode):
            raise SandboxError(f"{pipe} is no pipe any more")
        code = f"{_START}from opensage_agents.pgs.inside.{self.module} import main; main(sys.argv[1])"
        # Not `-I`, which ignores the variable: sets would come in another order in each run.
        command = [self.sandbox.python or "python3", "-P", "-S", "-c", code, str(self.folder), *self.paths]
        env = {"PYTHONHASHSEED": "0"}
        self._task = asyncio.ensure_future(
            self.sandbox.exec(command, timeout=self.seconds, on_output=self._take, env=env)
        )

    async def send(self, message: dict[str, Any]) -> None:
        """Send one line; a process that does not read it is noticed by `receive`."""
        left = memoryview(json.dumps(message).encode() + b"\n")
        while left and self._task is not None and not self._task.done():
            try:
                left = left[os.write(self._pipe, left) :]
            except BlockingIOError:
                await asyncio.sleep(0.002)

    async def receive(self, seconds: float) -> dict[str, Any]:
        """The next message.

        Raises:
            Ended: there will be none.
            TimeoutError: none came in time. The process still runs; `stop` ends it.
        """
        if self._task is None:
            raise Ended(ExecResult(-9, "", ""))
        line = asyncio.ensure_future(self._lines.get())
        try:
            await asyncio.wait([line, self._task], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if not line.done() and self._task.done():
                await asyncio.sleep(0)  # what it said last may lie there already
            if not line.done():
                if self._task.done():
                    raise Ended(self._task.result())
                raise TimeoutError
        finally:
            line.cancel()
        return _parsed(line.result())

    async def stop(self) -> None:
        """End its whole tree. Safe to call twice."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError, SandboxError):
                await self._task
            self._task = None
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1

    def _take(self, name: str, chunk: bytes) -> None:
        if name != "stdout":
            return
        self._rest += chunk
        if len(self._rest) > LONGEST:
            self._rest = bytearray()
            self._lines.put_nowait(b"")
        while (end := self._rest.find(b"\n")) >= 0:
            self._lines.put_nowait(bytes(self._rest[:end]))
            del self._rest[: end + 1]


def _parsed(line: bytes) -> dict[str, Any]:
    """What came, or a message that says it was no message: candidates can write there too."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        message = None
    return message if isinstance(message, dict) else {"nonsense": line[:200].decode(errors="replace")}
