"""The steps of `opensage judge` as functions: what the command, the tools and the workflow share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from opensage_agents.judge_irt.alignment import align
from opensage_agents.judge_irt.chance import chance_of
from opensage_agents.judge_irt.consistency import CV_MAX, RHO_MIN, bootstrap, diagnose, phase_one_figures
from opensage_agents.judge_irt.model import Method
from opensage_agents.judge_irt.reading import Columns, ScoreFile, read_scores
from opensage_agents.judge_irt.report import ALIGNMENT, alignment_row, judge_row, report_of
from opensage_agents.judge_irt.scores import Coded, ScoreError


def fit_file(
    path: str | Path,
    *,
    columns: Columns | None = None,
    wide: bool = False,
    levels: int | None = None,
    method: Method = "map",
    cv_max: float = CV_MAX,
    rho_min: float = RHO_MIN,
    drop_constant: bool = False,
    resamples: int = 0,
    chance: int = 40,
    seed: int = 0,
    begin: Callable[[str, int], Callable[[], None]] = lambda _what, _steps: lambda: None,
) -> dict[str, Any]:
    """Diagnose every judge and criterion of a score file; the report as JSON data.

    `resamples` gives intervals; `chance` ideal judges say how large C_V is without any effect of wording, 0 for none.
    Of what takes long, `begin` is told the name and the number of steps; what it returns is called after each.

    Raises:
        ScoreError: the file or its scores cannot be used.
    """
    file = read_scores(path, columns, wide=wide)
    rows = []
    for (judge, criterion), data in file.tables(levels, drop_constant=drop_constant).items():
        found = diagnose(data, cv_max, rho_min, method=method, seed=seed)
        spread = ideal = None
        if resamples:
            figures = phase_one_figures(data.k, method="map" if method == "bayes" else method)
            spread = bootstrap(figures, data.matrix(), resamples, seed, step=begin(f"{judge}: intervals", resamples))
        if chance:
            ideal = chance_of(found, chance, seed, begin(f"{judge}: ideal judges", chance))
        rows.append(judge_row(judge, criterion, found, spread, ideal))
    return report_of(rows, data=file.path.name, sha256=file.sha256, seed=seed)


def align_files(
    judges: str | Path,
    people: str | Path,
    *,
    columns: Columns | None = None,
    wide: bool = False,
    levels: int | None = None,
    force: bool = False,
    linked: bool = False,
    drop_constant: bool = False,
    cv_max: float = CV_MAX,
    rho_min: float = RHO_MIN,
    method: Method = "map",
) -> dict[str, Any]:
    """Compare each judge of one file with the people of another, criterion by criterion; JSON data.

    In the people's file every judge is a rater when there is one variant a judge, else every variant is.

    Raises:
        ScoreError: a file cannot be used, a criterion is not in both, or no sample is.
    """
    llm, human = read_scores(judges, columns, wide=wide), read_scores(people, columns, wide=wide)
    references = _people(human, levels, drop_constant)
    rows = []
    for (judge, criterion), data in llm.tables(levels, drop_constant=drop_constant).items():
        if criterion not in references:
            raise ScoreError(f"{human.path} has no criterion {criterion!r}; it has: {', '.join(map(repr, references))}")
        found = align(
            data, references[criterion], force, linked=linked, cv_max=cv_max, rho_min=rho_min, method=method
        )  # fmt: skip
        rows.append(alignment_row(judge, criterion, found))
    return {"schema": ALIGNMENT, "judges": str(llm.path.name), "people": str(human.path.name),
            "sha256": [llm.sha256, human.sha256], "rows": rows}  # fmt: skip


def _people(file: ScoreFile, levels: int | None, drop: bool) -> Mapping[str, Coded]:
    """The people's scores of each criterion: raters are columns."""
    from dataclasses import replace

    raters = {(cell.judge, cell.variant) for cell in file.cells}
    by_judge = len({judge for judge, _ in raters}) == len(raters)
    cells = tuple(
        replace(
            cell, judge="", variant=cell.judge or cell.variant if by_judge else f"{cell.judge} {cell.variant}".strip()
        )
        for cell in file.cells
    )
    tables = replace(file, cells=cells).tables(levels, drop_constant=drop, least=1, rounded=True)
    return {criterion: data for (_, criterion), data in tables.items()}
