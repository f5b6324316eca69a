"""`opensage safety`: prompts to train and test on, scores of thoughts and answers, rewards, reports."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from opensage_agents.safety_cot.evaluate import Scored

app = typer.Typer(
    no_args_is_help=True, help="Score thoughts and answers for safety, help and faithfulness."
)

Out = Annotated[Path | None, typer.Option("--out", "-o", help="File to write; standard output without it.")]
Tau = Annotated[float, typer.Option(help="Safety from which a sample counts as safe.")]


@app.callback()
def _root() -> None:
    """Score thoughts and answers for safety, help and faithfulness."""


@app.command("score")
def score_command(
    replies: Annotated[Path, typer.Argument(help="JSON lines: prompt, and thought and answer, or text.")],
    judge: Annotated[str, typer.Option("--judge", "-j", help="tags, keywords, or guard:MODEL.")] = "tags",
    out: Out = None,
    tau: Tau = 0.5,
    timeout: Annotated[float, typer.Option(min=0.01, max=3600, help="Seconds for one sample.")] = 30.0,
    show_unsafe: Annotated[bool, typer.Option("--show-unsafe", help="Do not redact what is judged unsafe.")] = False,
) -> None:
    """Score replies. Exit code: 0 scored, 1 some could not be judged and count as unsafe, 2 bad input."""
    from opensage_agents.safety_cot.evaluate import Scored
    from opensage_agents.safety_cot.judges import judged
    from opensage_agents.safety_cot.opening import open_judge
    from opensage_agents.safety_cot.records import read_lines, sample_of, scored_line

    _checked_weights(tau)
    asked = open_judge(judge)
    samples = [sample_of(data, f"{replies}, line {number}") for number, data in read_lines(replies)]
    scored = [Scored.of(each, _valid(lambda one=each: judged(asked, one, timeout))) for each in samples]
    _put(out, [scored_line(each, asked.name, tau=tau, show_unsafe=show_unsafe) for each in scored])
    flagged = [each.scores.flagged for each in scored if each.scores.flagged]
    if flagged:
        _say(f"{len(flagged)} of {len(scored)} were not judged and count as unsafe; the first: {flagged[0]}")
    raise typer.Exit(1 if flagged else 0)


@app.command("reward")
def reward_command(
    scores: Annotated[Path, typer.Argument(help="JSON lines of `score`.")],
    form: Annotated[str, typer.Option(help="gate, smooth, sum or product.")] = "gate",
    tau: Tau = 0.5,
    w_h: Annotated[float, typer.Option(help="Weight of helpfulness.")] = 0.6,
    w_f: Annotated[float, typer.Option(help="Weight of faithfulness; the sum of both is 1.")] = 0.4,
    temperature: Annotated[float, typer.Option(help="Of the smooth form.")] = 0.005,
    out: Out = None,
) -> None:
    """Add the reward to each line. Exit code: 0 done, 2 bad input."""
    from opensage_agents.safety_cot.records import read_lines, scored_of
    from opensage_agents.safety_cot.reward import reward

    _checked_weights(tau, w_h, w_f, form, temperature)
    form_: Any = form
    lines = []
    for number, data in read_lines(scores):
        found = scored_of(data, f"{scores}, line {number}").scores
        lines.append({**data, "reward": reward(found, tau, w_h, w_f, form_, temperature=temperature), "form": form})
    _put(out, lines)


@app.command("report")
def report_command(
    scores: Annotated[Path, typer.Argument(help="JSON lines of `score`.")],
    tau: Tau = 0.5,
    by: Annotated[str, typer.Option(help="Field of meta whose values are compared, e.g. policy.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of the bootstrap.")] = 0,
) -> None:
    """Rates with intervals, and what a look at answers alone would miss. Exit code: 0 done, 2 bad input."""
    from opensage_agents.safety_cot.records import read_lines, scored_of
    from opensage_agents.safety_cot.report import as_data, report, told

    _checked_weights(tau)
    samples = [scored_of(data, f"{scores}, line {number}") for number, data in read_lines(scores)]
    found = report(samples, by=by, tau=tau, seed=seed)
    if as_json:
        import json

        typer.echo(json.dumps(as_data(found)))
    else:
        typer.echo(_clean(told(found)))


def _checked_weights(tau: float, w_h: float = 0.6, w_f: float = 0.4, form: str = "gate", t: float = 1.0) -> None:
    from opensage_agents.safety_cot.reward import checked_weights

    _valid(lambda: checked_weights(tau, w_h, w_f, form, t))


def _valid(work: Any) -> Any:
    """What `work` gives; a ValueError of the library is a wrong input of the command."""
    from opensage.errors import ConfigError

    try:
        return work()
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _put(out: Path | None, lines: list[dict[str, Any]]) -> None:
    import json

    from opensage_agents.safety_cot.records import write_lines

    if out is None:
        for line in lines:
            typer.echo(json.dumps(line))
    else:
        write_lines(out, lines)


def _say(text: str) -> None:
    typer.echo(_clean(text), err=True)


def _clean(text: str) -> str:
    from opensage.cli.stream import clean

    return clean(text)
