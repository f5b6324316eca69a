"""The command `opensage`: options, and errors as one line with the fix."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from opensage.cli import agents, machine, mcp, memory, sessions, toolkit
from opensage.errors import OpenSageError

if TYPE_CHECKING:
    import importlib.metadata

# Of the installed click or of typer's own copy of it, whichever this typer uses.
_UsageError = cast("type[typer.BadParameter]", typer.BadParameter.__mro__[1])

app = typer.Typer(
    name="opensage",
    help="Agents that work on your files, in sandboxes.",
    no_args_is_help=True,
    rich_markup_mode=None,  # the rich help costs 0.2 s at each start
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(sessions.app, name="sessions")
app.add_typer(agents.app, name="agents")
app.add_typer(machine.sandbox, name="sandbox")
app.add_typer(machine.models, name="models")
app.add_typer(toolkit.app, name="toolkit")
app.add_typer(mcp.app, name="mcp")
app.add_typer(memory.app, name="memory")
app.command("doctor")(machine.doctor)
app.command("fork")(sessions.fork)

Model = Annotated[str | None, typer.Option("--model", "-m", help="Model string, e.g. local/qwen2.5-coder-1.5b.")]
Agent = Annotated[str | None, typer.Option("--agent", "-a", help="A saved agent; `opensage agents list` shows them.")]
Workdir = Annotated[Path, typer.Option("--workdir", "-w", help="The folder to work on.")]
Sandbox = Annotated[str | None, typer.Option(help="auto, docker, docker:IMAGE, bubblewrap or local.")]
MaxCost = Annotated[float | None, typer.Option(help="US dollars the run may spend.")]
MaxTurns = Annotated[int | None, typer.Option(help="Model calls the run may make.")]
MaxTime = Annotated[float | None, typer.Option(help="Seconds the run may take.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one event a line.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Approve what would be asked.")]
Config = Annotated[list[str] | None, typer.Option("-c", help="key=value over the configuration files.")]


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    if version:
        from opensage import __version__

        typer.echo(f"opensage {__version__}")
        raise typer.Exit


@app.command("run")
def run_command(
    task: Annotated[str, typer.Argument(help="What is to be done.")],
    model: Model = None,
    agent: Agent = None,
    workdir: Workdir = Path("."),
    sandbox: Sandbox = None,
    max_cost: MaxCost = None,
    max_turns: MaxTurns = None,
    max_time: MaxTime = None,
    as_json: AsJson = False,
    yes: Yes = False,
    config: Config = None,
) -> None:
    """Run one task to its end. Exit code: 0 done, 1 stopped, 2 bad input, 130 interrupted."""
    from opensage.cli.headless import run_headless

    flags = {"model": model, "sandbox": sandbox, "max_cost": max_cost, "max_turns": max_turns, "max_seconds": max_time}
    raise typer.Exit(
        run_headless(task, workdir=workdir, flags=flags, config=config or [], as_json=as_json, yes=yes, agent=agent)
    )


@app.command("resume")
def resume_command(
    session: Annotated[str, typer.Argument(help="Session id, a unique prefix of it, or last.")],
    message: Annotated[str | None, typer.Argument(help="A new message; without it the run goes on.")] = None,
    model: Model = None,
    agent: Agent = None,
    workdir: Workdir = Path("."),
    sandbox: Sandbox = None,
    max_cost: MaxCost = None,
    max_turns: MaxTurns = None,
    max_time: MaxTime = None,
    as_json: AsJson = False,
    yes: Yes = False,
    config: Config = None,
) -> None:
    """Go on with a session, even after a crash."""
    from opensage.cli.headless import run_headless

    flags = {"model": model, "sandbox": sandbox, "max_cost": max_cost, "max_turns": max_turns, "max_seconds": max_time}
    code = run_headless(
        message,
        workdir=workdir,
        flags=flags,
        config=config or [],
        as_json=as_json,
        yes=yes,
        session=session,
        agent=agent,
    )
    raise typer.Exit(code)


@app.command("chat")
def chat_command(
    model: Model = None,
    agent: Agent = None,
    workdir: Workdir = Path("."),
    sandbox: Sandbox = None,
    max_cost: MaxCost = None,
    max_turns: MaxTurns = None,
    session: Annotated[str | None, typer.Option("--session", help="Go on with this session.")] = None,
    yes: Yes = False,
    config: Config = None,
) -> None:
    """Chat in the terminal; without one, answer each line of the input."""
    from opensage.cli.chat import chat

    flags = {"model": model, "sandbox": sandbox, "max_cost": max_cost, "max_turns": max_turns}
    raise typer.Exit(chat(workdir=workdir, flags=flags, config=config or [], yes=yes, session=session, agent=agent))


@app.command("trust")
def trust_command(workdir: Workdir = Path(".")) -> None:
    """Let this folder's opensage.toml, as it is now, loosen what your own settings allow."""
    from opensage.cli import trusting
    from opensage.cli.stream import clean

    typer.echo(clean(trusting.trust_command(workdir)))


