"""Events as a person reads them in a terminal."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from opensage.cli.stream import LiveText, clean
from opensage.log.events import (
    ApprovalDecided,
    Compacted,
    Event,
    ModelReply,
    Note,
    Progress,
    Recovered,
    RunFinished,
    TextDelta,
    ToolResult,
)
from opensage.log.memory_events import Recalled

_HEAD, _FOOT = 5, 3
_DIFF = 60
_MAIN = ("command", "path", "pattern", "question", "text", "id")


class Screen:
    """Prints events compactly: text as it streams, a line a call, a few lines of its result, diffs in colour.

    On a terminal text is shown as Markdown; elsewhere, and on a dumb terminal, as it is.
    """

    def __init__(self, console: Console | None = None, *, spent: Callable[[], str] = lambda: "") -> None:
        self.console = console or Console(highlight=False, soft_wrap=True)
        self._spent = spent
        self._began = 0.0
        self._doing = ""
        self._open_line = False
        self._streamed = self._said = ""
        self._held: list[Event] | None = None
        able = self.console.is_terminal and not self.console.is_dumb_terminal
        self._live = LiveText(self.console, self._status) if able else None

    @contextmanager
    def working(self, doing: str = "thinking") -> Iterator[None]:
        """Show that something is going on, until the block ends."""
        self._began, self._doing = time.monotonic(), doing
        try:
            if self._live:
                self._live.start()
            yield
        finally:
            self._stop()

    def doing(self, what: str) -> None:
        """Say in the status line what is going on."""
        self._doing = what

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Leave the terminal to a question; events wait until it is answered."""
        again = self._live is not None and self._live.running
        self._stop()
        self._held = []
        try:
            yield
        finally:
            held, self._held = self._held, None
            for event in held:
                self.show(event)
            if self._live and again:
                self._live.start()

    def say(self, text: str, style: str = "") -> None:
        """Print a line of the kit's own."""
        self._line(text, style)

    def show(self, event: Event) -> None:
        """Print one event, if a person wants to see it."""
        if self._held is not None:
            self._held.append(event)
            return
        match event:
            case TextDelta():
                self._delta(event)
            case ModelReply():
                self._reply(event)
            case ToolResult():
                self._result(event)
            case Note() | Progress():
                self._line(event.text, "dim")
            case Compacted():
                self._line(f"(history compacted: {event.how})", "dim")
            case ApprovalDecided() if event.remember or event.arguments is not None:
                self._decided(event)
            case Recalled():
                self._line(f"(recalled {len(event.ids)} item(s) of the memory)", "dim")
            case Recovered():
                self._line(f"(recovered: {event.detail})", "yellow")
            case RunFinished():
                self._finished(event)
            case _:
                pass

    def _decided(self, event: ApprovalDecided) -> None:
        if event.arguments is not None:
            self._line(f"(the call was changed to {main_argument(json.dumps(event.arguments))})", "dim")
        if event.remember:
            verdict = "allowed" if event.allowed else "denied"
            self._line(f"({verdict} for the rest of this session: {event.remember})", "dim")

    def _status(self) -> str:
        seconds = int(time.monotonic() - self._began)
        return f"{self._doing} {seconds} s | {self._spent()} | Ctrl-C interrupts"

    def _stop(self) -> None:
        if self._live:
            self._live.stop()
        self._end_line()

    def _delta(self, event: TextDelta) -> None:
        if event.reset and self._streamed:
            self._streamed = ""
            if self._live:
                self._live.drop()
            self._line("(trying again)", "dim")
        if event.text:
            self._doing = "writing"
            self._streamed += event.text
            self._write(event.text)

    def _write(self, text: str) -> None:
        if self._live:
            self._live.feed(text)
        else:
            self.console.print(Text(clean(text)), end="")
            self._open_line = True

    def _reply(self, event: ModelReply) -> None:
        if event.text and not self._streamed:
            self._write(event.text)
        self._streamed = ""
        self._said = event.text
        self._end_line()
        for call in event.calls:
            self._doing = f"running {clean(call['name'])[:40]}"
            if call["name"] != "finish":  # its text is the answer, shown as such
                self._line(f"> {call['name']} {main_argument(call['arguments'])}", "bold cyan")

    def _result(self, event: ToolResult) -> None:
        self._doing = "thinking"
        if event.name == "finish" and event.ok:
            return
        if event.diff:
            self._diff(event.diff)
        lines = event.text.splitlines() or [""]
        if event.diff and event.ok:
            lines = lines[:1]
        left = len(lines) - _HEAD - _FOOT
        if left > 1:
            lines = [*lines[:_HEAD], f"... {left} more lines ...", *lines[-_FOOT:]]
        for line in lines:
            self._line(f"  {_short(line, 200)}", "dim" if event.ok else "red")

    def _diff(self, diff: str) -> None:
        lines = clean(diff).splitlines()
        self._end_line()
        self.diff("\n".join(_short(line, 400) for line in lines[:_DIFF]))
        if len(lines) > _DIFF:
            self._line(f"  ... {len(lines) - _DIFF} more lines of this change ...", "dim")

    def diff(self, text: str) -> None:
        """Print a unified diff."""
        shown = Syntax(clean(text), "diff", theme="ansi_dark", background_color="default", word_wrap=True)
        self.console.print(shown if self._live else Text(clean(text)))

    def _finished(self, event: RunFinished) -> None:
        if event.status == "done" and event.text and event.text != self._said:
            self._write(event.text)
        self._said = ""
        self._end_line()
        usage = event.usage
        tokens = usage.get("input_tokens", 0) + usage.get("output_tokens", 0)
        calls = f"{usage.get('model_calls', 0)} turns, {usage.get('tool_calls', 0)} tool calls"
        self._line(
            f"[{event.status}] {calls}, {tokens} tokens, {money(usage.get('cost'))}, session {event.session}", "dim"
        )

    def _line(self, text: str, style: str) -> None:
        self._end_line()
        self.console.print(Text(clean(text), style=style))

    def _end_line(self) -> None:
        if self._live:
            self._live.end()
        if self._open_line:
            self.console.print()
            self._open_line = False


def money(cost: float | None) -> str:
    """US dollars as text."""
    return "cost unknown" if cost is None else f"${cost:.4f}"


def _short(line: str, width: int) -> str:
    return line if len(line) <= width else f"{line[:width]} ..."


def main_argument(raw: str) -> str:
    """What a call is about, in one line."""
    try:
        arguments = json.loads(raw)
    except (ValueError, RecursionError):
        return raw[:120]
    if not isinstance(arguments, dict):
        return raw[:120]
    main = next((arguments[name] for name in _MAIN if name in arguments), arguments or "")
    text = main if isinstance(main, str) else json.dumps(main, ensure_ascii=False)
    first, *rest = text.strip().splitlines() or [""]
    return _short(first, 160) + (" ..." if rest else "")
