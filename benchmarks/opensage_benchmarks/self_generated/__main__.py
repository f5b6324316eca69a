"""`python -m opensage_benchmarks.self_generated`: three messages to one agent; prints the run, then its topology.

`--record FOLDER` keeps the model's replies there, for the test that replays them; the workspace's path is `{workdir}`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

from rich.console import Console

from opensage import AgentSpec, Limits
from opensage.cli.agents import drawn
from opensage.cli.show import Screen
from opensage.engine import Engine
from opensage.models.cassette import fingerprint
from opensage.topology.graph import Node, Topology

MESSAGES = (
    'Make a toolkit named "stats" for statistics of numbers: tools.py with the function '
    "median(values: list[float]) -> float, and a test of it.",
    'Make an agent named "tester" with no tools and the toolkit "stats". Its instruction: compute with the tool '
    "stats__median, never by hand, and report the number.",
    'Call the agent "tester" with this task: "What is the median of 4, 8, 15, 16, 23, 42?" Tell me its answer.',
)
ROOT = AgentSpec(tools=("create_toolkit", "create_agent", "call_agent"), toolkits=())
LIMITS = Limits(max_turns=12)
WORKDIR = "{workdir}"


async def talk(model: str, workdir: Path, screen: Screen) -> Node:
    """Say the three messages; the tree of sessions that came of it."""
    # Without a memory: what an earlier run left there would change what the model is asked, and no tape would fit.
    engine = Engine(agent=ROOT, model=model, workdir=workdir, sandbox="bubblewrap", limits=LIMITS, memory=False)
    try:
        for message in MESSAGES:
            screen.say(f"you> {message}", "bold")
            async with aclosing(engine.turn(message)) as events:  # type: ignore[type-var]
                async for event in events:
                    screen.show(event)
    finally:
        await engine.close()
    return Topology(workdir / ".opensage" / "sessions", engine.session.id).root


def move(source: Path, target: Path, old: str, new: str) -> None:
    """Copy a cassette, with another path of the workspace in it."""
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted(source.glob("*.json")):
        record = json.loads(path.read_text().replace(old, new))
        number = path.stem.rpartition("-")[2]
        text = json.dumps(record, indent=1) + "\n"
        (target / f"{fingerprint(record['request'])}-{number}.json").write_text(text)


def main(argv: Sequence[str] | None = None) -> None:
    """Read the flags and run."""
    parser = argparse.ArgumentParser(prog="opensage_benchmarks.self_generated")
    parser.add_argument("--model", default="local/qwen2.5-coder-1.5b")
    parser.add_argument("--workdir", type=Path)
    parser.add_argument("--record", type=Path)
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as scratch:
        workdir = (args.workdir or Path(scratch) / "work").resolve()
        workdir.mkdir(parents=True, exist_ok=True)
        tape = Path(scratch) / "tape"
        model = f"record:{tape}:{args.model}" if args.record else args.model
        root = asyncio.run(talk(model, workdir, Screen()))
        Console(highlight=False, markup=False).print(drawn(root))
        if args.record:
            move(tape, args.record, str(workdir), WORKDIR)
    if [child.agent for child in root.children if child.status == "done"] == []:
        sys.exit("no sub-agent finished: this model did not do it this time")


if __name__ == "__main__":
    main()
