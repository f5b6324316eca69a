"""`opensage judge`: collect scores of judges, diagnose them, report, compare with people."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from opensage_agents.judge_irt.collecting import Collected

app = typer.Typer(no_args_is_help=True, help="How far a model can be trusted as a judge, by item response theory.")

Levels = Annotated[int | None, typer.Option(help="Levels K of the scale 1..K; else the largest score.")]
Wide = Annotated[bool, typer.Option("--wide", help="Each column is a variant, each row a sample.")]
JudgeCol = Annotated[str, typer.Option(help="Column of the judge.")]
CriterionCol = Annotated[str, typer.Option(help="Column of the criterion.")]
SampleCol = Annotated[str, typer.Option(help="Column of the sample's id.")]
PromptCol = Annotated[str, typer.Option(help="Column of the prompt variant.")]
ScoreCol = Annotated[str, typer.Option(help="Column of the score.")]
Method = Annotated[str, typer.Option(help="map, mml or bayes.")]
CvMax = Annotated[float, typer.Option(help="Largest C_V of a judge that passes.")]
RhoMin = Annotated[float, typer.Option(help="Least rho of a judge that passes.")]
Drop = Annotated[bool, typer.Option("--drop-constant", help="Leave out variants that give one score everywhere.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the JSON object instead of a table.")]
Plot = Annotated[Path | None, typer.Option(help="Draw item and information curves: .png, .svg or .pdf.")]
Html = Annotated[Path | None, typer.Option(help="Write the report as a page.")]


@app.callback()
def _root() -> None:
    """How far a model can be trusted as a judge, by item response theory."""


@app.command("collect")
def collect_command(
    items: Annotated[str, typer.Argument(help="JSON lines of id, question, answer; or builtin.")] = "builtin",
    model: Annotated[list[str] | None, typer.Option("--model", "-m", help="A judge; give it again for more.")] = None,
    out: Annotated[Path, typer.Option(help="File of scores; started again, the run goes on there.")] = Path(
        "scores.jsonl"
    ),
    variants: Annotated[str, typer.Option(help="Wordings, with commas between.")] = "original,typo,newline,paraphrase",
    template: Annotated[Path | None, typer.Option(help="Instruction with {levels} and {criterion}.")] = None,
    paraphrase: Annotated[Path | None, typer.Option(help="The same instruction in other words.")] = None,
    criterion: Annotated[str, typer.Option(help="What is judged.")] = "quality",
    levels: Annotated[int, typer.Option(min=2, max=100, help="Levels of the scale.")] = 5,
    max_calls: Annotated[int | None, typer.Option(min=1, help="Questions of this run.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens of this run.")] = None,
    max_cost: Annotated[float | None, typer.Option(help="US dollars of this run.")] = None,
    max_seconds: Annotated[float | None, typer.Option(help="Seconds of this run.")] = None,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Questions at once.")] = 1,
    seed: Annotated[int, typer.Option(help="Of typing errors and newlines.")] = 0,
) -> None:
    """Ask models for scores. Exit code: 0 all there, 1 stopped by a bound, 2 bad input."""
    from opensage.errors import ConfigError
    from opensage.models import open_model
    from opensage_agents.judge_irt.collecting import Bounds, Plan, collect
    from opensage_agents.judge_irt.items import read_items
    from opensage_agents.judge_irt.perturb import TEMPLATE, wordings

    if not model:
        raise ConfigError("name at least one judge: --model local/qwen2.5-coder-1.5b")
    other = _text(paraphrase) if paraphrase else None
    texts = wordings(
        _text(template) if template else TEMPLATE, tuple(name.strip() for name in variants.split(",")), seed=seed,
        paraphrase=(lambda _text: other) if other is not None else None,
    )  # fmt: skip
    plan = Plan(read_items(items), texts, criterion, levels)
    bounds = Bounds(max_calls, max_tokens, max_cost, max_seconds)
    judges = [open_model(name) for name in model]
    found = collect(judges, plan, out, bounds, workers=workers, tell=lambda text: typer.echo(text, err=True))
    raise typer.Exit(_told(found, out))


def _told(found: Collected, out: Path) -> int:
    typer.echo(
        f"{out}: {found.asked} asked, {found.known} known before, {found.unreadable} unreadable, "
        f"{found.tokens} tokens, ${found.cost:.4f}"
    )
    if found.stopped:
        typer.echo(f"stopped: {found.stopped}; the same command goes on", err=True)
    return 1 if found.stopped else 0


def _text(path: Path) -> str:
    from opensage.files import read_text

    return read_text(path, 1 << 20).strip()


@app.command("fit")
def fit_command(
    scores: Annotated[Path, typer.Argument(help="CSV, or JSON lines of `collect`.")],
    out: Annotated[Path | None, typer.Option(help="Write the report as JSON.")] = None,
    judge_col: JudgeCol = "judge",
    criterion_col: CriterionCol = "criterion",
    sample_col: SampleCol = "sample_id",
    prompt_col: PromptCol = "variant",
    score_col: ScoreCol = "score",
    wide: Wide = False,
    levels: Levels = None,
    method: Method = "map",
    cv_max: CvMax = 0.10,
    rho_min: RhoMin = 0.70,
    drop_constant: Drop = False,
    bootstrap: Annotated[int, typer.Option(min=0, help="Resamples of the samples, for intervals.")] = 0,
    chance: Annotated[int, typer.Option(min=0, help="Ideal judges: how large is C_V by chance? 0 for none.")] = 40,
    seed: Annotated[int, typer.Option(help="Of resamples and draws.")] = 0,
    plot: Plot = None,
    html: Html = None,
    as_json: AsJson = False,
) -> None:
    """Diagnose each judge and criterion of a file. Exit code: 0 ok, 2 bad input, 3 not converged."""
    from opensage_agents.judge_irt.run import fit_file

    with _progress() as begin:
        report = fit_file(
            scores, columns=_columns(judge_col, criterion_col, sample_col, prompt_col, score_col), wide=wide,
            levels=levels, method=cast("Any", method), cv_max=cv_max, rho_min=rho_min, drop_constant=drop_constant,
            resamples=bootstrap, chance=chance, seed=seed, begin=begin,
        )  # fmt: skip
    _write(out, report)
    _show(report, plot, html, as_json)


@contextmanager
def _progress() -> Iterator[Callable[[str, int], Callable[[], None]]]:
    """Bars on standard error, gone when all is done."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}", markup=False), BarColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:

        def begin(what: str, steps: int) -> Callable[[], None]:
            task = bars.add_task(what, total=steps)
            return lambda: bars.advance(task)

        yield begin


