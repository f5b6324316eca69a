"""`python -m opensage_benchmarks.topology`: repairs of QuixBugs programs by five variants of one agent.

One JSON object a run goes to `--out` as it ends; a second start goes on with what is missing. Then a Markdown table.
The folder is QuixBugs (Lin et al. 2017, MIT) without its reference programs, from `$OPENSAGE_DATA`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import opensage
from opensage import AgentSpec, Limits, OpenSageError
from opensage.sandbox import open_sandbox

FILES = ("shell", "read", "write", "edit", "list", "search")
AGENTS = ("create_agent", "call_agent")
TOOLKITS = ("create_toolkit", "inspect_toolkit")
VARIANTS: dict[str, tuple[str, ...]] = {
    "full": (*FILES, *AGENTS, *TOOLKITS, "run_ensemble"),
    "no sub-agents": (*FILES, *TOOLKITS),
    "no toolkits": (*FILES, *AGENTS, "run_ensemble"),
    "no ensemble": (*FILES, *AGENTS, *TOOLKITS),
    "plain shell": ("shell",),
}
PROGRAMS = ("gcd", "flatten", "is_valid_parenthesization", "max_sublist_sum", "quicksort", "get_factors")
"""Programs whose tests end: one that loops for ever uses up the seconds of a run in one call."""
_TASK = "run python_testcases/test_{name}.py, find out why it fails, fix python_programs/{name}.py, run the test again"
_CHECK = "python -m pytest -q -p no:cacheprovider python_testcases/test_{name}.py"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run. `agents` and `toolkits` were made, `children` were called; `seconds` is wall time."""

    variant: str
    program: str
    success: bool
    status: str
    reason: str
    turns: int
    tool_calls: int
    tokens: int
    seconds: float
    agents: int
    children: int
    toolkits: int


def data_folder() -> Path:
    """Where QuixBugs is."""
    return Path(os.environ.get("OPENSAGE_DATA") or "../shared/data") / "quixbugs"


def copy_folder(data: Path, folder: Path) -> None:
    """The programs and tests, without the solutions."""
    for item in data.iterdir():
        if item.is_dir() and item.name != "correct_python_programs":
            shutil.copytree(item, folder / item.name, dirs_exist_ok=True)
        elif item.is_file():
            shutil.copy(item, folder / item.name)
    for path in (folder, *folder.rglob("*")):
        path.chmod(path.stat().st_mode | 0o200)


async def passes(folder: Path, program: str, data: Path) -> bool:
    """Whether the program's own tests pass, with the tests as they were."""
    for name in ("python_testcases", "json_testcases"):
        shutil.rmtree(folder / name, ignore_errors=True)
        shutil.copytree(data / name, folder / name)
    shutil.copy(data / "conftest.py", folder / "conftest.py")
    sandbox = open_sandbox("bubblewrap", folder)
    try:
        return (await sandbox.exec(_CHECK.format(name=program), timeout=60)).exit_code == 0
    finally:
        await sandbox.close()


def attempt(variant: str, program: str, model: str, limits: Limits) -> Outcome:
    """One run in a fresh copy of the folder."""
    data = data_folder()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy_folder(data, folder)
        began = time.monotonic()
        spec = AgentSpec(tools=VARIANTS[variant])
        events = []
        try:
            result = opensage.run(
                _TASK.format(name=program),
                agent=spec,
                model=model,
                workdir=folder,
                sandbox="bubblewrap",
                limits=limits,
                toolkits=(),
            )
            status, reason, usage, events = result.status, result.reason, result.usage, result.events
        except OpenSageError as error:
            status, reason, usage = "failed", str(error), {}
        seconds = time.monotonic() - began
        success = asyncio.run(passes(folder, program, data))
    kinds = [event.type for event in events]
    return Outcome(
        variant=variant,
        program=program,
        success=success,
        status=status,
        reason=reason,
        turns=usage.get("model_calls", 0),
        tool_calls=usage.get("tool_calls", 0),
        tokens=usage.get("input_tokens", 0) + usage.get("output_tokens", 0),
        seconds=round(seconds, 1),
        agents=kinds.count("agent.created"),
        children=kinds.count("agent.called"),
        toolkits=kinds.count("toolkit.made"),
    )


def table(rows: Sequence[Outcome]) -> str:
    """One line a variant: successes, medians of turns, tokens and seconds, what was made in all."""
    lines = [
        "| variant | success | said done | turns | tokens | seconds | agents made | called | toolkits made |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for variant in dict.fromkeys(row.variant for row in rows):
        mine = [row for row in rows if row.variant == variant]
        medians = [statistics.median(getattr(row, key) for row in mine) for key in ("turns", "tokens", "seconds")]
        good, done = sum(row.success for row in mine), sum(row.status == "done" for row in mine)
        sums = [sum(getattr(row, key) for row in mine) for key in ("agents", "children", "toolkits")]
        cells = [variant, f"{good} of {len(mine)}", str(done), *(f"{value:g}" for value in (*medians, *sums))]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def read_rows(path: Path) -> list[Outcome]:
    """What an earlier start left; a torn last line is dropped."""
    rows: list[Outcome] = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            data = json.loads(line)
        except ValueError:
            continue
        if "variant" in data:
            rows.append(Outcome(**data))
    return rows


def main(argv: Sequence[str] | None = None) -> None:
    """Read the flags, run what is missing, print the table."""
    parser = argparse.ArgumentParser(prog="opensage_benchmarks.topology")
    parser.add_argument("--model", default="local/qwen2.5-coder-1.5b")
    parser.add_argument("--variant", action="append", choices=list(VARIANTS))
    parser.add_argument("--program", action="append")
    parser.add_argument("--max-turns", type=int, default=12)
    parser.add_argument("--max-seconds", type=float, default=300.0)
    parser.add_argument("--out", type=Path, default=Path("topology.jsonl"))
    args = parser.parse_args(argv)
    if not data_folder().is_dir():
        sys.exit(f"no {data_folder()}: set OPENSAGE_DATA to the folder that holds quixbugs")
    limits = Limits(max_turns=args.max_turns, max_seconds=args.max_seconds, max_agents=4, max_depth=1)
    rows = read_rows(args.out)
    there = {(row.variant, row.program) for row in rows}
    for program in args.program or PROGRAMS:
        for variant in args.variant or VARIANTS:
            if (variant, program) in there:
                continue
            rows.append(attempt(variant, program, args.model, limits))
            with args.out.open("a") as out:
                out.write(json.dumps(asdict(rows[-1])) + "\n")
            print(json.dumps(asdict(rows[-1])), file=sys.stderr, flush=True)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(f"{args.model}, {args.max_turns} turns and {args.max_seconds:g} s at most, {machine}\n")
    print(table(rows))


if __name__ == "__main__":
    main()
