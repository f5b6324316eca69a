"""`python -m opensage_benchmarks.first_run`: prints one JSON object a try, then a Markdown table.

The folder is QuixBugs (Lin et al. 2017, MIT) without its reference programs, from `$OPENSAGE_DATA`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import opensage
from opensage import Limits, OpenSageError
from opensage.sandbox import open_sandbox


@dataclass(frozen=True, slots=True)
class Task:
    """A task and the command that tells whether it was done; tests are put back before it runs."""

    name: str
    text: str
    check: str


@dataclass(frozen=True, slots=True)
class Try:
    """What one try came to. `seconds` is wall time; `output_tokens` is what the model wrote."""

    task: str
    success: bool
    status: str
    reason: str
    turns: int
    tool_calls: int
    input_tokens: int
    output_tokens: int
    seconds: float


def _repair(name: str) -> Task:
    test, program = f"python_testcases/test_{name}.py", f"python_programs/{name}.py"
    text = f"run {test}, find out why it fails, fix {program}, run the test again"
    return Task(name, text, f"python -m pytest -q -p no:cacheprovider {test}")


TASKS = (
    _repair("gcd"),
    _repair("is_valid_parenthesization"),
    Task(
        "script",
        "write count_lines.py, a script that prints the number of lines of the file named by its first argument, "
        "and run it on conftest.py",
        'test "$(python count_lines.py conftest.py | grep -Eo "[0-9]+" | tail -1)" = "$(wc -l < conftest.py)"',
    ),
)


def _data() -> Path:
    return Path(os.environ.get("OPENSAGE_DATA") or "../shared/data") / "quixbugs"


def _copy(data: Path, folder: Path) -> None:
    for item in data.iterdir():
        if item.name == "correct_python_programs":
            continue
        if item.is_dir():
            shutil.copytree(item, folder / item.name, dirs_exist_ok=True)
        else:
            shutil.copy(item, folder / item.name)
    for path in (folder, *folder.rglob("*")):
        path.chmod(path.stat().st_mode | 0o200)


async def _passes(folder: Path, task: Task, data: Path) -> bool:
    for name in ("python_testcases", "json_testcases"):
        shutil.rmtree(folder / name, ignore_errors=True)
        shutil.copytree(data / name, folder / name)
    shutil.copy(data / "conftest.py", folder / "conftest.py")
    sandbox = open_sandbox("bubblewrap", folder)
    try:
        return (await sandbox.exec(task.check, timeout=60)).exit_code == 0
    finally:
        await sandbox.close()


def attempt(task: Task, model: str, limits: Limits) -> Try:
    """One try in a fresh copy of the folder."""
    data = _data()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _copy(data, folder)
        began = time.monotonic()
        try:
            result = opensage.run(task.text, model=model, workdir=folder, sandbox="bubblewrap", limits=limits)
            status, reason, usage = result.status, result.reason, result.usage
        except OpenSageError as error:
            status, reason, usage = "failed", str(error), {}
        seconds = time.monotonic() - began
        success = asyncio.run(_passes(folder, task, data))
    return Try(
        task=task.name,
        success=success,
        status=status,
        reason=reason,
        turns=usage.get("model_calls", 0),
        tool_calls=usage.get("tool_calls", 0),
        input_tokens=usage.get("input_tokens", 0),
        output_tokens=usage.get("output_tokens", 0),
        seconds=round(seconds, 1),
    )


def table(tries: Sequence[Try]) -> str:
    """One row a task: successes, and medians of turns, tokens and seconds."""
    lines = ["| task | success | turns | tokens read | tokens written | seconds |", "|---|---|---|---|---|---|"]
    for name in dict.fromkeys(row.task for row in tries):
        rows = [row for row in tries if row.task == name]
        medians = [
            statistics.median(getattr(row, key) for row in rows)
            for key in ("turns", "input_tokens", "output_tokens", "seconds")
        ]
        good = sum(row.success for row in rows)
        lines.append(f"| {name} | {good} of {len(rows)} | " + " | ".join(f"{value:g}" for value in medians) + " |")
    return "\n".join(lines)


def main() -> None:
    """Read the flags, run all tries, print as it goes."""
    parser = argparse.ArgumentParser(prog="opensage_benchmarks.first_run")
    parser.add_argument("--model", default="local/qwen2.5-coder-1.5b")
    parser.add_argument("--tries", type=int, default=5)
    parser.add_argument("--task", action="append", choices=[task.name for task in TASKS])
    parser.add_argument("--max-turns", type=int, default=20)
    parser.add_argument("--max-seconds", type=float, default=420.0)
    args = parser.parse_args()
    if not _data().is_dir():
        sys.exit(f"no {_data()}: set OPENSAGE_DATA to the folder that holds quixbugs")
    limits = Limits(max_turns=args.max_turns, max_seconds=args.max_seconds)
    tries: list[Try] = []
    for _ in range(args.tries):
        for task in TASKS:
            if not args.task or task.name in args.task:
                tries.append(attempt(task, args.model, limits))
                print(json.dumps(asdict(tries[-1])), flush=True)
    print(table(tries))


if __name__ == "__main__":
    main()
