"""A questioner for worlds with a finite number of cells: a softmax over them, trained by REINFORCE."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class SoftmaxQuestioner:
    """Logits over cells, pulled back to where they began.

    Args:
        start: the first logits, any shape; cells are numbered in C order.
        rate: of learning.
        keep: what remains of the distance to the start after each step.
        rng: random numbers.
    """

    def __init__(self, start: Array, rng: np.random.Generator, rate: float = 5.0, keep: float = 0.999) -> None:
        self.shape = start.shape
        self._start, self._logits = start.ravel().copy(), start.ravel().copy()
        self._rate, self._keep, self._rng = rate, keep, rng

    @property
    def probabilities(self) -> Array:
        """Of the cells, in the shape of the start."""
        weights = np.exp(self._logits - self._logits.max())
        return np.asarray((weights / weights.sum()).reshape(self.shape))

    def sample(self, number: int) -> NDArray[np.int64]:
        """Numbers of cells."""
        edges = np.cumsum(np.exp(self._logits - self._logits.max()))
        places = np.searchsorted(edges, self._rng.random(number) * edges[-1])
        return np.asarray(np.minimum(places, len(edges) - 1), dtype=np.int64)

    def update(self, items: NDArray[np.int64], advantages: Array) -> None:
        """A step of REINFORCE. The softmax's own term falls away, because advantages add up to nothing."""
        moved = self._logits + self._rate / len(items) * np.bincount(items, advantages, minlength=len(self._logits))
        self._logits = self._start + self._keep * (moved - self._start)
