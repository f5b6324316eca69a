"""`opensage sessions` and `opensage fork`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opensage.errors import ConfigError

if TYPE_CHECKING:  # imported late, to keep --help fast
    from opensage.log.store import SessionStore

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="List, show, export and remove sessions.")
Workdir = Annotated[Path, typer.Option("--workdir", "-w", help="The folder the sessions belong to.")]
Id = Annotated[str, typer.Argument(help="Session id, a unique prefix of it, or last.")]


def open_store(workdir: Path) -> SessionStore:
    """The sessions of a folder, with secrets masked."""
    from opensage.cli.masking import use_patterns
    from opensage.config import load_settings
    from opensage.log.store import SessionStore

    folder = workdir.expanduser()
    if not folder.is_dir():
        raise ConfigError(f"{workdir} is not a folder; name the one the sessions belong to with --workdir")
    patterns = load_settings(folder, env=os.environ).secrets.patterns
    return SessionStore(folder / ".opensage" / "sessions", use_patterns(patterns))


@app.command("list")
def list_sessions(workdir: Workdir = Path(".")) -> None:
    """The sessions of a folder, oldest first; those of sub-agents are in `opensage agents tree`."""
    from rich.console import Console
    from rich.table import Table

    from opensage.cli.stream import clean

    table = Table("session", "started", "status", "turns", "tokens", "cost", "task", box=None)
    for row in open_store(workdir).summaries():
        cost = "?" if row.usage.cost is None else f"{row.usage.cost:.4f}"
        task = " ".join(clean(row.task or row.reason).split())[:60]
        cells = (row.session, _day(row.started), row.status, str(row.turns), str(row.usage.tokens), cost, task)
        table.add_row(*map(clean, cells))
    Console(highlight=False, markup=False).print(table)


def _day(seconds: float) -> str:
    """The local time, or nothing for what no calendar has: a damaged log may say anything."""
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds)) if seconds else ""
    except (OverflowError, ValueError, OSError):
        return ""


@app.command("show")
def show(session: Id, workdir: Workdir = Path(".")) -> None:
    """The events of a session as a person reads them."""
    from opensage.cli.show import Screen
    from opensage.cli.stream import clean
    from opensage.log.events import UserMessage

    loaded = open_store(workdir).load(session)
    screen = Screen()
    for event in loaded.events:
        if isinstance(event, UserMessage):
            screen.console.print(clean(f"#{event.seq} you> {event.text}"), markup=False, style="bold")
        screen.show(event)
    if loaded.torn or loaded.bad_lines:
        typer.echo(f"(unreadable: lines {loaded.bad_lines}, {len(loaded.torn)} bytes at the end)", err=True)


@app.command("export")
def export(
    session: Id,
    form: Annotated[str, typer.Option("--format", help="jsonl, messages (OpenAI chat completions) or svg.")] = "jsonl",
    workdir: Workdir = Path("."),
) -> None:
    """Print a session."""
    store = open_store(workdir)
    if form == "svg":
        from opensage.cli.picture import svg

        typer.echo(svg(store.load(session).events, f"opensage {store.path(session).stem}"))
        return
    typer.echo(store.export(session, form), nl=False)


@app.command("rm")
def remove(session: Id, workdir: Workdir = Path(".")) -> None:
    """Delete a session, and what the memory has of it; facts that were remembered in it stay."""
    from opensage.cli.memory_common import place_of
    from opensage.errors import OpenSageError
    from opensage.memory.forgotten import forget_session

    removed = open_store(workdir).remove(session)
    typer.echo(f"removed {removed}")
    try:
        place = place_of(workdir, None, None)
        if place.exists and (count := forget_session(place, removed)):
            typer.echo(f"forgot {count} item(s) of it; for good with: opensage memory forget --purge")
    except OpenSageError as error:
        typer.echo(f"warning: the memory of it stays: {error}", err=True)


def fork(
    session: Id,
    at: Annotated[int | None, typer.Option("--at", help="Last event (seq) to keep; all without it.")] = None,
    workdir: Workdir = Path("."),
) -> None:
    """Copy a session up to an event into a new one and print its id."""
    typer.echo(open_store(workdir).fork(session, at))
