"""`opensage safety`: prompts to train and test on, scores of thoughts and answers, rewards, reports."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    pass

app = typer.Typer(no_args_is_help=True, help="Score thoughts and answers for safety, help and faithfulness.")

Out = Annotated[Path | None, typer.Option("--out", "-o", help="File to write; standard output without it.")]
Tau = Annotated[float, typer.Option(help="Safety from which a sample counts as safe.")]


@app.callback()
def _root() -> None:
    """Score thoughts and answers for safety, help and faithfulness."""


@app.command("synth")
def synth_command(
    taxonomy: Annotated[
        Path | None, typer.Argument(help="YAML; the one that comes with the package without it.")
    ] = None,
    number: Annotated[int, typer.Option("-n", min=1, max=20_000, help="Sensitive prompts to make.")] = 500,
    out: Out = None,
    seed: Annotated[int, typer.Option(help="Of drawing and splitting.")] = 0,
    write: Annotated[str, typer.Option(help="Model that words the prompts; templates without it.")] = "",
    trigger: Annotated[str, typer.Option(help="Model whose thoughts a kept prompt must draw leaks from.")] = "",
    k: Annotated[int, typer.Option("-k", min=1, max=64, help="Replies a prompt, with --trigger.")] = 4,
    judge: Annotated[str, typer.Option("--judge", "-j", help="Of those replies.")] = "tags",
) -> None:
    """Make prompts; the audit goes to standard error. Exit code: 0 done, 2 bad input, 3 a text that is denied."""
    from opensage.models import open_model
    from opensage_agents.safety_cot.asking import writer
    from opensage_agents.safety_cot.synthesis import audit, synthesise
    from opensage_agents.safety_cot.taxonomy import PolicyError, load_taxonomy

    found = load_taxonomy(taxonomy)
    try:
        made = _valid(lambda: synthesise(found, number, seed, write=writer(open_model(write)) if write else None))
    except PolicyError as error:
        _say(f"error: {error}")
        raise typer.Exit(3) from error
    told = audit(made, found)
    keep = {each.text for each in made.prompts}
    if trigger:
        keep, told["triggered"] = _triggered(made.prompts, trigger, judge, k)
    parts = (("train", made.train), ("test", made.test))
    _put(out, [{**p.to_dict(), "split": split} for split, rows in parts for p in rows if p.text in keep])
    _say("\n".join(f"{name}: {value}" for name, value in told.items()))


def _triggered(prompts: Any, model: str, judge: str, k: int) -> tuple[set[str], str]:
    from opensage.models import open_model
    from opensage_agents.safety_cot.asking import responder
    from opensage_agents.safety_cot.opening import open_judge
    from opensage_agents.safety_cot.synthesis import trigger_test

    found = trigger_test(prompts, responder(open_model(model)), open_judge(judge), k)
    contrast = {each.text for each in prompts if each.kind != "sensitive"}
    return {each.text for each in found.kept} | contrast, f"{len(found.kept)} of {len(found.rates)} sensitive prompts"


@app.command("ask")
def ask_command(
    prompts: Annotated[Path, typer.Argument(help="JSON lines of `synth`.")],
    model: Annotated[str, typer.Option("--model", "-m", help="As for `opensage run`.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="JSON lines; what is there is not asked for again.")],
    k: Annotated[int, typer.Option("-k", min=1, max=64, help="Replies to each prompt.")] = 1,
    most: Annotated[int | None, typer.Option("--most", min=1, help="Prompts at most.")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Of a reply.")] = 600,
) -> None:
    """Ask a model, for `score`. The replies are kept as they came. Exit code: 0 done, 2 bad input or no answer."""
    from opensage.models import open_model
    from opensage_agents.safety_cot.asking import ask_all

    number = ask_all(
        open_model(model), prompts, out, k=k, max_tokens=max_tokens, most=most,
        step=lambda done, of: _say(f"{done} of {of}"),
    )  # fmt: skip
    _say(f"{number} replies in {out}; next: opensage safety score {out} --judge guard:MODEL")


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
    plot: Annotated[Path | None, typer.Option(help="Draw the rates: .png, .svg or .pdf.")] = None,
) -> None:
    """Rates with intervals, and what a look at answers alone would miss. Exit code: 0 done, 2 bad input."""
    from opensage_agents.safety_cot.records import read_lines, scored_of
    from opensage_agents.safety_cot.report import as_data, report, told

    _checked_weights(tau)
    samples = [scored_of(data, f"{scores}, line {number}") for number, data in read_lines(scores)]
    found = report(samples, by=by, tau=tau, seed=seed)
    if plot is not None:
        from opensage_agents.safety_cot.plots import plotted

        plotted(found, plot)
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
