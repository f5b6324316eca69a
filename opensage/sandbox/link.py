"""The host's end of the socket to a supervisor. What comes from there is checked as if an enemy had sent it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opensage.errors import PathRefused, SandboxLost
from opensage.sandbox.output import BoundedOutput, PipeReader, PipeWriter

GRACE = 0.2
"""Seconds to wait for the end of the output when a command has ended and what it left behind holds the pipe."""
KILL_SECONDS = 5.0
"""Seconds within which a killed tree must be gone; after that the whole sandbox is ended."""
MAX_MESSAGE = 1 << 16
WHY = ("processes", "memory")


class Running:
    """A command that was sent to the supervisor."""

    def __init__(self, number: int, output_limit: int, hook: Callable[[str, bytes], None] | None) -> None:
        self.id = number
        self.outputs = {name: BoundedOutput(output_limit) for name in ("stdout", "stderr")}
        self.readers: list[PipeReader] = []
        self.writer: PipeWriter | None = None
        self.exited = asyncio.Event()
        self.gone = asyncio.Event()
        self.code = -9
        self.errno: int | None = None
        self.culled: str | None = None
        self.lost: str | None = None
        self.hook_error: BaseException | None = None
        self._hook = hook

    def sink(self, name: str) -> Callable[[bytes], None]:
        """Where the bytes of one stream go."""
        output = self.outputs[name]

        def take(chunk: bytes) -> None:
            output.add(chunk)
            if self._hook is not None:
                try:
                    self._hook(name, chunk)
                except BaseException as error:  # noqa: BLE001  raised again by `exec`, not lost in the event loop
                    self._hook, self.hook_error = None, error
                    self.exited.set()

        return take

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Move bytes on this loop."""
        for reader in self.readers:
            reader.start(loop)
        if self.writer is not None:
            self.writer.start(loop)

    async def ended(self) -> None:
        """Wait until the main process has ended and its output is read.

        Raises:
            SandboxLost: the sandbox died meanwhile.
        """
        await self.exited.wait()
        if self.hook_error is not None:
            raise self.hook_error
        if self.lost is not None:
            raise SandboxLost(self.lost)
        if self.culled is not None:  # not before the last of its processes is gone
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.gone.wait(), KILL_SECONDS)
        await self.drain(GRACE)

    async def drain(self, seconds: float) -> None:
        """Read what is left. A command that is gone has closed its pipes; what it left behind may hold them open."""
        ends = [asyncio.ensure_future(reader.ended.wait()) for reader in self.readers]
        try:
            await asyncio.wait(ends, timeout=seconds)
            if self.gone.is_set():
                await asyncio.wait(ends, timeout=KILL_SECONDS)
        finally:
            for end in ends:
                end.cancel()
        for reader in self.readers:
            reader.take_waiting()

    def fail(self, reason: str) -> None:
        """The sandbox is lost."""
        self.lost = reason
        self.exited.set()
        self.gone.set()
        self.close()

    def close(self) -> None:
        """Close the host's pipe ends."""
        for reader in self.readers:
            reader.close()
        if self.writer is not None:
            self.writer.close()

    def leave(self) -> bool:
        """Forget the command; true when it left processes that still hold its pipes and must go on being drained."""
        if self.writer is not None:
            self.writer.close()
        if self.gone.is_set():
            self.close()
        for reader in self.readers:
            reader.discard()
        return any(reader.fd >= 0 for reader in self.readers)


