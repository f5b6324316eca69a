"""Reading from the person: lines of a chat, answers, approvals, and Ctrl-C."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import json
import os
import shutil
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from opensage.approval import Decision
from opensage.arguments import parse_arguments
from opensage.cli.masking import masked
from opensage.cli.show import Screen
from opensage.cli.stream import clean
from opensage.errors import ToolError
from opensage.messages import ToolCall
from opensage.permissions import Rule

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyBindings

T = TypeVar("T")
Reader = Callable[[], Awaitable[str]]
"""Reads the next line. Raises `EOFError` at the end, `KeyboardInterrupt` when Ctrl-C was pressed at the prompt."""


class Interrupts:
    """The Ctrl-C contract: the first one ends the work, one without work (or a second one) ends the program."""

    def __init__(self) -> None:
        self.leaving = False
        self._work: asyncio.Task[Any] | None = None
        self._cancelled = False
        self._main = asyncio.current_task()

    def __enter__(self) -> Interrupts:
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):  # not the main thread
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._hit)
        return self

    def __exit__(self, *_error: object) -> None:
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)

    async def guard(self, work: Coroutine[Any, Any, T]) -> T:
        """Do some work that the first Ctrl-C ends.

        Raises:
            CancelledError: it was ended; `leaving` tells whether the program ends too.
        """
        task = asyncio.ensure_future(work)
        self._work, self._cancelled = task, False
        try:
            return await task
        finally:
            self._work = None

    def _hit(self) -> None:
        if self._work is not None and not self._cancelled:
            self._cancelled = True
            self._work.cancel()
            return
        self.leaving = True
        self.__exit__()  # a third one ends the program at once
        if self._main is not None:
            self._main.cancel()


class PipedLines:
    """Lines of standard input that is no terminal."""

    def __init__(self, fd: int, encoding: str | None, echo: Callable[[str], None]) -> None:
        self._fd, self._echo = fd, echo
        self._decoder = codecs.getincrementaldecoder(encoding or "utf-8")("replace")
        self._buffer = ""
        self._ended = False

    async def __call__(self) -> str:
        """See `Reader`."""
        while "\n" not in self._buffer and not self._ended:
            data = await _in_thread(lambda: os.read(self._fd, 65536))
            self._buffer += self._decoder.decode(data, final=not data)
            self._ended = not data
        line, _, self._buffer = self._buffer.partition("\n")
        if not line and not self._buffer and self._ended:
            raise EOFError
        line = line.removeprefix("\ufeff")
        self._echo(line.rstrip())
        return line


async def _in_thread(read: Callable[[], bytes]) -> bytes:
    """Run a call that may never return, in a thread that does not keep the program from ending."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[bytes] = loop.create_future()

    def tell(data: bytes) -> None:
        if not answer.done():
            answer.set_result(data)

    def work() -> None:
        try:
            data = read()
        except OSError:
            data = b""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(tell, data)

    threading.Thread(target=work, daemon=True).start()
    return await answer


class TypedLines:
    """Lines typed at a terminal, with a history, completion of commands and a status line."""

    def __init__(self, history: Path, commands: Sequence[str], status: Callable[[], str]) -> None:
        from prompt_toolkit.completion import WordCompleter

        self._status = status
        self._session = _prompt_session(
            history=_history(history),
            completer=WordCompleter(list(commands), sentence=True),
            bottom_toolbar=lambda: clean(f" {status()}"),
            key_bindings=_bindings(),
            reserve_space_for_menu=max(0, min(6, shutil.get_terminal_size().lines - 4)),
        )

    async def __call__(self) -> str:
        """See `Reader`."""
        line: str = await self._session.prompt_async("you> ", handle_sigint=False)
        return line


def _prompt_session(**options: Any) -> PromptSession[str]:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.output import create_output

    # Given an output, it would treat a dumb terminal like any other.
    output = None if sys.stdout.isatty() else create_output(always_prefer_tty=True)
    return PromptSession(output=output, **options)


