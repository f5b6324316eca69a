"""Pictures of a simulation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from opensage_agents.pictures import new_figure, save
from opensage_agents.selfplay.metrics import History


def plotted(runs: Mapping[str, Sequence[History]], path: Path, title: str) -> None:
    """Score, overlap and effective number over the rounds, mean of the seeds and their standard error, to a file.

    Raises:
        ConfigError: matplotlib is not installed, the file's name has another ending, or it cannot be written.
    """
    figure = new_figure(12, 4, path)
    axes = figure.subplots(1, 3)
    for arm, histories in runs.items():
        series = [[each.scores for each in histories]]
        series += [[each.series(name) for each in histories] for name in ("overlap", "effective")]
        for place, (axis, lines) in enumerate(zip(axes, series, strict=True)):
            values = np.ma.masked_invalid(np.array(lines))
            x = np.arange(values.shape[1]) + bool(place)
            mean, half = values.mean(axis=0), values.std(axis=0) / len(values) ** 0.5
            axis.plot(x, mean, label=arm)
            axis.fill_between(x, mean - half, mean + half, alpha=0.2)
    for axis, label in zip(axes, ("held-out score", "overlap with earlier rounds", "effective number"), strict=True):
        axis.set_xlabel("round")
        axis.set_ylabel(label)
    axes[0].legend()
    figure.suptitle(title)
    save(figure, path)
