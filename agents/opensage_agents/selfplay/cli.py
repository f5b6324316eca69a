"""`opensage selfplay`: fit and ask a Seen Detector, simulate worlds, let a model propose and solve."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from opensage_agents.selfplay.embedding import Encoder

app = typer.Typer(no_args_is_help=True, help="Self-play that is paid for leaving what it has used (Seen Detector).")


@app.callback()
def _root() -> None:
    """Self-play that is paid for leaving what it has used (Seen Detector)."""


_DEFAULT_ARMS = "base,batch,memory,oneclass"
_EMBEDDER = Annotated[str, typer.Option(help="hash (no model), minilm, or litellm:MODEL:DIMENSION.")]
_SURFACE = Annotated[bool, typer.Option("--surface", help="Let numbers and names count.")]


@app.command("fit")
def fit_command(
    history: Annotated[Path, typer.Argument(metavar="HISTORY.jsonl", help="Used problems, one JSON a line.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The detector, as npz (never a pickle).")],
    kind: Annotated[str, typer.Option("--kind", "-k", help="knn, ocsvm, lof, iforest, maha, svdd or rnd.")] = "knn",
    embedder: _EMBEDDER = "hash",
    surface: _SURFACE = False,
    contamination: Annotated[float, typer.Option(help="nu of the one-class SVM.")] = 0.05,
    seed: Annotated[int, typer.Option(help="Of the split and of what is random.")] = 0,
) -> None:
    """Fit a detector on the problems that were used, and calibrate it. Exit code: 0 done, 2 bad input."""
    from opensage_agents.selfplay.buffer import HistoryBuffer
    from opensage_agents.selfplay.detector import SeenDetector

    encoder = _encoder(embedder, surface)
    buffer = HistoryBuffer.load(history)
    detector = SeenDetector(kind, contamination, seed, embedder=encoder.id)  # type: ignore[arg-type]  # checked there
    detector.fit_history(encoder.encode(buffer.questions)).save(out)
    typer.echo(json.dumps({"detector": str(out), "kind": kind, "problems": len(buffer), "embedder": encoder.id}))


@app.command("score")
def score_command(
    detector: Annotated[Path, typer.Argument(metavar="DETECTOR", help="What `fit` wrote.")],
    questions: Annotated[Path, typer.Argument(metavar="QUESTIONS.jsonl", help="One JSON a line.")],
    alpha: Annotated[float, typer.Option(help="Share of seen-like questions that may count as new.")] = 0.05,
    embedder: _EMBEDDER = "hash",
    surface: _SURFACE = False,
    form: Annotated[str, typer.Option(help="additive or gated, where lines have s and host.")] = "additive",
    lam: Annotated[float, typer.Option(help="Weight of the novelty.")] = 0.5,
    beta: Annotated[float, typer.Option(help="What a seen question loses, when gated.")] = 0.5,
) -> None:
    """Print novelty of each question as JSON lines; with `s` (and `host`, `valid`) in the lines, its reward too."""
    from opensage_agents.selfplay.detector import SeenDetector
    from opensage_agents.selfplay.lines import read_lines
    from opensage_agents.selfplay.reward import NoveltyReward

    encoder = _encoder(embedder, surface)
    known = SeenDetector.load(detector, encoder.id)
    reward = NoveltyReward(known, lam, beta, form, alpha=alpha, encoder=encoder)  # type: ignore[arg-type]
    entries = [entry for _, entry in read_lines(questions)]
    shares = [entry.get("s", 0.0) for entry in entries]
    hosts = [entry["host"] if "host" in entry else _base(share) for entry, share in zip(entries, shares, strict=True)]
    valid = [entry.get("valid", True) for entry in entries]
    total, parts = reward([entry["question"] for entry in entries], shares, hosts, valid)
    for place, entry in enumerate(entries):
        said = {"question": entry["question"], "novelty": round(float(parts["novelty"][place]), 6)}
        said["seen"] = bool(parts["seen"][place])
        if "s" in entry:
            said |= {"gate": bool(parts["gate"][place]), "reward": round(float(total[place]), 6)}
        typer.echo(json.dumps(said))


def _base(share: Any) -> Any:
    """The host's reward where a line gives none; what is no number is told later, with its row."""
    return min(share, 1 - share) if isinstance(share, int | float) else 0.0


def _encoder(embedder: str, surface: bool) -> Encoder:
    from opensage_agents.selfplay.embedding import Encoder

    return Encoder(embedder, surface=surface)


