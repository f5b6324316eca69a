"""`opensage toolkit`: list, show, call, test, measure and begin toolkits."""

from __future__ import annotations

import difflib
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from opensage.errors import ConfigError, ToolError

if TYPE_CHECKING:  # imported late, to keep --help fast
    from opensage.protocols import Sandbox
    from opensage.toolkit.library import Entry, Library
    from opensage.toolkit.spec import ToolkitSpec
    from opensage.toolkit.staging import Staging

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Tested code for special work: list, call, make.")
Name = Annotated[str, typer.Argument(help="Name of a toolkit, or path of its folder.")]
Workdir = Annotated[Path, typer.Option("--workdir", "-w", help="The folder that it works on.")]
Kind = Annotated[str | None, typer.Option("--sandbox", help="auto, docker, docker:IMAGE, bubblewrap or local.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
T = TypeVar("T")
RESULTS = "toolkit-results"
"""Folder in the workspace for results that are too large to print."""
_BENCH = """import importlib, runpy, sys
name = sys.argv.pop(1)
main = getattr(importlib.import_module(name), "main", None)
sys.exit(main(sys.argv[1:]) if main else bool(not runpy.run_module(name, run_name="__main__", alter_sys=True)))"""


@app.command("list")
def list_command(workdir: Workdir = Path("."), as_json: Json = False) -> None:
    """The toolkits there are: shipped, yours, and those that agents made in this project."""
    entries = _library(workdir).entries()
    if as_json:
        typer.echo(json.dumps([_as_dict(entry) for entry in entries], indent=1))
        return
    from rich.console import Console
    from rich.table import Table

    from opensage.cli.stream import clean

    table = Table("name", "version", "source", "tools", "description", "state", box=None)
    for entry in entries:
        spec = entry.spec
        version = str(spec.version) if spec and spec.version else ""
        tools = ", ".join(tool.name for tool in spec.tools) if spec else ""
        about = spec.description[:80] if spec else ""
        table.add_row(*map(clean, (entry.name, version, entry.source, tools, about, entry.state or "ready")))
    if entries:
        Console(highlight=False, markup=False).print(table)
    else:
        typer.echo("no toolkits; `opensage toolkit new NAME` begins one")


@app.command("show")
def show_command(name: Name, workdir: Workdir = Path("."), as_json: Json = False) -> None:
    """How to use a toolkit: its SKILL.md and its tools."""
    from opensage.cli.stream import clean

    entry = _find(name, workdir)
    if as_json:
        typer.echo(json.dumps(_as_dict(entry, whole=True), indent=1))
        return
    spec = _readable(entry)
    made = entry.provenance
    lines = [f"{spec.source}, {spec.folder}, SHA-256 {spec.hash[:16]}", *([entry.state] if entry.state else [])]
    lines += [f"made by agent {made.agent} in session {made.session}"] if made and made.session else []
    typer.echo(clean("\n".join([spec.described(), "", *lines])))


@app.command("call")
def call_command(
    name: Name,
    tool: Annotated[str, typer.Argument(help="Name of the function.")],
    arguments: Annotated[str, typer.Option("--json", help="Arguments as JSON, @FILE, or - for the input.")] = "{}",
    workdir: Workdir = Path("."),
    kind: Kind = None,
) -> None:
    """Call a function in the sandbox and print its result as JSON. Exit code: 0 done, 1 it failed, 2 bad input."""
    spec = _readable(entry := _find(name, workdir))
    found = {each.name: each for each in spec.tools}
    function = found.get(tool.rpartition("__")[2])
    if function is None:
        raise ConfigError(f"toolkit {spec.name} has no tool '{tool}'{_hint(tool, list(found))}")
    values = function.binding.validate(_arguments(arguments))

    async def call(sandbox: Sandbox, staging: Staging) -> Any:
        results = f"{sandbox.workdir}/{RESULTS}"
        return await staging.call(sandbox, spec, function.name, values, results=results)

    try:
        result = _inside(entry, workdir, kind, call)
    except ToolError as error:
        _failed(str(error))
    typer.echo(json.dumps(result, indent=1 if sys.stdout.isatty() else None))


@app.command("test")
def run_tests(
    name: Name,
    workdir: Workdir = Path("."),
    kind: Kind = None,
    seconds: Annotated[float, typer.Option("--seconds", help="The tests may take.")] = 60.0,
) -> None:
    """Run a toolkit's own tests in the sandbox. Exit code: 0 they pass, 1 they do not."""
    spec = _readable(entry := _find(name, workdir))
    report = _inside(entry, workdir, kind, lambda sandbox, staging: staging.test(sandbox, spec, seconds))
    if not report.good:
        _failed(report.text(most=30_000) if report.failed else f"{spec.name} has no tests")
    typer.echo(report.text())


@app.command("bench", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def bench_command(context: typer.Context, name: Name, workdir: Workdir = Path("."), kind: Kind = None) -> None:
    """Run a toolkit's benchmark: shipped ones in this Python, others in the sandbox. More arguments are its own."""
    from opensage.toolkit.library import shipped

    spec = _readable(entry := _find(name, workdir))
    if "bench.py" not in spec.files:
        raise ConfigError(f"toolkit {spec.name} has no bench.py")
    if entry.source == "shipped":
        packages = {_key(each): package for each, package in shipped().items()}
        package = packages.get(_key(entry.name)) or packages[_key(spec.folder.name)]
        command = [sys.executable, "-c", _BENCH, f"{package}.bench", *context.args]
        raise typer.Exit(subprocess.run(command, check=False).returncode)
    done = _inside(entry, workdir, kind, lambda sandbox, staging: staging.bench(sandbox, spec, context.args))
    typer.echo(done.stderr, nl=False, err=True)
    typer.echo(done.stdout, nl=False)
    raise typer.Exit(int(done.exit_code != 0))


@app.command("new")
def new_command(name: Annotated[str, typer.Argument(help="The folder to make, e.g. my-toolkit.")]) -> None:
    """Begin a toolkit: a folder of the right shape, with tests that pass."""
    from opensage.toolkit.scaffold import scaffold

    folder = Path(name).expanduser()
    for path in scaffold(folder):
        typer.echo(folder / path)
    shown = name if os.sep in name else f"./{name}"
    typer.echo(f"try it: opensage toolkit test {shown}; copy it to ~/.opensage/toolkits/ for all projects", err=True)


def _library(workdir: Path) -> Library:
    from opensage.engine import checked_folder
    from opensage.models.registry import home_dir
    from opensage.toolkit.library import Library

    return Library(checked_folder(workdir), home_dir())


def _find(name: str, workdir: Path) -> Entry:
    """By path when it looks like one, else by name; what agents may use comes first."""
    from opensage.toolkit.library import Entry
    from opensage.toolkit.spec import load_toolkit

    if os.sep in name or name in (".", ".."):
        folder = Path(name).expanduser().resolve()
        return Entry(folder.name, "path", load_toolkit(folder))
    entries = sorted(_library(workdir).entries(), key=lambda entry: bool(entry.state))
    for entry in entries:
        if _key(entry.name) == _key(name):
            return entry
    near = _hint(name, [entry.name for entry in entries])
    raise ConfigError(f"there is no toolkit '{name}'{near}; a folder is named by its path, e.g. ./{name}")


def _key(name: str) -> str:
    from opensage.toolkit.spec import key_of

    return key_of(name)


def _hint(name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f": did you mean '{near[0]}'?" if near else f"; there are: {', '.join(names) or 'none'}"


def _readable(entry: Entry) -> ToolkitSpec:
    if entry.spec is None:
        raise ConfigError(f"toolkit {entry.name} cannot be used: {entry.state}")
    return entry.spec


def _as_dict(entry: Entry, whole: bool = False) -> dict[str, Any]:
    out: dict[str, Any] = {"name": entry.name, "source": entry.source, "state": entry.state or "ready"}
    if entry.spec is None:
        return out
    spec = entry.spec
    out |= {"version": spec.version, "description": spec.description, "hash": spec.hash, "folder": str(spec.folder)}
    if not whole:
        return {**out, "tools": [tool.name for tool in spec.tools]}
    tools = [
        {"name": tool.name, "description": tool.description, "parameters": tool.binding.schema()} for tool in spec.tools
    ]
    more = {"pure": spec.pure, "requirements": spec.requirements, "body": spec.body, "notes": spec.notes}
    return {**out, **more, "tools": tools, "files": list(spec.files)}


def _arguments(text: str) -> dict[str, Any]:
    from opensage.arguments import parse_arguments
    from opensage.files import read_regular

    if text == "-":
        text = sys.stdin.read()
    elif text.startswith("@"):
        text = read_regular(Path(text[1:])).decode("utf-8", "replace")
    return parse_arguments(text)


def _inside(entry: Entry, workdir: Path, kind: str | None, work: Callable[[Sandbox, Staging], Awaitable[T]]) -> T:
    """Do something with a toolkit in a sandbox of the workspace, which is closed after it."""
    import asyncio

    from opensage.config import load_settings
    from opensage.engine import checked_folder
    from opensage.sandbox import open_sandbox
    from opensage.toolkit.staging import Staging

    folder = checked_folder(workdir)
    settings = load_settings(folder, flags={"sandbox": kind}, env=os.environ)
    wheels = settings.toolkits.wheels
    staging = Staging(settings.toolkits.allowed, Path(wheels).expanduser() if wheels else None)

    async def whole() -> T:
        sandbox = open_sandbox(settings.sandbox, folder)
        if entry.state.startswith("untrusted") and not sandbox.isolated:
            raise ConfigError(f"toolkit {entry.name} is {entry.state}; read it, and use a sandbox that isolates")
        try:
            return await work(sandbox, staging)
        finally:
            await sandbox.close()

    return asyncio.run(whole())


def _failed(text: str) -> None:
    from opensage.cli.stream import clean

    typer.echo(clean(text), err=True)
    raise typer.Exit(1)
