"""`opensage bench`: run agents on tasks, grade, report, compare. Found by the kit through `opensage.commands`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:  # imported late, to keep --help fast
    from opensage_benchmarks.swe.grade.grader import Grader
    from opensage_benchmarks.swe.run.config import RunConfig
    from opensage_benchmarks.swe.run.runner import Grade, RunOptions
    from opensage_benchmarks.swe.task import Task, TaskSource

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="SWE-style benchmarks: run, grade, compare.")

Tasks = Annotated[str, typer.Option("--tasks", help="A file or folder of tasks, or KIND:PATH, e.g. quixbugs:DIR.")]
Repos = Annotated[Path | None, typer.Option(help="Folder with the repositories that tasks name.")]
Out = Annotated[Path, typer.Option("-o", "--out", help="Folder of the results.")]
Workers = Annotated[int, typer.Option("-w", "--workers", min=1, help="Tasks at one time.")]
Ids = Annotated[list[str] | None, typer.Option("-i", "--id", help="Only this task; again for more.")]
Filter = Annotated[str | None, typer.Option(help="Regular expression that an id must begin with.")]
Slice = Annotated[str | None, typer.Option(help="A:B of the tasks, as Python counts.")]
Shuffle = Annotated[bool, typer.Option("--shuffle", help="In an order drawn by --seed, before --slice.")]
Sample = Annotated[int | None, typer.Option(min=1, help="The N tasks whose ids have the least SHA-256.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave out records that cannot be read, and say so.")]
Sandbox = Annotated[str, typer.Option(help="auto, docker, docker:IMAGE, bubblewrap or local.")]
TestTimeout = Annotated[float, typer.Option(min=0, help="Seconds for one test; 0 for no limit.")]
TestsTimeout = Annotated[float, typer.Option(min=0.1, help="Seconds for all tests of a task.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _source(tasks: str, repos: Path | None, **options: Any) -> TaskSource:
    return _opened(tasks, repos, **options)[0]


def _opened(tasks: str, repos: Path | None, **options: Any) -> tuple[TaskSource, dict[str, Any]]:
    """The source, and the options it was opened with, so that a worker can open it again."""
    from opensage_benchmarks.swe.errors import TaskError
    from opensage_benchmarks.swe.opening import open_source

    given = {name: value for name, value in options.items() if value}
    if repos is None:
        return open_source(tasks, **given), given
    if not repos.is_dir():
        raise TaskError(f"--repos {repos} is no folder")
    with_repos = {**given, "repos": str(repos.expanduser().resolve())}
    try:
        return open_source(tasks, **with_repos), with_repos
    except TaskError as error:
        if "no option repos" not in str(error):
            raise
        return open_source(tasks, **given), given  # tasks that bring their own files need none


def _chosen(source: TaskSource, ids: list[str] | None, seed: int, **how: Any) -> list[Task]:
    from opensage_benchmarks.swe.errors import TaskError
    from opensage_benchmarks.swe.opening import select

    tasks = select(source.tasks(), ids=ids or (), seed=seed, **how)
    for problem in getattr(source, "bad", ()):
        typer.echo(f"left out: {problem}", err=True)
    if not tasks:
        raise TaskError("no task is chosen; look at --filter, --slice and --id")
    return tasks


def _grader(source: TaskSource, sandbox: str, test_timeout: float, tests_timeout: float, reruns: int = 1) -> Grader:
    from opensage_benchmarks.swe.grade.grader import Grader

    return Grader(source, sandbox, test_timeout, tests_timeout, reruns)


@app.command("run")
def run_command(
    context: typer.Context,
    tasks: Tasks,
    out: Out,
    agent: Annotated[str, typer.Option(help="coder, another agent of the library, mini-swe-agent, or pkg:factory.")] = (
        "coder"
    ),
    model: Annotated[str, typer.Option("-m", "--model", help="Model string.")] = "",
    repos: Repos = None,
    workers: Workers = 1,
    ids: Ids = None,
    filter: Filter = None,
    slice: Slice = None,
    shuffle: Shuffle = False,
    sample: Sample = None,
    skip_bad: SkipBad = False,
    seed: Annotated[int, typer.Option(help="Of --shuffle, and for the agent.")] = 42,
    sandbox: Sandbox = "auto",
    cost_limit: Annotated[float, typer.Option(min=0, help="US dollars a task; 0 for no limit.")] = 3.0,
    token_limit: Annotated[int, typer.Option(min=0, help="Tokens a task; 0 for no limit.")] = 0,
    step_limit: Annotated[int, typer.Option(min=0, help="Model calls a task; 0 for no limit.")] = 250,
    time_limit: Annotated[float, typer.Option(min=0, help="Seconds a task; the agent ends it. 0 for no limit.")] = 0,
    total_cost_limit: Annotated[float, typer.Option(min=0, help="US dollars of the run.")] = 0,
    total_token_limit: Annotated[int, typer.Option(min=0, help="Tokens of the run.")] = 0,
    total_step_limit: Annotated[int, typer.Option(min=0, help="Model calls of the run.")] = 0,
    total_time_limit: Annotated[float, typer.Option(min=0, help="Seconds of the run.")] = 0,
    task_timeout: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Seconds after which a task is killed as hung; else 300 more than --time-limit, 3600 without one.",
        ),
    ] = None,
    cmd_timeout: Annotated[float, typer.Option(min=0, help="Seconds for a command of the agent; 0: its own.")] = 0,
    agent_option: Annotated[list[str] | None, typer.Option(help="NAME=VALUE for the agent; again for more.")] = None,
    executor: Annotated[str, typer.Option(help="local, or ray for many machines.")] = "local",
    retry_errors: Annotated[bool, typer.Option("--retry-errors", help="Do again what was no fault of the agent.")] = (
        False
    ),
    redo_existing: Annotated[bool, typer.Option("--redo-existing", help="Do everything again.")] = False,
    grade: Annotated[bool, typer.Option("--grade", help="Grade each patch at once, below OUT/grades.")] = False,
    test_timeout: TestTimeout = 60,
    tests_timeout: TestsTimeout = 1800,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and stop.")] = False,
    as_json: Json = False,
) -> None:
    """Let an agent work on tasks; run again, it goes on where it was.

    Exit code: 0 finished, 1 errors of the machine, 2 bad input, 3 budget spent, 130 interrupted.
    """
    raise typer.Exit(_run(SimpleNamespace(**context.params)))


def _run(flags: SimpleNamespace) -> int:
    from opensage_benchmarks.swe.report import show_run
    from opensage_benchmarks.swe.run.runner import run

    source, opened_with = _opened(flags.tasks, flags.repos, skip_bad=flags.skip_bad)
    selection = {name: getattr(flags, name) for name in ("filter", "slice", "shuffle", "sample")}
    chosen = _chosen(source, flags.ids, flags.seed, **selection)
    config = _config(flags, source, opened_with)
    if flags.dry_run:
        typer.echo(json.dumps({"tasks": [task.id for task in chosen], "config": config.to_dict()}, indent=1))
        return 0
    kept = {**selection, "seed": flags.seed, "ids": flags.ids or []}
    summary = run(chosen, config, flags.out, _run_options(flags, source, kept))
    if not flags.as_json:
        show_run(flags.out, summary)
    return summary.exit_code


def _config(flags: SimpleNamespace, source: TaskSource, opened_with: dict[str, Any]) -> RunConfig:
    from opensage_benchmarks.swe.run.caps import Caps
    from opensage_benchmarks.swe.run.config import RunConfig

    kind, path = _place(flags.tasks, source)
    return RunConfig(
        source=kind,
        path=path,
        source_options=opened_with,
        agent=flags.agent,
        model=flags.model,
        sandbox=flags.sandbox,
        options=_options(flags.agent_option or []),
        limits=Caps(flags.cost_limit, flags.token_limit, flags.step_limit, flags.time_limit),
        task_timeout=_task_timeout(flags.task_timeout, flags.time_limit),
        command_timeout=flags.cmd_timeout,
        seed=flags.seed,
    )


def _task_timeout(asked: float | None, limit: float) -> float:
    """The agent looks at its limit between its calls, so it gets the time of a long call more."""
    if asked is not None:
        return asked
    return limit + 300.0 if limit else 3600.0


def _run_options(flags: SimpleNamespace, source: TaskSource, selection: dict[str, Any]) -> RunOptions:
    from opensage_benchmarks.swe.run.caps import Caps
    from opensage_benchmarks.swe.run.progress import open_progress
    from opensage_benchmarks.swe.run.runner import RunOptions

    total = (flags.total_cost_limit, flags.total_token_limit, flags.total_step_limit, flags.total_time_limit)
    grade = None
    if flags.grade:
        grade = _grade_into(_grader(source, flags.sandbox, flags.test_timeout, flags.tests_timeout), flags.out)
    return RunOptions(
        workers=flags.workers,
        total=Caps(*total),
        again="redo" if flags.redo_existing else "retry-errors" if flags.retry_errors else "resume",
        executor=flags.executor,
        grade=grade,
        progress=open_progress(json_lines=flags.as_json),
        selection=selection,
    )


def _place(tasks: str, source: TaskSource) -> tuple[str, str]:
    """Kind and absolute path of the tasks."""
    before, colon, after = tasks.partition(":")
    path = after if colon and before == source.name else tasks
    return source.name, str(Path(path).expanduser().resolve())


def _options(pairs: list[str]) -> dict[str, str]:
    from opensage.errors import ConfigError

    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise ConfigError(f"--agent-option {pair!r}: write NAME=VALUE")
        found[name] = value
    return found


def _grade_into(grader: Grader, out: Path) -> Grade:
    """Grades a patch as soon as it is there; the report is `OUT/grades/ID.json`."""
    from opensage_benchmarks.swe.grade.reports import instance_report, write_json

    def grade(task: Task, folder: Path) -> bool:
        patch = folder / "patch.diff"
        text = patch.read_bytes().decode("utf-8", "surrogateescape") if patch.is_file() else ""
        verdict = asyncio.run(grader.grade(task, text))
        (out / "grades").mkdir(exist_ok=True)
        write_json(out / "grades" / f"{task.folder_name}.json", instance_report(verdict))
        return verdict.resolved

    return grade


@app.command("eval")
def eval_command(
    tasks: Tasks,
    out: Out,
    predictions: Annotated[str, typer.Option("-p", "--predictions", help="preds.json, .jsonl, a run's folder, gold.")],
    run_id: Annotated[str, typer.Option(help="Names the evaluation.")] = "local",
    repos: Repos = None,
    workers: Workers = 1,
    ids: Ids = None,
    sandbox: Sandbox = "auto",
    test_timeout: TestTimeout = 60,
    tests_timeout: TestsTimeout = 1800,
    reruns: Annotated[int, typer.Option(min=1, help="How often tests run; more than once marks flaky ones.")] = 1,
    redo: Annotated[bool, typer.Option("--redo", help="Grade again what is graded.")] = False,
    regrade: Annotated[bool, typer.Option("--regrade", help="Only write the reports anew.")] = False,
    as_json: Json = False,
) -> None:
    """Grade predictions; the reports have the form of swebench 5."""
    from opensage_benchmarks.swe.grade.evaluate import evaluate
    from opensage_benchmarks.swe.grade.evaluate import regrade as anew
    from opensage_benchmarks.swe.predictions import read_predictions
    from opensage_benchmarks.swe.report import counting, show_evaluation

    source = _source(tasks, repos)
    every = list(source.tasks())
    where = Path(predictions) / "preds.json" if Path(predictions).is_dir() else predictions
    found = read_predictions(where, every)
    for unknown in found.unknown:
        typer.echo(f"no such task, left out: {unknown}", err=True)
    if regrade:
        model = next((made.model for made in found.by_id.values()), "None")
        summary = anew({task.id: task for task in every}, out, run_id=run_id, model=model)
    else:
        grader = _grader(source, sandbox, test_timeout, tests_timeout, reruns)
        only = None if ids is None else ids
        number = len([id for id in found.by_id if only is None or id in only])
        with counting("grading", number, quiet=as_json) as progress:
            work = evaluate(
                grader, found.by_id, out, run_id=run_id, workers=workers, only=only, redo=redo, progress=progress
            )
            summary = asyncio.run(work)
    if as_json:
        typer.echo(json.dumps(summary.record, indent=1))
    else:
        show_evaluation(summary)
    raise typer.Exit(1 if any(v.status == "infra_error" for v in summary.verdicts.values()) else 0)


@app.command("validate")
def validate_command(
    tasks: Tasks,
    gold: Annotated[bool, typer.Option("--gold", help="Only the references.")] = False,
    empty: Annotated[bool, typer.Option("--empty", help="Only the tasks as they are.")] = False,
    repos: Repos = None,
    workers: Workers = 1,
    ids: Ids = None,
    filter: Filter = None,
    slice: Slice = None,
    sandbox: Sandbox = "auto",
    test_timeout: TestTimeout = 60,
    tests_timeout: TestsTimeout = 1800,
    reruns: Annotated[int, typer.Option(min=1, help="How often tests run.")] = 1,
    as_json: Json = False,
) -> None:
    """See that the references pass and the tasks fail without one; lists the tasks that are no good."""
    from opensage_benchmarks.swe.report import counting, show_validation
    from opensage_benchmarks.swe.validate import validate

    source = _source(tasks, repos)
    chosen = _chosen(source, ids, 0, filter=filter, slice=slice)
    grader = _grader(source, sandbox, test_timeout, tests_timeout, reruns)
    both = gold == empty
    with counting("validating", len(chosen) * (2 if both else 1), quiet=as_json) as progress:
        work = validate(grader, chosen, gold=gold or both, empty=empty or both, workers=workers, progress=progress)
        found = asyncio.run(work)
    show_validation(found, as_json=as_json)
    raise typer.Exit(1 if found.bad else 0)


@app.command("report")
def report_command(
    out: Annotated[Path, typer.Argument(help="A run's folder, or a report of `eval`.")],
    compare: Annotated[Path | None, typer.Option(help="Another one, to stand beside it.")] = None,
    as_json: Json = False,
) -> None:
    """What a run or an evaluation came to."""
    from opensage_benchmarks.swe.report import show_comparison, show_report

    show_report(out, as_json=as_json)
    if compare is not None:
        show_report(compare, as_json=as_json)
        show_comparison(out, compare, as_json=as_json)


@app.command("compare")
def compare_command(
    a: Annotated[Path, typer.Argument(help="A graded run's folder, or a report of `eval`.")],
    b: Annotated[Path, typer.Argument(help="Another.")],
    as_json: Json = False,
) -> None:
    """Which of two is better, on the tasks both have: a paired test and an interval."""
    from opensage_benchmarks.swe.report import show_comparison

    show_comparison(a, b, as_json=as_json)


@app.command("export")
def export_command(
    out: Annotated[Path, typer.Argument(help="A run's folder, or a file of predictions.")],
    target: Annotated[Path, typer.Argument(help="The file to write: .json or .jsonl.")],
    format: Annotated[str, typer.Option(help="swebench, swebench-dict or swebench-pro.")] = "swebench",
) -> None:
    """Write predictions in the form that another grader reads."""
    from opensage_benchmarks.swe.predictions import export, read_predictions

    found = read_predictions(out / "preds.json" if out.is_dir() else out, None)
    export(target, found.by_id.values(), format)
    typer.echo(f"{len(found.by_id)} predictions in {target}")


@app.command("view")
def view_command(
    out: Annotated[Path, typer.Argument(help="A run's folder.")],
    id: Annotated[str, typer.Argument(help="A task; without one, all are listed.")] = "",
    html: Annotated[Path | None, typer.Option("--html", help="Write one page that needs nothing else.")] = None,
) -> None:
    """Look at what agents did: the tasks of a run, or one step by step."""
    from opensage_benchmarks.swe.view import view

    view(out, id, html)
