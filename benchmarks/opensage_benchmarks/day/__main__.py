"""`python -m opensage_benchmarks.day [TURNS]`: prints one JSON object."""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from pathlib import Path
from typing import Any

from opensage_benchmarks.day.measure import measure

MEGABYTE = 1 << 20


def holds(day: dict[str, Any]) -> dict[str, bool]:
    """Which limits hold. Memory is compared from the second tenth on: what is loaded once has been loaded by then."""
    tenths = day["tenths"]
    grown = tenths[-1]["rss_bytes"] - tenths[1]["rss_bytes"]
    return {
        "memory grows by at most 16 MiB": grown <= 16 * MEGABYTE,
        "the log loads in 2 s of CPU": day["load_cpu_s"] < 2,
        "loading is linear: all <= 2.6 x half": day["load_cpu_s"] <= 2.6 * max(day["load_cpu_s_of_half"], 0.02),
        "a turn of the last tenth costs at most 1.5 x one of the second": tenths[-1]["cpu_ms_per_turn"]
        <= 1.5 * tenths[1]["cpu_ms_per_turn"],
        "every resume ends well, every call has one result": not day["problems"],
    }


def main(argv: list[str] | None = None) -> None:
    """Live the day and print."""
    parser = argparse.ArgumentParser(prog="opensage_benchmarks.day", description="A day in one session.")
    parser.add_argument("turns", nargs="?", type=int, default=5000, help="model calls (5000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--resumes", type=int, default=20, help="random places at which a copy is cut and resumed (20)")
    parser.add_argument("--sandbox", default="bubblewrap")
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        day = measure(
            given.turns, seed=given.seed, resumes=given.resumes, sandbox=given.sandbox, folder=Path(folder).resolve()
        )
    print(json.dumps({**day, "holds": holds(day), "machine": platform.machine(), "cpus": os.cpu_count()}, indent=1))


if __name__ == "__main__":
    main()
