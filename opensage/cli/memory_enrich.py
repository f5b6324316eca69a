"""`opensage memory enrich`: a model reads facts out of what was said."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opensage.cli.memory_common import Config, Json, Opened, Scope, Store, Workdir, opened, print_json, short

if TYPE_CHECKING:
    from opensage.protocols import Model

READ = ("message",)
"""Kinds that a model is given by itself: what a person said."""
ANSWER_TOKENS = 700


def enrich(
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="The model that reads; the configured one.")
    ] = None,
    max_calls: Annotated[int, typer.Option("--max-calls", min=0, help="Calls of the model at most.")] = 50,
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=0, help="Tokens in and out at most.")] = 50_000,
    scope: Scope = None,
    workdir: Workdir = Path("."),
    store: Store = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """Let a model read facts out of what was said; what fails is told, and tried again by the next run."""
    from opensage.cli.common import fetch_if_local, settings_for
    from opensage.models import default_model, open_model

    with opened(workdir, store, scope, config) as here:
        name = model or _configured(default_model, settings_for, workdir, config)
        fetch_if_local(name)
        rows = asyncio.run(_enriched(here, open_model(name), max_calls, max_tokens))
    if json:
        print_json(rows)
    for row in rows if not json else ():
        told = ", ".join(f"{row[part]} {part}" for part in ("read", "facts", "left", "calls", "tokens"))
        typer.echo(f"{short(row['scope'])}: {told}")
        for id, why in row["failed"].items():
            typer.echo(f"{id} was not read: {short(why)}", err=True)
    raise typer.Exit(1 if any(row["failed"] for row in rows) else 0)


def _configured(default_model: Any, settings_for: Any, workdir: Path, config: list[str] | None) -> str:
    import os

    return str(default_model(os.environ, settings_for(workdir, {}, config or []).model))


async def _enriched(here: Opened, model: Model, max_calls: int, max_tokens: int) -> list[dict[str, Any]]:
    from opensage_memory.scope import covers

    loop = asyncio.get_running_loop()

    def ask(prompt: str) -> str:
        return asyncio.run_coroutine_threadsafe(_answer(model, prompt), loop).result()

    rows: list[dict[str, Any]] = []
    try:
        with here.memory.store.read() as reader:
            names = [name for name in reader.scopes() if covers(here.scopes, name)]
        for name in names:
            here.memory.enqueue(_unread(here, name, max_calls), name)
            spent = sum(row["tokens"] for row in rows), sum(row["calls"] for row in rows)
            left = {"max_calls": max_calls - spent[1], "max_tokens": max_tokens - spent[0]}
            done = await asyncio.to_thread(here.memory.enrich, name, ask, **left)
            if done.calls or done.left:
                counts = {"read": done.done, "facts": len(done.facts), "left": done.left}
                rows.append(
                    {"scope": name, **counts, "calls": done.calls, "tokens": done.tokens, "failed": done.failed}
                )
    finally:
        await model.close()
    return rows


def _unread(here: Opened, scope: str, most: int) -> Iterable[str]:
    """What a person said and no model has read, oldest first; what waits already stays as it is, with its tries."""
    with here.memory.store.read() as reader:
        waiting = {task.item for task in reader.tasks("enrich", 100_000)}
        found: list[str] = []
        after = 0
        view = here.memory.view(scope, kinds=READ)
        while len(found) < most and (page := reader.scan(view, after=after)):
            found += [item.id for _, item in page if "enriched" not in item.data and item.id not in waiting]
            after = page[-1][0]
    return found[:most]


async def _answer(model: Model, prompt: str) -> str:
    """The model's answer, whole."""
    from opensage.messages import Request
    from opensage.side import whole_reply

    request = Request(messages=[{"role": "user", "content": prompt}], max_tokens=ANSWER_TOKENS, temperature=0.0)
    return (await whole_reply(model, request)).text
