"""The loop: questioner and solver trained in turns, the detector refitted between rounds and never inside one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from opensage_agents.selfplay.errors import BadValue
from opensage_agents.selfplay.metrics import History, Round

Array = NDArray[np.float64]
Items = NDArray[Any]
"""Questions in whatever form a world has them: texts, or numbers of cells."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What the solver made of questions.

    Attributes:
        s: share of its samples that gave the label, (n,).
        valid: whether each is a question that can be answered, (n,).
        labels: the majority's answers, or the right ones.
    """

    s: Array
    valid: NDArray[np.bool_]
    labels: NDArray[Any]

    def __getitem__(self, chosen: NDArray[Any]) -> Attempt:
        """The same of some questions."""
        return Attempt(self.s[chosen], self.valid[chosen], self.labels[chosen])


class Questioner(Protocol):
    """Writes questions, and learns from what they are paid."""

    def sample(self, number: int) -> Items:
        """So many questions."""
        ...

    def update(self, items: Items, advantages: Array) -> None:
        """One step of policy gradient; `advantages` have mean 0 and deviation 1 within the batch."""
        ...


class Solver(Protocol):
    """Answers questions, and learns from those that are kept."""

    def attempt(self, items: Items) -> Attempt:
        """Sample answers."""
        ...

    def train(self, items: Items, attempt: Attempt) -> None:
        """Learn from kept questions and their labels."""
        ...

    def held_out(self) -> float:
        """Score on a fixed set that is not the questioner's."""
        ...


class Reward(Protocol):
    """What the questioner is paid."""

    note: str
    """Why it is not the whole reward, if so."""

    def begin(self, number: int) -> None:
        """A round begins: the only place where a detector changes."""
        ...

    def __call__(self, items: Items, attempt: Attempt) -> Array:
        """Rewards of a batch, (n,)."""
        ...

    def used(self, items: Items, number: int) -> None:
        """These trained the solver in that round."""
        ...


Observer = Callable[[Items, Attempt, Items, int], dict[str, float]]
"""Gets the pool, what was made of it, the questions used of it, and the round; gives figures for the record."""


class SelfPlayLoop:
    """Rounds of self-play (after R-Zero, which has 5 rounds of 5 questioner steps).

    Args:
        questioner, solver, reward: see the protocols.
        rounds: how many.
        steps: of the questioner in each.
        batch: questions a step.
        pool: questions drawn for the solver in each round.
        band: shares s between which a question trains the solver.
        unseen: keeps of the pool what it says (a filter on top of the reward), from items to truth values.
        replay: used questions trained on again, as a share of the fresh ones.
        observe: adds figures to the record of each round.
        seed: of the replay.

    Raises:
        BadValue: a number is out of bounds.
    """

    def __init__(
        self, questioner: Questioner, solver: Solver, reward: Reward, rounds: int = 5, *, steps: int = 5,
        batch: int = 64, pool: int = 256, band: tuple[float, float] = (0.3, 0.8),
        unseen: Callable[[Items], NDArray[np.bool_]] | None = None, replay: float = 0.0,
        observe: Observer | None = None, seed: int = 0,
    ) -> None:  # fmt: skip
        for name, value, least in (("rounds", rounds, 1), ("steps", steps, 0), ("batch", batch, 2), ("pool", pool, 1)):
            if value < least:
                raise BadValue(f"{name} is {value}: it is at least {least}")
        if not 0 <= band[0] < band[1] <= 1 or not 0 <= replay <= 1:
            raise BadValue(f"band is {band} and replay {replay}: shares between 0 and 1, the first of band the less")
        self.questioner, self.solver, self.reward = questioner, solver, reward
        self.rounds, self.steps, self.batch, self.pool, self.band = rounds, steps, batch, pool, band
        self._unseen, self._replay, self._observe = unseen, replay, observe
        self._rng = np.random.default_rng([seed, 7])
        self._old: list[Items] = []

    def run(self) -> History:
        """All rounds."""
        found = [Round(0, self.solver.held_out())]
        for number in range(1, self.rounds + 1):
            self.reward.begin(number)
            paid = [self._step() for _ in range(self.steps)]
            found.append(self._train(number, paid[-1] if paid else 0.0))
        return History(tuple(found))

    def _step(self) -> float:
        items = self.questioner.sample(self.batch)
        paid = self.reward(items, self.solver.attempt(items))
        self.questioner.update(items, standardised(paid))
        return float(paid.mean())

    def _train(self, number: int, paid: float) -> Round:
        pool = self.questioner.sample(self.pool)
        attempt = self.solver.attempt(pool)
        learnable = attempt.valid & (attempt.s >= self.band[0]) & (attempt.s <= self.band[1])
        keep = learnable & (self._unseen(pool) if self._unseen else True)
        fresh = pool[keep]
        self.solver.train(fresh, attempt[keep])
        self._again(len(fresh))
        self._old = [*self._old[-9:], fresh] if self._replay else []
        figures = self._observe(pool, attempt, fresh, number) if self._observe else {}
        self.reward.used(fresh, number)
        return Round(
            number, self.solver.held_out(), len(pool), len(fresh), float(learnable.mean()), paid, self.reward.note,
            figures,
        )  # fmt: skip

    def _again(self, fresh: int) -> None:
        """Train on some of the last used questions again, answered anew."""
        if self._replay and self._old:
            known = np.concatenate(self._old)
            items = self._rng.choice(known, min(len(known), round(self._replay * fresh)), replace=False)
            if len(items):
                self.solver.train(items, self.solver.attempt(items))


def standardised(paid: Array) -> Array:
    """Rewards with mean 0 and deviation 1 within their group; zeros when all are equal, so a constant pays nothing."""
    spread = float(paid.std())
    return (paid - paid.mean()) / spread if spread > 1e-9 else np.zeros_like(paid)
