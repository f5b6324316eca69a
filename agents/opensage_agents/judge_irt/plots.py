"""Curves of a report: the probability of each score, and the information of each wording, over the latent quality."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opensage_agents.judge_irt.model import GradedResponseModel
from opensage_agents.judge_irt.report import thetas
from opensage_agents.pictures import new_figure, save


def _figure(rows: Sequence[Mapping[str, Any]], path: Path | None = None) -> Any:
    """A row of panels for each judge: one for each wording, and one with the information of all."""
    most = max(len(row["model"]["variants"]) for row in rows) + 1
    figure = new_figure(3.2 * most, 2.8 * len(rows), path)
    panels = figure.subplots(len(rows), most, squeeze=False)
    for line, row in zip(panels, rows, strict=True):
        _draw(line, row)
    return figure


def _draw(line: Any, row: Mapping[str, Any]) -> None:
    model, points = GradedResponseModel.from_dict(row["model"]), thetas()
    shares, information = model.category_probs(points), model.information(points)
    for p, name in enumerate(model.variants_):
        for k in range(model.n_categories_):
            line[p].plot(points, shares[:, p, k], label=str(k + 1))
        line[p].set(title=f"{_short(row['judge'])} {_short(name)}", xlabel="quality", ylabel="probability", ylim=(0, 1))
        line[-1].plot(points, information[:, p], label=_short(name))
    line[0].legend(title="score", fontsize="x-small")
    line[-1].set(title="information", xlabel="quality", ylabel="information")
    line[-1].legend(fontsize="x-small")
    for panel in line[len(model.variants_) : -1]:
        panel.set_visible(False)


def _short(name: str) -> str:
    """A name that fits; `$` begins no formula."""
    return name[-24:].replace("$", r"\$")


def svg(rows: Sequence[Mapping[str, Any]]) -> str:
    """The curves of some rows as an SVG element, the same text for the same rows.

    Raises:
        ConfigError: matplotlib is missing.
    """
    figure = _figure(rows)
    import matplotlib

    out = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "opensage"}):
        figure.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    return text[text.index("<svg") :]


def plot(report: Mapping[str, Any], path: Path) -> None:
    """Draw the curves of all judges into a file: PNG, SVG or PDF by its name.

    Raises:
        ConfigError: the name has another ending, matplotlib is missing, or the file cannot be written.
    """
    save(_figure(report["judges"], path), path)
