"""The method's claim with a real model: of the programs that it gets wrong at first, how many are right in the end?

`python -m opensage_benchmarks.pgs.claim --model local/qwen2.5-coder-1.5b --out DIR` goes on where it was ended.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from opensage.errors import OpenSageError
from opensage.models import open_model
from opensage.protocols import Model
from opensage_agents.pgs.asking import Desk, ModelAsker
from opensage_agents.pgs.feedback import BLIND
from opensage_agents.pgs.generator import Generator
from opensage_agents.pgs.repair import PGSWorkflow
from opensage_agents.pgs.result import Result
from opensage_agents.pgs.task import PGSConfig
from opensage_agents.pgs.trace import Trace
from opensage_benchmarks.pgs import data as files
from opensage_benchmarks.pgs.cases import Case, cases
from opensage_benchmarks.pgs.ledger import Ledger
from opensage_benchmarks.swe.compare import mcnemar, paired_interval, wilson
from opensage_benchmarks.swe.grade import Grader
from opensage_benchmarks.swe.sources.base import unified

ARMS: dict[str, dict[str, Any]] = {
    "none": {"feedback": "none"},
    "io": {"feedback": "io"},
    "minimal_io": {"feedback": "minimal_io"},
    "property": {"feedback": "property"},
    "hand": {"feedback": "property"},
}
"""Feedback that each arm gives; "hand" uses the properties that come with the package (QuixBugs alone)."""


class Claim:
    """The runs, each kept as a line as soon as it is done."""

    def __init__(self, model: Model, out: Path, *, tokens: int, rounds: int, seconds: float, sandbox: str) -> None:
        self.model, self.out = model, out
        self.config = PGSConfig(
            max_tokens=tokens, max_rounds=rounds, max_seconds=seconds, sandbox=sandbox, inputs="derived"
        )
        self.by_hand = files.shipped("opensage_agents.pgs", "quixbugs")
        settings = {"sandbox": sandbox, "model": model.name, "tokens": tokens, "rounds": rounds, "seconds": seconds}
        self.ledger = Ledger(out / "claim.jsonl", settings)

    async def first(self, case: Case) -> dict[str, Any]:
        """The model's first try, without feedback, at temperature 0."""
        if ("first", case.id) not in self.ledger.records:
            config = replace(self.config, temperature=0.0)
            desk = Desk({"generator": ModelAsker(self.model)}, config, Trace(None))
            code = await Generator(desk, case.task).repair(case.task.code or "", BLIND)
            right = await self._right(case, code[0])
            self.ledger.add("first", case.id, {"right": right, "code": code[0], "tokens": desk.tokens})
        return self.ledger.records["first", case.id]

    async def arm(self, case: Case, name: str) -> None:
        """One way of feedback, from the first try on."""
        if (name, case.id) in self.ledger.records:
            return
        trace = self.out / "traces" / f"{case.id.replace('/', '_')}.{name}.jsonl"
        workflow = PGSWorkflow(
            self.model, config=replace(self.config, **ARMS[name]), trace=trace, resume=True,
            properties=self.by_hand[case.task.entry_point] if name == "hand" else None,
        )  # fmt: skip
        code = self.ledger.records["first", case.id]["code"] or case.task.code
        result = await workflow.arun(replace(case.task, code=code))
        right = await self._right(case, result.code)
        kept = {"right": right, "code": result.code, "tokens": result.tokens, **_told(result)}
        self.ledger.add(name, case.id, kept)

    async def _right(self, case: Case, code: str) -> bool:
        if not code:
            return False
        grader = Grader(case.source, sandbox=self.config.sandbox, test_timeout=10.0, command_timeout=90.0)
        with tempfile.TemporaryDirectory() as folder:
            case.source.prepare(case.graded, Path(folder))
            before = (Path(folder) / case.path).read_text("utf-8")
        return (await grader.grade(case.graded, unified(case.path, before, code))).status == "resolved"


