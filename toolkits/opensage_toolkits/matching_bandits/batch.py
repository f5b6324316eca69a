"""Many runs at once: the same steps as `stepper`, vectorised over S markets and seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .ledger import Field, Ledger, Result
from .market import Bools, Floats, Ints, Market
from .stability import NOBODY, at_arm, winners_of
from .stepper import draw, generators, payoff

BLOCK = 512  # steps for which random numbers are drawn in one go


@dataclass(frozen=True, eq=False)
class Outcome:
    """One step of S runs.

    Attributes:
        proposal: arm of each player present, (S, N), -1 for none.
        accepted: (S, N).
        won: the same by arm, (S, N, K).
        reward: payoff to the player, (S, N); means nothing where not accepted.
        its_reward: payoff to the arm, (S, N).
        winners: player of each arm, (S, K), -1 for none.
    """

    proposal: Ints
    accepted: Bools
    won: Bools
    reward: Floats
    its_reward: Floats
    winners: Ints


class BatchPlayers:
    """The players of S runs; the rules of `Policy`, arrays in place of objects."""

    draws = 0  # random numbers a player takes a step

    def __init__(self, field: Field) -> None:
        self.field, self.numbers = field, np.arange(field.shape[2])
        self.explored = np.zeros(field.shape[:2], dtype=np.int64)

    def restart(self, who: Bools) -> None:
        """These players, (S, N), forget everything."""
        self.explored[who] = 0

    def act(self, age: Ints, present: Bools, draws: Floats) -> Ints:
        """Proposals (S, N); those of absent players do not count. `draws` is (S, N, self.draws)."""
        raise NotImplementedError

    def observe(self, outcome: Outcome) -> None:
        """What came of it."""
        raise NotImplementedError


class BatchArms:
    """Arms that know their tastes."""

    def __init__(self, field: Field) -> None:
        self.field = field

    def scores(self, step: int) -> Floats:
        """How much each arm wants each player now, (S, N, K)."""
        return self.field.liked

    def observe(self, outcome: Outcome) -> None:
        """Nothing to learn."""

    def forget(self, who: Bools) -> None:
        """These ids, (S, N), will be somebody new."""


class BatchTally:
    """Counts and means of payoffs, (S, N, K)."""

    def __init__(self, shape: tuple[int, int, int]) -> None:
        self.counts, self.means = np.zeros(shape), np.zeros(shape)

    def clear(self, who: Bools) -> None:
        """Nothing seen yet, for these players."""
        self.counts[who] = 0.0
        self.means[who] = 0.0

    def add(self, won: Bools, reward: Floats) -> None:
        """Payoffs (S, N) of the pairs that were matched."""
        self.counts += won
        self.means += np.where(won, (reward[:, :, None] - self.means) / np.maximum(self.counts, 1.0), 0.0)

    def bounds(self, log_term: Floats | float) -> Floats:
        """Mean plus sqrt(log_term / count), infinite for pairs never seen."""
        return np.where(self.counts > 0, self.means + np.sqrt(log_term / np.maximum(self.counts, 1.0)), np.inf)

    def settled(self, alive: Bools, log_term: Floats) -> Bools:
        """Whose order of the arms alive is sure, (S, N): all sampled and no two intervals meet."""
        radius = np.sqrt(log_term[:, :, None] / np.maximum(self.counts, 1.0))
        low, high = self.means - radius, self.means + radius
        below = high[:, :, :, None] < low[:, :, None, :]
        apart = below | below.swapaxes(2, 3) | ~alive[:, :, :, None] | ~alive[:, :, None, :]
        size = alive.shape[2]
        apart[:, :, range(size), range(size)] = True
        return np.asarray(apart.all(axis=(2, 3)) & ((self.counts > 0) | ~alive).all(axis=2))


class Draws:
    """Random numbers for each step, drawn in blocks from the streams that the plain stepper uses one by one."""

    def __init__(self, field: Field, width: int) -> None:
        self.field, self.width = field, width
        self.payoffs, self.streams = zip(*(generators(market) for market in field.markets), strict=True)
        self.end = 0

    def at(self, step: int) -> tuple[Floats, Floats]:
        """Noise of the payoffs (S, 2, N) and numbers for the players (S, N, width)."""
        if step > self.end:
            self._fill(step)
        return self.noise[step - self.begin], self.numbers[step - self.begin]

    def _fill(self, step: int) -> None:
        self.begin, self.end = step, step + BLOCK - 1
        runs, players, _ = self.field.shape
        parts = zip(self.field.markets, self.payoffs, strict=True)
        self.noise = np.stack([draw(market, rng, (BLOCK, 2, players)) for market, rng in parts], axis=1)
        self.numbers = np.zeros((BLOCK, runs, players, self.width))
        if self.width:
            present = np.stack([self.field.present(t) for t in range(self.begin, self.end + 1)])
            for s, streams in enumerate(self.streams):
                for i, rng in enumerate(streams):
                    there = present[:, s, i]
                    self.numbers[there, s, i] = rng.random((int(there.sum()), self.width))


def simulate_batch(
    players: BatchPlayers,
    arms: BatchArms,
    T: int,
    checkpoints: Sequence[int] | None = None,
    keep_matched: bool = False,
) -> list[Result]:
    """Run T steps of the markets of `players.field`; arguments and results as of `simulate`, one result a market."""
    field = players.field
    ledger, draws = Ledger(field, T, checkpoints, keep_matched), Draws(field, players.draws)
    for step in range(1, T + 1):
        if step in field.changes:
            present, since = field.present(step), field.first_step(step)
            ledger.seat(present)
            _restart(field.reborn(step), players, arms)
        noise, numbers = draws.at(step)
        proposal = np.where(present, players.act(step - since + 1, present, numbers), NOBODY)
        outcome = _match(field, proposal, arms.scores(step), noise)
        players.observe(outcome)
        arms.observe(outcome)
        ledger.record(step, outcome.proposal, outcome.accepted)
    return ledger.results(players.explored)


def _restart(who: Bools, players: BatchPlayers, arms: BatchArms) -> None:
    if who.any():
        players.restart(who)
        arms.forget(who)


def _match(field: Field, proposal: Ints, scores: Floats, noise: Floats) -> Outcome:
    winners, won = winners_of(proposal, scores)
    law: Market = field.markets[0]
    reward = payoff(law, at_arm(field.u, proposal), noise[:, 0])
    its_reward = payoff(law, at_arm(field.liked, proposal), noise[:, 1])
    return Outcome(proposal, np.asarray(won.any(axis=2)), won, reward, its_reward, winners)
