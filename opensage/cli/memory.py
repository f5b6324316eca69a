"""`opensage memory`: what is remembered, where it comes from, and what is to be forgotten."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opensage.cli import memory_files
from opensage.cli.memory_common import (
    Config,
    Json,
    Opened,
    Scope,
    Store,
    Workdir,
    as_json,
    opened,
    print_json,
    short,
    told,
)
from opensage.cli.memory_enrich import enrich
from opensage.errors import ConfigError, MemoryUnavailable

if TYPE_CHECKING:  # imported late, to keep --help fast
    from rich.tree import Tree

    from opensage_memory import Edge, Item
    from opensage_memory.retrieval.origin import Origin
    from opensage_memory.store.base import Operation

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="What is remembered between sessions.")
memory_files.add_to(app)
app.command("enrich")(enrich)
Id = Annotated[str, typer.Argument(help="Id of an item, as `search` shows it.")]
AsOf = Annotated[str | None, typer.Option("--as-of", help="What was true at this ISO date.")]
_MOST_NODES = 60


@app.command("search")
def search(
    query: Annotated[str, typer.Argument(help="What to look for; literal words.")],
    k: Annotated[int, typer.Option("-k", help="How many at most.")] = 10,
    kind: Annotated[list[str] | None, typer.Option("--kind", help="Only this kind: fact, message, ...")] = None,
    trust: Annotated[list[str] | None, typer.Option("--trust", help="user, agent, tool or untrusted.")] = None,
    as_of: AsOf = None,
    history: Annotated[bool, typer.Option("--history", help="Also what is over or was taken back.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Show what the scores are made of.")] = False,
    scope: Scope = None,
    workdir: Workdir = Path("."),
    store: Store = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """Find items by words. Exit code: 0 found, 1 nothing."""
    with opened(workdir, store, scope, config) as here:
        hits = here.memory.search(
            query, here.scopes, k, kinds=kind, as_of=as_of, trusts=trust, history=history, archived=history,
            explain=explain,
        )  # fmt: skip
    if json:
        rows = [{"score": h.score, "parts": dict(h.parts), "path": list(h.path), "item": as_json(h.item)} for h in hits]
        print_json(rows)
    elif hits:
        parts = [", ".join(f"{name} {value:.2f}" for name, value in hit.parts.items()) for hit in hits]
        _table([hit.item for hit in hits], [f"{hit.score:.2f}" for hit in hits], parts if explain else None)
    else:
        typer.echo("nothing found")
    raise typer.Exit(0 if hits else 1)


def _table(items: Sequence[Item], scores: Sequence[str], parts: Sequence[str] | None = None) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("score", "kind", "trust", "when", "text, who, id", box=None)
    for place, (item, score) in enumerate(zip(items, scores, strict=True)):
        when = (item.valid_from or item.created_at).strftime("%Y-%m-%d")
        who = f"{item.scope.rpartition('/')[2]}{f', {item.author}' if item.author else ''}"
        lines = [short(item.text), f"({short(who)}) {item.id}", *([short(parts[place])] if parts else [])]
        table.add_row(score, item.kind, item.trust, when, "\n".join(lines))
    Console(highlight=False, markup=False).print(table)


@app.command("show")
def show(
    id: Id,
    graph: Annotated[bool, typer.Option("--graph", help="Draw what is around it.")] = False,
    hops: Annotated[int, typer.Option("--hops", min=1, max=4, help="How far, with --graph.")] = 2,
    scope: Scope = None,
    workdir: Workdir = Path("."),
    store: Store = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """An item: its text, and where it comes from."""
    with opened(workdir, store, scope, config) as here:
        origin = here.memory.why(id, here.scopes)
        if origin.item is None:
            raise MemoryUnavailable(_gone(origin, id, here))
        if graph:
            _draw(here, origin.item, hops, json)
            return
    if json:
        print_json(_origin_json(origin))
        return
    _print_origin(origin, origin.item)


def _gone(origin: Origin, id: str, here: Opened) -> str:
    stone = origin.tombstone
    if stone is None:
        return f"no item {id!r} in {', '.join(here.scopes)}; `opensage memory search` shows ids"
    return f"item {id} ({stone.kind}) was forgotten at {stone.at:%Y-%m-%d %H:%M} by operation {stone.operation}"


def _print_origin(origin: Origin, item: Item) -> None:
    from opensage.cli.stream import clean

    typer.echo(clean(item.text))
    typer.echo("")
    when = item.valid_from.isoformat() if item.valid_from else "always"
    until = item.valid_to.isoformat() if item.valid_to else ""
    rows = {
        "id": item.id, "kind": item.kind, "scope": item.scope, "key": item.key.replace("\x1f", " / "),
        "trust": item.trust, "author": item.author, "true from": when, "until": until,
        "known since": item.created_at.isoformat(), "taken back": str(item.retired_at or ""),
        "state": ", ".join(mark for mark, on in (("stale", item.stale), ("put away", item.archived)) if on),
        "seen / recalled": f"{item.seen} / {item.uses}", "data": _data(item),
        "sources": ", ".join(origin.sources[:20]), "names in it": ", ".join(origin.mentions[:20]),
    }  # fmt: skip
    for name, value in rows.items():
        if value:
            typer.echo(clean(f"{name:16} {value}"))
    if origin.items:
        typer.echo("comes from:")
    for edge in origin.edges:
        other = next((one for one in origin.items if one.id == edge.target), None)
        if other is not None:
            typer.echo(f"  -{edge.type}-> {told(other)}")
    for done in origin.operations:
        typer.echo(f"{done.name:16} {done.at:%Y-%m-%d %H:%M:%S} operation {done.id}")


def _data(item: Item) -> str:
    import json

    return json.dumps(dict(item.data), ensure_ascii=False, default=str)[:1000] if item.data else ""


def _origin_json(origin: Origin) -> dict[str, Any]:
    from opensage_memory.store.codec import pack_edge

    assert origin.item is not None
    return {
        "item": as_json(origin.item),
        "sources": list(origin.sources),
        "hidden": origin.hidden,
        "from": [as_json(item) for item in origin.items],
        "edges": [pack_edge(edge) for edge in origin.edges],
        "mentions": [short(name) for name in origin.mentions],
        "operations": [_operation(done) for done in origin.operations],
    }


def _operation(done: Operation) -> dict[str, Any]:
    return {"id": done.id, "name": done.name, "scope": done.scope, "at": done.at.isoformat()}


def _draw(here: Opened, item: Item, hops: int, json: bool) -> None:
    items, edges = here.memory.neighbours(item.id, here.scopes, hops=hops, limit=_MOST_NODES)
    if json:
        from opensage_memory.store.codec import pack_edge

        print_json({"nodes": [as_json(one) for one in items], "edges": [pack_edge(edge) for edge in edges]})
        return
    from rich.console import Console

    Console(highlight=False, markup=False).print(drawn(item, items, edges))


def drawn(root: Item, items: Iterable[Item], edges: Sequence[Edge]) -> Tree:
    """What is around an item as a tree: each item once, under the one that is nearest to the root."""
    from rich.text import Text
    from rich.tree import Tree

    known = {item.id: item for item in items}
    top = Tree(Text(told(root)))
    branches, front = {root.id: top}, [root.id]
    while front:
        reached: list[str] = []
        for edge in edges:
            for near, far, arrow in ((edge.source, edge.target, "-{}->"), (edge.target, edge.source, "<-{}-")):
                if near in front and far not in branches and far in known:
                    name = short(f"{edge.type} {edge.relation}".strip())
                    branches[far] = branches[near].add(Text(f"{arrow.format(name)} {told(known[far])}"))
                    reached.append(far)
        front = reached
    return top


@app.command("stats")
def stats(
    scope: Scope = None, workdir: Workdir = Path("."), store: Store = None, json: Json = False, config: Config = None
) -> None:
    """How much there is, by scope and kind."""
    with opened(workdir, store, scope, config) as here:
        from opensage_memory.scope import covers

        counts, facts = here.memory.counts(), here.memory.store.stats()
        with here.memory.store.read() as reader:
            scopes = {name: n for name, n in reader.scopes().items() if covers(here.scopes, name)}
        kinds = {name: dict(here.memory.counts(name).kinds) for name in sorted(scopes)}
        waiting = {work: len(here.memory.waiting(work, 1000)) for work in ("embed", "enrich")}
    totals = {"items": counts.items, "edges": counts.edges, "tombstones": counts.tombstones}
    if json:
        more = {"vectors": dict(counts.vectors), "waiting": waiting, "store": facts}
        print_json({**totals, **more, "scopes": kinds})
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("scope", "kind", "items", box=None)
    for name, found in kinds.items():
        for kind, count in sorted(found.items()):
            table.add_row(short(name), kind, str(count))
    Console(highlight=False, markup=False).print(table)
    vectors = ", ".join(f"{count} of {name}" for name, count in counts.vectors.items()) or "none"
    said = ", ".join(f"{count} {name}" for name, count in totals.items())
    typer.echo(f"in all: {said}; vectors: {short(vectors)}; {facts.get('bytes', 0)} bytes; {short(facts['store'])}")
    if any(waiting.values()):
        typer.echo(f"waiting: {', '.join(f'{count} to {work}' for work, count in waiting.items() if count)}")


@app.command("forget")
def forget(
    id: Annotated[list[str] | None, typer.Argument(help="Ids of items.")] = None,
    query: Annotated[str | None, typer.Option("--query", help="Or everything that these words find.")] = None,
    purge: Annotated[bool, typer.Option("--purge", help="Leave no byte of it; it cannot be undone.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    scope: Scope = None,
    workdir: Workdir = Path("."),
    store: Store = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """Forget items, their parts, and what was made from them alone. `undo` takes it back, for a day."""
    from opensage.memory import forgotten

    if id and query:
        raise ConfigError("name ids, or --query WORDS, and not both")
    if not id and not query:
        if not purge:
            raise ConfigError("name ids, or --query WORDS")
        with opened(workdir, store, scope, config) as here:
            here.memory.vacuum()
        typer.echo("no byte of what was forgotten is left; nothing of it can be taken back")
        return
    with opened(workdir, store, scope, config) as here:
        items = [here.item(one) for one in id or ()]
        items += [hit.item for hit in here.memory.search(query, here.scopes, 100)] if query else []
        if not items:
            raise MemoryUnavailable("nothing found, so nothing was forgotten")
        if not yes and not _agreed(items):
            raise MemoryUnavailable("nothing was forgotten; say yes, or pass --yes")
        groups = {item.scope: [one.id for one in items if one.scope == item.scope] for item in items}
        done = [forgotten.forget(here.memory, ids, where, purge=purge) for where, ids in groups.items()]
    rows = [{**_operation(one), "items": len(one.touched)} for one in done if one is not None]
    if json:
        print_json(rows)
        return
    for row in rows:
        back = "" if purge else f"; take it back with: opensage memory undo {row['id']}"
        typer.echo(f"forgot {row['items']} item(s) of {short(row['scope'])}{back}")


def _agreed(items: Sequence[Item]) -> bool:
    import sys

    if not sys.stdin.isatty():
        return False
    for item in items[:20]:
        typer.echo(told(item), err=True)
    return typer.confirm(f"forget {len(items)} item(s), with all parts of them?", err=True)


@app.command("undo")
def undo(
    operation: Annotated[str, typer.Argument(help="Id of an operation, as `forget`, `consolidate`, `show` print it.")],
    scope: Scope = None,
    workdir: Workdir = Path("."),
    store: Store = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """Take a change back, within a day of it."""
    from opensage.memory import forgotten

    with opened(workdir, store, scope, config) as here:
        there = here.memory.operations(here.scopes, 10_000)
        found = [one for one in there if one.id == operation]
        if not found:
            raise MemoryUnavailable(f"no operation {operation!r}; `opensage memory show ID` names those of an item")
        forgotten.undo(here.memory, found[0].id, found[0].scope)
    if json:
        print_json(_operation(found[0]))
    else:
        typer.echo(f"took back {found[0].name} of {found[0].at:%Y-%m-%d %H:%M:%S} in {short(found[0].scope)}")


@app.command("publish")
def publish(
    id: Id,
    to: Annotated[str, typer.Option("--to", help="project (all its agents), user (all projects), or a scope.")],
    workdir: Workdir = Path("."),
    store: Store = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """Copy an item to where more agents read it."""
    from opensage.memory.place import USER

    with opened(workdir, store, None, config) as here:
        item = here.item(id)
        wider = {"project": here.place.project, "user": USER}.get(to, to)
        copy = here.memory.publish(item.id, item.scope, wider)
    if json:
        print_json(as_json(copy))
    else:
        typer.echo(f"published to {short(copy.scope)} as {copy.id}")


@app.command("declare")
def declare(
    relation: Annotated[str, typer.Argument(help="A relation's name, as `lives in`.")],
    many: Annotated[bool, typer.Option("--many", help="Many objects at a time, as it is undeclared.")] = False,
    workdir: Workdir = Path("."),
    store: Store = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """Say that a subject has one object at a time in a relation: a newer fact then ends the older."""
    with opened(workdir, store, None, config, make=True) as here:
        here.memory.declare(relation, functional=not many)
    if json:
        print_json({"relation": relation, "functional": not many})
    else:
        typer.echo(f"{short(relation)}: {'many objects' if many else 'one object'} at a time")


@app.command("consolidate")
def consolidate(
    scope: Scope = None, workdir: Workdir = Path("."), store: Store = None, json: Json = False, config: Config = None
) -> None:
    """Merge near duplicates, sum up sessions, put old parts away. Nothing is lost; `undo` takes it back."""
    from opensage_memory.scope import covers

    rows: list[dict[str, Any]] = []
    with opened(workdir, store, scope, config) as here:
        with here.memory.store.read() as reader:
            names = [name for name in reader.scopes() if covers(here.scopes, name)]
        for name in names:
            done = here.memory.consolidate(name)
            counts = {"merged": len(done.merged), "summaries": len(done.summaries), "archived": len(done.archived)}
            last = here.memory.operations(name, 1) if any(counts.values()) else []
            rows.append({"scope": name, **counts, "operation": last[0].id if last else ""})
    if json:
        print_json(rows)
        return
    for row in rows:
        back = f" (operation {row['operation']})" if row["operation"] else ""
        merged, summaries, archived = row["merged"], row["summaries"], row["archived"]
        typer.echo(f"{short(str(row['scope']))}: {merged} merged, {summaries} summaries, {archived} put away{back}")