@app.command("simulate")
def simulate_command(
    world: Annotated[str, typer.Option("--world", "-w", help="t1, t1-kind or t2.")] = "t1",
    reward: Annotated[str, typer.Option("--reward", "-r", help="Names with commas; `all` for all.")] = _DEFAULT_ARMS,
    seeds: Annotated[int, typer.Option(min=1, max=10_000, help="Runs of each reward.")] = 20,
    first_seed: Annotated[int, typer.Option(min=0, help="The first of the seeds.")] = 100,
    phi: Annotated[float | None, typer.Option(help="t1: how fast skills fade (0.02).")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, max=10_000, help="Rounds of a run.")] = None,
    kind: Annotated[str | None, typer.Option(help="t2: of detector (knn).")] = None,
    labels: Annotated[str | None, typer.Option(help="t2: checked, or majority as in R-Zero.")] = None,
    embedder: Annotated[str | None, typer.Option(help="t2: hash or minilm.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write all rounds as JSON.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Write a picture: .png, .svg or .pdf.")] = None,
) -> None:
    """Simulate self-play in a toy world with several rewards on the same seeds. Exit code: 0 done, 2 bad input."""
    from opensage_agents.selfplay.worlds import arms_of, simulate, summed

    asked = {"phi": phi, "rounds": rounds, "kind": kind, "labels": labels, "embedder": embedder}
    changes = _fitting(world, {name: value for name, value in asked.items() if value is not None})
    arms = arms_of(world) if reward == "all" else [each.strip() for each in reward.split(",") if each.strip()]
    runs = simulate(world, list(dict.fromkeys(arms)), range(first_seed, first_seed + seeds), **changes)
    sums = summed(runs)
    typer.echo("reward      first   peak (round)  final   drop  effective  overlap, last round")
    for arm, each in sums.items():
        typer.echo(
            f"{arm:10} {each['first']:6.3f} {each['peak']:6.3f} ({each['onset']:5.1f}) {each['final']:6.3f} "
            f"{each['drop']:6.3f} {each.get('final_effective', float('nan')):10.1f} {each['overlap'][-1]:8.2f}"
        )
    if out is not None:
        from opensage.files import write_whole
        from opensage_agents.jsonable import plain

        rounds_ = {arm: [history.to_dict() for history in histories] for arm, histories in runs.items()}
        whole = {"world": world, "seeds": [first_seed, seeds], "changes": changes, "summary": sums, "runs": rounds_}
        write_whole(out, json.dumps(plain(whole), allow_nan=False).encode())
    if plot is not None:
        from opensage_agents.selfplay.plot import plotted

        plotted(runs, plot, f"self-play in world {world}, {seeds} seeds")


def _fitting(world: str, changes: dict[str, Any]) -> dict[str, Any]:
    """The constants, if the world has them."""
    from opensage.errors import ConfigError

    foreign = {"phi"} if world == "t2" else {"kind", "labels", "embedder"}
    if odd := sorted(foreign & set(changes)):
        raise ConfigError(f"world {world} has no {', '.join(odd)}: leave --{odd[0]} out")
    return changes


@app.command("run")
def run_command(
    model: Annotated[str, typer.Option("--model", "-m", help="Proposer and solver; as for `opensage run`.")] = "",
    solver_model: Annotated[str, typer.Option(help="The solver, when it is another one.")] = "",
    script: Annotated[Path | None, typer.Option(help="Replies from a file instead of a model.")] = None,
    rounds: Annotated[int, typer.Option(min=1, max=100, help="Rounds.")] = 3,
    problems: Annotated[int, typer.Option(min=1, max=1000, help="Proposals in each round of each arm.")] = 16,
    keep: Annotated[int | None, typer.Option(min=1, help="Most that are kept of a round; half without it.")] = None,
    samples: Annotated[int, typer.Option(min=1, max=100, help="Answers of the solver to each.")] = 4,
    topic: Annotated[str, typer.Option(help="What all problems are about.")] = "",
    form: Annotated[str, typer.Option(help="additive or gated.")] = "additive",
    kind: Annotated[str, typer.Option(help="Of detector.")] = "knn",
    embedder: _EMBEDDER = "hash",
    tau: Annotated[float, typer.Option(help="Cosine from which two problems overlap.")] = 0.9,
    seed: Annotated[int, typer.Option(help="Of topics and detector.")] = 0,
    temperature: Annotated[float, typer.Option(min=0, max=2, help="Of both roles.")] = 0.8,
    max_seconds: Annotated[float, typer.Option(min=1, help="For everything.")] = 7200.0,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Of all calls.")] = None,
    max_cost: Annotated[float | None, typer.Option(help="US dollars.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for report, histories and trace.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the trace in --out ends.")] = False,
    sandbox: Annotated[str, typer.Option(help="auto, docker, docker:IMAGE, bubblewrap or local.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """A model proposes Python problems and solves them; with and without the novelty reward.

    No weights are trained: the reward chooses which proposals are kept and told back as examples. Exit code: 0 done,
    1 stopped by a limit, 2 bad input.
    """
    from opensage_agents.selfplay.live import LiveConfig, told
    from opensage_agents.selfplay.playing import Setup, play

    config = LiveConfig(
        rounds, problems, keep, samples, topic, kind, form=form, tau=tau, seed=seed,  # type: ignore[arg-type]
    )  # fmt: skip
    setup = Setup(
        f"script:{script}" if script else model, solver_model, embedder, sandbox, temperature, max_seconds, max_tokens,
        max_cost, out, resume,
    )  # fmt: skip
    report = play(setup, config, lambda text: typer.echo(_clean(text), err=True))
    typer.echo(json.dumps(report.to_dict()) if as_json else _clean(told(report)))
    raise typer.Exit(1 if report.stopped else 0)


def _clean(text: str) -> str:
    from opensage.cli.stream import clean

    return clean(text)
