"""What the commands of `opensage memory` share: the memory, opened as the settings say, and how items are shown."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opensage.errors import MemoryUnavailable

if TYPE_CHECKING:  # imported late, to keep --help fast
    from opensage.memory.place import MemoryPlace
    from opensage.memory.reach import Reach
    from opensage_memory import Item, Memory

Workdir = Annotated[Path, typer.Option("--workdir", "-w", help="The folder the memory belongs to.")]
Store = Annotated[str | None, typer.Option("--store", help="Another memory: path of a file, or neo4j://HOST:7687.")]
Scope = Annotated[list[str] | None, typer.Option("--scope", help="Only this scope; `a/*` with all below, * all.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Config = Annotated[list[str] | None, typer.Option("-c", help="key=value over the configuration files.")]
BAR_AFTER = 2.0
"""Seconds of work before a bar is drawn."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A memory and the scopes that a command reads."""

    place: MemoryPlace
    memory: Memory
    scopes: tuple[str, ...]

    def item(self, id: str) -> Item:
        """The item with this id.

        Raises:
            MemoryUnavailable: there is none in the scopes.
        """
        found = self.memory.get(id.strip(), self.scopes)
        if found is None:
            raise MemoryUnavailable(f"no item {id!r} in {', '.join(self.scopes)}; `opensage memory search` shows ids")
        return found


@contextlib.contextmanager
def opened(
    workdir: Path,
    store: str | None = None,
    scope: Sequence[str] | None = None,
    config: Sequence[str] | None = None,
    *,
    make: bool = False,
) -> Iterator[Opened]:
    """The memory of a folder, closed at the end; errors of the memory are errors of the command.

    Args:
        workdir: the folder.
        store: another memory than the configured one.
        scope: scopes to read; the project's, all below it and the person's without it.
        config: `-c` of the command.
        make: whether it is made when it is not there.
    """
    from opensage.memory.place import USER, explained
    from opensage_memory.scope import check_scopes

    place = place_of(workdir, store, config)
    if not make and not place.exists:
        raise MemoryUnavailable(f"there is no memory yet at {place.where}: a run with memory begins one")
    with explained(), contextlib.closing(place):
        memory = place.memory
        if memory.trouble:
            _warn(memory.trouble)
        yield Opened(place, memory, check_scopes(scope) if scope else (f"{place.project}/*", USER))


def place_of(workdir: Path, store: str | None, config: Sequence[str] | None) -> MemoryPlace:
    """Where the settings, or `--store`, say that the memory is."""
    from opensage.cli.common import settings_for
    from opensage.cli.masking import use_patterns
    from opensage.engine import checked_folder
    from opensage.memory.place import MemoryPlace

    flags = {} if store is None else {"memory": {"store": str(Path(store).absolute()) if "://" not in store else store}}
    settings = settings_for(workdir, flags, config or [])
    use_patterns(settings.secrets.patterns)
    return MemoryPlace(settings.memory, checked_folder(workdir))


def _warn(text: str) -> None:
    typer.echo(f"warning: {short(text, 400)}", err=True)


def as_json(item: Item) -> dict[str, Any]:
    """An item for `--json`, without secrets."""
    from opensage.cli.masking import current
    from opensage_memory.store.codec import pack

    found: dict[str, Any] = current().data(pack(item))
    return found


def print_json(data: Any) -> None:
    """Print data as JSON that every terminal can show."""
    print(json.dumps(data, ensure_ascii=True, default=str))


def short(text: str, most: int = 160) -> str:
    """A text on one line, as it can be shown."""
    from opensage.cli.stream import clean

    flat = " ".join(clean(text[: 8 * most]).split())
    return flat if len(flat) <= most else f"{flat[:most]}…"


def told(item: Item) -> str:
    """One line about an item."""
    when = item.valid_from or item.created_at
    marks = [item.kind, item.trust, *([item.author] if item.author else []), when.strftime("%Y-%m-%d %H:%M")]
    marks += [
        mark
        for mark, holds in (
            (f"until {item.valid_to:%Y-%m-%d}" if item.valid_to else "", item.valid_to is not None),
            ("taken back", item.retired_at is not None),
            ("put away", item.archived),
            ("stale", item.stale),
        )
        if holds
    ]
    return f"{short(item.text)} [{', '.join(map(short, marks))}] {item.id}"


@contextlib.contextmanager
def progress(what: str) -> Iterator[Callable[[int], None]]:
    """A bar on stderr for work that takes longer than two seconds; it is told how much is done."""
    import sys
    import time

    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description} {task.completed}"), TimeElapsedColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
    began, task = time.monotonic(), bar.add_task(what, total=None)

    def step(done: int) -> None:
        bar.update(task, completed=done)
        if not bar.live.is_started and time.monotonic() - began > BAR_AFTER:
            bar.start()

    try:
        yield step
    finally:
        bar.stop()


def overview(reach: Reach, query: str) -> list[str]:
    """What an agent can recall, for the chat: how much there is, or the items that fit some words."""
    from opensage.memory.place import explained
    from opensage.memory.recall import RECALL

    if not reach.place.exists:
        return ["nothing is remembered yet"]
    with explained():
        if query:
            hits = reach.memory.search(query, reach.scopes, 8, kinds=RECALL)
            return [told(hit.item) for hit in hits] or ["nothing found"]
        kinds = reach.memory.counts(reach.scopes).kinds
        said = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    return [f"{said or 'nothing'} ({reach.place.where})", "/memory WORDS searches; opensage memory --help does more"]
