"""`python -m opensage_benchmarks.pgs`: a table on stderr, one JSON object on stdout. No model is asked.

Exit code: 0 all that is required holds, 1 something does not, 2 bad input, 130 interrupted.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from opensage.errors import OpenSageError
from opensage_benchmarks.checks import machine, told
from opensage_benchmarks.pgs import rows
from opensage_benchmarks.pgs.jobs import CALL_SECONDS, Job, plan
from opensage_benchmarks.pgs.ledger import Ledger


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is missing; returns the exit code."""
    chosen = _arguments(argv)
    try:
        with tempfile.TemporaryDirectory() as spare:
            return _run(chosen, chosen.out or Path(spare))
    except OpenSageError as error:
        print(f"opensage_benchmarks.pgs: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        again = "the same command goes on" if chosen.out else "with --out FOLDER a run can go on later"
        print(f"interrupted: {again}", file=sys.stderr)
        return 130


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m opensage_benchmarks.pgs", description=__doc__)
    folder = Path(os.environ.get("OPENSAGE_DATA") or "../shared/data")
    parser.add_argument("--quick", action="store_true", help="one seed, about every fourth program by its name's hash")
    parser.add_argument("--seeds", type=int, nargs="+", help="of the drawing (default 0 1 2; quick 0)")
    parser.add_argument("--sandbox", default="bubblewrap", help="bubblewrap, docker or docker:IMAGE")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="checks at once")
    parser.add_argument("--data", type=Path, default=folder, help="folder with quixbugs/ and HumanEvalFix's file")
    parser.add_argument("--out", type=Path, help="folder of the records: started again, the run goes on there")
    parser.add_argument("--json", type=Path, help="also write the JSON object to this file")
    chosen = parser.parse_args(argv)
    chosen.seeds = list(dict.fromkeys(chosen.seeds or ([0] if chosen.quick else [0, 1, 2])))
    if chosen.workers < 1:
        parser.error("--workers must be 1 or more")
    if not (chosen.data / "quixbugs").is_dir():
        parser.error(f"no {chosen.data / 'quixbugs'}: set OPENSAGE_DATA or --data to the folder that holds quixbugs")
    return chosen


def _run(chosen: argparse.Namespace, out: Path) -> int:
    jobs = plan(chosen.data, chosen.seeds, chosen.sandbox, chosen.quick)
    ledger = Ledger(out / "records.jsonl", _settings(chosen))
    load, cpus = os.getloadavg()[0], os.cpu_count() or 1
    asyncio.run(work(jobs, ledger, chosen.workers))
    wanted = {(job.group, job.name) for job in jobs}

    def group(name: str) -> dict[str, dict[str, Any]]:
        return {job: each for job, each in ledger.group(name).items() if (name, job) in wanted}

    found = rows.rows(group, chosen.seeds, busy=load > cpus / 2)
    found += rows.late({key: record for key, record in ledger.records.items() if key in wanted})
    result = {**_settings(chosen), **machine(load=load), "seeds": chosen.seeds, "workers": chosen.workers}
    result |= {"part": _part(jobs, chosen.quick)}
    print(f"measured on {result['part']}", file=sys.stderr)
    keys = ("sandbox", "hypothesis", "python", "cpus", "workers")
    return told(found, result, "Properties without a model", keys, chosen.json)


def _settings(chosen: argparse.Namespace) -> dict[str, Any]:
    """What records of one file must have in common."""
    from importlib.metadata import version

    return {
        "sandbox": chosen.sandbox, "call_seconds": CALL_SECONDS, "opensage": version("opensage"),
        "hypothesis": version("hypothesis"), "python": platform.python_version(),
    }  # fmt: skip


def _part(jobs: Sequence[Job], quick: bool) -> str:
    if not quick:
        return "all programs and tasks"
    programs = sorted({job.name for job in jobs if job.group == "again"})
    tasks = {job.name for job in jobs if job.group.startswith("HumanEvalFix")}
    return f"the {len(programs)} programs ({', '.join(programs)}) and {len(tasks)} tasks whose name's hash says so"


async def work(jobs: Sequence[Job], ledger: Ledger, workers: int) -> None:
    """Do the jobs that have no record, or ran out of time, a group after the other, so many at once."""
    done = {key for key, record in ledger.records.items() if not record.get("late")}
    missing = [job for job in jobs if (job.group, job.name) not in done]
    with _progress(len(jobs), len(jobs) - len(missing)) as step:
        for _, group in groupby(missing, key=lambda job: job.group):
            await _together(list(group), ledger, workers, step)


async def _together(group: list[Job], ledger: Ledger, workers: int, step: Callable[[str], None]) -> None:
    queue = iter(group)

    async def worker() -> None:
        for job in queue:
            ledger.add(job.group, job.name, await job.work())
            step(job.group)

    ledger.tick()
    step(f"{group[0].group} ...")
    try:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(1 if group[0].alone else min(workers, len(group))):
                tasks.create_task(worker())
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None


class _progress:
    """A bar with the time that is left, on a terminal; else nothing."""

    def __init__(self, total: int, done: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
        self._bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task("checks", total=total, completed=done)

    def __enter__(self) -> Callable[[str], None]:
        self._bar.start()
        return self._step

    def __exit__(self, *_error: object) -> None:
        self._bar.stop()

    def _step(self, group: str) -> None:
        self._bar.update(self._task, description=group.removesuffix(" ..."), advance=0 if group.endswith("...") else 1)


if __name__ == "__main__":
    sys.exit(main())
