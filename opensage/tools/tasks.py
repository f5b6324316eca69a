"""Background tasks: commands that go on while the model works, each with a bounded buffer of what it printed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator

from opensage.errors import OpenSageError, ToolError
from opensage.protocols import ExecResult, OutputHook
from opensage.tools.base import ToolContext
from opensage.tools.decorate import tool

BUFFER = 1 << 20
"""Bytes of output kept per task; older ones are dropped, and the reader is told how many."""

MAX_RUNNING = 16
_MAX_KEPT = 64
_READ = 40_000
_WAIT_CEILING = 600.0

Start = Callable[[OutputHook], Awaitable[ExecResult]]


class Task:
    """One background command.

    Attributes:
        id: "t1", "t2", ...
        command: as the model gave it.
        status: "running", "exit code N", "timed out", "killed" or "failed: ...".
    """

    def __init__(self, task_id: str, command: str, start: Start) -> None:
        self.id = task_id
        self.command = command
        self.status = "running"
        self._began = time.monotonic()
        self._ended: float | None = None
        self._buffer = bytearray()
        self._dropped = 0
        self._read = 0
        self._job = asyncio.create_task(self._run(start), name=f"opensage task {task_id}")

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self._ended is None

    @property
    def seconds(self) -> float:
        """How long it has run, or ran."""
        return (self._ended or time.monotonic()) - self._began

    async def _run(self, start: Start) -> None:
        try:
            result = await start(self._on_output)
            self.status = "timed out" if result.timed_out else f"exit code {result.exit_code}"
        except asyncio.CancelledError:
            self.status = "killed"
            raise
        except (OpenSageError, OSError) as error:
            self.status = f"failed: {error}"
        finally:
            self._ended = time.monotonic()

    def _on_output(self, _stream: str, chunk: bytes) -> None:
        self._buffer += chunk
        excess = len(self._buffer) - BUFFER
        if excess > 0:
            del self._buffer[:excess]
            self._dropped += excess

    async def wait(self, timeout: float) -> None:
        """Wait until it ends, or for `timeout` seconds."""
        await asyncio.wait([self._job], timeout=timeout)

    async def kill(self) -> None:
        """End the command with everything it started. The sandbox kills the tree when the call is cancelled."""
        self._job.cancel()
        await asyncio.wait([self._job])
        if self.status == "running":  # cancelled before its first step
            self.status, self._ended = "killed", time.monotonic()

    def new_output(self) -> str:
        """What was printed since the last read, oldest first, up to a bound."""
        lost = max(0, self._dropped - self._read)
        start = max(self._read, self._dropped) - self._dropped
        chunk = bytes(self._buffer[start : start + _READ])
        if self.running or len(chunk) == _READ:
            chunk = chunk[: _whole_characters(chunk)]
        self._read = self._dropped + start + len(chunk)
        head = f"[{lost} bytes of older output were dropped]\n" if lost else ""
        left = self._dropped + len(self._buffer) - self._read
        more = f"\n[{left} more bytes: call task_output again]" if left > 3 else ""
        return head + chunk.decode("utf-8", "replace") + more

    def last_lines(self, count: int) -> str:
        """The last lines, whether read before or not; counts as having read all."""
        self._read = self._dropped + len(self._buffer)
        text = bytes(self._buffer[-_READ:]).decode("utf-8", "replace")
        return "\n".join(text.rstrip("\n").split("\n")[-max(1, count) :])

    def line(self) -> str:
        """One line about it: id, status, seconds, command."""
        command = " ".join(self.command.split())
        return f"{self.id}  {self.status}  {self.seconds:.0f} s  {command[:100]}"


class TaskTable:
    """The background tasks of one agent."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task] = {}
        self._count = 0

    def __iter__(self) -> Iterator[Task]:
        return iter(list(self._tasks.values()))

    def start(self, command: str, start: Start) -> Task:
        """Start a command.

        Raises:
            ToolError: too many are running.
        """
        if sum(task.running for task in self) >= MAX_RUNNING:
            raise ToolError(f"{MAX_RUNNING} tasks are running already: end one with task_kill first")
        for task in [task for task in self if not task.running][: max(0, len(self._tasks) - _MAX_KEPT)]:
            del self._tasks[task.id]
        self._count += 1
        task = Task(f"t{self._count}", command, start)
        self._tasks[task.id] = task
        return task

    def get(self, task_id: str) -> Task:
        """The task of that id.

        Raises:
            ToolError: there is none; the message lists those there are.
        """
        wanted = task_id.strip().lower()
        found = self._tasks.get(wanted) or self._tasks.get("t" + wanted)
        if found is None:
            known = ", ".join(self._tasks) or "none were started"
            raise ToolError(f"there is no task '{task_id}'; tasks: {known}")
        return found

    async def close(self) -> None:
        """Kill every task. Safe to call twice."""
        await asyncio.gather(*(task.kill() for task in self if task.running))


def task_table(ctx: ToolContext) -> TaskTable:
    """The calling agent's table, made on first use."""
    table = ctx.state.get("tasks")
    if not isinstance(table, TaskTable):
        table = ctx.state["tasks"] = TaskTable()
    return table


def _whole_characters(chunk: bytes) -> int:
    """Length up to the last whole UTF-8 character."""
    for back in range(1, min(4, len(chunk)) + 1):
        byte = chunk[-back]
        if byte >= 0xC0:
            width = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4 if byte < 0xF8 else 1
            return len(chunk) - back if width > back else len(chunk)
        if byte < 0x80:
            break
    return len(chunk)


def _report(task: Task, output: str) -> str:
    text = output.rstrip("\n") or "(no new output)"
    return f"{text}\n[{task.id}: {task.status}, {task.seconds:.0f} s]"


@tool(name="tasks", source="builtin", parallel=True)
async def tasks(ctx: ToolContext) -> str:
    """List background tasks."""
    return "\n".join(task.line() for task in task_table(ctx)) or "no background tasks"


@tool(name="task_output", source="builtin", parallel=True)
async def task_output(ctx: ToolContext, id: str, lines: int | None = None) -> str:
    """Show new output of a background task, or its last lines."""
    task = task_table(ctx).get(id)
    return _report(task, task.new_output() if lines is None else task.last_lines(lines))


@tool(name="task_wait", source="builtin", parallel=True)
async def task_wait(ctx: ToolContext, id: str, timeout: float = 60) -> str:
    """Wait for a background task to end, at most timeout seconds."""
    task = task_table(ctx).get(id)
    await task.wait(timeout if 0 < timeout <= _WAIT_CEILING else _WAIT_CEILING if timeout > 0 else 0)
    return _report(task, task.new_output())


@tool(name="task_kill", source="builtin", parallel=False)
async def task_kill(ctx: ToolContext, id: str) -> str:
    """Kill a background task."""
    task = task_table(ctx).get(id)
    if not task.running:
        return f"{task.id} had ended already: {task.status}"
    await task.kill()
    return _report(task, task.new_output())
