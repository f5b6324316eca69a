"""Fits of growth."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opensage_toolkits.matching_bandits.growth import fit_growth

GRID = [2**k for k in range(10, 15)]


@settings(max_examples=50, deadline=None)
@given(st.floats(-0.5, 1.5), st.floats(0.1, 100), st.integers(1, 5))
def test_a_power_law_is_recovered(power, scale, seeds):
    rows = np.outer(np.arange(1, seeds + 1), scale * np.array(GRID, dtype=float) ** power)
    fit = fit_growth(GRID, rows, resamples=20)
    assert fit.power == pytest.approx(power, abs=1e-6)
    assert (fit.ci95 is None) == (seeds == 1)
    if fit.ci95:
        assert fit.ci95 == pytest.approx((power, power), abs=1e-6)


@given(st.floats(1, 100), st.floats(1, 100))
def test_a_logarithm_is_recovered(a, b):
    fit = fit_growth(GRID, a + b * np.log(GRID))
    assert fit.log_slope == pytest.approx(b, rel=1e-6)
    assert fit.log_r2 == pytest.approx(1)


def test_the_interval_widens_with_the_spread_of_seeds():
    rng = np.random.default_rng(0)
    clean = np.sqrt(GRID) * np.ones((20, 1))
    noisy = clean * rng.lognormal(0, 0.5, clean.shape)
    low, high = fit_growth(GRID, noisy).ci95
    assert low < 0.5 < high
    assert high - low > 0.05


@pytest.mark.parametrize(
    ("grid", "rows", "said"),
    [
        ([1, 2], [[1, 2, 3]], "C=2 horizons"),
        ([5, 5], [1, 2], "two different"),
        ([5], [1], "two different"),
        ([1, 2], [1, -1], "T=2 is -1"),
        ([1, 2], [1, float("nan")], "finite"),
        ([0, 2], [1, 2], ">= 1"),
        ([1, 2], np.zeros((0, 2)), "horizons"),
    ],
)
def test_what_cannot_be_fitted_is_refused(grid, rows, said):
    with pytest.raises(ValueError, match=said):
        fit_growth(grid, rows)
