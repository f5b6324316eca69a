"""Markdown as it streams: finished blocks are printed for good, the one being written is redrawn at the bottom."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.markdown import Markdown
from rich.segment import Segment
from rich.text import Text

from opensage.cli.masking import masked

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?)")
_HIDDEN = {code: None for code in (*range(32), *range(127, 160)) if code not in (9, 10)}
_HIDDEN |= dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F))
_REDRAWS = 8
"""Times a second."""
_TAIL = 8000
"""Characters of an unfinished block that are redrawn."""


def clean(text: str) -> str:
    """The text without secrets, nor what could steer the terminal or hide what is said: escapes, text direction."""
    return masked(_ESCAPES.sub("", text.replace("\r\n", "\n")).translate(_HIDDEN))


def markdown(text: str) -> Markdown:
    """Markdown in which `List<int>` stays, and a link shows where it leads."""
    from markdown_it import MarkdownIt

    shown = Markdown(text, code_theme="ansi_dark", hyperlinks=False)
    shown.parsed = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"]).parse(text)
    return shown


def finished(text: str) -> int:
    """How much of the text is whole blocks: up to the last blank line after which a new block surely began."""
    end = at = 0
    fence, blank = "", False
    for line in text.splitlines(keepends=True):
        opened = _FENCE.match(line)
        if blank and not fence and line[0] not in " \t\n":
            end = at
        if opened and not fence:
            fence = opened[1]
        elif opened and opened[1].startswith(fence) and line.strip() == opened[1]:
            fence = ""
        blank = not line.strip()
        at += len(line)
    return end


class LiveText:
    """A reply that grows on a terminal, above a line that says what is going on. Nothing is drawn until `start`."""

    def __init__(self, console: Console, status: Callable[[], str]) -> None:
        self._console = console
        self._status = status
        self._tail = ""
        self._printed = False
        self._live: Live | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def running(self) -> bool:
        """Whether the status line is there."""
        return self._live is not None

    def start(self) -> None:
        """Show the status line. Again: nothing happens."""
        if self._live is None:
            self._live = Live(
                get_renderable=lambda: _Region(self._tail, self._status()),
                console=self._console,
                auto_refresh=False,  # its thread and our prints would interleave
                transient=True,
            )
            self._live.start()
            self._tick()

    def _tick(self) -> None:
        if self._live is not None:
            self._live.refresh()
            self._timer = asyncio.get_running_loop().call_later(1 / _REDRAWS, self._tick)

    def stop(self) -> None:
        """Remove the status line; what was being written is printed for good."""
        if self._live is not None:
            if self._timer is not None:
                self._timer.cancel()
            self._live.stop()
            self._live = None
        self.end()

    def feed(self, text: str) -> None:
        """Take more text of the reply."""
        self._tail += text
        cut = finished(self._tail)
        if cut:
            done, self._tail = self._tail[:cut], self._tail[cut:]
            self._print(done)

    def end(self) -> None:
        """The reply is whole."""
        done, self._tail = self._tail, ""
        if done.strip():
            self._print(done)
        self._printed = False

    def drop(self) -> None:
        """Forget what is not yet printed."""
        self._tail = ""

    def _print(self, text: str) -> None:
        if self._printed:
            self._console.print()
        self._console.print(markdown(clean(text)), soft_wrap=False)
        self._printed = True


class _Region:
    """The block being written, as much of it as fits, and the status line."""

    def __init__(self, text: str, status: str) -> None:
        self._text, self._status = text, status

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = max(1, console.size.height - 2)
        if self._text.strip():
            body = markdown(clean(_recent(self._text, room)))
            for line in console.render_lines(body, options.update(height=None), pad=False)[-room:]:
                yield from line
                yield Segment.line()
        yield Text(self._status, style="dim", no_wrap=True, overflow="ellipsis")


def _recent(text: str, lines: int) -> str:
    """The end of a block that is too long to redraw whole; a fence keeps its first line."""
    if len(text) <= _TAIL:
        return text
    first = text.lstrip("\n").split("\n", 1)[0]
    last = "\n".join(text[-_TAIL:].split("\n")[-lines:])
    return f"{first}\n{last}" if _FENCE.match(first) else last
