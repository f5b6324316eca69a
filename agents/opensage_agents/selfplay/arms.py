"""What the questioner of T2 is paid: the plug-in, its rivals and its ablations, on the same seeds and budget."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from opensage_agents.selfplay.buffer import HistoryBuffer
from opensage_agents.selfplay.detector import SeenDetector
from opensage_agents.selfplay.errors import BadValue, NotEnoughHistory
from opensage_agents.selfplay.host import INVALID, base_reward, batch_penalty
from opensage_agents.selfplay.kinds import KINDS
from opensage_agents.selfplay.loop import Attempt
from opensage_agents.selfplay.policy import SoftmaxQuestioner
from opensage_agents.selfplay.questions import rendered

if TYPE_CHECKING:
    from opensage_agents.selfplay.world_t2 import T2, Texts

Array = NDArray[np.float64]
Cells = NDArray[np.int64]


@dataclass(slots=True)
class Arm:
    """The host's reward: uncertainty less the batch penalty. Others put something on top."""

    world: T2
    texts: Texts
    history: HistoryBuffer
    questioner: SoftmaxQuestioner
    seed: int
    penalty: bool = True
    note: str = ""
    detector: SeenDetector | None = None
    novelty: Array = field(init=False)
    rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng([self.seed, 3])
        self.novelty = np.zeros(len(self.texts.rows))

    def begin(self, number: int) -> None:
        """Refit what knows the past. `novelty` has a number for each cell, fixed for the round."""
        self.novelty = np.zeros(len(self.texts.rows))
        if len(self.history):
            self.refit(self.texts.encoder.encode(self.history.questions), number)

    def refit(self, rows: NDArray[Any], number: int) -> None:
        """The host knows no past."""

    def extra(self, items: Cells, attempt: Attempt) -> Array:
        """What is paid on top: novelty behind the gate."""
        gate = attempt.valid & (attempt.s >= 0.2) & (attempt.s <= 0.8)
        return np.where(gate, self.world.lam * self.novelty[items], 0.0)

    def __call__(self, items: Cells, attempt: Attempt) -> Array:
        """Rewards of a batch."""
        paid = np.where(attempt.valid, base_reward(attempt.s), INVALID)
        if self.penalty:
            paid = paid - batch_penalty([self.texts.plain[item] for item in items])
        return paid + self.extra(items, attempt)

    def used(self, items: Cells, number: int) -> None:
        """Into the history, with fresh numbers and names."""
        rng = random.Random(int(self.rng.integers(2**31)))
        self.history.add((rendered(int(item), rng) for item in items), number)

    def figures(self, used: Cells) -> dict[str, float]:
        """Mean novelty of the used questions, and the share of them that count as seen."""
        if self.detector is None or not len(used):
            return {}
        return {"novelty": float(self.novelty[used].mean()), "seen": float((self.novelty[used] <= 0.95).mean())}


class _OneClass(Arm):
    """The plug-in: calibrated novelty of a detector fitted on the used questions."""

    def refit(self, rows: NDArray[Any], number: int) -> None:
        try:
            self.detector = SeenDetector(self.world.kind, seed=self.seed + number).fit_history(rows)
            self.novelty, self.note = self.detector.novelty(self.texts.rows), ""
        except NotEnoughHistory as error:
            self.detector, self.note = None, f"{error}; the host's reward alone"


class _Gated(_OneClass):
    """The gated form: what is seen loses half of what the host pays."""

    def __call__(self, items: Cells, attempt: Attempt) -> Array:
        paid = Arm.__call__(self, items, attempt)
        seen = (self.novelty[items] <= 0.95) if self.detector else np.zeros(len(items), dtype=bool)
        return np.where(paid > 0, paid * (1 - 0.5 * seen), paid)

    def extra(self, items: Cells, _attempt: Attempt) -> Array:
        return np.zeros(len(items))


class _Memory(Arm):
    """Less the likeness to the past, maximum and mean of the cosine (as in R-Diverse)."""

    def refit(self, rows: NDArray[Any], number: int) -> None:
        distinct, counts = np.unique(rows, axis=0, return_counts=True)
        cosine = self.texts.rows @ distinct.T
        self.novelty = -(cosine.max(axis=1) + cosine @ (counts / counts.sum())) / 2

    def extra(self, items: Cells, attempt: Attempt) -> Array:
        return np.asarray(self.world.lam * self.novelty[items])