def _columns(judge: str, criterion: str, sample: str, prompt: str, score: str) -> Any:
    from opensage_agents.judge_irt.reading import Columns

    return Columns(judge, criterion, sample, prompt, score)


@app.command("report")
def report_command(
    report: Annotated[Path, typer.Argument(help="What `fit --out` wrote.")],
    plot: Plot = None,
    html: Html = None,
    as_json: AsJson = False,
) -> None:
    """Show a report again, as a table, JSON, a page or curves. Exit code: as for `fit`."""
    from opensage_agents.judge_irt.report import read_report

    _show(read_report(report), plot, html, as_json)


@app.command("align")
def align_command(
    scores: Annotated[Path, typer.Argument(help="Scores of judges.")],
    people: Annotated[Path, typer.Argument(help="Scores of people for the same samples.")],
    out: Annotated[Path | None, typer.Option(help="Write the figures as JSON.")] = None,
    judge_col: JudgeCol = "judge",
    criterion_col: CriterionCol = "criterion",
    sample_col: SampleCol = "sample_id",
    prompt_col: PromptCol = "variant",
    score_col: ScoreCol = "score",
    wide: Wide = False,
    levels: Levels = None,
    method: Method = "map",
    cv_max: CvMax = 0.10,
    rho_min: RhoMin = 0.70,
    drop_constant: Drop = False,
    force: Annotated[bool, typer.Option("--force", help="Figures for judges that failed phase 1 too.")] = False,
    linked: Annotated[bool, typer.Option("--linked", help="Judge and people on one scale, by one fit.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compare judges that passed with people. Exit code: 0 ok (gated too), 2 bad input, 3 not converged."""
    from opensage_agents.judge_irt.report import aligned_table, notes
    from opensage_agents.judge_irt.run import align_files

    found = align_files(
        scores, people, columns=_columns(judge_col, criterion_col, sample_col, prompt_col, score_col), wide=wide,
        levels=levels, method=cast("Any", method), cv_max=cv_max, rho_min=rho_min,
        drop_constant=drop_constant, force=force,
        linked=linked,
    )  # fmt: skip
    _write(out, found)
    _print(found, aligned_table(found["rows"]), notes(found["rows"]), as_json)
    raise typer.Exit(_code(found["rows"]))


def _show(report: dict[str, Any], plot: Path | None, html: Path | None, as_json: bool) -> None:
    from opensage.files import write_whole
    from opensage_agents.judge_irt.report import notes, page, table

    if plot is not None:
        from opensage_agents.judge_irt.plots import plot as draw

        draw(report, plot)
    if html is not None:
        write_whole(html, page(report))
    _print(report, table(report), notes(report["judges"]), as_json)
    raise typer.Exit(_code(report["judges"]))


def _print(data: dict[str, Any], shown: Any, told: Sequence[str], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(data))
        return
    from rich.console import Console

    console = Console()
    console.print(shown, markup=False)
    for text in told:
        console.print(f"note: {text}", markup=False, highlight=False)


def _code(rows: Sequence[dict[str, Any]]) -> int:
    return 3 if any(row["verdict"] == "not_converged" for row in rows) else 0


def _write(out: Path | None, data: dict[str, Any]) -> None:
    if out is not None:
        from opensage.files import write_whole

        write_whole(out, json.dumps(data, indent=1) + "\n")
