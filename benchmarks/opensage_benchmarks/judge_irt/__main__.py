"""`python -m opensage_benchmarks.judge_irt`: a table on stderr, one JSON object on stdout. No model is asked.

Exit code: 0 all that is required holds, 1 something does not, 2 bad input. The full form also counts, over 20 other
seeds, how often recovery and the cells of the diagnosis hold by chance.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from opensage.errors import OpenSageError
from opensage_benchmarks.checks import Row, machine, told
from opensage_benchmarks.judge_irt import rows

FRESH = 100
"""How far the seeds that are counted lie from the first one."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m opensage_benchmarks.judge_irt", description=__doc__)
    folder = Path(os.environ.get("OPENSAGE_DATA") or "../shared/data")
    parser.add_argument("--quick", action="store_true", help="fewer seeds")
    parser.add_argument("--seed", type=int, default=0, help="the first one; others follow it")
    parser.add_argument("--peer", help="Python of an environment with girth and mirt")
    parser.add_argument("--data", type=Path, default=folder, help="folder with tabular/science_grm.csv")
    chosen = parser.parse_args(argv)
    if not (chosen.data / "tabular" / "science_grm.csv").is_file():
        parser.error(f"no {chosen.data}/tabular/science_grm.csv: set OPENSAGE_DATA or --data")
    load = os.getloadavg()[0]
    try:
        found = list(_rows(chosen))
    except OpenSageError as error:
        print(f"opensage_benchmarks.judge_irt: {error}", file=sys.stderr)
        return 2
    result = {**machine("numpy", "scipy", load=load), "quick": chosen.quick, "seed": chosen.seed}
    return told(found, result, "Judges by item response theory", ("python", "numpy", "scipy", "cpus", "load_at_start"))


def _rows(chosen: argparse.Namespace) -> Iterator[Row]:
    first, quick = chosen.seed, chosen.quick
    few = range(first, first + 3)
    science = rows.read_science(chosen.data)
    yield rows.reference(science)
    yield rows.recovery(few if quick else range(first, first + 5))
    yield from rows.cells(few if quick else range(first, first + 10))
    if not quick:
        yield from rows.fresh(range(first + FRESH, first + FRESH + 20))
    yield rows.probabilities(range(first, first + (4 if quick else 40)))
    yield rows.two_levels(first)
    yield rows.invariance(first)
    yield rows.gate(first)
    yield rows.gradient(first)
    yield rows.large()
    yield rows.scales(few)
    if not quick:
        yield rows.noise((40, 100, 300, 800, 2000), range(first, first + 20))
    if chosen.peer:
        yield from rows.peers(chosen.peer, science)


if __name__ == "__main__":
    sys.exit(main())
