"""Runs commands in a container, each to its end: its own, its time's, or its caller's."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Mapping, Sequence

from opensage.errors import SandboxLost
from opensage.sandbox.commands import to_the_end
from opensage.sandbox.docker.command import Command, Stdin
from opensage.sandbox.docker.container import Container
from opensage.sandbox.docker.outputs import Outputs, Raw
from opensage.sandbox.limits import SandboxLimits

KILL_SECONDS = 1.0
SIGNALS = range(129, 160)
NOT_STARTED = 1 << 16
STARTING = 8
"""Commands that may start at one time: what starts one takes some processes of the container's for a moment."""
RETRIES = 3
FULL = re.compile("temporarily unavailable|cannot allocate|no space left|can't start|fork", re.I)
"""What engines say when a container has no process left to give."""


class Runner:
    """The commands of one container. `user` is "uid:gid", or "" for the image's."""

    def __init__(self, container: Container, limits: SandboxLimits, user: str) -> None:
        self.container, self.limits, self.user = container, limits, user
        self._commands: set[Command] = set()
        self._counts = (0, 0)
        self._notices: list[str] = []
        self._starting = asyncio.Semaphore(STARTING)

    async def run(
        self,
        argv: Sequence[str],
        outputs: Outputs | Raw,
        *,
        cwd: str = "/",
        timeout: float | None = None,
        stdin: Stdin = None,
        env: Mapping[str, str] | None = None,
    ) -> tuple[int, bool]:
        """Run to the end; returns the exit code (-N for signal N), and whether time ran out.

        Raises:
            SandboxLost: the container ended.
        """
        code, timed_out = await self._once(argv, outputs, cwd, timeout, stdin, env or {})
        for attempt in range(1, RETRIES + 1):
            if code != NOT_STARTED or not FULL.search(outputs.engine_said()):
                break
            if not await self._make_room():
                await asyncio.sleep(attempt)  # others run: their end makes room
            outputs.forget()
            code, timed_out = await self._once(argv, outputs, cwd, timeout, stdin, env or {})
        return (126 if code == NOT_STARTED else code), timed_out

    async def _once(
        self,
        argv: Sequence[str],
        outputs: Outputs | Raw,
        cwd: str,
        timeout: float | None,
        stdin: Stdin,
        env: Mapping[str, str],
    ) -> tuple[int, bool]:
        command = Command(self.container.client, self.container.name, outputs.take)
        self._commands.add(command)
        outputs.on_error(command.fail)
        begun = False
        try:
            clock = asyncio.timeout(self.limits.clamp(timeout))
            try:
                async with clock:
                    async with self._starting:
                        begun = True
                        command.start(argv, cwd=cwd, user=self.user, env=env, stdin=stdin)
                        await command.started()
                    code = await command.ended()
            except BaseException:
                if begun:
                    await to_the_end(self._kill(command))
                if not clock.expired():
                    raise
                return -9, True
            if code is None or (command.process is None and not command.said):
                await self._look(1.0)
                if command.process is not None:
                    raise SandboxLost("the engine did not say how a command ended")
                return NOT_STARTED, False
            if not command.said and command.process is not None:
                await self._look(0.3)
                await self.container.warden.end_tree(*command.process)
            return (128 - code if code in SIGNALS else code), False
        finally:
            self._commands.discard(command)

    async def notes(self) -> list[str]:
        """Lines that say which limit was met since the last look, after mending what can be mended."""
        with contextlib.suppress(SandboxLost):
            await self._settle()
        notices, self._notices = self._notices, []
        return notices

    async def _settle(self, mine: Command | None = None) -> None:
        if not self.container.ours:
            return
        counts = await self.container.warden.counts()
        before, self._counts = self._counts, counts
        if counts[0] > before[0]:
            self._notices.append(f"a process was killed: more than {self.limits.memory >> 20} MiB of memory")
        if counts[1] > before[1]:
            await self._make_room(mine)

    async def _make_room(self, mine: Command | None = None) -> bool:
        """End everything, unless another command runs: something has taken every process there is."""
        if self._commands - {mine} or not self.container.ours:
            return False
        await self.container.warden.end_all()
        self._notices.append(f"killed: more than {self.limits.processes} processes")
        return True

    def close(self) -> None:
        """Break every stream."""
        for command in list(self._commands):
            command.close()

    async def _look(self, seconds: float) -> None:
        """Whether the container itself has ended: its first command's stream tells within this time."""
        if await asyncio.to_thread(self.container.warden.ended.wait, seconds):
            raise SandboxLost("its container ended")

    async def _kill(self, command: Command) -> None:
        """End a command's whole tree; where that cannot be done, the container."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(KILL_SECONDS):
                await command.started()
        try:
            await self._settle(command)
            if command.process is not None:
                await self.container.warden.end_tree(*command.process)
                if await command.gone(KILL_SECONDS):
                    return
        except SandboxLost:
            pass
        command.close()
        if self.container.ours:
            await asyncio.to_thread(self.container.close)
