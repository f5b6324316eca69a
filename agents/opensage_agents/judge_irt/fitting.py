"""Maximising the marginal likelihood, with priors (MAP) or without (MML), by L-BFGS-B with analytic gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from opensage_agents.judge_irt.curves import Grid, Patterns, by_free, marginal, packed, unpacked
from opensage_agents.judge_irt.scores import Coded, Floats

PRIOR_SIGMA = 0.5  # of log a
LEAST_GAP = 1e-6
STARTS = (1.0, 2.5)
MOST_ITERATIONS = 2000
GRADIENT = 1e-5  # of the mean over samples, per free parameter, at a maximum
_LOG_A = (np.log(0.01), np.log(100.0))

Objective = Callable[[Floats], tuple[float, Floats]]


@dataclass(frozen=True, slots=True)
class Fit:
    """A maximum. `loglik` is without priors; `other` is how far below it the start that ended lowest came out."""

    free: Floats
    a: Floats
    b: Floats
    loglik: float
    objective: float
    converged: bool
    iterations: int
    other: float = 0.0


def log_prior(free: Floats, p: int) -> tuple[float, Floats]:
    """Log LogNormal(a; 0, 0.5) + sum log N(b; 0, 1) up to constants, and its gradient in the free vector."""
    a, b = unpacked(free, p)
    log_a = np.log(a)
    value = -0.5 * (log_a**2).sum() / PRIOR_SIGMA**2 - log_a.sum() - 0.5 * (b**2).sum()
    return float(value), by_free(-log_a / PRIOR_SIGMA**2 - 1.0, -b, b)


def target(data: Patterns, p: int, grid: Grid, priors: bool) -> Objective:
    """What is maximised: the marginal log-likelihood, plus the priors'."""

    def value(free: Floats) -> tuple[float, Floats]:
        found, gradient = marginal(free, p, data, grid)
        if priors:
            more, slope = log_prior(free, p)
            return found + more, gradient + slope
        return found, gradient

    return value


def maximise(scores: Coded, grid: Grid, priors: bool, start: Floats | None = None, end: float = 1e-9) -> Fit:
    """The best of several starts, or of one that is given; `end` is the gradient at which a climb ends."""
    starts = [_start(scores, a, grid) for a in STARTS] if start is None else [start]
    fits = [_climb(scores, grid, priors, each, end) for each in starts]
    best = max(fits, key=lambda fit: fit.objective)
    gap = best.objective - min(fit.objective for fit in fits)
    return replace(best, iterations=sum(fit.iterations for fit in fits), other=gap)


def _climb(scores: Coded, grid: Grid, priors: bool, start: Floats, end: float) -> Fit:
    from scipy.optimize import minimize

    data, p = Patterns.of(scores.levels, scores.k), len(scores.variants)
    rise, total = target(data, p, grid, priors), data.counts.sum()

    def fall(free: Floats) -> tuple[float, Floats]:
        value, gradient = rise(free)
        return -value / total, -gradient / total

    bounds = _bounds(scores, grid, priors)
    options = {"maxiter": MOST_ITERATIONS, "maxfun": 2 * MOST_ITERATIONS, "ftol": 0.0, "gtol": end, "maxcor": 30}
    low, high = np.array(bounds).T
    found = minimize(fall, np.clip(start, low, high), jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    free = np.asarray(found.x, dtype=float)
    a, b = unpacked(free, p)
    steepest = np.abs(np.clip(free - fall(free)[1], low, high) - free).max()
    loglik = marginal(free, p, data, grid)[0]
    return Fit(free, a, b, loglik, -float(found.fun) * total, bool(steepest <= GRADIENT), int(found.nit))


def _start(scores: Coded, slope: float, grid: Grid) -> Floats:
    """Thresholds from the share of scores below each level, for slopes that are all the same."""
    rows = []
    for column in scores.levels.T:
        given = column[column > 0]
        share = np.array([(given < k).mean() for k in range(2, scores.k + 1)])
        share = np.clip(share, 0.5 / len(given), 1 - 0.5 / len(given))
        b = np.log(share / (1 - share)) * np.sqrt(slope**-2 + 1 / 1.7**2)
        rows.append(b + 1e-3 * np.arange(len(b)))
    return packed(np.full(len(rows), slope), np.array(rows))


def _bounds(scores: Coded, grid: Grid, priors: bool) -> list[tuple[float, float]]:
    """Of each free parameter. The gap of a level never given is the least: its thresholds are merged.

    Without priors a threshold with nothing scored below it, or above it, would run away: it stops outside the grid.
    """
    far = 2.0 * grid.points[-1]
    bounds: list[tuple[float, float]] = []
    for unused in scores.unused():
        bounds += [_LOG_A, (-far, -far) if 1 in unused and not priors else (-far, far)]
        least, most = np.log(LEAST_GAP), np.log(2 * far)
        bounds += [(least, least if k in unused else most) for k in range(2, scores.k)]
    return bounds
