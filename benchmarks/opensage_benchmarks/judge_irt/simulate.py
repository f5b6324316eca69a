"""Scores of judges whose slopes and thresholds are known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

FIVE = (-1.5, -0.5, 0.5, 1.5)


def scores_of(
    samples: int, slopes: Sequence[float], seed: int, thresholds: Sequence[float] = FIVE
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The latent quality (J,) and the scores (J, P), 1..K, drawn from the graded response model."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=samples)
    logits = np.asarray(slopes)[None, :, None] * (theta[:, None, None] - np.asarray(thresholds)[None, None, :])
    drawn = rng.random((samples, len(slopes), 1)) < 1 / (1 + np.exp(-logits))
    return theta, 1.0 + drawn.sum(axis=2)
