"""`opensage chat`: a conversation in the terminal, or over standard input."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from opensage import __version__
from opensage.approval import Approver
from opensage.cli.common import open_engine, settings_for
from opensage.cli.headless import ask_in_terminal
from opensage.cli.show import Screen
from opensage.engine import Engine
from opensage.errors import ModelError
from opensage.log.events import RunFinished

HELP = """/help      this list
/model     the model in use
/cost      tokens and cost so far
/compact   make room in the history
/diff      what changed in the working folder (git diff)
/quit      leave (Ctrl-D too)
Ctrl-C interrupts the work; at the prompt it leaves."""


class Chat:
    """Reads messages, runs a turn for each, and keeps going whatever a turn came to."""

    def __init__(self, engine: Engine, screen: Screen) -> None:
        self._engine = engine
        self._screen = screen
        self._commands: dict[str, Callable[[], None]] = {
            "/help": lambda: self._say(HELP),
            "/model": lambda: self._say(engine.model.name),
            "/cost": self._cost,
            "/diff": self._diff,
        }

    async def run(self, lines: AsyncIterator[str]) -> int:
        """Answer every line; returns 0, or 1 when the last turn did not end well."""
        code = 0
        async for line in lines:
            text = line.strip()
            if not text:
                continue
            if text in ("/quit", "/exit"):
                break
            if text == "/compact":
                await self._compact()
            elif text.startswith("/"):
                self._command(text)
            else:
                code = await self._turn(text)
        return code

    def _command(self, text: str) -> None:
        handler = self._commands.get(text.split()[0])
        if handler is None:
            self._say(f"unknown command {text.split()[0]}; /help lists them")
        else:
            handler()

    async def _turn(self, text: str) -> int:
        task = asyncio.ensure_future(self._answer(text))
        with _interrupts(task):
            try:
                return await task
            except asyncio.CancelledError:
                self._say("(interrupted; the history is kept)")
                return 1
            except ModelError as error:
                self._say(f"error: {error}")
                return 1

    async def _answer(self, text: str) -> int:
        status = "failed"
        async with aclosing(self._engine.turn(text)) as events:  # type: ignore[type-var]
            async for event in events:
                self._screen.show(event)
                if isinstance(event, RunFinished):
                    status = event.status
                    if event.reason:
                        self._say(f"{event.status}: {event.reason}")
        return 0 if status == "done" else 1

    async def _compact(self) -> None:
        event = await self._engine.compact()
        self._say("nothing to leave out yet" if event is None else f"history compacted: {event.how}")

    def _cost(self) -> None:
        summary = self._engine.session.summary
        cost = "unknown" if summary.usage.cost is None else f"${summary.usage.cost:.4f}"
        self._say(f"{summary.turns} turns, {summary.usage.tokens} tokens, cost {cost}")

    def _diff(self) -> None:
        import subprocess

        command = ["git", "-C", str(self._engine.workdir), "--no-pager", "diff", "--stat", "-p"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=20, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            self._say(f"git diff failed: {error}")
            return
        self._say(done.stdout[:20_000] or done.stderr[:500] or "no changes")

    def _say(self, text: str) -> None:
        self._screen.console.print(text, markup=False)


def chat(
    *, workdir: Path, flags: Mapping[str, Any], config: Sequence[str], yes: bool, session: str | None = None
) -> int:
    """Open the chat; returns the exit code."""
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    approve: str | Approver = "allow" if yes else (ask_in_terminal if terminal else "deny")
    settings = settings_for(workdir, flags, config)
    engine = open_engine(settings, workdir, approve=approve, session=session, ask=_ask if terminal else None)
    screen = Screen()
    place = f"{engine.sandbox.kind} sandbox" if engine.sandbox.isolated else "NO SANDBOX: commands run on your machine"
    screen.console.print(f"OpenSage {__version__} - {engine.model.name} - {place} - /help", markup=False)

    async def work() -> int:
        try:
            return await Chat(engine, screen).run(_typed(engine) if terminal else _piped())
        finally:
            await engine.close()

    return asyncio.run(work())


async def _ask(question: str) -> str:
    print(f"\n{question}\n? ", end="", flush=True)
    answer: str = await asyncio.to_thread(sys.stdin.readline)
    return answer.strip()


async def _piped() -> AsyncIterator[str]:
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(f"you> {line.rstrip()}", flush=True)
        yield line


async def _typed(engine: Engine) -> AsyncIterator[str]:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import FileHistory

    def status() -> str:
        summary = engine.session.summary
        cost = "cost unknown" if summary.usage.cost is None else f"${summary.usage.cost:.4f}"
        return f" {engine.model.name} | {summary.usage.tokens} tokens | {cost} | {engine.session.id}"

    history = FileHistory(str(engine.workdir / ".opensage" / "history"))
    prompt: PromptSession[str] = PromptSession(history=history, bottom_toolbar=status)
    while True:
        try:
            yield await prompt.prompt_async("you> ")
        except (EOFError, KeyboardInterrupt):
            return


@contextlib.contextmanager
def _interrupts(task: asyncio.Future[int]) -> Iterator[None]:
    """While a turn runs, Ctrl-C cancels it instead of ending the program."""
    loop = asyncio.get_running_loop()
    try:
        loop.add_signal_handler(signal.SIGINT, task.cancel)
    except (NotImplementedError, RuntimeError, ValueError):  # not the main thread
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


__all__ = ["Chat", "chat"]
