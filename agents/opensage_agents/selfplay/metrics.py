"""How a run of self-play went: collapse, spread and repetition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opensage_agents.jsonable import plain

TAU = 0.9
"""Cosine from which a question overlaps with one that was used."""


@dataclass(frozen=True, slots=True)
class Round:
    """What a round came to.

    Attributes:
        number: from 1 on; 0 is before the first.
        score: the solver's, held out: on a fixed set, never on the questioner's own questions.
        proposed, used: questions of the pool, and those that trained the solver.
        learnable: share of the pool that is valid and neither always nor never solved.
        reward: mean of the questioner's last batch.
        note: why the reward was not the whole one, if so.
        figures: what the observer added, e.g. `overlap`, `effective`, `novelty`, `seen`.
    """

    number: int
    score: float
    proposed: int = 0
    used: int = 0
    learnable: float = 0.0
    reward: float = 0.0
    note: str = ""
    figures: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class History:
    """The rounds of a run; the first entry is the state before it."""

    rounds: tuple[Round, ...]

    @property
    def scores(self) -> list[float]:
        """The solver's score before the first round and after each."""
        return [each.score for each in self.rounds]

    def series(self, name: str) -> list[float]:
        """One of the figures over the rounds; rounds without it are left out."""
        return [each.figures[name] for each in self.rounds if name in each.figures]

    def to_dict(self) -> dict[str, Any]:
        """As JSON values; what is not known is null."""
        found: dict[str, Any] = plain({"rounds": [asdict(each) for each in self.rounds]})
        return found


def collapse_report(history: History) -> dict[str, Any]:
    """Peak, final and first score, the drop from peak to final, the round of the peak, and the last of each figure.

    `overlap` is a list over the rounds, when it was observed; NaN in a round that used nothing.
    """
    scores = history.scores
    peak = int(np.argmax(scores))
    last = history.rounds[-1].figures
    return {
        "first": scores[0], "peak": scores[peak], "onset": peak, "final": scores[-1],
        "drop": scores[peak] - scores[-1], "overlap": history.series("overlap"),
        **{f"final_{name}": value for name, value in last.items()},
    }  # fmt: skip


def overlap(fresh: NDArray[Any], used: NDArray[Any], tau: float = TAU) -> float:
    """Share of rows of `fresh` whose nearest row of `used` has a cosine of at least tau. Unit rows.

    0 where nothing was used before; NaN without fresh rows: a solver that finds nothing to learn repeats nothing.
    """
    if not len(fresh) or not len(used):
        return 0.0 if len(fresh) else float("nan")
    nearest = [(fresh[start : start + 256] @ used.T).max(axis=1) for start in range(0, len(fresh), 256)]
    return float((np.concatenate(nearest) >= tau - 1e-6).mean())


def means(table: Any) -> NDArray[np.float64]:
    """Means over the first axis of what is not NaN; NaN where nothing is."""
    values = np.asarray(table, dtype=np.float64)
    number = (~np.isnan(values)).sum(axis=0)
    return np.where(number, np.nansum(values, axis=0) / np.maximum(number, 1), np.nan)


def entropy(labels: Iterable[Any]) -> float:
    """Entropy in nats of how labels are spread; 0 for none."""
    _, counts = np.unique(np.asarray(list(labels)), return_counts=True)
    return entropy_of(counts)


def entropy_of(weights: Sequence[float] | NDArray[Any]) -> float:
    """Entropy in nats of weights that are not negative; 0 when all are 0."""
    found = np.asarray(weights, dtype=np.float64)
    found = found[found > 0]
    if not len(found):
        return 0.0
    found = found / found.sum()
    return float(-(found * np.log(found)).sum()) + 0.0


def effective(labels: Iterable[Any]) -> float:
    """Effective number of labels, exp(entropy)."""
    return float(np.exp(entropy(labels)))