class Link:
    """Requests to one supervisor and its answers, any number at once."""

    def __init__(self, sock: socket.socket, on_lost: Callable[[], str]) -> None:
        """`on_lost` ends the sandbox's processes and says why it was lost."""
        sock.setblocking(False)
        self.sock = sock
        self.on_lost = on_lost
        self.lost: str | None = None
        self.ready = asyncio.Event()
        self.notices: list[str] = []
        self.commands: dict[int, Running] = {}
        self.left: dict[int, Running] = {}
        self._replies: dict[int, asyncio.Future[tuple[int, str]]] = {}
        self._next = 0
        self.attach(asyncio.get_running_loop())

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Serve on this loop: the first one, or a new one after an earlier `asyncio.run` has ended."""
        self.loop = loop
        self._sending = asyncio.Lock()
        loop.add_reader(self.sock, self._receive)
        for running in self.left.values():
            running.start(loop)

    def close(self, reason: str = "the sandbox was closed") -> None:
        """Forget everything; whoever waits gets `SandboxLost`."""
        self.lost = self.lost or reason
        if self.sock.fileno() >= 0:
            if not self.loop.is_closed():
                self.loop.remove_reader(self.sock)
            self.sock.close()
        self.ready.set()
        for running in [*self.commands.values(), *self.left.values()]:
            running.fail(self.lost)
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(SandboxLost(self.lost))
        self.commands.clear()
        self.left.clear()
        self._replies.clear()

    async def execute(
        self,
        body: Mapping[str, object],
        script: bytes | None,
        stdin: bytes | None,
        output_limit: int,
        hook: Callable[[str, bytes], None] | None,
    ) -> Running:
        """Start a command. The caller must end it with `kill` or `leave`."""
        running = Running(self._number(), output_limit, hook)
        theirs: dict[str, int] = {}
        try:
            for name in ("stdout", "stderr"):
                ours, theirs[name] = os.pipe()
                running.readers.append(PipeReader(ours, running.sink(name)))
            if stdin is not None:
                theirs["stdin"], ours = os.pipe()
                running.writer = PipeWriter(ours, stdin)
            if script is not None:
                theirs["script"] = _memory_file(script)
            self.commands[running.id] = running
            await self._send("exec", running.id, body, theirs)
        except BaseException:
            self.commands.pop(running.id, None)
            running.close()
            raise
        finally:
            for fd in theirs.values():
                os.close(fd)
        running.start(self.loop)
        return running

    def leave(self, running: Running) -> None:
        """The command has ended: keep only what it left running."""
        self.commands.pop(running.id, None)
        if running.leave() and not running.gone.is_set() and self.lost is None:
            self.left[running.id] = running

    async def kill(self, running: Running) -> None:
        """End a command's whole tree and wait until it is gone, or end the sandbox."""
        try:
            async with asyncio.timeout(KILL_SECONDS):
                if not running.gone.is_set():
                    await self._send("kill", running.id, None, {})
                    await running.gone.wait()
        except (TimeoutError, SandboxLost):
            self.fail("a command could not be ended")

    async def open(self, path: str, how: str, *, make: bool = False, follow: bool = True) -> tuple[int, str]:
        """A checked descriptor: of a file to read, or of the folder that holds `path`, and the name in it.

        Raises:
            PathRefused: the path leaves the workspace.
            OSError: as the system calls say.
        """
        number = self._number()
        reply: asyncio.Future[tuple[int, str]] = self.loop.create_future()
        self._replies[number] = reply
        try:
            await self._send("open", number, {"path": path, "how": how, "make": make, "follow": follow}, {})
            return await reply
        except asyncio.CancelledError:
            if reply.done() and not reply.cancelled() and reply.exception() is None:
                os.close(reply.result()[0])
            raise
        finally:
            self._replies.pop(number, None)

    def fail(self, reason: str) -> None:
        """The sandbox is of no use any more: end it."""
        if self.lost is None:
            self.lost = f"the sandbox was lost: {reason}; {self.on_lost()}"
            self.close()

    def _number(self) -> int:
        self._next += 1
        return self._next

    async def _send(self, op: str, number: int, body: Mapping[str, object] | None, fds: Mapping[str, int]) -> None:
        payload = -1 if body is None else _memory_file(json.dumps(body).encode())
        named = dict(fds) if body is None else {"payload": payload, **fds}
        data = json.dumps({"op": op, "id": number, "fds": list(named)}).encode()
        try:
            async with self._sending:
                while not self._try_send(data, list(named.values())):
                    await self._writable()
        finally:
            if payload >= 0:
                os.close(payload)

    def _try_send(self, data: bytes, fds: Sequence[int]) -> bool:
        if self.lost is not None:
            raise SandboxLost(self.lost)
        try:
            socket.send_fds(self.sock, [data], list(fds))
        except BlockingIOError:
            return False
        except OSError as error:
            self.fail(f"its supervisor does not answer ({error.strerror})")
            raise SandboxLost(self.lost or "") from error
        return True

    async def _writable(self) -> None:
        waiter: asyncio.Future[None] = self.loop.create_future()
        self.loop.add_writer(self.sock, lambda: None if waiter.done() else waiter.set_result(None))
        try:
            await asyncio.wait([waiter], timeout=0.1)  # a lost sandbox closes the socket: look again
        finally:
            if self.sock.fileno() >= 0:
                self.loop.remove_writer(self.sock)

    def _receive(self) -> None:
        for _ in range(32):
            try:
                data, fds, flags, _address = socket.recv_fds(self.sock, MAX_MESSAGE, 4, socket.MSG_CMSG_CLOEXEC)
            except BlockingIOError:
                return
            except OSError:
                data, fds, flags = b"", [], 0
            if not data or flags & socket.MSG_TRUNC:
                _close_all(fds)
                self.fail("its supervisor ended")
                return
            try:
                self._take(json.loads(data), fds)
            except (ValueError, KeyError, TypeError, RecursionError):
                _close_all(fds)
                self.fail("its supervisor sent nonsense")
                return

    def _take(self, message: Any, fds: list[int]) -> None:
        """Act on one message. Unknown numbers are late answers; unknown shapes raise."""
        kind, number = str(message["t"]), int(message["id"])
        reply = self._replies.get(number)
        if kind == "opened" and len(fds) == 1 and reply is not None and not reply.done():
            name = str(message["name"])
            if "/" in name or name in (".", ".."):
                raise ValueError(name)
            reply.set_result((fds[0], name))
            return
        _close_all(fds)
        if kind == "ready":
            self.ready.set()
        elif kind == "refused" and reply is not None and not reply.done():
            reply.set_exception(PathRefused(str(message["text"])[:1000]))
        elif kind == "failed" and reply is not None and not reply.done():
            code = int(message["errno"])
            reply.set_exception(OSError(code, os.strerror(code)))
        elif kind in ("exit", "gone", "culled", "failed"):
            self._take_command(kind, number, message)

    def _take_command(self, kind: str, number: int, message: dict[str, Any]) -> None:
        running = self.commands.get(number) or self.left.get(number)
        if running is None:
            return
        if kind == "exit":
            running.code = max(-255, min(255, int(message["code"])))
            running.exited.set()
        elif kind == "failed":
            running.errno = int(message["errno"])
            running.exited.set()
            running.gone.set()
        elif kind == "culled":
            running.culled = WHY[WHY.index(message["why"])]
            if number in self.left:
                self.notices.append(running.culled)
        else:
            running.gone.set()
            running.exited.set()
            if self.left.pop(number, None) is not None:
                running.close()


def _memory_file(data: bytes) -> int:
    """A descriptor, at its start, of a file in memory that holds `data`."""
    fd = os.memfd_create("opensage", os.MFD_CLOEXEC)
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(data)
        os.lseek(fd, 0, os.SEEK_SET)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _close_all(fds: Sequence[int]) -> None:
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)
