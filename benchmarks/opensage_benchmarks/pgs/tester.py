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
from pathlib import Path
from typing import Any

from opensage.errors import OpenSageError
from opensage.models import open_model
from opensage.protocols import Model
from opensage_agents.pgs.asking import Desk, ModelAsker
from opensage_agents.pgs.checking import acheck
from opensage_agents.pgs.properties import PropertySet
from opensage_agents.pgs.stock import NOTHING, Stock
from opensage_agents.pgs.task import PGSConfig
from opensage_agents.pgs.tester import Tester
from opensage_agents.pgs.trace import Trace
from opensage_benchmarks.pgs.cases import Case, cases
from opensage_benchmarks.pgs.ledger import Ledger

FATES = ("unfit", "rejects", "cannot be used", "contradicts", "vacuous", "wrong", "right", "sees the bug")
"""What becomes of a property; one that sees the bug is right, too, and counted there alone."""


async def fates(model: Model, case: Case, sandbox: str) -> dict[str, Any]:
    """Ask as the loop does in its first round; the fate of each property by its name."""
    config = PGSConfig(inputs="derived", sandbox=sandbox, ghostwriter=False)
    desk = Desk({"tester": ModelAsker(model)}, config, Trace(None))
    props = PropertySet(case.task.entry_point, NOTHING, examples=list(case.task.public_tests))
    stock = Stock(case.task, config, Tester(desk, case.task), props, by_hand=False)
    await stock.fill(case.task.code or "")
    found = {name: next(fate for fate in FATES if why.startswith(fate)) for name, why in stock.dropped.items()}
    found |= await _judged(case, stock.props, sandbox) if stock.names else {}
    return {"fates": found, "tokens": desk.tokens, "properties": [each.text for each in stock.props.properties]}


async def _judged(case: Case, props: PropertySet, sandbox: str) -> dict[str, str]:
    """What is kept, on the right program and on the wrong one."""
    right, wrong = [
        await acheck(code, props, max_examples=64, sandbox=sandbox) for code in (case.reference, case.task.code or "")
    ]
    unusable = right.status == "invalid_property"
    return {
        name: "cannot be used" if unusable or name in right.invalid
        else "wrong" if name in right.broken
        else "sees the bug" if name in wrong.broken
        else "right"
        for name in props.names
    }  # fmt: skip


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
