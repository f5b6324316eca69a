"""Phase 2, for judges that passed phase 1: does the quality that one measures line up with what people measure?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike

from opensage_agents.judge_irt.classical import spearman, weighted_kappa
from opensage_agents.judge_irt.consistency import CV_MAX, RHO_MIN, Diagnosis, diagnose
from opensage_agents.judge_irt.model import GradedResponseModel, Method
from opensage_agents.judge_irt.scores import Coded, Floats, ScoreError, coded, rechecked

RATIO_TOLERANCE = 0.1
SHAPE_NOTE = (
    "each fit has its own scale with mean 0 and variance 1, so D_W is mostly about the shape of the two distributions"
)


@dataclass(frozen=True, slots=True)
class Alignment:
    """What phase 2 found; `status` "gated" has no figures.

    Attributes:
        status: "aligned", "gated" (phase 1 not passed), or "forced" (not passed, figures all the same).
        ratio: theta_range of the judge over that of the people.
        direction: "over_sensitive" (ratio < 1), "numb" (> 1), "matched" (within 10 %, reconstruction).
        distance: D_W, the 1-Wasserstein distance between both sets of estimates.
        ranges_judge, ranges_human: theta_range of each variant or rater.
        spearman, kappa: of the samples' mean scores, rounded for kappa.
        linked: whether both are on one scale, from a fit of all together (not part of the method).
    """

    status: str
    phase_one: Diagnosis
    ratio: float | None = None
    direction: str = ""
    distance: float | None = None
    range_judge: float | None = None
    range_human: float | None = None
    ranges_judge: dict[str, float] = field(default_factory=dict)
    ranges_human: dict[str, float] = field(default_factory=dict)
    spearman: float | None = None
    kappa: float | None = None
    samples: int = 0
    linked: bool = False
    warnings: list[str] = field(default_factory=list)


def align(
    scores_llm: ArrayLike | Coded,
    scores_human: ArrayLike | Coded,
    force: bool = False,
    *,
    linked: bool = False,
    cv_max: float = CV_MAX,
    rho_min: float = RHO_MIN,
    n_categories: int | None = None,
    method: Method = "map",
    drop_constant: bool = False,
) -> Alignment:
    """Compare a judge with people on the samples that both have scored.

    Args:
        scores_llm: (J, P) samples by prompt variants.
        scores_human: (J, R) samples by raters; rows are those of the judge, unless both are `Coded` with ids. One
            column of means is rounded to levels (reconstruction).
        force: figures for a judge that failed phase 1 too.
        linked: one fit of variants and raters together, so that both are on one scale.
        cv_max: as for `diagnose`, as are the next four.
        rho_min: least rho.
        n_categories: levels K.
        method: of the fits.
        drop_constant: leave out variants and raters that give one score everywhere.

    Raises:
        ScoreError: scores cannot be used, or no sample is in both.
    """
    judge = _coded(scores_llm, n_categories, drop_constant, 2)
    human = _coded(scores_human, n_categories, drop_constant, 1)
    alone = _alone(judge, human)
    judge, human = _common(judge, human, drop_constant)
    first = diagnose(judge, cv_max, rho_min, method=method)
    if not first.passed and not force:
        why = f"gated: phase 1 says {first.verdict}, so no figures; force=True (--force) gives them all the same"
        return Alignment("gated", first, samples=len(judge.ids), warnings=[why, *alone, *first.warnings])
    theta, other, told = _traits(judge, human, first, linked, method)
    found = _compared(judge, human, theta, other, first)
    forced = [] if first.passed else [f"forced: phase 1 says {first.verdict}; these figures are not to be relied on"]
    told = [*forced, *alone, *told, *([] if linked else [SHAPE_NOTE]), *first.warnings]
    return replace(
        found, status="aligned" if first.passed else "forced", linked=linked, warnings=told
    )  # fmt: skip


def _coded(scores: ArrayLike | Coded, k: int | None, drop: bool, least: int) -> Coded:
    if isinstance(scores, Coded):
        return scores
    matrix = np.asarray(scores, dtype=float)
    if least == 1 and matrix.ndim == 1:
        matrix = matrix[:, None]
    if least == 1 and matrix.ndim == 2 and matrix.shape[1] == 1:  # means of raters are rounded half up
        matrix = np.floor(matrix + 0.5)
    return coded(matrix, k, drop_constant=drop, least=least)


def _alone(judge: Coded, human: Coded) -> list[str]:
    """Said of samples that only one of both has scored."""
    mine, theirs = set(judge.ids) - set(human.ids), set(human.ids) - set(judge.ids)
    if not mine and not theirs:
        return []
    return [f"samples that only the judge ({len(mine)}) or only the people ({len(theirs)}) scored are left out"]


def _common(judge: Coded, human: Coded, drop: bool) -> tuple[Coded, Coded]:
    """Both with the samples that are in both, in one order."""
    mine, theirs = ({name: row for row, name in enumerate(each.ids)} for each in (judge, human))
    shared = [name for name in judge.ids if name in theirs]
    if not shared:
        raise ScoreError(
            f"no sample id is in both: the judge has {len(judge.ids)}, the people have {len(human.ids)}; "
            "name the samples alike"
        )
    one, other = (_only(each, shared, rows) for each, rows in ((judge, mine), (human, theirs)))
    return rechecked(one, drop, 2), rechecked(other, drop, 1)


def _only(scores: Coded, ids: Sequence[str], rows: dict[str, int]) -> Coded:
    return replace(scores, levels=scores.levels[[rows[name] for name in ids]], ids=tuple(ids))


def _traits(
    judge: Coded, human: Coded, first: Diagnosis, linked: bool, method: Method
) -> tuple[Floats, Floats, list[str]]:
    if not linked:
        model = GradedResponseModel(method=method).fit(human)
        return first.theta, model.posterior(human)[0], [f"people: {each}" for each in model.warnings_]
    if judge.k != human.k:
        raise ScoreError(f"the judge has {judge.k} levels, the people {human.k}: only like scales can be linked")
    p, r = len(judge.variants), len(human.variants)
    both = coded(np.hstack([judge.matrix(), human.matrix()]), judge.k, variants=[str(i) for i in range(p + r)])
    model = GradedResponseModel(method=method).fit(both)
    mine, theirs = both.matrix(), both.matrix()
    mine[:, p:], theirs[:, :p] = np.nan, np.nan
    return model.posterior(mine)[0], model.posterior(theirs)[0], model.warnings_


def theta_ranges(theta: Floats, scores: Coded) -> dict[str, float]:
    """Of each variant: the median of theta in the top observed level less that in the bottom one."""
    found = {}
    for name, column in zip(scores.variants, scores.levels.T, strict=True):
        given = column[column > 0]
        top, bottom = theta[column == given.max()], theta[column == given.min()]
        found[name] = float(np.median(top) - np.median(bottom))
    return found


def wasserstein(one: Floats, other: Floats) -> float:
    """The 1-Wasserstein distance between two samples: the area between their distribution functions."""
    points = np.sort(np.concatenate([one, other]))
    shares = [np.searchsorted(np.sort(each), points[:-1], side="right") / len(each) for each in (one, other)]
    return float((np.abs(shares[0] - shares[1]) * np.diff(points)).sum())


def _compared(judge: Coded, human: Coded, theta: Floats, other: Floats, first: Diagnosis) -> Alignment:
    mine, theirs = theta_ranges(theta, judge), theta_ranges(other, human)
    wide, reference = float(np.median(list(mine.values()))), float(np.median(list(theirs.values())))
    ratio = wide / reference if reference > 0 else float("nan")
    means = [np.nanmean(each.matrix(), axis=1) for each in (judge, human)]
    return Alignment(
        "aligned", first, ratio, _direction(ratio), wasserstein(theta, other), wide, reference, mine, theirs,
        spearman(*means), weighted_kappa(np.rint(means[0]), np.rint(means[1])), len(theta),
    )  # fmt: skip


def _direction(ratio: float) -> str:
    if not np.isfinite(ratio):
        return "undefined"
    if abs(ratio - 1) <= RATIO_TOLERANCE:
        return "matched"
    return "over_sensitive" if ratio < 1 else "numb"
