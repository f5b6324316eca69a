"""How regret grows with the horizon: a logarithmic fit and a power law, with an interval from resampling the seeds."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import ArrayLike

from .market import Floats


@dataclass(frozen=True)
class Growth:
    """Fits of mean regret over horizons.

    Attributes:
        power: exponent p of R ~ T^p, least squares on log-log axes.
        ci95: 95 % percentile interval of `power` over resampled seeds; None with one seed.
        log_slope: b of R = a + b log T.
        log_r2: share of the variance that the logarithmic fit explains.
    """

    power: float
    ci95: tuple[float, float] | None
    log_slope: float
    log_r2: float

    def as_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        return asdict(self)


def fit_growth(T_grid: ArrayLike, regret: ArrayLike, resamples: int = 1000, seed: int = 0) -> Growth:
    """Fit the growth of regret.

    Args:
        T_grid: horizons, (C,), at least two; one run each, or the checkpoints of a run that is told no horizon.
        regret: (C,) or one row a seed, (S, C). Rows are resampled whole, so a row may share its market.
        resamples: number of bootstrap samples.
        seed: of the resampling.

    Raises:
        ValueError: shapes disagree, or the mean regret at a horizon is not positive, so that no power law fits.
    """
    horizons, rows = np.asarray(T_grid, dtype=np.float64), np.atleast_2d(np.asarray(regret, dtype=np.float64))
    _check(horizons, rows)
    mean = rows.mean(axis=0)
    if (low := np.flatnonzero(mean <= 0)).size:
        raise ValueError(
            f"mean regret at T={horizons[low[0]]:g} is {mean[low[0]]:g}; a power law needs positive values"
        )
    x = np.log(horizons)
    slope, r2 = _line(x, mean)
    interval = _interval(x, rows, resamples, np.random.default_rng(seed)) if len(rows) > 1 else None
    return Growth(_slopes(x, np.log(mean)[None])[0], interval, slope, r2)


def _check(horizons: Floats, rows: Floats) -> None:
    if horizons.ndim != 1 or rows.ndim != 2 or rows.shape[1] != horizons.size or not rows.size:
        raise ValueError(f"regret must be (C,) or (S, C) for C={horizons.size} horizons, got {rows.shape}")
    if not (np.isfinite(horizons).all() and np.isfinite(rows).all() and (horizons >= 1).all()):
        raise ValueError("horizons must be >= 1 and all values finite")
    if np.unique(horizons).size < 2:
        raise ValueError("need at least two different horizons")


def _interval(x: Floats, rows: Floats, resamples: int, rng: np.random.Generator) -> tuple[float, float]:
    picks = rng.integers(0, len(rows), (resamples, len(rows)))
    means = rows[picks].mean(axis=1)
    slopes = _slopes(x, np.log(np.maximum(means, 1e-12)))
    low, high = np.percentile(slopes, [2.5, 97.5])
    return float(low), float(high)


def _slopes(x: Floats, y: Floats) -> list[float]:
    """Least-squares slope of each row of y over x."""
    centred = x - x.mean()
    return [float(b) for b in y @ centred / (centred @ centred)]


def _line(x: Floats, y: Floats) -> tuple[float, float]:
    slope = _slopes(x, y[None])[0]
    rest = y - y.mean() - slope * (x - x.mean())
    spread = float(((y - y.mean()) ** 2).sum())
    return slope, 1.0 - float((rest**2).sum()) / spread if spread > 0 else 1.0
