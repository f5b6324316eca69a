"""`python -m opensage_benchmarks.safety_cot`: a table on stderr, one JSON object on stdout. No model is asked.

Exit code: 0 all that is required holds, 1 something does not, 2 bad input, 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence

from opensage.errors import OpenSageError
from opensage_benchmarks.checks import machine, told
from opensage_benchmarks.safety_cot import rows


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m opensage_benchmarks.safety_cot", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="5 seeds of the bank instead of 20")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default 0)")
    chosen = parser.parse_args(argv)
    if chosen.seed < 0:
        parser.error("--seed must be 0 or more")
    try:
        return _run(chosen.quick, chosen.seed)
    except OpenSageError as error:
        print(f"opensage_benchmarks.safety_cot: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted: nothing is kept, start it again", file=sys.stderr)
        return 130


def _run(quick: bool, seed: int) -> int:
    started, load = time.process_time(), os.getloadavg()[0]
    seeds = range(seed, seed + (5 if quick else 20))
    found = [*rows.properties(100_000, seed), *rows.leaks(), *rows.synthesis(seed), *rows.declines()]
    compared, absent = rows.judges(seed)
    runs = rows.runs_of(seeds)
    found += [*compared, *rows.policies(runs), *rows.others(runs)]
    result = {
        **machine("numpy", load=load), "seeds": list(seeds), "cpu_seconds": round(time.process_time() - started, 1),
        "left_out": absent,
    }  # fmt: skip
    code = told(found, result, "Safety-CoT without a model", ("python", "numpy", "cpus", "cpu_seconds"))
    print(f"seeds {seeds[0]} to {seeds[-1]}; left out: {'; '.join(absent) or 'nothing'}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
