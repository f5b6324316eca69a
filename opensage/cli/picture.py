"""A session as a picture: the terminal's view of it as SVG."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable

from rich.console import Console

from opensage.cli.show import Screen
from opensage.log.events import Event, UserMessage

_WEB_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""A picture that fetches nothing: the viewer's own monospace font does."""


def svg(events: Iterable[Event], title: str, *, width: int = 100) -> str:
    """An SVG image of the events, `width` characters wide."""
    console = Console(
        record=True, width=width, file=io.StringIO(), force_terminal=True, color_system="truecolor", highlight=False
    )
    screen = Screen(console)
    for event in events:
        if isinstance(event, UserMessage):
            screen.say(f"$ opensage run {event.text!r}", "bold green")
        screen.show(event)
    return _WEB_FONT.sub("", console.export_svg(title=title))
