"""The graded response model (Samejima 1969, logistic) on a grid: probabilities, marginal likelihood and its gradient.

Parameters of variant p: slope a > 0 and thresholds b_2 < ... < b_K; P(Y >= k | theta) = sigmoid(a (theta - b_k)).
They are kept as one free vector: log a, b_2 and the logarithms of b_{k+1} - b_k, so that order cannot break.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opensage_agents.judge_irt.scores import Floats, Ints


@dataclass(frozen=True, slots=True)
class Grid:
    """Points of the latent trait and the logarithms of their standard normal weights, which sum to one."""

    points: Floats
    log_weights: Floats

    @classmethod
    def of(cls, n: int, most: float) -> Grid:
        """`n` points evenly on [-most, most]."""
        points = np.linspace(-most, most, n)
        log = -0.5 * points**2
        return cls(points, log - np.log(np.exp(log).sum()))


@dataclass(frozen=True, slots=True)
class Patterns:
    """The different rows of a matrix of levels: `hot` (U, P*K) marks their levels, `counts` (U,) says how often."""

    hot: Floats
    counts: Floats
    inverse: Ints

    @classmethod
    def of(cls, levels: Ints, k: int) -> Patterns:
        """Of (J, P) levels 1..K, 0 where missing."""
        rows, inverse, counts = np.unique(levels, axis=0, return_inverse=True, return_counts=True)
        hot = (rows[:, :, None] == np.arange(1, k + 1)).astype(float)
        return cls(hot.reshape(len(rows), -1), counts.astype(float), inverse.reshape(-1).astype(np.int64))


def packed(a: Floats, b: Floats) -> Floats:
    """The free vector of slopes (P,) and thresholds (P, K-1)."""
    return np.concatenate([np.log(a)[:, None], b[:, :1], np.log(np.diff(b, axis=1))], axis=1).ravel()


def unpacked(free: Floats, p: int) -> tuple[Floats, Floats]:
    """Slopes (P,) and thresholds (P, K-1) of a free vector."""
    rows = free.reshape(p, -1)
    steps = np.concatenate([rows[:, 1:2], np.exp(rows[:, 2:])], axis=1)
    return np.exp(rows[:, 0]), np.cumsum(steps, axis=1)


def at_least(a: Floats, b: Floats, theta: Floats) -> Floats:
    """The logits a (theta - b_k), (P, K-1, n)."""
    logits: Floats = a[:, None, None] * (theta - b[:, :, None])
    return logits


def log_sigmoid(x: Floats) -> Floats:
    """The logarithm of the logistic function, without overflow."""
    return -np.logaddexp(0.0, -x)


def log_probs(a: Floats, b: Floats, theta: Floats) -> Floats:
    """Logarithms of P(Y = k | theta), (P, K, n), by a product of positive factors: no difference, no cancellation.

    sigmoid(x) - sigmoid(y) = sigmoid(x) sigmoid(-y) (1 - exp(y - x)) for x > y.
    """
    logits = at_least(a, b, theta)
    p, steps, n = logits.shape
    out = np.zeros((p, steps + 1, n))
    out[:, 1:] += log_sigmoid(logits)
    out[:, :-1] += log_sigmoid(-logits)
    gaps = a[:, None] * np.diff(b, axis=1)
    out[:, 1:-1] += np.log(-np.expm1(-gaps))[:, :, None]
    return out


def probs(a: Floats, b: Floats, theta: Floats) -> Floats:
    """P(Y = k | theta), (n, P, K); each row sums to one."""
    found = np.exp(log_probs(a, b, theta)).transpose(2, 0, 1)
    whole: Floats = found / found.sum(axis=2, keepdims=True)
    return whole


def information(a: Floats, b: Floats, theta: Floats) -> Floats:
    """Fisher information of each variant at theta, (n, P): a^2 sum_k P_k (1 - S_k - S_{k+1})^2."""
    edges = np.exp(log_sigmoid(at_least(a, b, theta)))
    ones, zeros = np.ones_like(edges[:, :1]), np.zeros_like(edges[:, :1])
    slope = 1.0 - np.concatenate([ones, edges], axis=1) - np.concatenate([edges, zeros], axis=1)
    inside = np.exp(log_probs(a, b, theta)) * slope**2
    found: Floats = (a[:, None] ** 2 * inside.sum(axis=1)).T
    return found


def joint(a: Floats, b: Floats, data: Patterns, grid: Grid) -> tuple[Floats, Floats]:
    """Log-likelihood of each pattern (U,), and the posterior of theta given it on the grid (U, Q)."""
    table = log_probs(a, b, grid.points)
    logs = data.hot @ table.reshape(-1, len(grid.points)) + grid.log_weights
    top = logs.max(axis=1, keepdims=True)
    share = np.exp(logs - top)
    whole = share.sum(axis=1, keepdims=True)
    return (top + np.log(whole))[:, 0], share / whole


def marginal(free: Floats, p: int, data: Patterns, grid: Grid) -> tuple[float, Floats]:
    """The log-likelihood with theta integrated out, and its gradient in the free vector."""
    a, b = unpacked(free, p)
    logs, share = joint(a, b, data, grid)
    expected = data.hot.T @ (share * data.counts[:, None])
    return float(data.counts @ logs), _gradient(a, b, expected.reshape(p, -1, len(grid.points)), grid)


def _gradient(a: Floats, b: Floats, expected: Floats, grid: Grid) -> Floats:
    """Of sum expected * log_probs; `expected` (P, K, Q) are the counts that the posterior expects."""
    logits = at_least(a, b, grid.points)
    up = np.exp(log_sigmoid(-logits))
    by_logit = expected[:, 1:] * up - expected[:, :-1] * (1.0 - up)
    by_gap = np.zeros_like(b)  # of the factor 1 - exp(-gap), which does not depend on theta
    if b.shape[1] > 1:
        gaps = a[:, None] * np.diff(b, axis=1)
        pull = expected[:, 1:-1].sum(axis=2) / np.expm1(gaps)
        by_gap[:, 1:] += pull
        by_gap[:, :-1] -= pull
    by_b = a[:, None] * (by_gap - by_logit.sum(axis=2))
    by_log_a = (by_logit * logits).sum(axis=(1, 2)) + a * (by_gap * b).sum(axis=1)
    return by_free(by_log_a, by_b, b)


def by_free(by_log_a: Floats, by_b: Floats, b: Floats) -> Floats:
    """The gradient in the free vector, from those in log a (P,) and b (P, K-1)."""
    tails = np.cumsum(by_b[:, ::-1], axis=1)[:, ::-1]
    steps = np.concatenate([tails[:, :1], tails[:, 1:] * np.diff(b, axis=1)], axis=1)
    return np.concatenate([by_log_a[:, None], steps], axis=1).ravel()