GROUP = "opensage.commands"
"""Entry points of more commands: a name, and the `typer.Typer` or function behind it. Their modules must be light."""


def _add_commands(words: list[str]) -> None:
    """Add the commands of installed packages that these words ask for; all of them for the help."""
    wanted = next((word for word in words if not word.startswith("-")), "")
    known = {info.name for info in app.registered_commands} | {info.name for info in app.registered_groups}
    if wanted in known:
        return
    import importlib.metadata

    for point in importlib.metadata.entry_points(group=GROUP):
        if wanted in ("", point.name) and point.name not in known:
            _add_command(point, asked=wanted != "")


def _add_command(point: importlib.metadata.EntryPoint, *, asked: bool) -> None:
    """One that cannot be loaded is an error when it was asked for, and else no reason to show no help."""
    try:
        found = point.load()
    except Exception as error:
        said = f"the command {point.name} ({point.value}) cannot be loaded ({type(error).__name__}: {error})"
        if asked:
            raise OpenSageError(f"{said}; install its package again, or remove it") from error
        _complain(f"warning: {said}")
        return
    if isinstance(found, typer.Typer):
        app.add_typer(found, name=point.name)
    else:
        app.command(point.name)(found)


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    words = sys.argv[1:] if argv is None else argv
    _open_standard_files()
    _tolerant_output()
    try:
        _add_commands(words)
        code: Any = app(words, standalone_mode=False)
    except _UsageError as error:
        _misused(error.format_message())
        return 2
    except (typer.Abort, KeyboardInterrupt):
        _complain("interrupted")
        return 130
    except BrokenPipeError:
        return 1
    except (OpenSageError, OSError) as error:
        if "--debug" in words:
            _print_traceback()
        _complain(f"error: {error}")
        return 2
    except Exception as error:  # noqa: BLE001 a defect: shown whole, but for its secrets
        _print_traceback()
        _complain(f"error: {type(error).__name__}; this is a defect of the kit, please report it")
        return 70
    return code if isinstance(code, int) else 0


def _complain(text: str) -> None:
    from opensage.cli.stream import clean

    with contextlib.suppress(OSError):
        print(" ".join(clean(text).split()), file=sys.stderr)


def _print_traceback() -> None:
    from opensage.cli.masking import masked

    with contextlib.suppress(OSError):
        print(masked(traceback.format_exc()), file=sys.stderr)


def _misused(text: str) -> None:
    if text.startswith("Usage:"):  # nothing was asked for: the help is the answer
        with contextlib.suppress(OSError):
            print(text, file=sys.stderr)
    else:
        _complain(f"error: {text.rstrip('.')}; `opensage --help` and `opensage COMMAND --help` say what there is")


def _open_standard_files() -> None:
    """A closed one leads nowhere from now on. Its number would go to the next file that is opened, a log perhaps."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 takes the lowest free number


def _tolerant_output() -> None:
    """A character that the terminal's encoding lacks is replaced, never an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
