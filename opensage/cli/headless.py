"""`opensage run` and `opensage resume`: one task, no conversation."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from rich.console import Console

from opensage.approval import Approver
from opensage.cli.common import open_engine, settings_for
from opensage.cli.show import Screen
from opensage.cli.stream import clean
from opensage.cli.terminal import Person, at_terminal
from opensage.log.events import Event, RunFinished
from opensage.messages import ToolCall
from opensage.permissions import Rule


def run_headless(
    task: str | None,
    *,
    workdir: Path,
    flags: Mapping[str, Any],
    config: Sequence[str],
    as_json: bool,
    yes: bool,
    session: str | None = None,
    agent: str | None = None,
) -> int:
    """Run to the end, showing events; returns the exit code of DESIGN section 9."""
    settings = settings_for(workdir, flags, config)
    screen = Screen()
    approve = _approver(yes, as_json, screen, lambda call: engine.suggest(call))
    engine = open_engine(settings, workdir, approve=approve, session=session, agent=agent)

    async def work() -> RunFinished | None:
        show = _print_json if as_json else screen.show
        last: RunFinished | None = None
        try:
            async with aclosing(engine.turn(task)) as events:  # type: ignore[type-var]
                async for event in events:
                    show(event)
                    last = event if isinstance(event, RunFinished) else last
        finally:
            await engine.close()
            if engine.warning:
                print(clean(engine.warning), file=sys.stderr)
        return last

    try:
        last = asyncio.run(work())
    except KeyboardInterrupt:
        print(f"interrupted; go on with `opensage resume {engine.session.id}`", file=sys.stderr)
        return 130
    if last is None or last.status == "done":
        return 0
    print(clean(f"{last.status}: {last.reason} (opensage resume {engine.session.id})"), file=sys.stderr)
    return 1


def _approver(yes: bool, as_json: bool, screen: Screen, suggest: Callable[[ToolCall], Rule | None]) -> str | Approver:
    if yes:
        return "allow"
    if as_json or not at_terminal():
        return "deny"
    seen = screen if sys.stdout.isatty() else Screen(Console(stderr=True, highlight=False))
    return Person(seen, suggest).approve


def _print_json(event: Event) -> None:
    if event.seq >= 0 or event.type in ("text.delta", "progress"):
        print(json.dumps(event.to_dict(full=True), ensure_ascii=True), flush=True)
