"""Runs one kit for some turns and prints its figures as JSON: `PYTHON -I child.py KIT_FILE TURNS`.

Started with the Python of the kit's own virtual environment, so it imports nothing but the standard library.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import itertools
import json
import platform
import statistics
import sys
import time
from types import ModuleType
from typing import Any

WARM_UP = 20
"""Turns of a first run that fills caches and is not counted."""


class Counter:
    """The tool's work, which notes the process's CPU seconds at each call."""

    def __init__(self) -> None:
        self.stamps: list[float] = []

    def __call__(self, a: int, b: int) -> int:
        """Add."""
        self.stamps.append(time.process_time())
        return a + b


def load(path: str) -> ModuleType:
    """The module in a file."""
    spec = importlib.util.spec_from_file_location("kit", path)
    if spec is None or spec.loader is None:
        raise ImportError(path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["kit"] = module  # type hints are looked up there
    spec.loader.exec_module(module)
    return module


def measure(kit: Any, turns: int) -> dict[str, Any]:
    """CPU milliseconds of a turn, from one call of the tool to the next.

    Raises:
        RuntimeError: the kit did not call the tool once a turn.
    """
    kit.run(WARM_UP, Counter())
    counter = Counter()
    end = kit.run(turns, counter)
    if len(counter.stamps) != turns:
        raise RuntimeError(f"{len(counter.stamps)} tool calls in {turns} turns; it ended with {end!r}")
    steps = [1000 * (after - before) for before, after in itertools.pairwise(counter.stamps)]
    tenth = max(1, len(steps) // 10)
    return {
        "package": kit.PACKAGE,
        "version": importlib.metadata.version(kit.PACKAGE),
        "python": platform.python_version(),
        "cpu_ms_per_turn_median": round(statistics.median(steps), 4),
        "last_tenth_over_first": round(statistics.median(steps[-tenth:]) / statistics.median(steps[:tenth]), 3),
    }


if __name__ == "__main__":
    print("\n" + json.dumps(measure(load(sys.argv[1]), int(sys.argv[2]))))
