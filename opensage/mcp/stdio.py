"""A server's process and its standard streams: bounded, with a clean environment, and gone when it is closed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import mcp_types as types
from mcp.shared.message import SessionMessage

from opensage.errors import ConfigError
from opensage.mcp.schema import clean

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

MOST_BYTES = 1 << 24
"""Bytes of one message. What is longer ends the connection."""
GRACE = 2.0
"""Seconds a process has to end after its standard input was closed, and again after it was asked to."""
_TAIL_LINES = 20
_MOST_STRAYS = 1000
"""Lines in a row that are no messages."""
_TICK = 0.02


class StdioServer:
    """One process. `ended` is set when it can no longer be talked to; `last_words` says why.

    Args:
        command: the program and its arguments.
        env: its whole environment.
        cwd: its folder.
    """

    def __init__(self, command: list[str], env: Mapping[str, str], cwd: str) -> None:
        self.ended = asyncio.Event()
        self._command, self._env, self._cwd = command, dict(env), cwd
        self._errors: deque[str] = deque(maxlen=_TAIL_LINES)
        self._fault = ""
        self._process: asyncio.subprocess.Process | None = None

    @asynccontextmanager
    async def streams(self) -> AsyncGenerator[TransportStreams, None]:
        """Start the process; the SDK's pair of streams. Afterwards it is gone, with all that it started.

        Raises:
            ConfigError: the program cannot be started.
        """
        process = self._process = await self._started()
        to_session, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outgoing, from_session = anyio.create_memory_object_stream[SessionMessage](0)
        stdin, stdout, stderr = _pipes(process)
        tasks = [
            asyncio.create_task(self._read(stdout, to_session)),
            asyncio.create_task(self._write(from_session, stdin)),
            asyncio.create_task(self._listen(stderr)),
        ]
        try:
            yield incoming, outgoing
        finally:
            for stream in (to_session, incoming, outgoing, from_session):
                stream.close()
            try:
                await self._leave(process)
            finally:  # whatever interrupted that
                self.kill()
                for task in tasks:
                    task.cancel()
                await _exited(process, GRACE)

    def kill(self) -> None:
        """End the process and all that it started, at once."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        transport = getattr(self._process, "_transport", None)
        if transport is not None:  # a child of it may hold the pipes open for ever
            transport.close()

    @property
    def last_words(self) -> str:
        """Why it can no longer be talked to, and the end of what it wrote to standard error."""
        code = None if self._process is None else self._process.returncode
        how = self._fault or "its process closed the connection"
        if code is not None:
            how = self._fault or f"its process ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}"
        said = clean("\n".join(self._errors)[-600:], 600)
        return f"{how}; it said: {said}" if said else how

    async def _started(self) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        try:
            return await asyncio.create_subprocess_exec(
                *self._command,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                env=self._env,
                cwd=self._cwd,
                start_new_session=True,
                limit=MOST_BYTES,
            )
        except OSError as error:
            if error.filename == self._cwd:
                raise ConfigError(f"its folder {self._cwd} is not there; make it or change cwd") from None
            raise ConfigError(
                f"cannot start {self._command[0]}: {error.strerror}; install it, or give its whole path as command"
            ) from None

    async def _read(self, pipe: asyncio.StreamReader, to_session: anyio.abc.ObjectSendStream[SessionMessage]) -> None:
        strays = 0
        try:
            while line := await pipe.readline():
                try:
                    message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    strays += 1
                    if strays > _MOST_STRAYS:
                        self._fault = "it prints other things than messages to its standard output"
                        return
                    self._errors.append(line[:200].decode("utf-8", "replace"))  # a print in the wrong place
                    continue
                strays = 0
                await to_session.send(SessionMessage(message))
        except ValueError:
            self._fault = f"it sent a message of more than {MOST_BYTES} bytes"
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, ConnectionError):
            pass  # the session is gone, or the process
        finally:
            await to_session.aclose()
            self.ended.set()

    async def _write(
        self, from_session: anyio.abc.ObjectReceiveStream[SessionMessage], pipe: asyncio.StreamWriter
    ) -> None:
        try:
            async for sent in from_session:
                pipe.write(sent.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                await pipe.drain()
        except (ConnectionError, RuntimeError):
            self.ended.set()

    async def _listen(self, pipe: asyncio.StreamReader) -> None:
        """Keep the end of standard error, in pieces of bounded length."""
        rest = ""
        while data := await pipe.read(4096):
            *lines, rest = (rest + data.decode("utf-8", "replace")).split("\n")
            self._errors.extend(line[-300:] for line in lines if line.strip())
            rest = rest[-300:]
        if rest.strip():
            self._errors.append(rest)

    async def _leave(self, process: asyncio.subprocess.Process) -> None:
        """The protocol's way: close its input, wait, then ask."""
        if process.stdin is not None:
            process.stdin.close()
        if not await _exited(process, GRACE):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGTERM)
            await _exited(process, GRACE)


def _pipes(
    process: asyncio.subprocess.Process,
) -> tuple[asyncio.StreamWriter, asyncio.StreamReader, asyncio.StreamReader]:
    if process.stdin is None or process.stdout is None or process.stderr is None:
        raise ConfigError("its process has no pipes")
    return process.stdin, process.stdout, process.stderr


async def _exited(process: asyncio.subprocess.Process, seconds: float) -> bool:
    """Whether it ended in time. `wait` would wait for its pipes too, which a child of it may hold."""
    end = asyncio.get_running_loop().time() + seconds
    while process.returncode is None:
        if asyncio.get_running_loop().time() >= end:
            return False
        await asyncio.sleep(_TICK)
    return True
