"""`python -m opensage_benchmarks.overhead [--peer NAME=PYTHON]...`: prints one JSON object; seconds are CPU seconds."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import opensage
from opensage import Limits, tool
from opensage.sandbox import ScriptedSandbox
from opensage_benchmarks.overhead.kits.opensage_kit import script

HERE = Path(__file__).parent
KITS = {
    "opensage": "opensage_kit.py",
    "mini-swe-agent": "mini_swe_agent.py",
    "smolagents": "smolagents_kit.py",
    "pydantic-ai": "pydantic_ai_kit.py",
    "openai-agents": "openai_agents_kit.py",
}
PEERS = [name for name in KITS if name != "opensage"]
KIT_SECONDS = 300


@tool
def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


def run_kit(name: str, python: str, turns: int) -> dict[str, Any]:
    """The figures of one kit in its own process, or `{"error": why}`."""
    command = [python, "-I", str(HERE / "child.py"), str(HERE / "kits" / KITS[name]), str(turns)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=KIT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"error": str(error)}
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]}
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def summary(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """One kit's rounds as one: medians, and the least and the most of them. An error of any round is told."""
    failed = [figures for figures in rounds if "error" in figures]
    if failed:
        return failed[0]
    costs = [figures["cpu_ms_per_turn_median"] for figures in rounds]
    growth = [figures["last_tenth_over_first"] for figures in rounds]
    return {
        **{key: rounds[0][key] for key in ("package", "version", "python")},
        "cpu_ms_per_turn_median": round(statistics.median(costs), 4),
        "least_and_most": [min(costs), max(costs)],
        "last_tenth_over_first": round(statistics.median(growth), 3),
    }


def compare(peers: dict[str, str], turns: int, rounds: int) -> dict[str, Any]:
    """All kits by turns, each in its own process; a peer without a Python is named as left out."""
    pythons = {"opensage": sys.executable, **peers}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in pythons}
    for _ in range(rounds):
        for name, python in pythons.items():
            if not any("error" in figures for figures in found[name]):
                found[name].append(run_kit(name, python, turns))
    kits = {name: summary(figures) for name, figures in found.items()}
    own = kits["opensage"].get("cpu_ms_per_turn_median")
    for name, figures in kits.items():
        if name != "opensage" and own and "error" not in figures:
            figures["times_opensage"] = round(figures["cpu_ms_per_turn_median"] / own, 1)
    left_out = [name for name in PEERS if name not in peers]
    return {"turns": turns, "rounds": rounds, "kits": kits, "left_out": left_out}


def cpu_of(*argv: str) -> float:
    """CPU seconds of a Python command, the median of five."""
    spent = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *argv], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return round(statistics.median(spent), 4)


def memory_per_turn(turns: int) -> int:
    """Bytes of Python memory that each turn leaves behind while the session is open."""

    async def grow() -> int:
        marks: list[int] = []
        with tempfile.TemporaryDirectory() as folder:
            async for event in opensage.stream(
                "add",
                model=script(turns),
                tools=[add],
                sandbox=ScriptedSandbox(),
                workdir=folder,
                limits=Limits(max_turns=turns + 10),
            ):
                if event.type == "tool.result":
                    marks.append(tracemalloc.get_traced_memory()[0])
        return marks[-1] - marks[turns // 10]

    tracemalloc.start()
    grown = asyncio.run(grow())
    tracemalloc.stop()
    return round(grown / (turns - turns // 10))


def targets(own: dict[str, Any], figures: dict[str, Any], kits: dict[str, Any]) -> dict[str, bool]:
    """Which of the kit's own limits hold."""
    cost, mini = own["cpu_ms_per_turn_median"], kits.get("mini-swe-agent", {}).get("cpu_ms_per_turn_median")
    here = kits["opensage"].get("cpu_ms_per_turn_median", cost)
    return {
        "cpu <= 0.5 ms a turn, or <= 1/5 of mini-swe-agent's": cost <= 0.5 or bool(mini and here <= mini / 5),
        "last tenth <= 1.2 x first tenth": own["last_tenth_over_first"] <= 1.2,
        "memory <= 2 KiB a turn": figures["memory_bytes_per_turn"] <= 2048,
        "import <= 0.15 s": figures["import_opensage_cpu_s"] <= 0.15,
        "--help <= 0.4 s": figures["help_cpu_s"] <= 0.4,
    }


def measure(turns: int, peers: dict[str, str], peer_turns: int, rounds: int) -> dict[str, Any]:
    """All figures.

    Raises:
        SystemExit: the kit itself could not be measured.
    """
    own = summary([run_kit("opensage", sys.executable, turns) for _ in range(rounds)])
    if "error" in own:
        raise SystemExit(f"opensage cannot be measured: {own['error']}")
    figures = {
        "memory_bytes_per_turn": memory_per_turn(turns),
        "bare_python_cpu_s": cpu_of("-c", "pass"),
        "import_opensage_cpu_s": cpu_of("-c", "import opensage"),
        "help_cpu_s": cpu_of("-m", "opensage", "--help"),
    }
    comparison = compare(peers, peer_turns, rounds)
    return {
        "turns": turns,
        "rounds": rounds,
        **own,
        **figures,
        "comparison": comparison,
        "holds": targets(own, figures, comparison["kits"]),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
    }


def peer(text: str) -> tuple[str, str]:
    """`NAME=PYTHON` as a pair."""
    name, _, python = text.partition("=")
    if name not in PEERS or not python:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=PYTHON with a NAME of {', '.join(PEERS)}")
    return name, python


def count(text: str) -> int:
    """A number of turns; fewer than 20 have no first and last tenth worth the name."""
    number = int(text)
    if number < 20:
        raise argparse.ArgumentTypeError(f"{number} turns are too few; give 20 or more")
    return number


def main(argv: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="opensage_benchmarks.overhead", description="What a turn of the kit costs.")
    parser.add_argument("turns", nargs="?", type=count, default=1000, help="scripted tool turns of OpenSage (1000)")
    parser.add_argument("--peer", type=peer, action="append", default=[], metavar="NAME=PYTHON", help=", ".join(PEERS))
    parser.add_argument("--peer-turns", type=count, default=200, help="turns of the comparison (200)")
    parser.add_argument(
        "--rounds", type=int, choices=range(1, 100), default=3, metavar="N", help="how often each is run (3)"
    )
    given = parser.parse_args(argv)
    print(json.dumps(measure(given.turns, dict(given.peer), given.peer_turns, given.rounds), indent=1))


if __name__ == "__main__":
    main()