def _history(path: Path) -> History:
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    except OSError:
        return InMemoryHistory()

    class MaskedHistory(FileHistory):
        def store_string(self, string: str) -> None:
            with contextlib.suppress(OSError):  # the folder went, the disk is full: the line itself goes on
                super().store_string(masked(string))

    return MaskedHistory(str(path))


def _bindings() -> KeyBindings:
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    keys = KeyBindings()

    @keys.add("escape", "enter")
    def _newline(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys


class Person:
    """Whoever sits at the terminal: approves calls, edits them, answers questions of the agent."""

    def __init__(self, screen: Screen, suggest: Callable[[ToolCall], Rule | None] = lambda _call: None) -> None:
        self._screen, self._suggest = screen, suggest

    async def approve(self, call: ToolCall) -> Decision:
        """Ask about a call. The end of the input is a no."""
        rule = self._suggest(call)
        always = f"[a]lways {rule}, " if rule else ""
        with self._screen.asking():
            self._describe(call)
            while True:
                answer = await self._read(f"allow {clean(call.name)}? [y]es, {always}[n]o, [e]dit: ")
                decision = await self._decide(call, (answer or "n").strip(), rule)
                if decision is not None:
                    return decision

    async def answer(self, question: str) -> str:
        """Ask what the agent asks.

        Raises:
            EOFError: the person ended the input.
        """
        with self._screen.asking():
            self._screen.say(question, "bold")
            answer = await self._read("answer> ")
        if answer is None:
            raise EOFError
        return answer

    def _describe(self, call: ToolCall) -> None:
        try:
            arguments = parse_arguments(call.arguments)
        except ToolError:
            arguments = {"": call.arguments}
        who = f"agent {call.agent}: " if call.agent else ""
        self._screen.say(f"{who}{call.name} wants to run:", "bold yellow")
        for name, value in arguments.items():
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            lines = text[:4000].splitlines() or [""]
            for place, line in enumerate(lines[:30]):
                self._screen.say(f"  {f'{name}: ' if place == 0 else '  '}{line}")
            if len(lines) > 30 or len(text) > 4000:
                self._screen.say(f"    ... ({len(text)} characters in all)", "dim")

    async def _decide(self, call: ToolCall, answer: str, rule: Rule | None) -> Decision | None:
        word, _, rest = answer.partition(" ")
        match word.lower():
            case "y" | "yes":
                return Decision(True, "approved")
            case "a" | "always" if rest.strip() or rule:
                wished = Rule(call.name, rest.strip()) if rest.strip() else rule
                return Decision(True, "approved", remember=str(wished))
            case "n" | "no":
                return Decision(False, "the user refused it" + (f": {rest}" if rest else ""))
            case "e" | "edit":
                return await self._edit(call)
        self._screen.say("answer y, a, n (a reason may follow) or e; a PATTERN, e.g. a git *, allows that", "dim")
        return None

    async def _edit(self, call: ToolCall) -> Decision | None:
        try:
            arguments = parse_arguments(call.arguments)
        except ToolError:
            arguments = {}
        alone = len(arguments) == 1 and all(isinstance(value, str) for value in arguments.values())
        text = "".join(arguments.values()) if alone else json.dumps(arguments, ensure_ascii=False)
        edited = await self._read(f"{', '.join(arguments) if alone else 'arguments'}> ", text)
        if edited is None:
            return None
        if alone:
            return Decision(True, "approved with changes", dict.fromkeys(arguments, edited))
        try:
            return Decision(True, "approved with changes", parse_arguments(edited))
        except ToolError as error:
            self._screen.say(f"not used: {error}", "red")
            return None

    async def _read(self, prompt: str, default: str = "") -> str | None:
        """A line; None at the end of the input. Ctrl-C becomes the signal it stands for."""
        try:
            line: str = await _prompt_session().prompt_async(prompt, default=default, handle_sigint=False)
        except EOFError:
            return None
        except KeyboardInterrupt:
            signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(60)  # whoever handles the signal cancels this
            return None
        return line


def at_terminal() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty() and (sys.stdout.isatty() or sys.stderr.isatty())


__all__ = ["Interrupts", "Person", "PipedLines", "Reader", "TypedLines", "at_terminal"]
