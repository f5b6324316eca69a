"""`opensage toolkit new`: a folder of the right shape, with tests that pass."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from opensage.errors import ConfigError, ToolError
from opensage.files import why
from opensage.toolkit.gate import checked_name

_FILES = {
    "SKILL.md": """---
name: {name}
description: Say in one line when an agent should use this.
metadata:
  opensage-pure: "true"
  opensage-requirements: ""
---
# When to use

# Inputs and outputs

# Limits

# Source
""",
    "statistics_of.py": '''"""The method itself, with a plain Python API."""

from __future__ import annotations

from collections.abc import Sequence


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean of at least one number."""
    return sum(values) / len(values)
''',
    "tools.py": '''"""What an agent may call: JSON in, JSON out, nothing printed."""

from __future__ import annotations

from .statistics_of import mean

__all__ = ["average"]


def average(values: list[float]) -> float:
    """Mean of some numbers.

    Args:
        values: at least one number
    """
    if not values:
        raise ValueError("values is empty: pass at least one number")
    return mean(values)
''',
    "tests/test_tools.py": """from __future__ import annotations

from ..tools import average


def test_average() -> None:
    assert average([1.0, 3.0]) == 2.0


def test_nothing_is_said_clearly() -> None:
    try:
        average([])
    except ValueError as error:
        assert "at least one" in str(error)
    else:
        raise AssertionError("an empty list has no mean")
""",
    "bench.py": '''"""Peers side by side; prints one JSON object."""

from __future__ import annotations

import json
import statistics
import time

from .statistics_of import mean


def main(argv: list[str]) -> int:
    """Time a mean of `argv[0]` numbers (default 100,000)."""
    values = [float(number) for number in range(int(argv[0]) if argv else 100_000)]
    seconds = {}
    for name, method in {"this": mean, "statistics.fmean": statistics.fmean}.items():
        began = time.perf_counter()
        method(values)
        seconds[name] = time.perf_counter() - began
    print(json.dumps({"numbers": len(values), "seconds": seconds}))
    return 0
''',
}


def scaffold(folder: Path) -> list[str]:
    """Write the folder whole, or nothing; returns the paths of its files.

    Raises:
        ConfigError: its name is not one of a toolkit, it is there already, or it cannot be written.
    """
    try:
        name = checked_name(folder.name)
    except ToolError as error:
        raise ConfigError(str(error)) from None
    if folder.exists() or folder.is_symlink():
        raise ConfigError(f"{folder} is there already: choose another name")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        half = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=folder.parent))
        try:
            for path, text in _FILES.items():
                (half / path).parent.mkdir(exist_ok=True)
                (half / path).write_text(text.replace("{name}", name), encoding="utf-8")
            half.chmod(0o755)
            half.rename(folder)
        except OSError:
            shutil.rmtree(half, ignore_errors=True)
            raise
    except OSError as error:
        raise ConfigError(f"cannot write {folder}: {why(error)}") from None
    return list(_FILES)
