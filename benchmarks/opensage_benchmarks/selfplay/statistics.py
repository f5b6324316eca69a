"""Statistics over seeds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def spread(values: Sequence[float]) -> str:
    """Mean and 95 % interval of the mean (normal, over seeds)."""
    found = np.asarray(values, dtype=float)
    half = 1.96 * found.std(ddof=1) / len(found) ** 0.5 if len(found) > 1 else 0.0
    return f"{found.mean():.3f} +- {half:.3f}"


def paired(values: Sequence[float], others: Sequence[float]) -> tuple[float, float]:
    """Mean difference and two-sided p of the paired t-test; p is 1 with fewer than two pairs or no difference."""
    from scipy.stats import ttest_rel

    apart = np.asarray(values) - np.asarray(others)
    p = float(ttest_rel(values, others).pvalue) if len(apart) > 1 and apart.std() else 1.0
    return float(apart.mean()), p
