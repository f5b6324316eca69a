"""The usual figures of agreement, shown beside C_V and rho: they miss what those see."""

from __future__ import annotations

import numpy as np

from opensage_agents.judge_irt.scores import Floats


def classical(matrix: Floats) -> dict[str, float]:
    """Cronbach's alpha, McDonald's omega, and the means over pairs of variants of Spearman's rho and weighted kappa.

    Args:
        matrix: (J, P) scores, NaN where missing. alpha and omega use complete rows, pairs those that both have.
    """
    whole = matrix[~np.isnan(matrix).any(axis=1)]
    pairs = [(p, q) for p in range(matrix.shape[1]) for q in range(p)]
    return {
        "alpha": cronbach_alpha(whole),
        "omega": mcdonald_omega(whole),
        "spearman": _mean([spearman(matrix[:, p], matrix[:, q]) for p, q in pairs]),
        "kappa": _mean([weighted_kappa(matrix[:, p], matrix[:, q]) for p, q in pairs]),
    }


def _mean(values: list[float]) -> float:
    sound = [value for value in values if np.isfinite(value)]
    return float(np.mean(sound)) if sound else float("nan")


def cronbach_alpha(whole: Floats) -> float:
    """Of complete (J, P) scores; NaN for fewer than two rows or columns."""
    if min(whole.shape) < 2 or not whole.sum(axis=1).var() > 0:
        return float("nan")
    p = whole.shape[1]
    return float(p / (p - 1) * (1 - whole.var(axis=0).sum() / whole.sum(axis=1).var()))


def mcdonald_omega(whole: Floats) -> float:
    """Of complete (J, P) scores, by one factor fitted to the covariances (iterated principal axis); P >= 3."""
    if len(whole) < 2 or whole.shape[1] < 3 or not (whole.var(axis=0) > 0).all():
        return float("nan")
    covariance = np.cov(whole.T)
    total = np.diag(covariance).copy()
    shared = 0.5 * total
    for _ in range(500):
        reduced = covariance - np.diag(total - shared)
        values, vectors = np.linalg.eigh(reduced)
        loading = vectors[:, -1] * np.sqrt(max(values[-1], 0.0))
        new = np.clip(loading**2, 0.0, total)
        if np.abs(new - shared).max() < 1e-10:
            break
        shared = new
    common = abs(loading.sum()) ** 2
    return float(common / (common + (total - shared).sum()))


def ranks(values: Floats) -> Floats:
    """Ranks from 1, ties share their mean."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    middle: Floats = (last - (counts - 1) / 2)[inverse]
    return middle


def spearman(one: Floats, other: Floats) -> float:
    """Rank correlation where both are there; NaN when one does not vary."""
    both = ~(np.isnan(one) | np.isnan(other))
    x, y = ranks(one[both]), ranks(other[both])
    if len(x) < 2 or not x.std() > 0 or not y.std() > 0:
        return float("nan")
    return float(np.corrcoef(x, y)[0, 1])


def weighted_kappa(one: Floats, other: Floats) -> float:
    """Cohen's kappa with quadratic weights, where both are there; NaN when neither varies."""
    both = ~(np.isnan(one) | np.isnan(other))
    x, y = one[both], other[both]
    if not len(x):
        return float("nan")
    expected = x.var() + y.var() + (x.mean() - y.mean()) ** 2  # of a pair drawn by chance
    return float(1 - ((x - y) ** 2).mean() / expected) if expected > 0 else float("nan")
