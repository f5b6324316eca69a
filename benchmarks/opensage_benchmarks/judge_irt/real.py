"""`python -m opensage_benchmarks.judge_irt.real --models A B --out DIR`: real models as judges on the shipped items.

40 answers x 4 wordings x each model, then the diagnosis, and a comparison with the grades that the items' author meant.
Started again, it goes on. A table on stderr, one JSON object on stdout.
Exit code: 0 done, 1 stopped by a bound, 2 bad input.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opensage.errors import OpenSageError
from opensage.files import write_whole
from opensage.models import open_model
from opensage_agents.judge_irt import (
    Bounds,
    Plan,
    ScoreError,
    align,
    chance_of,
    collect,
    diagnose,
    read_items,
    wordings,
)
from opensage_agents.judge_irt.collecting import Collected
from opensage_agents.judge_irt.reading import read_scores
from opensage_agents.judge_irt.report import aligned_table, alignment_row, judge_row, page, report_of, table
from opensage_agents.judge_irt.scores import Coded, coded

LEVELS = 5
CHANCE = 100
"""Ideal judges, for how large C_V is by chance."""


def main(argv: Sequence[str] | None = None) -> int:
    """Collect what is missing, diagnose; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m opensage_benchmarks.judge_irt.real", description=__doc__)
    parser.add_argument("--models", nargs="+", required=True, help="model strings, as for opensage run")
    parser.add_argument("--out", type=Path, required=True, help="folder of scores and report")
    parser.add_argument("--max-calls", type=int, help="questions of this run")
    parser.add_argument("--max-seconds", type=float, help="of this run")
    parser.add_argument("--seed", type=int, default=0, help="of the wordings")
    parser.add_argument("--html", action="store_true", help="also a page with curves, report.html")
    chosen = parser.parse_args(argv)
    try:
        return _run(chosen)
    except OpenSageError as error:
        print(f"opensage_benchmarks.judge_irt.real: {error}", file=sys.stderr)
        return 2


def _run(chosen: argparse.Namespace) -> int:
    items = read_items()
    scores = chosen.out / "scores.jsonl"
    models = [open_model(name) for name in chosen.models]
    bounds = Bounds(max_calls=chosen.max_calls, max_seconds=chosen.max_seconds)
    plan = Plan(items, wordings(seed=chosen.seed), levels=LEVELS)
    found = collect(models, plan, scores, bounds, tell=lambda text: print(text, file=sys.stderr))
    if found.stopped:
        print(f"stopped: {found.stopped}; the same command goes on", file=sys.stderr)
        return 1
    grades = coded([[item.grade or float("nan")] for item in items], LEVELS, ids=[item.id for item in items])
    result = _judged(scores, grades, found, chosen.seed)
    write_whole(chosen.out / "report.json", json.dumps(result, indent=1) + "\n")
    _show(result, chosen.out / "report.html" if chosen.html else None)
    print(json.dumps(result))
    return 0


def _judged(scores: Path, grades: Coded, found: Collected, seed: int) -> dict[str, Any]:
    """Each judge by itself: one that cannot be diagnosed does not keep the others from it."""
    from dataclasses import replace

    file = read_scores(scores)
    judges, aligned, refused = [], [], {}
    for name in dict.fromkeys(cell.judge for cell in file.cells):
        own = replace(file, cells=tuple(cell for cell in file.cells if cell.judge == name))
        try:
            ((judge, criterion), data), *_ = own.tables(LEVELS, drop_constant=True).items()
            first = diagnose(data)
            judges.append(judge_row(judge, criterion, first, chance=chance_of(first, CHANCE, seed)))
            aligned.append(alignment_row(judge, criterion, align(data, grades, force=True)))
        except ScoreError as error:
            refused[name] = str(error)
    report = report_of(judges, data=file.path.name, sha256=file.sha256, seed=seed)
    spent = {"asked": found.asked, "known": found.known, "tokens": found.tokens, "cost": found.cost}
    unreadable = {
        name: sum(c.score is None for c in file.cells if c.judge == name) for name in {c.judge for c in file.cells}
    }
    return {**report, "alignment": aligned, "refused": refused, "collected": spent, "unreadable": unreadable}


def _show(result: dict[str, Any], html: Path | None) -> None:
    from rich.console import Console

    console = Console(stderr=True)
    if result["judges"]:
        console.print(table(result))
        console.print(aligned_table(result["alignment"]))
        if html is not None:
            write_whole(html, page(result))
    for name, why in result["refused"].items():
        console.print(f"{name}: cannot be diagnosed: {why}", markup=False)


if __name__ == "__main__":
    sys.exit(main())
