"""Events as a person reads them in a terminal."""

from __future__ import annotations

import json

from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from opensage.log.events import (
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

_LINES = 8
_MAIN = ("command", "path", "pattern", "question", "text", "id")


class Screen:
    """Prints events compactly: text as it streams, a line a call, a few lines of its result."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False, soft_wrap=True)
        self._open_line = False
        self._streamed = False

    def show(self, event: Event) -> None:
        """Print one event, if a person wants to see it."""
        match event:
            case TextDelta():
                self._delta(event)
            case ModelReply():
                self._reply(event)
            case ToolResult():
                self._result(event)
            case Note():
                self._line(event.text, "dim")
            case Progress():
                self._line(event.text, "dim")
            case Compacted():
                self._line(f"(history compacted: {event.how})", "dim")
            case Recovered():
                self._line(f"(recovered: {event.detail})", "yellow")
            case RunFinished():
                self._finished(event)
            case _:
                pass

    def _delta(self, event: TextDelta) -> None:
        if event.reset and self._open_line:
            self._line("(trying again)", "dim")
        if event.text:
            self._streamed = self._open_line = True
            self.console.print(Text(event.text), end="")

    def _reply(self, event: ModelReply) -> None:
        if event.text and not self._streamed:
            self.console.print(Text(event.text), end="")
            self._open_line = True
        self._end_line()
        self._streamed = False
        for call in event.calls:
            self._line(f"> {call['name']} {_main_argument(call['arguments'])}", "bold cyan")

    def _result(self, event: ToolResult) -> None:
        lines = event.text.splitlines() or [""]
        more = [f"... {len(lines) - _LINES} more lines"] if len(lines) > _LINES else []
        style = "" if event.ok else "red"
        if event.diff:
            self.console.print(Syntax(event.diff, "diff", theme="ansi_dark", background_color="default"))
            lines, more = lines[:1], []
        for line in [*lines[:_LINES], *more]:
            self._line(f"  {line[:200]}", style or "dim")

    def _finished(self, event: RunFinished) -> None:
        self._end_line()
        if event.status == "done" and event.text and self._said_by_tool(event):
            self.console.print(Text(event.text))
        usage = event.usage
        cost = usage.get("cost")
        money = "cost unknown" if cost is None else f"${cost:.4f}"
        tokens = usage.get("input_tokens", 0) + usage.get("output_tokens", 0)
        calls = f"{usage.get('model_calls', 0)} turns, {usage.get('tool_calls', 0)} tool calls"
        self._line(f"[{event.status}] {calls}, {tokens} tokens, {money}, session {event.session}", "dim")

    def _said_by_tool(self, event: RunFinished) -> bool:
        return bool(event.text) and event.reason == "" and not self._streamed and event.usage.get("tool_calls", 0) > 0

    def _line(self, text: str, style: str) -> None:
        self._end_line()
        self.console.print(Text(text, style=style))

    def _end_line(self) -> None:
        if self._open_line:
            self.console.print()
            self._open_line = False


def _main_argument(raw: str) -> str:
    try:
        arguments = json.loads(raw)
    except (ValueError, RecursionError):
        return raw[:120]
    if not isinstance(arguments, dict):
        return raw[:120]
    main = next((arguments[name] for name in _MAIN if name in arguments), arguments or "")
    text = main if isinstance(main, str) else json.dumps(main, ensure_ascii=False)
    first, *rest = text.strip().splitlines() or [""]
    return first[:160] + (" ..." if rest else "")
