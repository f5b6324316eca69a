"""Baselines of the literature, whose models let a player see more than Way-SE does."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .market import Floats
from .policies import STAY, Tally, confidence, first_best, upper_bound

SIGNALS = frozenset(
    2 ** (phase + 1) - 2 + phase for phase in range(1, 61)
)  # the step after each 2^phase of exploration


class ETGS:
    """Explore then Gale-Shapley (Kong and Li 2023), which needs a common clock and sees the winners of each step.

    Args:
        player: own number, which keeps the round-robin free of collisions.
        players: N; all must be there and sure before anybody commits.
        horizon: T for the confidence radius.
        arrival: own first step on the common clock. 1 for everybody means that ages are taken for the time.
    """

    def __init__(self, player: int, players: int, horizon: int, arrival: int = 1) -> None:
        self.player, self.players, self.horizon, self.arrival = player, players, horizon, arrival

    def reset(self, K: int, rng: np.random.Generator) -> None:
        """Start exploring."""
        self.K, self.tally, self.dead, self.committed = K, Tally.of(K), [False] * K, False
        self.signal, self.explored = False, 0

    def act(self, age: int) -> int:
        """Round-robin; at the end of each phase those who are sure show it; then propose down the list."""
        clock = age + self.arrival - 1
        if self.committed:
            return first_best(self.tally.means, [j for j in range(self.K) if not self.dead[j]])
        self.explored += 1
        self.signal = clock in SIGNALS
        if not self.signal:
            return (self.player + clock) % self.K
        sure = self.tally.settled(range(self.K), confidence(self.horizon, age))
        return self.player if sure else STAY

    def observe(self, arm: int, accepted: bool, reward: float | None) -> None:
        """Committed: one rejection is final."""
        if self.committed:
            self.dead[arm] = self.dead[arm] or not accepted
        elif reward is not None:
            self.tally.add(arm, reward)

    def see(self, winners: Sequence[int]) -> None:
        """All N accepted in a signalling step: all are sure."""
        full = sum(winner >= 0 for winner in winners) == self.players
        self.committed = self.committed or (self.signal and full)


class CAUCB:
    """Conflict-avoiding UCB (Liu, Ruan, Mania and Jordan 2021): knows the arms' tastes and sees the last winners.

    Args:
        player: own number.
        v: the arms' utilities, (K, N).
        delay: chance of repeating the last proposal.
    """

    def __init__(self, player: int, v: Floats, delay: float = 0.1) -> None:
        self.player, self.v, self.delay = player, v, delay

    def reset(self, K: int, rng: np.random.Generator) -> None:
        """No arm tried, no winner seen."""
        self.K, self.rng, self.tally = K, rng, Tally.of(K)
        self.last, self.winners, self.explored = STAY, [STAY] * K, 0

    def act(self, age: int) -> int:
        """The best upper bound among arms whose last winner they like no better than this player."""
        if self.rng.random() >= self.delay or self.last == STAY:
            open_arms = [j for j in range(self.K) if self._open(j)]
            bounds = [upper_bound(m, n, 3 * math.log(age + 1) / 2) for m, n in self._seen()]
            self.last = first_best(bounds, open_arms)
        return self.last

    def _seen(self) -> list[tuple[float, int]]:
        return list(zip(self.tally.means, self.tally.counts, strict=True))

    def _open(self, arm: int) -> bool:
        winner = self.winners[arm]
        return winner in (STAY, self.player) or bool(self.v[arm, self.player] > self.v[arm, winner])

    def observe(self, arm: int, accepted: bool, reward: float | None) -> None:
        """Learn from a payoff."""
        if reward is not None:
            self.tally.add(arm, reward)

    def see(self, winners: Sequence[int]) -> None:
        """Remember who won."""
        self.winners = list(winners)
