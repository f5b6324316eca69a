"""`opensage chat`: a conversation in the terminal, or over standard input."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from opensage import __version__
from opensage.approval import Approver
from opensage.cli.common import open_engine, settings_for
from opensage.cli.show import Screen, money
from opensage.cli.slash import COMMANDS, History, Slash
from opensage.cli.terminal import Interrupts, Person, PipedLines, Reader, TypedLines
from opensage.cli.undo import Checkpoints
from opensage.engine import Engine
from opensage.errors import OpenSageError
from opensage.log.events import RunFinished
from opensage.log.session import state_folder
from opensage.log.store import SessionStore


class Chat:
    """Reads messages, runs a turn for each, and keeps going whatever a turn came to."""

    def __init__(self, engine: Engine, screen: Screen, interrupts: Interrupts, history: History) -> None:
        self._engine, self._screen = engine, screen
        self._interrupts = interrupts
        self._history = history
        self._slash = Slash(engine, screen, history)

    async def run(self, read: Reader) -> int:
        """Answer every line; returns 0, 1 when the last turn did not end well, 130 after Ctrl-C at the prompt."""
        code = 0
        while True:
            try:
                text = (await read()).strip()
            except EOFError:
                return code
            except KeyboardInterrupt:
                return 130
            if text in ("/quit", "/exit"):
                return code
            if text:
                code = await self._do(text)

    async def _do(self, text: str) -> int:
        work = self._command(text) if text.startswith("/") else self._turn(text)
        try:
            return await self._interrupts.guard(work)
        except asyncio.CancelledError:
            if self._interrupts.leaving:
                raise
            self._screen.say("(interrupted; the history is kept)", "yellow")
        except OpenSageError as error:
            self._screen.say(f"error: {error}", "red")
        return 1

    async def _command(self, text: str) -> int:
        await self._slash.run(text)
        return 0

    async def _turn(self, text: str) -> int:
        with self._screen.working("keeping a copy for /undo"):
            await self._history.begin()
            self._screen.doing("thinking")
            try:
                return await self._answer(text)
            finally:
                await self._checkpoint()

    async def _checkpoint(self) -> None:
        """Remember what the turn did; Ctrl-C has nothing left to interrupt then, unless it ends the chat."""
        saving = asyncio.ensure_future(self._history.end())
        while not saving.done() and not self._interrupts.leaving:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(saving)

    async def _answer(self, text: str) -> int:
        status = "failed"
        async with aclosing(self._engine.turn(text)) as events:  # type: ignore[type-var]
            async for event in events:
                self._screen.show(event)
                if isinstance(event, RunFinished):
                    status = event.status
                    if event.reason:
                        self._screen.say(f"{event.status}: {event.reason}", "yellow")
        return 0 if status == "done" else 1


def chat(
    *,
    workdir: Path,
    flags: Mapping[str, Any],
    config: Sequence[str],
    yes: bool,
    session: str | None = None,
    agent: str | None = None,
) -> int:
    """Open the chat; returns the exit code."""
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    screen = Screen(spent=lambda: _spent(engine))
    person = Person(screen, lambda call: engine.suggest(call))
    approve: str | Approver = "allow" if yes else (person.approve if terminal else "deny")
    settings = settings_for(workdir, flags, config, ask=terminal)
    engine = open_engine(
        settings, workdir, approve=approve, session=session, ask=person.answer if terminal else None, agent=agent
    )
    place = f"{engine.sandbox.kind} sandbox" if engine.sandbox.isolated else "NO SANDBOX: commands run on your machine"
    screen.say(f"OpenSage {__version__} - {engine.model.name} - {place} - /help")
    try:
        return asyncio.run(_converse(engine, screen, terminal=terminal))
    finally:
        _forget_if_empty(engine)


async def _converse(engine: Engine, screen: Screen, *, terminal: bool) -> int:
    history = History(Checkpoints(engine.workdir), screen.say)
    with Interrupts() as interrupts:
        try:
            try:
                return await Chat(engine, screen, interrupts, history).run(_reader(engine, screen, terminal=terminal))
            finally:
                history.close()
                await engine.close()
                if engine.warning:
                    screen.say(engine.warning, "yellow")
        except asyncio.CancelledError:
            if not interrupts.leaving:
                raise
            return 130


def _reader(engine: Engine, screen: Screen, *, terminal: bool) -> Reader:
    if not terminal:
        return PipedLines(sys.stdin.fileno(), sys.stdin.encoding, lambda line: screen.say(f"you> {line}"))

    def status() -> str:
        return f"{engine.model.name} | {_spent(engine)} | {engine.session.id}"

    return TypedLines(state_folder(engine.workdir) / "history", COMMANDS, status)


def _spent(engine: Engine) -> str:
    usage = engine.session.summary.usage
    return f"{usage.tokens} tokens | {money(usage.cost)}"


def _forget_if_empty(engine: Engine) -> None:
    """A chat in which nothing was said leaves no session."""
    if engine.session.summary.status == "new":
        with contextlib.suppress(OpenSageError, OSError):
            SessionStore(state_folder(engine.workdir) / "sessions").remove(engine.session.id)


__all__ = ["Chat", "chat"]
