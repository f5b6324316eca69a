"""`shell`: commands that keep their place. The working folder and exported variables live on between calls."""

from __future__ import annotations

import math
import secrets
import signal

from opensage.errors import ToolError
from opensage.protocols import ExecResult, OutputHook
from opensage.tools.base import ToolContext
from opensage.tools.decorate import tool
from opensage.tools.shell_script import LAUNCH, PRELUDE_VARIABLE, prelude
from opensage.tools.tasks import task_table

DEFAULT_SECONDS = 120.0
MAX_SECONDS = 3600.0
BACKGROUND_SECONDS = 86_400.0


@tool(name="shell", source="builtin", parallel=False, changes=True, target="command")
async def shell(
    ctx: ToolContext,
    command: str,
    timeout: float | None = None,
    background: bool = False,
) -> str:
    """Run a shell command. Folder and exported variables are kept between calls.

    Args:
        ctx: context.
        command: script for bash
        timeout: seconds, default 120
        background: return at once with a task id
    """
    if not command.strip():
        raise ToolError('the command is empty. Example arguments: {"command": "ls"}')
    seconds, note = _seconds(timeout)
    if background:
        return _start(ctx, command, BACKGROUND_SECONDS if timeout is None else seconds)
    result = await _exec(ctx, command, seconds, keep=True)
    return note + describe(result)


async def _exec(
    ctx: ToolContext, command: str, seconds: float, *, keep: bool, on_output: OutputHook | None = None
) -> ExecResult:
    token = ctx.state.setdefault("shell", secrets.token_hex(8))
    return await ctx.sandbox.exec(
        LAUNCH,
        timeout=seconds,
        stdin=command.replace("\0", "").encode("utf-8", "surrogateescape"),
        env={PRELUDE_VARIABLE: prelude(token, keep)},
        on_output=on_output,
    )


def _start(ctx: ToolContext, command: str, seconds: float) -> str:
    table = task_table(ctx)
    task = table.start(command, lambda hook: _exec(ctx, command, seconds, keep=False, on_output=hook))
    return f"started {task.id}. See it with task_output, wait with task_wait, end it with task_kill."


def _seconds(timeout: float | None) -> tuple[float, str]:
    """A usable time limit, and a note for the model when it asked for something else."""
    if timeout is None:
        return DEFAULT_SECONDS, ""
    if math.isnan(timeout) or timeout <= 0:
        return DEFAULT_SECONDS, f"[timeout {timeout:g} is no time limit, {DEFAULT_SECONDS:g} s was used]\n"
    if timeout > MAX_SECONDS:
        return MAX_SECONDS, f"[timeout was reduced to {MAX_SECONDS:g} s; run long things with background=true]\n"
    return timeout, ""


def describe(result: ExecResult) -> str:
    """What the model reads: stdout, stderr under its own mark, then how it ended when that was not well."""
    parts = [result.stdout.rstrip("\n")] if result.stdout.strip("\n") else []
    if result.stderr.strip("\n"):
        parts.append("[stderr]\n" + result.stderr.rstrip("\n"))
    if result.timed_out:
        seconds = f"{result.duration:.0f}" if result.duration >= 1 else f"{result.duration:.1f}"
        parts.append(f"timed out after {seconds} s, the processes were killed; run long things with background=true")
    elif result.exit_code:
        parts.append(_ending(result.exit_code))
    return "\n".join(parts) or "(no output)"


def _ending(code: int) -> str:
    number = -code if code < 0 else code - 128 if code > 128 else 0
    try:
        return f"exit code {code} ({signal.Signals(number).name})"
    except ValueError:
        return f"exit code {code}"
