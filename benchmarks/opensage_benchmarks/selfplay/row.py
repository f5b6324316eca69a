"""One figure of the benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Row:
    """One figure. `holds` is None where nothing is required, or nothing could be measured."""

    check: str
    measured: str
    required: str = ""
    holds: bool | None = None

    def __post_init__(self) -> None:
        """NumPy's truth values are no JSON, and none of them `is False`."""
        if self.holds is not None:
            object.__setattr__(self, "holds", bool(self.holds))


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