class _Raw(Arm):
    """The raw outlyingness of a model, in units of its spread over all cells: without calibration."""

    kind = "knn"

    def refit(self, rows: NDArray[Any], number: int) -> None:
        rng = np.random.default_rng([self.seed, number])
        found = KINDS[self.kind](rows.astype(np.float64), rng, 0.05)(self.texts.rows.astype(np.float64))
        self.novelty = np.clip(found / max(float(found.max()), 1e-12), 0, 1)


class _Rnd(_Raw):
    """Error of a network that learnt to predict a random one on the past."""

    kind = "rnd"


class _Count(Arm):
    """1/sqrt(1 + times used) of the nearest of 40 clusters of all cells."""

    def refit(self, rows: NDArray[Any], number: int) -> None:
        centres = self.texts.rows[np.random.default_rng(self.seed).choice(len(self.texts.rows), 40, replace=False)]
        counts = np.bincount((rows @ centres.T).argmax(axis=1), minlength=40)
        self.novelty = 1 / np.sqrt(1 + counts[(self.texts.rows @ centres.T).argmax(axis=1)])


class _Noise(Arm):
    """A control: novelty at random."""

    def refit(self, rows: NDArray[Any], number: int) -> None:
        self.novelty = self.rng.random(len(self.texts.rows))


class _Negatives(Arm):
    """An ablation: a classifier of the past against what the questioner writes now, calibrated in the same way."""

    def refit(self, rows: NDArray[Any], number: int) -> None:
        from sklearn.linear_model import LogisticRegression

        if len(rows) < 40:
            return
        order = self.rng.permutation(len(rows))
        aside, known = rows[order[: len(rows) // 4]], rows[order[len(rows) // 4 :]]
        own = self.texts.rows[self.questioner.sample(len(known))]
        labels = np.r_[np.zeros(len(known)), np.ones(len(own))]
        model = LogisticRegression(max_iter=200).fit(np.vstack([known, own]).astype(np.float64), labels)
        found, least = model.decision_function(self.texts.rows), np.sort(model.decision_function(aside))
        self.novelty = (1 + np.searchsorted(least, np.round(found, 6))) / (len(least) + 1)


class _EveryStep(_OneClass):
    """An ablation: refitted at each step, on at most 1000 of all that the questioner wrote so far."""

    def begin(self, number: int) -> None:
        if number == 1:
            self.written = np.zeros(0, dtype=np.int64)

    def __call__(self, items: Cells, attempt: Attempt) -> Array:
        cells = np.unique(items)
        if self.detector is not None:
            self.novelty[cells] = self.detector.novelty(self.texts.rows[cells])
        paid = Arm.__call__(self, items, attempt)
        self.written = np.concatenate([self.written, items])
        some = self.rng.choice(self.written, min(len(self.written), 1000), replace=False)
        self.detector = SeenDetector(self.world.kind, seed=self.seed).fit_history(self.texts.rows[some])
        return paid


ARMS: dict[str, tuple[Callable[..., Arm], bool]] = {
    "base": (Arm, False),
    "batch": (Arm, True),
    "memory": (_Memory, True),
    "knn": (_Raw, True),
    "rnd": (_Rnd, True),
    "count": (_Count, True),
    "oneclass": (_OneClass, True),
    "gated": (_Gated, True),
    "nobatch": (_OneClass, False),
    "random": (_Noise, True),
    "negatives": (_Negatives, True),
    "everystep": (_EveryStep, True),
}
"""What is put on the base reward, and whether the batch penalty is taken off."""


def open_arm(
    name: str, world: T2, texts: Texts, history: HistoryBuffer, questioner: SoftmaxQuestioner, seed: int
) -> Arm:
    """The arm of a name.

    Raises:
        BadValue: there is none.
    """
    if name not in ARMS:
        raise BadValue(f"{name!r} is no reward of world t2: there are {', '.join(ARMS)}")
    kind, penalty = ARMS[name]
    return kind(world, texts, history, questioner, seed, penalty)
