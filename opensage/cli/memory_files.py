"""`opensage memory export`, `import`, `migrate`, `reindex`, `check`, `rebuild`: the memory as files and stores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from opensage.cli.memory_common import Config, Json, Scope, Store, Workdir, opened, print_json, progress, short
from opensage.errors import ConfigError, MemoryUnavailable

_SHOWN = 20


def export(
    file: Annotated[Path | None, typer.Argument(help="A new file; standard output without it.")] = None,
    form: Annotated[str, typer.Option("--format", help="jsonl, or node-link (for networkx).")] = "jsonl",
    scope: Scope = None,
    workdir: Workdir = Path("."),
    store: Store = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """Print all items and edges, one a line; `import` takes them in again. Vectors are left out."""
    import sys

    if form not in ("jsonl", "node-link"):
        raise ConfigError(f"unknown form {form!r}; use jsonl or node-link")
    if file is not None and file.exists():
        raise ConfigError(f"{file} is there already and is not overwritten; name a new file")
    lines = 0
    with opened(workdir, store, scope, config) as here:
        source = _lines(here.memory.store, here.scopes, form)
        if file is None:
            for line in source:
                sys.stdout.write(line)
            return
        half = file.with_name(f".{file.name}.half")
        try:
            with half.open("w", encoding="ascii") as out:
                for line in source:
                    out.write(line)
                    lines += 1
            half.rename(file)
        finally:
            half.unlink(missing_ok=True)
    if json:
        print_json({"file": str(file), "lines": lines})
    else:
        typer.echo(f"wrote {lines} lines to {file}")


def _lines(store: object, scopes: tuple[str, ...], form: str) -> Iterator[str]:
    import json

    from opensage.cli.masking import masked
    from opensage_memory import transfer

    if form == "node-link":
        yield masked(json.dumps(transfer.node_link(store, scopes), ensure_ascii=True)) + "\n"  # type: ignore[arg-type]
        return
    with progress("exported") as step:
        for line in transfer.export(store, scopes, step):  # type: ignore[arg-type]
            yield f"{line if masked(line) == line else _hidden(line)}\n"


def _hidden(line: str) -> str:
    """A line of an export with what is a secret by now hidden; its hash is that of the text as it is then."""
    import json

    from opensage.cli.masking import current, masked
    from opensage_memory.item import digest

    data = json.loads(line)
    if isinstance(data.get("item"), dict):
        item = current().data(data["item"])
        return json.dumps({"item": {**item, "hash": digest(item["text"])}}, ensure_ascii=True)
    return masked(line)


def import_command(
    file: Annotated[Path | None, typer.Argument(help="What `export` wrote.")] = None,
    sessions: Annotated[bool, typer.Option("--sessions", help="Instead: the logs of the folder's sessions.")] = False,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave bad lines out.")] = False,
    workdir: Workdir = Path("."),
    store: Store = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """Take in an export: all of it or nothing, and twice is once. Exit code: 0 all, 1 some lines were left out."""
    if sessions == (file is not None):
        raise ConfigError("name the file of an export, or --sessions, and not both")
    if file is None:
        rebuild(workdir=workdir, store=store, json=json, config=config)
        return
    from opensage_memory import transfer

    if not file.is_file():
        raise ConfigError(f"no file {file}; name what `opensage memory export` wrote")
    with opened(workdir, store, None, config, make=True) as here, progress("imported") as step:
        done = transfer.import_lines(here.memory.store, lambda: _read(file), skip_bad=skip_bad, progress=step)
    told = {
        "items": done.items, "kept": done.kept, "forgotten": done.forgotten,
        "edges": done.edges, "tombstones": done.tombstones,
    }  # fmt: skip
    if json:
        print_json({**told, "bad": {str(line): why for line, why in done.bad.items()}})
    else:
        typer.echo(", ".join(f"{count} {name}" for name, count in told.items()))
        for line, why in list(done.bad.items())[:_SHOWN]:
            typer.echo(f"line {line} was left out: {short(why)}", err=True)
    raise typer.Exit(1 if done.bad else 0)


def _read(file: Path) -> Iterator[str]:
    with file.open(encoding="utf-8", errors="replace", newline="\n") as lines:
        yield from lines


def migrate(
    target: Annotated[str, typer.Argument(help="Path of a file, or neo4j://HOST:7687.")],
    workdir: Workdir = Path("."),
    store: Store = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """Copy the whole memory to another store, checked by counts and hashes; this one stays as it is."""
    from opensage_memory import transfer
    from opensage_memory.store.opening import open_store

    with opened(workdir, store, None, config) as here, progress("copied") as step:
        if "://" not in target and Path(target).absolute() == Path(here.place.where).absolute():
            raise ConfigError("the target is the memory itself; name another store")
        other = open_store(target)
        try:
            done = transfer.migrate(here.memory.store, other, step)
        finally:
            other.close()
    if json:
        print_json({"items": done.items, "edges": done.edges, "vectors": done.vectors, "digest": done.digest})
    else:
        typer.echo(f"copied {done.items} items, {done.edges} edges, {done.vectors} vectors; SHA-256 {done.digest[:16]}")
        typer.echo(f'use it with: [memory] store = "{short(target)}" in ~/.opensage/config.toml')


def reindex(workdir: Workdir = Path("."), store: Store = None, json: Json = False, config: Config = None) -> None:
    """Embed what has no vector of the configured embedder; can be broken off and goes on."""
    with opened(workdir, store, None, config) as here, progress("embedded") as step:
        done = here.memory.reindex(progress=step)
    if json:
        print_json({"embedded": done})
    else:
        typer.echo(f"embedded {done} item(s)")


def check(
    repair: Annotated[Path | None, typer.Option("--repair", help="Make this new file of what is intact.")] = None,
    workdir: Workdir = Path("."),
    store: Store = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """Look whether the memory is whole. Exit code: 0 it is, 1 something is wrong."""
    with opened(workdir, store, ("*",), config) as here:
        faults = here.memory.check()
        saved, lost = _repaired(here.memory.store, repair) if repair is not None else (0, [])
    if json:
        fixed = {} if repair is None else {"file": str(repair), "saved": saved, "lost": lost}
        print_json({"faults": faults, **fixed})
        raise typer.Exit(1 if faults else 0)
    for fault in faults[:_SHOWN]:
        typer.echo(short(fault))
    if repair is not None:
        typer.echo(f"saved {saved} item(s) to {repair}; the old file is as it was")
        for line in lost[:_SHOWN]:
            typer.echo(f"lost: {short(line)}")
    elif faults:
        typer.echo("`opensage memory check --repair NEWFILE` makes a new memory of what is intact")
    else:
        typer.echo("the memory is whole")
    raise typer.Exit(1 if faults else 0)


def _repaired(store: object, target: Path) -> tuple[int, list[str]]:
    from opensage_memory.store.sqlite import SqliteStore

    if not isinstance(store, SqliteStore):
        raise MemoryUnavailable("only a memory in a file is repaired; use the tools of the server")
    return store.repair(target)


def rebuild(workdir: Workdir = Path("."), store: Store = None, json: Json = False, config: Config = None) -> None:
    """Write what the logs of the folder's sessions tell, as far as it is not there. What was forgotten stays so."""
    from opensage.cli.sessions import open_store
    from opensage.memory.rebuild import rebuild as write_again

    with opened(workdir, store, None, config, make=True) as here, progress("sessions") as step:
        done = write_again(here.place, open_store(workdir), step)
    if json:
        print_json({"sessions": done.sessions, "items": done.items, "unreadable": done.unreadable})
    else:
        typer.echo(f"{done.sessions} session(s), {done.items} item(s)")
        for line in done.unreadable[:_SHOWN]:
            typer.echo(f"not read: {short(line)}", err=True)


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command("export")(export)
    app.command("import")(import_command)
    app.command("migrate")(migrate)
    app.command("reindex")(reindex)
    app.command("check")(check)
    app.command("rebuild")(rebuild)
