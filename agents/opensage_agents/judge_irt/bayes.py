"""The whole posterior of slopes and thresholds, by Hamiltonian Monte Carlo with theta integrated out on the grid.

Own sampler, since only P*K parameters are left and their gradient is known; the paper samples theta too, by NUTS.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opensage_agents.judge_irt.curves import Grid, Patterns, unpacked
from opensage_agents.judge_irt.fitting import Fit, Objective, target
from opensage_agents.judge_irt.scores import Coded, Floats, ScoreError

CHAINS, WARM_UP, KEPT, STEPS = 4, 150, 500, 6
R_HAT, LEAST_ESS = 1.01, 400.0


@dataclass(frozen=True, slots=True)
class Draws:
    """Draws (chains, kept, P*K) of slopes and thresholds, a row `a, b_2, ..., b_K` for each variant."""

    values: Floats
    p: int
    accepted: float

    @property
    def means(self) -> tuple[Floats, Floats]:
        """Posterior means of slopes (P,) and thresholds (P, K-1)."""
        rows = self.values.mean(axis=(0, 1)).reshape(self.p, -1)
        return rows[:, 0], rows[:, 1:]

    @property
    def r_hat(self) -> Floats:
        """Split R-hat of each parameter (Gelman and others)."""
        return np.array([split_r_hat(column) for column in np.moveaxis(self.values, 2, 0)])

    @property
    def ess(self) -> Floats:
        """Effective sample size of each parameter."""
        return np.array([effective_size(column) for column in np.moveaxis(self.values, 2, 0)])

    @property
    def converged(self) -> bool:
        """R-hat at most 1.01 and an effective size of at least 400, of every parameter."""
        return bool((self.r_hat <= R_HAT).all() and (self.ess >= LEAST_ESS).all())

    @property
    def warnings(self) -> list[str]:
        """What is wrong with the draws."""
        if self.converged:
            return []
        return [f"not converged: largest R-hat {self.r_hat.max():.3f}, least effective size {self.ess.min():.0f}"]


def split_r_hat(chains: Floats) -> float:
    """Of (chains, n) draws, each chain cut in halves."""
    half = chains.shape[1] // 2
    parts = np.concatenate([chains[:, :half], chains[:, half : 2 * half]])
    within = parts.var(axis=1, ddof=1).mean()
    between = parts.mean(axis=1).var(ddof=1)
    return float(np.sqrt((half - 1) / half + between / within))


def effective_size(chains: Floats) -> float:
    """Of (chains, n) draws, by autocorrelations up to the first pair that sums below zero (Geyer)."""
    m, n = chains.shape
    centred = chains - chains.mean(axis=1, keepdims=True)
    spectrum = np.fft.rfft(centred, 2 * n, axis=1)
    own = np.fft.irfft(np.abs(spectrum) ** 2, axis=1)[:, :n].mean(axis=0) / n
    within = own[0] * n / (n - 1)
    total = within * (n - 1) / n + (chains.mean(axis=1).var(ddof=1) if m > 1 else 0.0)
    rho = 1 - (within - own * n / (n - 1)) / total
    rho[0] = 1.0
    pairs = rho[: n // 2 * 2].reshape(-1, 2).sum(axis=1)
    stop = np.argmax(pairs < 0) if (pairs < 0).any() else len(pairs)
    return float(m * n / max(2 * np.minimum.accumulate(pairs[:stop]).sum() - 1, 1 / np.log10(m * n)))


def sample(scores: Coded, grid: Grid, fit: Fit, seed: int = 0) -> Draws:
    """Draw from the posterior, in coordinates that are whitened at its maximum.

    Raises:
        ScoreError: a level is never given by some variant: its thresholds have no proper posterior in this form.
    """
    if any(set(unused) - {1, scores.k} for unused in scores.unused()):
        raise ScoreError("bayes needs every level between the ends to be given by every variant: take map or mml")
    p, rng = len(scores.variants), np.random.default_rng(seed)
    density = _density(target(Patterns.of(scores.levels, scores.k), p, grid, True), p)
    whiten = _whitening(density, fit.free)
    chains, accepted = [], []
    for _ in range(CHAINS):
        kept, share = _chain(density, fit.free, whiten, rng)
        chains.append([np.column_stack(unpacked(free, p)).ravel() for free in kept])
        accepted.append(share)
    return Draws(np.array(chains), p, float(np.mean(accepted)))


def _density(rise: Objective, p: int) -> Objective:
    """With the volume of the change of variables: log a is free, and so is each log gap."""

    def value(free: Floats) -> tuple[float, Floats]:
        found, gradient = rise(free)
        rows = free.reshape(p, -1)
        volume = np.ones_like(rows)
        volume[:, 1] = 0.0
        return found + float(rows[:, 0].sum() + rows[:, 2:].sum()), gradient + volume.ravel()

    return value


def _whitening(density: Objective, at: Floats) -> Floats:
    """A factor of the inverse curvature at a point, from differences of gradients."""
    step = 1e-4
    rows = [(density(at + e)[1] - density(at - e)[1]) / (2 * step) for e in np.eye(len(at)) * step]
    curvature = -(np.array(rows) + np.array(rows).T) / 2
    values, vectors = np.linalg.eigh(curvature)
    whiten: Floats = vectors / np.sqrt(np.maximum(values, 1e-4 * values.max()))
    return whiten


def _chain(density: Objective, at: Floats, whiten: Floats, rng: np.random.Generator) -> tuple[list[Floats], float]:
    """One chain: the step is tuned towards 0.8 accepted while warming up, then fixed (up to a jitter)."""
    free = at + whiten @ rng.normal(size=len(at))
    here, step, kept, taken = density(free), 0.4, [], 0.0
    for turn in range(WARM_UP + KEPT):
        free, here, chance = _move(density, free, here, whiten, step * rng.uniform(0.8, 1.2), rng)
        if turn < WARM_UP:
            step = float(np.clip(step * np.exp((chance - 0.8) / np.sqrt(turn + 1)), 0.01, 1.5))
        else:
            kept.append(free)
            taken += chance
    return kept, taken / KEPT


def _move(
    density: Objective, free: Floats, here: tuple[float, Floats], whiten: Floats, step: float, rng: np.random.Generator
) -> tuple[Floats, tuple[float, Floats], float]:
    speed = rng.normal(size=len(free))
    start = here[0] - 0.5 * speed @ speed
    place, there = free, here
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for _ in range(STEPS):
            speed = speed + 0.5 * step * (whiten.T @ there[1])
            place = place + step * (whiten @ speed)
            there = density(place)
            speed = speed + 0.5 * step * (whiten.T @ there[1])
        change = float(there[0] - 0.5 * speed @ speed - start)
    chance = float(np.exp(min(0.0, change))) if np.isfinite(change) else 0.0
    return (place, there, chance) if rng.random() < chance else (free, here, chance)
