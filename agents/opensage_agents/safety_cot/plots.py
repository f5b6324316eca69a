"""A picture of a report: each rate with its interval, policies side by side."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from opensage.errors import ConfigError
from opensage_agents.pictures import new_figure, save
from opensage_agents.safety_cot.report import NAMES, Report

LESS_IS_BETTER = ("elicitation", "overrefusal")


def plotted(found: Report, path: Path) -> None:
    """Rates of `opensage safety report` with their 95 % intervals, to a file.

    Raises:
        ConfigError: matplotlib is not installed, there is nothing to draw, the file's name has another ending, or it
            cannot be written.
    """
    if not found.samples:
        raise ConfigError("there is no sample to draw: score some replies first")
    figure = new_figure(9, 2 + 0.4 * len(NAMES) * len(found.rows), path)
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
    save(figure, path)
