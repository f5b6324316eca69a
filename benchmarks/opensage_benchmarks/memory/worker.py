"""One process at work on a memory: `python -m opensage_benchmarks.memory.worker PATH NAME SECONDS write|read`."""

from __future__ import annotations

import random
import sys
import time
from typing import Any


def main(path: str, name: str, seconds: float, role: str) -> None:
    """Write or read until the time is over; a line for each write that was acknowledged, `end COUNT` at the end."""
    from opensage_memory import Memory

    memory, end, count = Memory(path), time.monotonic() + seconds, 0
    step = write(memory, name) if role == "write" else read(memory)
    while time.monotonic() < end:
        next(step)
        count += 1
    print("end", count, flush=True)


def write(memory: Any, name: str) -> Any:
    """Mixed writes: notes, facts that close each other, forgetting."""
    dice, alive, number = random.Random(name), list[str](), 0
    while True:
        number += 1
        chance = dice.random()
        if chance < 0.7 or len(alive) < 3:
            alive.append(memory.add(f"{name} notes {number} about Topic {number % 7}", "bench").id)
            print("+", alive[-1], flush=True)
        elif chance < 0.85:
            print("+", memory.state(name, "counts", str(number), "bench", functional=True).id, flush=True)
        else:
            gone = alive.pop(dice.randrange(len(alive)))
            print("-", gone, flush=True)
            memory.forget(gone, "bench")
        yield


def read(memory: Any) -> Any:
    """Searches and counts."""
    while True:
        memory.search("notes about topic", "bench")
        memory.counts("bench")
        yield


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4])
