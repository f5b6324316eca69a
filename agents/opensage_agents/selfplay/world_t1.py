"""T1: a parametric world with families of skills, difficulties and variants.

It was chosen because it collapses; `KINDER` is one that does not.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opensage_agents.selfplay.errors import BadValue
from opensage_agents.selfplay.host import base_reward
from opensage_agents.selfplay.loop import Attempt, SelfPlayLoop
from opensage_agents.selfplay.metrics import History, entropy_of
from opensage_agents.selfplay.policy import SoftmaxQuestioner

Array = NDArray[np.float64]
Cells = NDArray[np.int64]

ARMS = ("base", "batch", "oneclass", "rank", "nobatch", "random", "memory", "count")
"""base: min(s, 1-s). batch: less the share of the batch with the same family and variant, as the host. oneclass: the
host and novelty of the family. rank: the same by rank. nobatch: novelty without the batch penalty. random: the host and
noise. memory: the host less likeness to the history, maximum and mean. count: the host and 1/sqrt(1 + times used)."""


@dataclass(frozen=True, slots=True)
class T1:
    """The world's constants.

    Attributes:
        families, difficulties, variants: number of cells each way; difficulties lie evenly in [-2, 3].
        phi: how fast a skill fades that is not trained (four times this, each round).
        rounds, steps, batch, pool: of the loop.
        spread: standard deviation of a family's first logit; 0 is a flat start.
        keep: pull back to the first logits.
        lam: weight of novelty.
    """

    families: int = 40
    difficulties: int = 5
    variants: int = 12
    phi: float = 0.02
    rounds: int = 30
    steps: int = 15
    batch: int = 64
    pool: int = 256
    spread: float = 1.0
    keep: float = 0.999
    lam: float = 0.5

    def __post_init__(self) -> None:
        """Refuse what is no world."""
        if min(self.families, self.difficulties, self.variants) < 2:
            raise BadValue("a world has at least 2 families, 2 difficulties and 2 variants")
        if not (np.isfinite(self.phi) and self.phi >= 0):
            raise BadValue(f"phi is {self.phi}: it is at least 0")

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of the cells."""
        return self.families, self.difficulties, self.variants


KINDER = T1(families=16, spread=0.0, keep=0.98)
"""A world of the same kind in which nothing collapses: novelty has nothing to mend there."""


class _Solver:
    """An ability for each family; p = sigmoid(ability - difficulty)."""

    def __init__(self, world: T1, rng: np.random.Generator) -> None:
        self._world, self._rng = world, rng
        self.abilities = rng.normal(0, 0.5, world.families)
        self._hard = np.linspace(-2, 3, world.difficulties)

    def _chance(self, items: Cells) -> tuple[Cells, Array]:
        family, hard, _ = np.unravel_index(items, self._world.shape)
        return np.asarray(family), _sigmoid(self.abilities[family] - self._hard[hard])

    def attempt(self, items: Cells) -> Attempt:
        """Ten samples of each."""
        shares = self._rng.binomial(10, self._chance(items)[1]) / 10
        return Attempt(shares, np.ones(len(items), dtype=bool), items)

    def train(self, items: Cells, _attempt: Attempt) -> None:
        """Mostly right labels teach, mostly wrong ones harm; a family with fewer than 4 fades."""
        family, chance = self._chance(items)
        gain = 4 * chance * (1 - chance) * np.where(chance > 0.45, 1.0, -0.5)
        moved = np.bincount(family, gain, minlength=len(self.abilities))
        faded = np.bincount(family, minlength=len(self.abilities)) < 4
        self.abilities = self.abilities + np.tanh(moved / 6) / 2 - 4 * self._world.phi * faded

    def held_out(self) -> float:
        """Mean chance over families and difficulties."""
        return float(_sigmoid(self.abilities[:, None] - self._hard).mean())


def _sigmoid(values: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-values)))


@dataclass(slots=True)
class _Reward:
    """One arm. What it knows of the past is the families' share of the used questions, which fades by 0.9 a round."""

    world: T1
    arm: str
    rng: np.random.Generator
    used_so_far: Array = field(init=False)
    novelty: Array = field(init=False)
    note: str = ""

    def __post_init__(self) -> None:
        self.used_so_far = np.zeros(self.world.families)
        self.novelty = np.zeros(self.world.families)

    def begin(self, number: int) -> None:
        """Novelty of each family, fixed for the round."""
        total = self.used_so_far.sum()
        share = self.used_so_far / total if total else self.used_so_far
        self.novelty = self._novelty(share)

    def _novelty(self, share: Array) -> Array:
        if self.arm in ("oneclass", "nobatch"):
            return np.clip(1 - len(share) * share / 2, 0, 1)
        if self.arm == "rank":
            return np.array([share[share > own].sum() if share.any() else 1.0 for own in share])
        if self.arm == "memory":
            return -((share > 0.005) + share) / 2
        if self.arm == "count":
            return np.asarray(1 / np.sqrt(1 + self.used_so_far))
        return np.zeros(len(share))

    def __call__(self, items: Cells, attempt: Attempt) -> Array:
        """The host's reward and the arm's own part behind the gate."""
        family, _, variant = np.unravel_index(items, self.world.shape)
        paid = base_reward(attempt.s)
        if self.arm not in ("base", "nobatch"):
            pair = family * self.world.variants + variant
            paid = paid - np.bincount(pair)[pair] / len(items)
        gate = (attempt.s >= 0.2) & (attempt.s <= 0.8)
        extra = self.rng.random(len(items)) if self.arm == "random" else self.novelty[family]
        return np.asarray(paid + self.world.lam * extra * gate)

    def used(self, items: Cells, _number: int) -> None:
        """Count the families."""
        family = np.unravel_index(items, self.world.shape)[0]
        self.used_so_far = 0.9 * self.used_so_far + np.bincount(family, minlength=self.world.families)


def simulate(arm: str, seed: int, world: T1 | None = None) -> History:
    """One run. Figures of each round: `effective` families of the questioner, `novelty` of the used ones, `overlap`.

    Overlap is the share of the used questions whose family has more than its even part of the history.

    Raises:
        BadValue: no such arm.
    """
    world = world or T1()
    if arm not in ARMS:
        raise BadValue(f"{arm!r} is no reward of world t1: there are {', '.join(ARMS)}")
    rng = np.random.default_rng(seed)
    solver = _Solver(world, rng)
    start = rng.normal(0, 1, world.families)[:, None, None] * world.spread + rng.normal(0, 0.1, world.shape)
    questioner = SoftmaxQuestioner(start, rng, keep=world.keep)
    reward = _Reward(world, arm, rng)

    def observe(_pool: Cells, _attempt: Attempt, used: Cells, _number: int) -> dict[str, float]:
        spread = questioner.probabilities.sum(axis=(1, 2))
        family = np.unravel_index(used, world.shape)[0]
        known = reward.used_so_far * world.families > reward.used_so_far.sum()
        return {
            "effective": float(np.exp(entropy_of(spread))),
            "overlap": float(known[family].mean()) if len(used) else float("nan"),
        }

    loop = SelfPlayLoop(
        questioner, solver, reward, world.rounds, steps=world.steps, batch=world.batch, pool=world.pool, observe=observe
    )
    return loop.run()


def world_of(**changes: Any) -> T1:
    """The world with other constants."""
    return replace(T1(), **changes)
