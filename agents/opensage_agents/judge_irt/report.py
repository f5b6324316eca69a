"""What a judge's scores are worth, as JSON data, as a table, and as a page."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from opensage_agents.jsonable import plain
from opensage_agents.judge_irt.alignment import Alignment
from opensage_agents.judge_irt.chance import Chance
from opensage_agents.judge_irt.consistency import VERDICTS, Diagnosis, Interval
from opensage_agents.judge_irt.model import GradedResponseModel, read_json
from opensage_agents.judge_irt.scores import ScoreError

if TYPE_CHECKING:
    from rich.table import Table

SCHEMA = "opensage-judge-report/1"
ALIGNMENT = "opensage-judge-alignment/1"


def judge_row(
    judge: str, criterion: str, found: Diagnosis, intervals: Mapping[str, Interval] | None = None,
    chance: Chance | None = None,
) -> dict[str, Any]:  # fmt: skip
    """One judge on one criterion, as JSON data."""
    told = found.warnings + (chance.told(found) if chance else [])
    row = {
        "judge": judge, "criterion": criterion, "verdict": found.verdict, "meaning": VERDICTS[found.verdict],
        "cv": found.cv, "rho": found.rho, "cv_max": found.cv_max, "rho_min": found.rho_min,
        "intervals": {name: [each.low, each.high] for name, each in (intervals or {}).items()},
        "per_variant_variance": dict(zip(found.data.variants, found.per_variant, strict=True)),
        "classical": dict(found.classical),
        "counts": {"samples": len(found.data.ids), "dropped": found.data.dropped, "variants": len(found.data.variants),
                   "scores": int((found.data.levels > 0).sum()), "missing": int((found.data.levels == 0).sum())},
        "theta": dict(zip(found.data.ids, found.theta, strict=True)), "warnings": told,
        "chance": asdict(chance) if chance else None,
        "model": found.model.as_dict(),
    }  # fmt: skip
    return {name: plain(value) for name, value in row.items()}


def report_of(rows: Sequence[Mapping[str, Any]], *, data: str, sha256: str, seed: int) -> dict[str, Any]:
    """The whole report as JSON data, one row for each judge and criterion."""
    return {"schema": SCHEMA, "data": data, "sha256": sha256, "seed": seed, "judges": list(rows)}


def alignment_row(judge: str, criterion: str, found: Alignment) -> dict[str, Any]:
    """One comparison with people, as JSON data."""
    names = ("status", "ratio", "direction", "distance", "range_judge", "range_human", "ranges_judge", "ranges_human",
             "spearman", "kappa", "samples", "linked", "warnings")  # fmt: skip
    first = found.phase_one
    told = {"judge": judge, "criterion": criterion, "verdict": first.verdict, "cv": first.cv, "rho": first.rho}
    return {name: plain(value) for name, value in (told | {each: getattr(found, each) for each in names}).items()}


def read_report(path: Path) -> dict[str, Any]:
    """A report that `opensage judge fit` wrote.

    Raises:
        ScoreError: the file is none.
    """
    found = read_json(path)
    rows = found.get("judges") if isinstance(found, dict) and found.get("schema") == SCHEMA else None
    wanted = {"judge", "criterion", "verdict", "cv", "rho", "classical", "counts", "warnings", "model"}
    if not isinstance(rows, list) or not all(isinstance(row, dict) and wanted <= row.keys() for row in rows):
        raise ScoreError(f"{path} is no report ({SCHEMA}): write one with opensage judge fit SCORES --out {path}")
    for row in rows:
        GradedResponseModel.from_dict(row["model"], str(path))
    return dict(found)


def number(value: Any, digits: int = 3) -> str:
    """A figure for people; "-" when there is none."""
    return f"{value:.{digits}f}" if isinstance(value, (int, float)) else "-"


HEAD = ("judge", "criterion", "J", "C_V", "rho", "alpha", "omega", "Spearman", "kappa", "verdict")


def cells(row: Mapping[str, Any]) -> list[str]:
    """One line of the table."""
    usual, ranges = row["classical"], row.get("intervals") or {}
    figures = [number(row[name]) + _range(ranges.get(name)) for name in ("cv", "rho")]
    figures += [number(usual.get(name), 2) for name in ("alpha", "omega", "spearman", "kappa")]
    return [row["judge"] or "-", row["criterion"] or "-", str(row["counts"]["samples"]), *figures, row["verdict"]]


def _range(ends: Any) -> str:
    return f" ({number(ends[0])} to {number(ends[1])})" if ends else ""


def _headed(title: str, head: Sequence[str]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    found = Table(title=title, box=SIMPLE_HEAD, padding=(0, 0), collapse_padding=True)
    for name in head:  # names may be long; figures stay whole in a terminal of 80 columns
        found.add_column(name, overflow="fold", no_wrap=name not in ("judge", "criterion"))
    return found


def table(report: Mapping[str, Any]) -> Table:
    """For a terminal."""
    found = _headed("Judges by item response theory", HEAD)
    for row in report["judges"]:
        found.add_row(*cells(row))
    return found


ALIGNED_HEAD = ("judge", "criterion", "J", "verdict", "status", "ratio", "direction", "D_W", "Spearman", "kappa")


def aligned_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """For a terminal: comparisons with people."""
    found = _headed("Judges beside people", ALIGNED_HEAD)
    for row in rows:
        figures = [number(row[name]) for name in ("distance", "spearman", "kappa")]
        found.add_row(
            row["judge"] or "-", row["criterion"] or "-", str(row["samples"]), row["verdict"], row["status"],
            number(row["ratio"]), row["direction"] or "-", *figures,
        )  # fmt: skip
    return found


def notes(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The warnings of all rows, each with its judge."""
    return [f"{_name(row)}: {text}" for row in rows for text in row["warnings"]]


def _name(row: Mapping[str, Any]) -> str:
    return " / ".join(part for part in (row["judge"], row["criterion"]) if part) or "judge"


STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:70em;margin:2em auto;padding:0 1em;color:#1a1a1a;"
    "background:#fff}table{border-collapse:collapse}th,td{border-bottom:1px solid #ccc;padding:.3em .8em;"
    "text-align:left}svg{max-width:100%;height:auto}"
)


def page(report: Mapping[str, Any]) -> str:
    """The report as one HTML page with the curves in it; nothing is loaded from elsewhere.

    Raises:
        ScoreError: matplotlib is missing.
    """
    rows, safe = report["judges"], html.escape
    head = "".join(f"<th>{safe(name)}</th>" for name in HEAD)
    body = "".join("<tr>" + "".join(f"<td>{safe(each)}</td>" for each in cells(row)) + "</tr>" for row in rows)
    top = '<!doctype html><html lang="en"><meta charset="utf-8"><title>Judges</title>'
    parts = [f"<h1>Judges by item response theory</h1><table><tr>{head}</tr>{body}</table>", *map(_section, rows)]
    end = f"<p>Data: {safe(str(report['data']))}, SHA-256 {safe(str(report['sha256']))}</p></html>"
    return f"{top}<style>{STYLE}</style>{''.join(parts)}{end}\n"


def _section(row: Mapping[str, Any]) -> str:
    from opensage_agents.judge_irt.plots import svg

    safe = html.escape
    told = "".join(f"<li>{safe(text)}</li>" for text in row["warnings"])
    head = f"<h2>{safe(_name(row))}: {safe(row['verdict'])}</h2><p>{safe(VERDICTS.get(row['verdict'], ''))}</p>"
    return f"{head}<ul>{told}</ul>{svg([row])}"


def thetas() -> Any:
    """Points that curves are drawn at."""
    return np.linspace(-4, 4, 161)
