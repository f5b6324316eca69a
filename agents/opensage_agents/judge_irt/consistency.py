"""Phase 1: is the judge a stable instrument when its prompt is worded differently? And intervals by resampling."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from opensage_agents.judge_irt.classical import classical
from opensage_agents.judge_irt.model import GradedResponseModel, Method
from opensage_agents.judge_irt.scores import Coded, Floats, ScoreError, coded, rechecked

CV_MAX, RHO_MIN = 0.10, 0.70
RHO_READABLE = 0.5
VERDICTS = {
    "pass": "consistent: wording hardly matters and the samples are told apart",
    "prompt_sensitive": "the wordings measure differently (slope, severity or both)",
    "low_discrimination": "the judge does not tell samples apart; C_V cannot be read",
    "both": "the judge tells samples apart poorly, and the wordings measure differently",
    "not_converged": "the fit has not converged: no verdict",
}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What phase 1 found.

    Attributes:
        cv: C_V, the spread of the variants' within-level variances of theta; NaN when a level mean is 0.
        rho: marginal reliability, 0 to 1.
        verdict: a key of `VERDICTS`.
        per_variant: mean within-level variance of theta, (P,).
        theta, var: EAP and posterior variance of the samples, (J,).
        classical: alpha, omega, Spearman and weighted kappa between variants.
    """

    cv: float
    rho: float
    verdict: str
    per_variant: Floats
    theta: Floats
    var: Floats
    model: GradedResponseModel
    data: Coded
    classical: Mapping[str, float]
    cv_max: float = CV_MAX
    rho_min: float = RHO_MIN
    warnings: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether phase 2 may follow."""
        return self.verdict == "pass"


def prompt_consistency(theta: ArrayLike, scores: ArrayLike, ddof: int = 0) -> tuple[float, Floats]:
    """C_V and the mean within-level variance of theta of each variant.

    Levels with fewer than two samples are left out; the mean over levels is not weighted, variances and the standard
    deviation over variants are the population's (reconstruction; `ddof` is that of the latter).

    Args:
        theta: (J,) estimates of the trait.
        scores: (J, P), NaN where missing.
        ddof: of the standard deviation over variants.

    Raises:
        ScoreError: fewer than two variants, lengths differ, or a variant has no level with two samples.
    """
    points, matrix = np.asarray(theta, dtype=float), np.asarray(scores, dtype=float)
    if matrix.ndim != 2 or matrix.shape[1] < 2:
        raise ScoreError("C_V needs the scores of at least 2 variants, as a matrix of samples by variants")
    if points.shape != (len(matrix),):
        raise ScoreError(f"{points.size} values of theta and {len(matrix)} samples: give one each")
    if not 0 <= ddof < matrix.shape[1]:
        raise ScoreError(f"ddof is {ddof}: it is 0 or 1, and below the number of variants")
    means = np.array([_within(points, column, p) for p, column in enumerate(matrix.T)])
    middle = means.mean()
    return (float(means.std(ddof=ddof) / middle) if middle > 0 else float("nan")), means


def _within(theta: Floats, column: Floats, p: int) -> float:
    levels = np.unique(column[~np.isnan(column)])
    found = [theta[column == k].var() for k in levels if (column == k).sum() >= 2]
    if not found:
        raise ScoreError(f"variant {p + 1} gives no level to two samples: C_V is undefined, score more samples")
    return float(np.mean(found))


def marginal_reliability(theta: ArrayLike, var: ArrayLike) -> float:
    """rho: the variance of the estimates over itself plus the mean posterior variance.

    Args:
        theta: (J,) EAP estimates.
        var: (J,) posterior variances.
    """
    points, own = np.asarray(theta, dtype=float), np.asarray(var, dtype=float)
    if points.ndim != 1 or points.shape != own.shape or not points.size or (own < 0).any():
        raise ScoreError("marginal_reliability wants one estimate and one variance >= 0 for each sample")
    total = points.var() + own.mean()
    return float(points.var() / total) if total > 0 else float("nan")


def verdict_of(cv: float, rho: float, cv_max: float = CV_MAX, rho_min: float = RHO_MIN) -> str:
    """The cell of the diagnosis.

    With rho below 0.5 there is more noise than signal, and C_V is not read (reconstruction); "both" needs rho between
    that and `rho_min`.
    """
    stable = cv <= cv_max
    if rho >= rho_min:
        return "pass" if stable else "prompt_sensitive"
    return "both" if rho >= RHO_READABLE and not stable else "low_discrimination"


def diagnose(
    scores: ArrayLike | Coded,
    cv_max: float = CV_MAX,
    rho_min: float = RHO_MIN,
    *,
    n_categories: int | None = None,
    method: Method = "map",
    ddof: int = 0,
    drop_constant: bool = False,
    seed: int = 0,
) -> Diagnosis:
    """Fit one judge on one criterion and say what its scores are worth.

    Args:
        scores: (J, P) samples by prompt variants, 1..K, NaN where missing.
        cv_max: the judge passes up to that C_V,
        rho_min: and from that rho.
        n_categories: as for `GradedResponseModel`, as are the next two.
        method: of the fit.
        seed: of its draws.
        ddof: as for `prompt_consistency`.
        drop_constant: leave out variants that give one score everywhere.

    Raises:
        ScoreError: the scores cannot be used.
    """
    if not cv_max > 0 or not 0 < rho_min < 1:
        raise ScoreError(f"cv_max {cv_max:g}, rho_min {rho_min:g}: the first is above 0, the second between 0 and 1")
    if isinstance(scores, Coded):
        data = rechecked(scores, drop_constant, 2)
    else:
        data = coded(scores, n_categories, drop_constant=drop_constant, least=2)
    model = GradedResponseModel(method=method, seed=seed).fit(data)
    theta, var = model.posterior(data)
    cv, means = prompt_consistency(theta, data.matrix(), ddof)
    rho = marginal_reliability(theta, var)
    verdict = verdict_of(cv, rho, cv_max, rho_min) if model.converged_ else "not_converged"
    told = [*model.warnings_, *([] if rho >= RHO_READABLE else [f"rho is {rho:.2f}: C_V is unstable, do not read it"])]
    return Diagnosis(
        cv, rho, verdict, means, theta, var, model, data, classical(data.matrix()), cv_max, rho_min, told
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Interval:
    """A percentile interval. `failed` resamples could not be computed and are left out."""

    low: float
    high: float
    level: float
    n: int
    failed: int


def bootstrap(
    fn: Callable[[Floats], Mapping[str, float]], scores: ArrayLike, n: int = 200, seed: int = 0, level: float = 0.95,
    step: Callable[[], None] = lambda: None,
) -> dict[str, Interval]:  # fmt: skip
    """Percentile intervals of what `fn` computes, by resampling samples (rows), never cells.

    Args:
        fn: (J, P) scores to named figures; `ScoreError` marks a resample that cannot be computed.
        scores: (J, P).
        n: resamples, at least 20.
        seed: of the resampling.
        level: of the intervals.
        step: called after each resample.

    Raises:
        ScoreError: bad arguments, or fewer than half of the resamples could be computed.
    """
    matrix = np.asarray(scores, dtype=float)
    if n < 20 or not 0 < level < 1 or matrix.ndim != 2:
        raise ScoreError(f"n is {n} and level {level:g}: take at least 20 resamples and a level between 0 and 1")
    rng, found = np.random.default_rng(seed), []
    for _ in range(n):
        rows = rng.integers(len(matrix), size=len(matrix))
        with contextlib.suppress(ScoreError):
            found.append(dict(fn(matrix[rows])))
        step()
    if 2 * len(found) < n:
        raise ScoreError(f"only {len(found)} of {n} resamples could be computed: there are too few samples")
    return {name: _interval([each[name] for each in found], level, n) for name in found[0]}


def _interval(values: list[float], level: float, n: int) -> Interval:
    sound = np.array([value for value in values if np.isfinite(value)])
    if not sound.size:
        return Interval(float("nan"), float("nan"), level, n, n)
    low, high = np.quantile(sound, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high), level, n, n - len(sound))


def phase_one_figures(k: int, **options: Any) -> Callable[[Floats], Mapping[str, float]]:
    """For `bootstrap`: C_V and rho of a judge whose scale has k levels."""

    def figures(scores: Floats) -> Mapping[str, float]:
        found = diagnose(scores, n_categories=k, **options)
        return {"cv": found.cv, "rho": found.rho}

    return figures
