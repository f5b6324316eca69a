"""Figures of a benchmark beside what is required of them: a table on stderr, one JSON object on stdout."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from opensage_benchmarks.swe.compare import wilson


@dataclass(frozen=True, slots=True)
class Row:
    """One figure. `holds` is None where nothing is required, or nothing was measured."""

    check: str
    measured: str
    required: str = ""
    holds: bool | None = None
    data: Any = None
    """What else the JSON object says of it."""

    def __post_init__(self) -> None:
        """NumPy's truth values are no JSON, and none of them `is False`."""
        if self.holds is not None:
            object.__setattr__(self, "holds", bool(self.holds))


def counted(check: str, held: Sequence[bool], required: str) -> Row:
    """How many seeds meet a requirement that chance decides: a share with its 95 % interval, no verdict."""
    rate = wilson(sum(held), len(held))
    text = f"{rate.resolved} of {rate.total} seeds ({rate.low:.2f} to {rate.high:.2f})"
    return Row(
        check, text, required, None, {"held": rate.resolved, "seeds": rate.total, "interval": [rate.low, rate.high]}
    )


def machine(*packages: str, load: float) -> dict[str, Any]:
    """Versions of the packages and of Python, and the machine; `load` is its load average at the start."""
    from importlib.metadata import version

    found: dict[str, Any] = {name: version(name) for name in ("opensage", *packages)}
    found |= {"python": platform.python_version(), "machine": platform.machine()}
    return {**found, "cpus": os.cpu_count(), "load_at_start": round(load, 2)}


def told(
    found: Sequence[Row], result: Mapping[str, Any], title: str, keys: Sequence[str], file: Path | None = None
) -> int:
    """Show the table, print the object; returns the exit code, 1 when something does not hold.

    Args:
        found: the figures.
        result: what else the object holds.
        title: of the table.
        keys: fields of the object that stand below the table.
        file: where the object is also written.

    Raises:
        ConfigError: that file cannot be written; the object is on stdout all the same.
    """
    from rich.console import Console
    from rich.table import Table

    from opensage.files import write_whole

    caption = ", ".join(f"{key} {result[key]}" for key in keys)
    table = Table("check", "measured", "required", "holds", title=title, caption=caption)
    for row in found:
        table.add_row(row.check, row.measured, row.required, {True: "yes", False: "NO", None: ""}[row.holds])
    Console(stderr=True).print(table)
    text = json.dumps({**result, "rows": [asdict(row) for row in found]})
    print(text, flush=True)
    if file is not None:
        write_whole(file, text + "\n")
    return 0 if all(row.holds is not False for row in found) else 1
