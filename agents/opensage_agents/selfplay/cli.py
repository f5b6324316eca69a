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
    entries = read_lines(questions)
    shares = [entry.get("s", 0.0) for entry in entries]
    hosts = [entry["host"] if "host" in entry else _base(share) for entry, share in zip(entries, shares, strict=True)]
    valid = [bool(entry.get("valid", True)) for entry in entries]
    total, parts = reward([entry["question"] for entry in entries], shares, hosts, valid)
    for place, entry in enumerate(entries):
        said = {"question": entry["question"], "novelty": round(float(parts["novelty"][place]), 6)}
        said["seen"] = bool(parts["seen"][place])
        if "s" in entry:
            said |= {"gate": bool(parts["gate"][place]), "reward": round(float(total[place]), 6)}
        typer.echo(json.dumps(said, ensure_ascii=False))


def _base(share: Any) -> Any:
    """The host's reward where a line gives none; what is no number is told later, with its row."""
    return min(share, 1 - share) if isinstance(share, int | float) else 0.0


def _encoder(embedder: str, surface: bool) -> Encoder:
    from opensage_agents.selfplay.embedding import Encoder

    return Encoder(embedder, surface=surface)