def _told(result: Result) -> dict[str, Any]:
    """What became of the properties, for the question of why."""
    dropped = [why.partition(":")[0].partition(" [")[0] for each in result.rounds for why in each.dropped.values()]
    return {
        "status": result.status, "reason": result.reason, "rounds": len(result.rounds), "calls": result.calls,
        "properties": [asdict(each) for each in result.properties.properties], "dropped": dropped,
        "suspects": result.suspects, "notes": result.notes, "strategy": str(result.properties.strategy),
        "shown": [(each.counterexample or {}).get("outcome", each.status) for each in result.rounds],
    }  # fmt: skip


def fits(case: Case, arm: str) -> bool:
    """Whether this arm can be run for this task."""
    return arm != "hand" or case.id.startswith("quixbugs")


async def measure(claim: Claim, chosen: Sequence[Case], arms: Sequence[str], wanted: int) -> None:
    """First tries, then every arm, until so many tasks that were wrong at first are done."""
    done = 0
    for case in chosen:
        if done >= wanted:
            return
        first = await claim.first(case)
        print(f"{time.strftime('%H:%M:%S')} {case.id}: first {'right' if first['right'] else 'wrong'}", file=sys.stderr)
        if first["right"]:
            continue
        for arm in arms:
            if fits(case, arm):
                await claim.arm(case, arm)
                row = claim.ledger.records[arm, case.id]
                told = f"{'right' if row['right'] else 'wrong'}, {row['status']}, {row['tokens']} tokens"
                print(f"  {arm}: {told}, {row['wall']:.0f} s, {row['shown']}", file=sys.stderr, flush=True)
        done += 1


def table(ledger: Ledger, known: set[str], base: str = "io") -> dict[str, Any]:
    """Fix rates by arm, with 95 % intervals, and each against `base` on the tasks that both have."""
    found: dict[str, Any] = {}
    for arm in ARMS:
        mine = {task: row for task, row in ledger.group(arm).items() if task in known}
        if not mine:
            continue
        rate = wilson(sum(row["right"] for row in mine.values()), len(mine))
        other = {task: row for task, row in ledger.group(base).items() if task in mine}
        both, only, theirs, neither = (
            sum((mine[task]["right"], other[task]["right"]) == pair for task in other)
            for pair in ((True, True), (True, False), (False, True), (False, False))
        )
        spread = paired_interval(both, only, theirs, neither) if other else (0.0, 0.0)
        found[arm] = {
            "fixed": rate.resolved, "tasks": rate.total, "low": rate.low, "high": rate.high,
            "tokens": sum(row["tokens"] for row in mine.values()) / len(mine),
            "seconds": sum(row["wall"] for row in mine.values()) / len(mine),
            f"only_{arm}": only, f"only_{base}": theirs, "difference": spread, "p": mcnemar(only, theirs),
        }  # fmt: skip
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is asked for; returns the exit code."""
    chosen = _arguments(argv)
    try:
        every = [each for each in cases(chosen.data) if each.tuned == (chosen.half == "tune")]
        claim = Claim(
            open_model(chosen.model), chosen.out, tokens=chosen.tokens, rounds=chosen.rounds, seconds=chosen.seconds,
            sandbox=chosen.sandbox,
        )  # fmt: skip
        asyncio.run(measure(claim, every, chosen.arms, chosen.tasks))
    except OpenSageError as error:
        print(f"opensage_benchmarks.pgs.claim: {error}", file=sys.stderr)
        return 2
    known = {each.id for each in every}
    print(json.dumps({"model": chosen.model, "half": chosen.half, "arms": table(claim.ledger, known)}, indent=1))
    return 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m opensage_benchmarks.pgs.claim", description=__doc__)
    parser.add_argument("--model", required=True, help="of both roles")
    parser.add_argument("--out", type=Path, required=True, help="folder of the run; an earlier run goes on")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("OPENSAGE_DATA", "../shared/data")))
    parser.add_argument("--tasks", type=int, default=16, help="that were wrong at first")
    parser.add_argument("--half", choices=("tune", "report"), default="report")
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=5000, help="of each arm and task")
    parser.add_argument("--seconds", type=float, default=900.0, help="of each arm and task")
    parser.add_argument("--sandbox", default="bubblewrap")
    return parser.parse_args(argv)


if __name__ == "__main__":
    raise SystemExit(main())
