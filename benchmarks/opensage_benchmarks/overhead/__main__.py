"""`python -m opensage_benchmarks.overhead [TURNS]`: prints one JSON object. Peers are not compared yet."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from typing import Any

import opensage
from opensage import Limits, tool
from opensage.models import ScriptedModel
from opensage.sandbox import ScriptedSandbox


@tool
def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


def _turns(count: int) -> list[dict[str, Any]]:
    calls = [{"tool_calls": [{"id": f"c{n}", "name": "add", "arguments": {"a": n, "b": 1}}]} for n in range(count)]
    return [*calls, {"text": "done"}]


async def _stamps(count: int) -> list[float]:
    """Process CPU seconds at each tool result."""
    stamps: list[float] = []
    options: dict[str, Any] = {"model": ScriptedModel(_turns(count)), "tools": [add], "sandbox": ScriptedSandbox()}
    with tempfile.TemporaryDirectory() as folder:
        limits = Limits(max_turns=count + 10)
        async for event in opensage.stream("add", workdir=folder, limits=limits, **options):
            if event.type == "tool.result":
                stamps.append(time.process_time())
    return stamps


def _cpu_of(*argv: str) -> float:
    """CPU seconds of a command, the median of five."""
    spent = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *argv], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(spent)


def _memory_per_turn(count: int) -> float:
    """Bytes of Python memory that each turn leaves behind while the session is open."""

    async def grow() -> int:
        marks: list[int] = []
        options: dict[str, Any] = {"model": ScriptedModel(_turns(count)), "tools": [add], "sandbox": ScriptedSandbox()}
        with tempfile.TemporaryDirectory() as folder:
            limits = Limits(max_turns=count + 10)
            async for event in opensage.stream("add", workdir=folder, limits=limits, **options):
                if event.type == "tool.result":
                    marks.append(tracemalloc.get_traced_memory()[0])
        return marks[-1] - marks[count // 10]

    tracemalloc.start()
    grown = asyncio.run(grow())
    tracemalloc.stop()
    return grown / (count - count // 10)


def measure(count: int = 1000) -> dict[str, Any]:
    """All figures; seconds are CPU seconds of this process or of the child started."""
    asyncio.run(_stamps(50))  # imports and caches
    stamps = asyncio.run(_stamps(count))
    steps = [after - before for before, after in itertools.pairwise(stamps)]
    tenth = len(steps) // 10
    return {
        "turns": count,
        "cpu_ms_per_turn_median": round(1000 * statistics.median(steps), 4),
        "last_tenth_over_first": round(statistics.median(steps[-tenth:]) / statistics.median(steps[:tenth]), 3),
        "memory_bytes_per_turn": round(_memory_per_turn(count)),
        "bare_python_cpu_s": round(_cpu_of("-c", "pass"), 4),
        "import_opensage_cpu_s": round(_cpu_of("-c", "import opensage"), 4),
        "help_cpu_s": round(_cpu_of("-m", "opensage", "--help"), 4),
        "opensage": opensage.__version__,
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
    }


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 1000), indent=1))
