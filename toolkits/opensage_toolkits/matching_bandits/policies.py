"""What one player and one arm do, each by itself: plain Python, one step at a time.

A policy sees its own age, the arm it proposed to, whether it was accepted and its payoff; never the common step number,
never other players. The two baselines that their papers allow to see more (`Watcher`) say so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, runtime_checkable

import numpy as np

STAY = -1  # propose to nobody


class Policy(Protocol):
    """A player's rule."""

    def reset(self, K: int, rng: np.random.Generator) -> None:
        """Forget everything; `K` arms. Called once before the run, and again for a player who returns as new."""

    def act(self, age: int) -> int:
        """The arm to propose to at this age (1, 2, ...), -1 for none."""

    def observe(self, arm: int, accepted: bool, reward: float | None) -> None:
        """What came of the last proposal; not called after -1. The reward is None when rejected."""


@runtime_checkable
class Watcher(Protocol):
    """A policy that also sees every arm's winner after each step; only baselines of other models do."""

    def see(self, winners: Sequence[int]) -> None:
        """The player that each arm took, (K,), -1 for none."""


class ArmPolicy(Protocol):
    """An arm's rule."""

    def choose(self, proposer_ids: Sequence[int], age: int) -> int:
        """One of the proposers (at least one, ascending); `age` is the arm's own clock."""

    def observe(self, proposer_id: int, reward: float) -> None:
        """The payoff that the chosen proposer brought."""

    def forget(self, proposer_id: int) -> None:
        """This id will be somebody new."""


@dataclass
class Tally:
    """Counts and means of the payoffs of K choices."""

    counts: list[int]
    means: list[float]

    @classmethod
    def of(cls, size: int) -> Tally:
        """Nothing seen yet."""
        return cls([0] * size, [0.0] * size)

    def add(self, choice: int, reward: float) -> None:
        """One more payoff."""
        self.counts[choice] += 1
        self.means[choice] += (reward - self.means[choice]) / self.counts[choice]

    def settled(self, choices: Sequence[int], log_term: float) -> bool:
        """Whether the order of these choices is sure: all sampled, no two intervals m +- sqrt(log_term / n) meet."""
        if any(self.counts[j] == 0 for j in choices):
            return False
        radius = {j: math.sqrt(log_term / self.counts[j]) for j in choices}
        ordered = sorted(choices, key=lambda j: self.means[j])
        pairs = pairwise(ordered)
        return all(self.means[a] + radius[a] < self.means[b] - radius[b] for a, b in pairs)


def first_best(values: Sequence[float], choices: Sequence[int]) -> int:
    """The choice with the largest value, the first of equals; -1 if there is none."""
    return max(choices, key=lambda j: values[j], default=STAY)


def confidence(horizon: int | None, age: int, c: float = 0.5) -> float:
    """Numerator of a squared radius: c log T, or 2 c log(age + 1) if T is unknown (a union bound over 1/age^2)."""
    return c * math.log(horizon) if horizon else 2 * c * math.log(age + 1)


class WaySE:
    """Explore in turn, wait at most K steps at an arm, then park at the best arm alive. One-sided, arrivals only.

    Args:
        horizon: T for the confidence radius; None: from the own age.
        c: constant of the radius, 1/2 is Hoeffding's.
    """

    def __init__(self, horizon: int | None = None, c: float = 0.5) -> None:
        self.horizon, self.c = horizon, c

    def reset(self, K: int, rng: np.random.Generator) -> None:
        """Start exploring at arm 0."""
        self.K, self.age, self.current, self.rejections, self.explored = K, 0, 0, 0, 0
        self.tally, self.dead, self.served = Tally.of(K), [False] * K, [-K] * K
        self.parked = False

    def act(self, age: int) -> int:
        """Parked: the best arm alive. Exploring: the current arm, unless it served this player within K steps."""
        self.age = age
        if self.parked:
            best = first_best(self.tally.means, self._alive())
            if best != self.current:
                self.current, self.rejections = best, 0
            return best
        self.explored += 1
        waiting = self.current < 0 or age - self.served[self.current] < self.K
        return STAY if waiting else self.current

    def observe(self, arm: int, accepted: bool, reward: float | None) -> None:
        """Accepted: learn and go on; the K-th rejection in a row: the arm is out of reach for good."""
        self.rejections = 0 if accepted else self.rejections + 1
        if reward is not None:
            self.tally.add(arm, reward)
            self.served[arm] = self.age
        elif self.rejections == self.K:
            self.dead[arm], self.rejections = True, 0
        if not self.parked:
            if accepted or self.dead[arm]:
                self.current = self._next()
            self.parked = self.tally.settled(self._alive(), confidence(self.horizon, self.age, self.c))

    def _alive(self) -> list[int]:
        return [j for j in range(self.K) if not self.dead[j]]

    def _next(self) -> int:
        cycle = ((self.current + step) % self.K for step in range(1, self.K + 1))
        return next((j for j in cycle if not self.dead[j]), STAY)


def upper_bound(mean: float, count: int, log_term: float) -> float:
    """Mean plus sqrt(log_term / count), infinite for what was never tried."""
    return mean + math.sqrt(log_term / count) if count else math.inf


class KnownArm:
    """An arm that knows its tastes: utilities of the players, (N,)."""

    def __init__(self, liked: Sequence[float]) -> None:
        self.liked = liked

    def choose(self, proposer_ids: Sequence[int], age: int) -> int:
        """The proposer it likes best."""
        return first_best(self.liked, proposer_ids)

    def observe(self, proposer_id: int, reward: float) -> None:
        """Nothing to learn."""

    def forget(self, proposer_id: int) -> None:
        """Tastes stay with the id."""


class LearningArm:
    """An arm that learns its tastes: the best upper bound m + sqrt(c log(age + 1) / n) wins, never seen ones first."""

    def __init__(self, players: int, c: float = 1.0) -> None:
        self.c, self.tally = c, Tally.of(players)

    def choose(self, proposer_ids: Sequence[int], age: int) -> int:
        """The proposer with the best upper bound, the first of equals."""
        log_term = self.c * math.log(age + 1)
        seen = {i: (self.tally.means[i], self.tally.counts[i]) for i in proposer_ids}
        return max(proposer_ids, key=lambda i: upper_bound(*seen[i], log_term))

    def observe(self, proposer_id: int, reward: float) -> None:
        """Learn from a payoff."""
        self.tally.add(proposer_id, reward)

    def forget(self, proposer_id: int) -> None:
        """Start anew with this id."""
        self.tally.counts[proposer_id], self.tally.means[proposer_id] = 0, 0.0
