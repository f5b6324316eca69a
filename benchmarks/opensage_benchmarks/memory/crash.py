"""Many processes on one memory file, and processes killed in the middle of a write."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

WRITERS, READERS = 3, 2


def measure(folder: Path, seconds: float, kills: int) -> dict[str, Any]:
    """Work of three writers and two readers at once, then `kills` writers that are killed; what was lost of each."""
    return {"together": _together(folder / "together.db", seconds), "killed": _killed(folder / "killed.db", kills)}


def start(path: Path, name: str, seconds: float, role: str) -> subprocess.Popen[str]:
    """A worker."""
    command = [sys.executable, "-m", "opensage_benchmarks.memory.worker", str(path), name, str(seconds), role]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _together(path: Path, seconds: float) -> dict[str, Any]:
    roles = ["write"] * WRITERS + ["read"] * READERS
    workers = [start(path, f"{role}{number}", seconds, role) for number, role in enumerate(roles)]
    counts: dict[str, int] = {"write": 0, "read": 0}
    errors, there = 0, set[str]()
    for role, worker in zip(roles, workers, strict=True):
        said, wrong = worker.communicate()
        errors += bool(wrong or worker.returncode)
        counts[role] += int(said.rpartition("end ")[2] or 0) if "end " in said else 0
        there |= acknowledged(said)
    return {
        "seconds": seconds,
        "writes": counts["write"],
        "reads": counts["read"],
        "errors": errors,
        **_sound(path, there),
    }


def _killed(path: Path, kills: int) -> dict[str, Any]:
    dice, there = random.Random(kills), set[str]()
    for number in range(kills):
        with start(path, f"killed{number}", 60, "write") as worker:
            assert worker.stdout is not None
            first = worker.stdout.readline()
            time.sleep(dice.uniform(0, 0.08))
            worker.send_signal(signal.SIGKILL)
            said = worker.stdout.read()  # `communicate` would miss what `readline` has taken in beyond its line
        there |= acknowledged(first + said.rpartition("\n")[0])
    return {"kills": kills, **_sound(path, there)}


def acknowledged(said: str) -> set[str]:
    """Ids that must be there: written, and not about to be forgotten."""
    there: set[str] = set()
    for line in said.splitlines():
        mark, _, id = line.partition(" ")
        if mark == "+":
            there.add(id)
        elif mark == "-":
            there.discard(id)
    return there


def _sound(path: Path, there: set[str]) -> dict[str, Any]:
    from opensage_memory import Memory

    with Memory(path) as memory:
        with memory.store.read() as reader:
            found = set(reader.get(there))
        counts = memory.counts()
        drift = counts.items - counts.indexed or counts.dangling or counts.orphans
        return {"acknowledged": len(there), "lost": len(there - found), "drift": drift, "check": memory.check()}
