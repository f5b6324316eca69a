"""`opensage repair`: repair a program by properties, or check it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from opensage_agents.pgs.report import Report
    from opensage_agents.pgs.result import Result, Round


class _RunByDefault(TyperGroup):
    """`opensage repair FILE` is `opensage repair run FILE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the command's name before what does not begin with one."""
        if args and args[0] not in self.commands and args[0] not in ("--help", "-h"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_RunByDefault, no_args_is_help=True, help="Repair a program by properties and their least counterexamples."
)


@app.callback()
def _root() -> None:
    """Repair a program by properties and their least counterexamples."""


@app.command("run")
def run_command(
    task: Annotated[Path, typer.Argument(metavar="TASK|FILE", help="A task in JSON, or a Python file to repair.")],
    function: Annotated[str, typer.Option("--function", "-f", help="The function or class in a file.")] = "",
    about: Annotated[str, typer.Option("--task", "-t", help="What it should do; else its docstring says so.")] = "",
    model: Annotated[str, typer.Option("--model", "-m", help="Of the Generator; as for `opensage run`.")] = "",
    tester_model: Annotated[str, typer.Option(help="Of the Tester, when it is another one.")] = "",
    properties: Annotated[Path | None, typer.Option("--properties", "-p", help="Written by hand.")] = None,
    script: Annotated[Path | None, typer.Option(help="Replies from a file instead of a model.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the program, its tests and the trace.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the trace in --out ends.")] = False,
    write_tests: Annotated[Path | None, typer.Option(help="Write the surviving properties as a pytest file.")] = None,
    write: Annotated[bool, typer.Option("--write", help="Put a solved program into FILE.")] = False,
    rounds: Annotated[int, typer.Option(min=0, max=100, help="Repairs at most.")] = 5,
    feedback: Annotated[str, typer.Option(help="property, io, minimal_io or none.")] = "property",
    select: Annotated[str, typer.Option(help="sure, shrink, min_tokens or first.")] = "sure",
    max_seconds: Annotated[float, typer.Option(min=1, help="For everything.")] = 600.0,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Of all calls.")] = None,
    max_cost: Annotated[float | None, typer.Option(help="US dollars.")] = None,
    seed: Annotated[int, typer.Option(help="Of the inputs.")] = 0,
    sandbox: Annotated[str, typer.Option(help="auto, docker, docker:IMAGE, bubblewrap or local.")] = "auto",
) -> None:
    """Repair it. Exit code: 0 solved, 1 not solved, 2 bad input, 3 nothing but public tests could be checked."""
    from opensage.errors import ConfigError
    from opensage_agents.pgs.repair import PGSWorkflow
    from opensage_agents.pgs.task import PGSConfig, Task

    if resume and out is None:
        raise ConfigError("--resume needs the folder of the repair: add --out DIR")
    wanted = Task.from_file(task, function, about)
    config = PGSConfig(
        max_rounds=rounds, feedback=_one_of("--feedback", feedback, ("property", "io", "minimal_io", "none")),
        select=_one_of("--select", select, ("sure", "shrink", "min_tokens", "first")), max_seconds=max_seconds,
        max_tokens=max_tokens, max_cost=max_cost, seed=seed, sandbox=sandbox,
    )  # fmt: skip
    generator, tester = _models(model, tester_model, script)
    workflow = PGSWorkflow(
        generator, tester, config, properties=_properties(properties), trace=out / "trace.jsonl" if out else None,
        resume=resume, on_round=lambda each: typer.echo(_clean(told_round(each, wanted.entry_point))),
    )  # fmt: skip
    result = workflow.run(wanted)
    _leave(result, task, out, write_tests, write)
    typer.echo(_clean(told_result(result)))
    raise typer.Exit({"solved": 0, "solved_public_only": 3}.get(result.status, 1))


def _one_of(option: str, value: str, known: tuple[str, ...]) -> Any:
    from opensage.errors import ConfigError

    if value not in known:
        raise ConfigError(f"{option} {value}: it is one of {', '.join(known)}")
    return value


def _models(model: str, tester: str, script: Path | None) -> tuple[Any, Any]:
    import os

    from opensage.models import default_model, open_model

    first = open_model(f"script:{script}" if script else model or default_model(os.environ))
    return first, open_model(tester) if tester else None


def _properties(path: Path | None) -> Any:
    from opensage_agents.pgs.properties import PropertySet
    from opensage_agents.pgs.task import text_of

    return PropertySet.from_source(text_of(path)) if path else None


def _leave(result: Result, task: Path, out: Path | None, tests: Path | None, write: bool) -> None:
    """Write what is asked for. The file under repair is changed only with --write, and only by a solved program."""
    from opensage.errors import ConfigError

    module = task.stem if task.suffix == ".py" else "program"
    try:
        if out is not None:
            (out / "program.py").write_text(result.code, encoding="utf-8")
            result.write_tests(out / "test_properties.py", "program")
        if tests is not None:
            result.write_tests(tests, module)
        if write and task.suffix == ".py" and result.status in ("solved", "solved_public_only"):
            task.write_text(result.code, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{error.filename} cannot be written: {error.strerror}") from error


def told_round(each: Round, entry: str) -> str:
    """A round for people: what broke, on which input, and the repair that led here."""
    found = each.counterexample
    lines = [f"round {each.number}: {each.status}" + (f", {len(each.kept)} new properties" if each.kept else "")]
    lines += [f"  dropped {name}: {why[:160]}" for name, why in each.dropped.items()]
    lines += [f"  {line}" for line in each.diff.splitlines()[2:]]
    if found:
        what = found["property"].replace("_", " ") or found["outcome"].replace("_", " ")
        result = f" == {found['result_repr'][:200]}" if found["result_repr"] else ""
        call = found["args_repr"][:200] if found["stateful"] else f"{entry}({found['args_repr'][:200]})"
        lines += [f"  {what}: {call}{result}", f"  {found['message'][:300]}"]
    return "\n".join(lines)


def told_result(result: Result) -> str:
    """The end for people."""
    lines = [f"{result.status}: {result.reason}" if result.reason else result.status]
    lines += [f"suspect, dropped: {name}" for name in result.suspects]
    lines += [f"note: {note}" for note in result.notes]
    lines.append(f"{len(result.properties.properties)} properties: {', '.join(result.properties.names) or 'none'}")
    calls = ", ".join(f"{number} of the {role}" for role, number in result.calls.items()) or "none"
    lines.append(f"calls: {calls}; {result.tokens} tokens, {result.seconds:.0f} s")
    return "\n".join(lines)


def _clean(text: str) -> str:
    from opensage.cli.stream import clean

    return clean(text)


@app.command("check")
def check_command(
    code: Annotated[Path, typer.Argument(help="A Python file with the function.")],
    properties: Annotated[Path, typer.Option("--properties", "-p", help="A file of properties.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    examples: Annotated[int, typer.Option(min=1, max=100_000, help="Inputs to draw.")] = 100,
    seed: Annotated[int, typer.Option(help="Of the drawing.")] = 0,
    call_timeout: Annotated[float, typer.Option(min=0.01, max=600, help="CPU seconds for one call.")] = 1.0,
    timeout: Annotated[float, typer.Option(min=1, max=36_000, help="Seconds for everything.")] = 60.0,
    sandbox: Annotated[str, typer.Option(help="auto, docker, docker:IMAGE, bubblewrap or local.")] = "auto",
    steps: Annotated[int, typer.Option(help="Most steps of one run of a machine.")] = 20,
    backend: Annotated[str, typer.Option(help="hypothesis, or crosshair to have a solver look first.")] = "hypothesis",
) -> None:
    """Does this code have its properties? Exit code: 0 yes, 1 no, 2 bad input, 3 it cannot be said."""
    from opensage_agents.pgs.checking import check
    from opensage_agents.pgs.properties import PropertySet
    from opensage_agents.pgs.report import FAILED
    from opensage_agents.pgs.task import text_of

    propset = PropertySet.from_source(text_of(properties))
    report = check(
        text_of(code), propset, max_examples=examples, seed=seed, call_timeout=call_timeout, total_timeout=timeout,
        sandbox=sandbox, steps=steps, backend=_one_of("--backend", backend, ("hypothesis", "crosshair")),
    )  # fmt: skip
    if as_json:
        import json

        typer.echo(json.dumps(report.to_dict()))
    else:
        from opensage.cli.stream import clean

        typer.echo(clean(told(report, propset.entry)))
    raise typer.Exit({"ok": 0, "inconclusive": 3, **dict.fromkeys(FAILED, 1)}.get(report.status, 2))


def told(report: Report, entry: str) -> str:
    """The report for people: what failed, on which input, and how that was found."""
    stats, found = report.stats, report.counterexample
    lines = [f"{report.status}: {report.message}" if report.message and found is None else report.status]
    if found is not None:
        lines = [f"{report.status}: {found.property or found.outcome.replace('_', ' ')}", ""]
        lines.append(f"    {found.written(entry)}" + (f" == {found.result_repr}" if found.result_repr else ""))
        lines += [f"    {line}" for line in found.message.splitlines()] + [""]
        if found.shrunk_from != found.args_repr:
            first = found.shrunk_from if found.stateful else f"{entry}({found.shrunk_from})"
            lines.append(f"shrunk from {first}")
        elif not found.shrunk and found.outcome != "wrong_answer":
            lines.append("not shrunk: the strategy does not draw this input again")
    lines += [f"cannot be used: {name}: {why}" for name, why in report.invalid.items() if why not in report.message]
    lines += [f"never applied: {name}" for name in report.unused] + [f"note: {note}" for note in report.notes]
    if stats.examples:
        told_calls = f"{stats.calls} calls, {stats.shrink_calls} of them to shrink, in {stats.seconds:.1f} s"
        lines.append(f"{stats.examples} inputs, {len(stats.evaluations)} properties, {told_calls}")
    return "\n".join(lines)
