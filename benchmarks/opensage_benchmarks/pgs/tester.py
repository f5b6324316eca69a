"""What a model's properties are worth: readable, true to the public pairs, right, and able to see the bug?

`python -m opensage_benchmarks.pgs.tester --model local/qwen2.5-coder-1.5b --out DIR` asks the Tester once for each
function of the half that prompts are tuned on, and runs what it states on the right and on the wrong program.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from opensage.errors import OpenSageError
from opensage.models import open_model
from opensage.protocols import Model
from opensage_agents.pgs.asking import Desk, ModelAsker
from opensage_agents.pgs.checking import acheck
from opensage_agents.pgs.filtering import avalidate
from opensage_agents.pgs.properties import PropertyError, PropertySet
from opensage_agents.pgs.strategies import strategy_from
from opensage_agents.pgs.task import PGSConfig
from opensage_agents.pgs.tester import SYSTEM, Tester, read_proposal
from opensage_agents.pgs.trace import Trace
from opensage_benchmarks.pgs.cases import Case, cases
from opensage_benchmarks.pgs.ledger import Ledger

FATES = ("unfit", "rejects a public pair", "cannot be used", "wrong", "right", "sees the bug")
"""What becomes of a property; one that sees the bug is right, too, and counted there alone."""


async def fates(model: Model, case: Case, sandbox: str) -> dict[str, Any]:
    """Ask once; the fate of each property by its name."""
    config = PGSConfig(inputs="derived", sandbox=sandbox)
    desk = Desk({"tester": ModelAsker(model)}, config, Trace(None))
    reply = await desk.ask("tester", SYSTEM, Tester(desk, case.task).prompt())
    seen = read_proposal(reply, case.task)
    found = dict.fromkeys(seen.refused, "unfit")
    inputs = strategy_from(case.task.code or "", case.task.entry_point, case.task.public_tests)
    props = PropertySet(
        case.task.entry_point, inputs.strategy, seen.properties, list(inputs.preconditions),
        list(case.task.public_tests), setup=seen.setup,
    )  # fmt: skip
    found |= await _judged(case, props, sandbox) if seen.properties else {}
    return {"fates": found, "reply": reply, "tokens": desk.tokens}


async def _judged(case: Case, props: PropertySet, sandbox: str) -> dict[str, str]:
    try:
        report = await avalidate(props, case.task.public_tests, sandbox=sandbox)
    except PropertyError:
        return dict.fromkeys(props.names, "cannot be used")
    found = dict.fromkeys(report.dropped, "rejects a public pair")
    left = props.only([*report.kept, *report.undecided])
    if not left.names:
        return found
    right, wrong = [
        await acheck(code, replace(left, examples=left.examples), max_examples=64, sandbox=sandbox)
        for code in (case.reference, case.task.code or "")
    ]
    unusable = right.status == "invalid_property"
    for name in left.names:
        found[name] = (
            "cannot be used" if unusable or name in right.invalid
            else "wrong" if name in right.broken
            else "sees the bug" if name in wrong.broken
            else "right"
        )  # fmt: skip
    return found


def table(ledger: Ledger) -> dict[str, Any]:
    """How many properties met each fate, and for how many functions one at least did."""
    rows = ledger.group("tester").values()
    each = Counter(fate for row in rows for fate in row["fates"].values())
    tasks = Counter(fate for row in rows for fate in set(row["fates"].values()))
    none = sum(not row["fates"] for row in rows)
    return {
        "functions": len(rows), "without any": none, "properties": {fate: each[fate] for fate in FATES},
        "functions with one": {fate: tasks[fate] for fate in FATES},
        "tokens": round(sum(row["tokens"] for row in rows) / max(1, len(rows))),
    }  # fmt: skip


async def measure(model: Model, ledger: Ledger, chosen: Sequence[Case], sandbox: str) -> None:
    """Each function once, also when an earlier run was ended."""
    for case in chosen:
        if ("tester", case.id) not in ledger.records:
            ledger.add("tester", case.id, await fates(model, case, sandbox))
            row = ledger.records["tester", case.id]
            told = f"{time.strftime('%H:%M:%S')} {case.id}: {row['fates']} {row['wall']:.0f} s"
            print(told, file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is asked for; returns the exit code."""
    chosen = _arguments(argv)
    try:
        every = [each for each in cases(chosen.data) if not each.written and each.tuned == (chosen.half == "tune")]
        chosen.out.mkdir(parents=True, exist_ok=True)
        ledger = Ledger(chosen.out / "tester.jsonl", {"model": chosen.model, "half": chosen.half})
        asyncio.run(measure(open_model(chosen.model), ledger, every[: chosen.tasks], chosen.sandbox))
    except OpenSageError as error:
        print(f"opensage_benchmarks.pgs.tester: {error}", file=sys.stderr)
        return 2
    print(json.dumps({"model": chosen.model, "half": chosen.half, **table(ledger)}, indent=1))
    return 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m opensage_benchmarks.pgs.tester", description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder of the run; an earlier run goes on")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("OPENSAGE_DATA", "../shared/data")))
    parser.add_argument("--tasks", type=int, default=12)
    parser.add_argument("--half", choices=("tune", "report"), default="tune")
    parser.add_argument("--sandbox", default="bubblewrap")
    return parser.parse_args(argv)


if __name__ == "__main__":
    raise SystemExit(main())
