"""What the `bubblewrap` and `local` sandboxes share: one supervisor, commands and files through it."""

from __future__ import annotations

import asyncio
import atexit
import errno
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from opensage.errors import SandboxError, SandboxLost, SandboxUnavailable, ToolError
from opensage.protocols import ExecResult, OutputHook
from opensage.sandbox import fileops, tree
from opensage.sandbox.cgroup import JOIN_FAILED, ControlGroup, make_group, possible_folders
from opensage.sandbox.commands import request, shown, to_the_end, with_notes
from opensage.sandbox.limits import SandboxLimits
from opensage.sandbox.link import Link, Running
from opensage.sandbox.paths import inside, interpreter_folders
from opensage.sandbox.snapshots import Snapshots
from opensage.sandbox.state import StateFolder, prune_sandboxes

START_SECONDS = 30.0
PATIENCE = 6.0
"""Seconds the supervisor gets to end what is below it, once its socket is closed."""
HIDDEN = ".opensage"
Approve = Callable[[str], Awaitable[bool]]


class ProcessSandbox:
    """A sandbox made of processes of this machine. Subclasses say how the supervisor is started and what it sees."""

    kind: ClassVar[str]
    isolated: ClassVar[bool]

    def __init__(
        self,
        workdir: Path,
        *,
        network: bool = False,
        limits: SandboxLimits | None = None,
        approve: Approve | None = None,
    ) -> None:
        self.host_workdir = workdir
        self.network = network
        self.limits = limits or SandboxLimits()
        self._approve = approve
        self._link: Link | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._errors = -1
        self._group: ControlGroup | None = None
        self._state: StateFolder | None = None
        self._snapshots: Snapshots | None = None
        self._starting: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None
        self._losses = 0
        self._memory_kills = 0
        self._closed = False

    def __repr__(self) -> str:
        state = "closed" if self._closed else "idle" if self._link is None else f"pid {self.pid}"
        return f"<{self.kind} sandbox of {self.workdir}, {state}>"

    # --- what a subclass says ---

    def _command(self, socket_fd: int, scratch: Path) -> tuple[list[str], list[int]]:
        """The supervisor's command line, and descriptors it reads (closed after the start)."""
        raise NotImplementedError

    def _roots(self, scratch: Path) -> list[str]:
        """Folders, as seen inside, that files may be read from and written to."""
        raise NotImplementedError

    def _environment(self, scratch: Path) -> dict[str, str]:
        """The clean environment of every command."""
        raise NotImplementedError

    def _rlimits(self) -> dict[str, int]:
        return {
            "RLIMIT_DATA": self.limits.memory,
            "RLIMIT_FSIZE": self.limits.file_size,
            "RLIMIT_NOFILE": self.limits.open_files,
            "RLIMIT_CORE": 0,
        }

    # --- the protocol ---

    @property
    def workdir(self) -> str:
        """The workspace has the same path inside as outside."""
        return str(self.host_workdir)

    @property
    def python(self) -> str | None:
        """The interpreter that runs the kit, usable inside."""
        return sys.executable or None

    @property
    def pid(self) -> int | None:
        """Process number, on the host, of the process that everything inside hangs on; None before the start."""
        return None if self._process is None else self._process.pid

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        timeout: float | None = None,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        on_output: OutputHook | None = None,
    ) -> ExecResult:
        """See `Sandbox.exec`. What a command leaves in the background lives until the sandbox closes."""
        body, script = request(command, env, cwd)
        if self._approve is not None and not await self._approve(shown(command)):
            raise ToolError("the user refused this command; do without it or ask what they would allow")
        seconds = self.limits.clamp(timeout)
        link = await self._started()
        body["env"] = {**self._environment(self._scratch()), **body["env"]}
        for last in (*[False] * 9, True):
            start = time.monotonic()
            running = await link.execute(body, script, stdin, self.limits.output, on_output)
            try:
                timed_out = await self._wait(link, running, seconds)
            finally:
                link.leave(running)
            if running.errno != errno.EAGAIN or last:  # a full process table gets a moment to empty
                break
            await asyncio.sleep(0.1)
        return self._result(link, running, timed_out, time.monotonic() - start)

    async def read_bytes(self, path: str, offset: int = 0, limit: int | None = None) -> bytes:
        """See `Sandbox.read_bytes`."""
        if offset < 0 or (limit is not None and limit < 0):
            raise ToolError("offset and limit must not be negative")
        with fileops.named(path):
            fd, _name = await (await self._started()).open(fileops.checked(path), "read")
            return await asyncio.to_thread(fileops.read, fd, offset, limit)

    async def write_bytes(self, path: str, data: bytes) -> None:
        """See `Sandbox.write_bytes`. A link inside the workspace is written through."""
        with fileops.named(path):
            folder, name = await (await self._started()).open(fileops.checked(path), "place", make=True)
            await fileops.in_thread(folder, tree.write_new, folder, name, data)

    async def copy_in(self, source: Path, path: str) -> None:
        """See `Sandbox.copy_in`. An existing folder is merged into."""
        real = await asyncio.to_thread(source.resolve, strict=True)
        with fileops.named(path):
            folder, name = await (await self._started()).open(fileops.checked(path), "place", make=True, follow=False)
            await fileops.in_thread(folder, fileops.copy_from, real, folder, name)

    async def copy_out(self, path: str, target: Path) -> None:
        """See `Sandbox.copy_out`."""
        with fileops.named(path):
            folder, name = await (await self._started()).open(fileops.checked(path), "place", follow=False)
            await fileops.in_thread(folder, fileops.copy_to, folder, name, target)

    async def snapshot(self) -> str:
        """See `Sandbox.snapshot`. The id names the content: an unchanged workspace has the same id."""
        try:
            return await asyncio.to_thread(self._stored().save)
        except (OSError, RecursionError) as error:  # the second: folders nested by the thousand
            raise SandboxError(f"the workspace cannot be saved: {error}; free space or make it readable") from error

    async def restore(self, snapshot: str) -> None:
        """See `Sandbox.restore`. Files made since are removed; the kit's own state stays."""
        try:
            await asyncio.to_thread(self._stored().load, snapshot)
        except (OSError, RecursionError) as error:  # the second: folders nested by the thousand
            raise SandboxError(
                f"the workspace is restored in part only: {error}; mend that and restore again"
            ) from error

    def renew(self) -> None:
        """Let earlier losses count no more: a person has read of them and goes on."""
        self._losses = 0

    async def close(self) -> None:
        """See `Sandbox.close`."""
        self._closed = True
        async with self._lock():
            if self._link is not None:
                self._link.close()
            await asyncio.to_thread(self._end)
            if self._state is not None:
                await asyncio.to_thread(self._state.remove)
                self._state = self._snapshots = None
                atexit.unregister(self._at_exit)

    # --- starting and ending ---

    async def _started(self) -> Link:
        """The link to a live supervisor. The first loss is mended here, a second one is final."""
        loop = asyncio.get_running_loop()
        async with self._lock():
            if self._closed:
                raise SandboxError("the sandbox is closed; open a new one")
            if self._link is not None and self._link.lost is None:
                if self._link.loop is not loop:
                    self._link.attach(loop)
                return self._link
            if self._losses > 1:
                raise SandboxLost("the sandbox was lost twice; stop: what runs in it kills it")
            await asyncio.to_thread(self._end)
            self._link = await self._start()
            return self._link

    def _lock(self) -> asyncio.Lock:
        """The lock on starting and closing; a lock belongs to one event loop."""
        loop = asyncio.get_running_loop()
        if self._starting is None or self._starting[0] is not loop:
            self._starting = loop, asyncio.Lock()
        return self._starting[1]

    async def _start(self) -> Link:
        await asyncio.to_thread(self._prepare)
        losses = self._losses
        for with_group in (True, False):
            if with_group:
                self._group = make_group(self._folder().name, self.limits)
            link = self._spawn()
            try:
                async with asyncio.timeout(START_SECONDS):
                    await link.ready.wait()
            except TimeoutError:
                link.fail("it did not start in time")
            except BaseException:
                link.close()
                await asyncio.to_thread(self._end)
                raise
            if link.lost is None:
                return link
            self._losses = losses
            code = await asyncio.to_thread(self._end)
            if code != JOIN_FAILED:
                break
        raise SandboxUnavailable(f"the {self.kind} sandbox did not start: {self._first_error()}")

    def _prepare(self) -> None:
        """Blocking work before the first start."""
        if self._state is None:
            prune_sandboxes()
        scratch = self._scratch()
        scratch.mkdir(exist_ok=True, mode=0o700)
        self._folder().write(possible_folders(self._folder().name))

    def _folder(self) -> StateFolder:
        if self._state is None:
            self._state = StateFolder(self.kind, self.workdir)
            atexit.register(self._at_exit)
        return self._state

    def _at_exit(self) -> None:
        """The program ends without having closed the sandbox."""
        if self._state is None or self._state.record.owner != os.getpid():  # a fork's copy is not the owner
            return
        self._closed = True
        if self._link is not None:
            self._link.sock.close()
        self._end()
        self._state.remove()

    def _scratch(self) -> Path:
        return self._folder().path / "scratch"

    def _stored(self) -> Snapshots:
        if self._closed:
            raise SandboxError("the sandbox is closed; open a new one")
        if self._snapshots is None:
            skip = (HIDDEN, *inside(self.host_workdir, interpreter_folders()))
            self._snapshots = Snapshots(self.host_workdir, self._folder().path / "snapshots", skip)
        return self._snapshots

    def _spawn(self) -> Link:
        """Start the supervisor. In the caller's thread: bubblewrap dies with the *thread* that started it."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._close_errors()
        self._errors = os.memfd_create("errors", os.MFD_CLOEXEC)
        command, fds = self._command(theirs.fileno(), self._scratch())
        try:
            self._process = subprocess.Popen(
                command if self._group is None else self._group.wrap(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                cwd="/",
                env={"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"},
                pass_fds=[theirs.fileno(), *fds],
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            raise SandboxUnavailable(f"the {self.kind} sandbox did not start: {error}") from error
        finally:
            theirs.close()
            for fd in fds:
                os.close(fd)
        self._memory_kills = 0
        return Link(ours, self._on_lost)

    def _config(self, scratch: Path) -> str:
        """The supervisor's settings."""
        watched = self.limits.memory if self._group is None or self._group.memory is None else 0
        config = {
            "workdir": self.workdir,
            "roots": self._roots(scratch),
            "hidden": [f"{self.workdir}/{HIDDEN}"],
            "rlimits": self._rlimits(),
            "processes": self.limits.processes,
            "memory": watched,
            "nice": self.limits.nice,
        }
        return json.dumps(config)

    def _on_lost(self) -> str:
        """End the processes of a lost sandbox; what to do next, for the error's text."""
        self._losses += 1
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
        return "the next command starts a new one" if self._losses == 1 else "stop: it was lost twice"

    def _end(self) -> int | None:
        """Wait for the supervisor to end (its socket is closed), by force if it does not. Returns its exit code."""
        code = None
        if self._process is not None:
            try:
                code = self._process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                code = self._process.wait()
            self._process = None
        if self._group is not None:
            self._group.remove()
            self._group = None
        if self._closed:
            self._close_errors()
        return code

    def _close_errors(self) -> None:
        if self._errors >= 0:
            os.close(self._errors)
            self._errors = -1

    def _first_error(self) -> str:
        """The last line the supervisor or bubblewrap printed, bounded."""
        if self._errors < 0:
            return "no reason was given"
        lines = os.pread(self._errors, 1 << 16, 0).decode(errors="replace").strip().splitlines()
        return lines[-1][:500] if lines else "no reason was given"

    # --- commands ---

    async def _wait(self, link: Link, running: Running, seconds: float) -> bool:
        """Wait for the end of a command; true when its time ran out. However this is left, nothing of it runs on."""
        clock = asyncio.timeout(seconds)
        try:
            async with clock:
                await running.ended()
            return False
        except BaseException:
            await to_the_end(link.kill(running))
            if not clock.expired():
                raise
            await running.drain(0.5)
            return True

    def _result(self, link: Link, running: Running, timed_out: bool, duration: float) -> ExecResult:
        notes = self._notes(link, running)
        if running.errno is not None:
            notes.append(f"the command could not be started: {os.strerror(running.errno)}")
            running.code = 126
        stdout, stderr = (running.outputs[name] for name in ("stdout", "stderr"))
        cut = bool(stdout.dropped or stderr.dropped)
        text = with_notes(stderr.text(), notes)
        return ExecResult(running.code, stdout.text(), text, timed_out, cut, round(duration, 6))

    def _notes(self, link: Link, running: Running) -> list[str]:
        """Lines that say which limit a command met."""
        said = {
            "processes": f"more than {self.limits.processes} processes",
            "memory": f"more than {self.limits.memory >> 20} MiB of memory",
        }
        notes = [f"killed: {said[running.culled]}"] if running.culled else []
        notes += [f"background processes of an earlier command were killed: {said[why]}" for why in link.notices]
        link.notices.clear()
        kills = self._group.memory_kills() if self._group is not None else 0
        if kills > self._memory_kills:
            self._memory_kills = kills
            notes.append(f"a process was killed: {said['memory']}")
        return notes
