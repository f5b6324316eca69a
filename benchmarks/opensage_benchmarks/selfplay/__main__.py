"""`python -m opensage_benchmarks.selfplay`: a table on stderr, one JSON object on stdout. No language model is asked.

Exit code: 0 all that is required holds, 1 something does not, 2 bad input, 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from opensage.errors import OpenSageError
from opensage_benchmarks.checks import Row, machine, told
from opensage_benchmarks.selfplay import collapse, detection

Section = Callable[[], Iterator[Row]]

EMBEDDERS = ("hash", "minilm")


def sections(quick: bool, first: int) -> dict[str, list[Section]]:
    """What is measured, by section; `first` is the first seed of the worlds."""
    seeds, main = range(first, first + 20), ("batch", "oneclass", "random")
    kinds = ("knn",) if quick else detection.ALL
    few, some = range(first, first + 5), range(first, first + 2)
    if quick:
        return {
            "calibration": [lambda: detection.calibration(kinds, range(20))],
            "detection": [lambda: detection.detection("hash", detection.REQUIRED, range(2))],
            "gibberish": [lambda: detection.gibberish(detection.REQUIRED)],
            "t1": [lambda: collapse.t1(seeds, main), lambda: collapse.t1_fast(seeds, main)],
            "t2": [lambda: collapse.t2(few, ("base", "batch", "oneclass"))],
            "ablation": [lambda: collapse.ablation(some)],
            "cap": [detection.memory, lambda: detection.speed(kinds)],
        }
    return {
        "calibration": [lambda: detection.calibration(kinds, range(20))],
        "detection": [
            *(partial(detection.detection, each, kinds, range(10)) for each in EMBEDDERS),
            *(partial(detection.peers, each, range(10)) for each in EMBEDDERS),
        ],
        "gibberish": [lambda: detection.gibberish(kinds)],
        "t1": _t1(seeds, main),
        "t2": [lambda: collapse.t2(seeds, collapse.T2_ARMS), lambda: collapse.unkind(seeds)],
        "ablation": [lambda: collapse.ablation(seeds)],
        "cap": [lambda: collapse.capped(few), detection.memory, lambda: detection.speed(kinds)],
    }


def _t1(seeds: range, main: Sequence[str]) -> list[Section]:
    """The world, other seeds, other sizes, and one that does not collapse."""
    others = range(seeds.start + 100, seeds.start + 120)
    found: list[Section] = [
        lambda: collapse.t1(seeds, collapse.T1_ARMS),
        lambda: collapse.t1_fast(seeds, collapse.T1_ARMS),
        lambda: collapse.t1(others, main),
        lambda: collapse.t1_fast(others, main),
    ]
    for families, variants in ((30, 12), (60, 12), (40, 20)):
        size = {"families": families, "variants": variants}
        title = f" F={families} V={variants}"
        found += [partial(call, seeds, main, title, **size) for call in (collapse.t1, collapse.t1_fast)]
    return [*found, lambda: collapse.kind_world(seeds)]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; returns the exit code."""
    chosen = _arguments(argv)
    try:
        return _run(chosen)
    except OpenSageError as error:
        print(f"opensage_benchmarks.selfplay: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted: --only SECTION measures a part", file=sys.stderr)
        return 130


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m opensage_benchmarks.selfplay", description=__doc__)
    names = tuple(sections(True, 0))
    parser.add_argument("--quick", action="store_true", help="fewer seeds, rewards and detectors: under two minutes")
    parser.add_argument("--seed", type=int, default=100, help="first seed of the worlds (100)")
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="these sections alone")
    parser.add_argument("--json", type=Path, help="also write the JSON object to this file")
    chosen = parser.parse_args(argv)
    if chosen.seed < 0:
        parser.error("--seed must be 0 or more")
    return chosen


def _run(chosen: argparse.Namespace) -> int:
    load, start, cpu = os.getloadavg()[0], time.monotonic(), time.process_time()
    found: list[Row] = []
    for name, parts in sections(chosen.quick, chosen.seed).items():
        if name in chosen.only:
            print(f"{name} ...", file=sys.stderr, flush=True)
            found += [_shown(row) for part in parts for row in part()]
    spent = {"seconds": round(time.monotonic() - start, 1), "cpu_seconds": round(time.process_time() - cpu, 1)}
    versions = machine("numpy", "scikit-learn", "scipy", load=load)
    result = {**versions, **spent, "quick": chosen.quick, "seed": chosen.seed, "sections": list(chosen.only)}
    keys = ("python", "scikit-learn", "cpus", "load_at_start", "cpu_seconds")
    return told(found, result, "Self-play novelty", keys, chosen.json)


def _shown(row: Row) -> Row:
    """Each figure as it comes: an interrupted run has not measured for nothing."""
    print(f"  {row.check}: {row.measured}", file=sys.stderr, flush=True)
    return row


if __name__ == "__main__":
    sys.exit(main())
