"""A picture of a report: each rate with its interval, policies side by side."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from opensage.errors import ConfigError
from opensage.files import why
from opensage_agents.safety_cot.report import NAMES, Report

KINDS = ("png", "svg", "pdf")
LESS_IS_BETTER = ("elicitation", "overrefusal")


def plotted(found: Report, path: Path) -> None:
    """Rates of `opensage safety report` with their 95 % intervals, to a file.

    Raises:
        ConfigError: matplotlib is not installed, there is nothing to draw, the file's name has another ending, or it
            cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("a picture needs matplotlib: pip install 'opensage[plot]'") from error
    if path.suffix.lower().lstrip(".") not in KINDS:
        raise ConfigError(f"{path} is no picture: end its name in {', '.join(KINDS)}")
    if not found.samples:
        raise ConfigError("there is no sample to draw: score some replies first")
    figure = Figure(figsize=(9, 2 + 0.4 * len(NAMES) * len(found.rows)), layout="constrained")
    axis, rows = figure.subplots(), found.rows
    for index, row in enumerate(rows):
        axis.plot([], [], "o", color=f"C{index}", label=row.policy)
        for place, name in enumerate(NAMES):
            low, high = row.intervals[name]
            y, value = place + (index - (len(rows) - 1) / 2) * 0.6 / len(rows), row.values[name]
            if np.isfinite(value):
                axis.plot([low, high], [y, y], color=f"C{index}", linewidth=2)
                axis.plot([value], [y], "o", color=f"C{index}")
                axis.annotate(f"{value:.2f}", (max(high, value), y), (6, 0), textcoords="offset points", va="center")
    marks = [f"{text}\n({'less' if name in LESS_IS_BETTER else 'more'} is better)" for name, text in NAMES.items()]
    axis.set_yticks(range(len(NAMES)), [*marks[:-1], NAMES["gap"]])
    axis.invert_yaxis()
    axis.set_xlabel(f"share or mean, 95 % interval; {found.samples} samples, {found.invalid} of invalid format")
    axis.grid(axis="x", alpha=0.3)
    axis.margins(x=0.08)
    if len(rows) > 1:
        axis.legend(title="policy")
    try:
        figure.savefig(path, dpi=120)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {why(error)}") from error
