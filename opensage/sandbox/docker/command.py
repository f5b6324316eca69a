"""One command in a container: its start through the engine, its output as it comes, its end."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

from opensage.sandbox.docker.client import close, cut

WRAP = (
    "for t in 1 2 3 4 5; do read -r s < /proc/$$/stat && break; done; "
    'n=$1 d=$2 i=$3; shift 3; printf "%s\\n" "$s"; cd -- "$d" || exit 126; '
    'exec 3>&2 2> /dev/null; if [ "$i" ]; then head -c "$i" | (exec "$@" 2>&3 3>&-); else (exec "$@" 2>&3 3>&-); fi; '
    'c=$?; printf "\\000%s %s\\n" "$n" "$c"; exit "$c"'
)
"""Says which process it is, runs the command, and says how it ended: the engine tells only after two seconds, when
something that was left in the background holds the output open. `head` ends the input on every transport."""
GRACE = 0.25
"""Seconds the engine gets to say the end, once the wrapper has."""
Sink = Callable[[str, bytes], None]
Stdin = bytes | IO[bytes] | None


class Marked:
    """Takes the wrapper's own two lines out of what a command prints."""

    def __init__(self, mark: str, sink: Callable[[bytes], None]) -> None:
        self._mark = b"\0" + mark.encode() + b" "
        self._sink = sink
        self._held = b""
        self.process: tuple[int, int] | None = None
        self.code: int | None = None

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of standard output."""
        self._held += chunk
        if self.process is None:
            line, found, rest = self._held.partition(b"\n")
            self.process = _process(line) if found else None
            if self.process is None and self._mark not in self._held:
                return
            # The end without a beginning: the kernel did not say which process it is. It ran all the same.
            self._held = rest if self.process or not line else self._held
        self._pass_on()

    def rest(self) -> bytes:
        """What was held back, when nothing more comes."""
        held, self._held = self._held, b""
        return held

    def _pass_on(self) -> None:
        data = self._held
        at = data.find(self._mark)
        end = data.find(b"\n", at) if at >= 0 else -1
        if end >= 0:
            word = data[at + len(self._mark) : end]
            self.code = int(word) if word.isdigit() else None
            data, at = data[:at] + data[end + 1 :], len(data)
        elif at < 0:
            at = _partial(data, self._mark)
        self._held = data[at:]
        if data[:at]:
            self._sink(data[:at])


def _partial(data: bytes, mark: bytes) -> int:
    """Where the beginning of a mark may stand at the end of `data`."""
    at = data.rfind(b"\0", max(0, len(data) - len(mark)))
    return at if at >= 0 and mark.startswith(data[at:]) else len(data)


def _process(line: bytes) -> tuple[int, int] | None:
    """Number and start (clock ticks since boot) from a line of /proc/PID/stat."""
    pid, _, fields = line.decode(errors="replace").partition(" ")
    words = fields.rpartition(")")[2].split()
    return (int(pid), int(words[19])) if pid.isdigit() and len(words) > 20 and words[19].isdigit() else None


class Command:
    """One command; its thread lives as long as anything holds the command's output open.

    `sink` is called in that thread with ("stdout" | "stderr" | "engine", bytes); the last is what the engine says when
    the command could not be started.
    """

    def __init__(self, client: Any, container: str, sink: Sink) -> None:
        self._client = client
        self._container = container
        self._sink = sink
        self._mark = secrets.token_hex(8)
        self._stdout = Marked(self._mark, lambda data: sink("stdout", data))
        self._stream: Any = None
        self._discard = False
        self._early: list[bytes] = []
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._broken: BaseException | None = None
        self.over = False
        self.engine_code: int | None = None

    @property
    def process(self) -> tuple[int, int] | None:
        """Number inside the container and start time, once known."""
        return self._stdout.process

    def start(self, argv: Sequence[str], *, cwd: str, user: str, env: Mapping[str, str], stdin: Stdin = None) -> None:
        """Begin, in a thread of its own. `stdin` is bytes, or a file that is read from its start."""
        size = "" if stdin is None else str(len(stdin) if isinstance(stdin, bytes) else stdin.seek(0, 2))
        wrapped = ["/bin/sh", "-c", WRAP, "sh", self._mark, cwd, size, *argv]
        threading.Thread(target=self._run, args=(wrapped, user, dict(env), stdin), daemon=True).start()

    @property
    def said(self) -> bool:
        """Whether the wrapper told the end: else it was killed, and what it ran may still run."""
        return self._stdout.code is not None

    def fail(self, error: BaseException) -> None:
        """Let `ended` raise this; called on the loop."""
        self._broken = error
        self._changed.set()

    async def started(self) -> None:
        """Wait until its process is known, or it is over."""
        await self._until(lambda: self.process is not None or self.over)

    async def ended(self) -> int | None:
        """Wait for the end: the engine's exit code, or the wrapper's when the output stays open after it.

        None means that nobody said: the container or the way to it is gone, or the command was not started.

        Raises:
            BaseException: what `fail` was given.
        """
        await self._until(lambda: self.over or self._stdout.code is not None or self._broken is not None)
        if self._broken is not None:
            raise self._broken
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE):
                await self._until(lambda: self.over)
        if self.over:
            return self.engine_code
        self._discard = True  # what is left in the background runs on, and what it prints is dropped
        return self._stdout.code

    async def gone(self, seconds: float) -> bool:
        """Whether its output is closed within this time: nothing of it runs any more."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._until(lambda: self.over)
        return self.over

    def close(self) -> None:
        """Break the stream."""
        self._discard = True
        cut(self._stream)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            if not condition():
                await self._changed.wait()

    def _tell(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits
            self._loop.call_soon_threadsafe(self._changed.set)

    def _run(self, argv: list[str], user: str, env: dict[str, str], stdin: Stdin) -> None:
        import docker

        try:
            made = self._client.exec_create(self._container, argv, user=user, environment=env, stdin=stdin is not None)
            self._stream = self._client.exec_start(made["Id"], socket=True)
            if stdin is not None:
                threading.Thread(target=self._feed, args=(stdin,), daemon=True).start()
            self._read()
            self.engine_code = self._client.exec_inspect(made["Id"])["ExitCode"]
        except (docker.errors.DockerException, OSError, ValueError) as error:
            if not self._discard:
                self._sink("engine", str(getattr(error, "explanation", "") or error).encode())
        finally:
            self.over = True
            self._tell()
            close(self._stream)

    def _read(self) -> None:
        from docker.utils.socket import frames_iter

        for kind, data in frames_iter(self._stream, tty=False):
            if self._discard:
                continue
            if kind == 1:
                self._stdout.feed(data)
                self._tell()
            else:
                self._early.append(data)
            if self.process is not None:
                self._pass_errors("stderr")
        if not self._discard:
            # Without its first line it is not the command that speaks, but the engine.
            if rest := self._stdout.rest():
                self._sink("stdout" if self.process or self.said else "engine", rest)
            self._pass_errors("stderr" if self.process or self.said else "engine")

    def _pass_errors(self, name: str) -> None:
        """Hand on what came on standard error: it may come before the line that says who writes it."""
        for data in self._early:
            self._sink(name, data)
        self._early.clear()

    def _feed(self, stdin: bytes | IO[bytes]) -> None:
        end = getattr(self._stream, "_sock", self._stream)
        with contextlib.suppress(OSError, ValueError):  # the program does not want the rest, or has ended
            if isinstance(stdin, bytes):
                end.sendall(stdin)
                return
            stdin.seek(0)
            while block := stdin.read(1 << 18):
                end.sendall(block)
