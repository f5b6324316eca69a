"""Way-SE-2S: both sides learn, players come and go, and nobody says so."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .policies import STAY, Tally, first_best


@dataclass(frozen=True)
class TwoSidedRule:
    """Constants of Way-SE-2S; the other values give the variants that were tried and lost.

    Attributes:
        rate: c0 of the exploration rate eps(s) = min(1, c0 (log(s+1)^2 / (s+1))^(1/K)).
        upward: share of eps spent on single proposals to a marked arm that looks better than home.
        walk: share of eps spent on walks, in which the player leaves its home for K^2/eps(s) steps.
        patience: rejections in a row, in multiples of K, before a settled home is marked as taken.
        trial: an arm that was marked and accepts is on trial: one rejection marks it again.
        forget: clear all marks at ages 1, 2, 4, 8, ...
        decay: False: eps stays at `rate` for ever.
    """

    rate: float = 0.5
    upward: float = 1 / 3
    walk: float = 1 / 3
    patience: int = 3
    trial: bool = True
    forget: bool = False
    decay: bool = True

    def eps(self, age: int, K: int) -> float:
        """The exploration rate at an age."""
        return min(1.0, self.rate * (math.log(age + 1) ** 2 / (age + 1)) ** (1 / K)) if self.decay else self.rate


class WaySE2S:
    """Two-sided, arrivals and departures: park at the best arm not marked as taken, probe, and now and then walk away.

    A mark is no proof, because players leave: probes of better marked arms find those that have become free. Where
    all players must move at once (a rotation), a walk vacates an arm long enough for the others' probes to follow.
    """

    def __init__(self, rule: TwoSidedRule | None = None) -> None:
        self.rule = rule or TwoSidedRule()

    def reset(self, K: int, rng: np.random.Generator) -> None:
        """Nothing known, nothing marked."""
        self.K, self.rng, self.tally, self.marked = K, rng, Tally.of(K), [False] * K
        self.patience = self.rule.patience * K
        self.trial, self.home, self.streak, self.rejections = STAY, STAY, 0, 0
        self.walk_until, self.explored, self.probing = 0, 0, False

    def act(self, age: int) -> int:
        """Home, unless the coin says probe or a walk is under way."""
        coin, pick = self.rng.random(2)
        if all(self.marked) or (self.rule.forget and age & (age - 1) == 0):
            self.marked = [False] * self.K
        value = [m if n else 2.0 for n, m in zip(self.tally.counts, self.tally.means, strict=True)]
        home = first_best(value, [j for j in range(self.K) if not self.marked[j]])
        if home != self.home:
            self.home, self.rejections = home, 0
        better = [j for j in range(self.K) if self.marked[j] and value[j] > value[home]]
        return self._propose(age, coin, pick, better)

    def _propose(self, age: int, coin: float, pick: float, better: list[int]) -> int:
        rule, eps = self.rule, self.rule.eps(age, self.K)
        length = math.ceil(self.K**2 / eps)
        if better and self.walk_until < age and coin >= 1 - rule.walk * eps / length:
            self.walk_until = age + length
        walking = bool(better) and self.walk_until >= age and self.trial == STAY
        probe = coin < eps * (1 - rule.walk)
        up = walking or (probe and bool(better) and coin >= eps * (1 - rule.walk - rule.upward))
        self.probing = up or probe
        self.explored += self.probing
        if up:
            return better[int(pick * len(better))]
        return int(pick * self.K) if probe else self.home

    def observe(self, arm: int, accepted: bool, reward: float | None) -> None:
        """Learn; a marked arm that accepts goes on trial, an arm that keeps rejecting is marked."""
        if reward is not None:
            self.tally.add(arm, reward)
        if self.probing:
            if accepted and self.marked[arm]:
                self.marked[arm], self.rejections, self.streak = False, 0, 0
                self.trial = arm if self.rule.trial else STAY
        elif accepted:
            self._accepted_at_home(arm)
        else:
            self._rejected_at_home(arm)

    def _accepted_at_home(self, arm: int) -> None:
        self.rejections = 0
        if arm == self.trial:
            self.streak += 1
            if self.streak >= self.patience:
                self.trial, self.walk_until = STAY, 0

    def _rejected_at_home(self, arm: int) -> None:
        self.rejections += 1
        if arm == self.trial or self.rejections >= self.patience:
            self.marked[arm], self.rejections = True, 0
            if arm == self.trial:
                self.trial = STAY
