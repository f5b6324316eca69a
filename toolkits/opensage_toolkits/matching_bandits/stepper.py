"""One market, one policy object a player and an arm: the stepper of the public protocols."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .ledger import Field, Ledger, Result
from .market import Bools, Floats, Ints, Market
from .policies import STAY, ArmPolicy, Policy, Watcher


def generators(market: Market) -> tuple[np.random.Generator, list[np.random.Generator]]:
    """The generator of the payoffs and one for each player: independent streams from the market's seed."""
    payoffs, *players = np.random.SeedSequence(market.seed).spawn(1 + market.players)
    return np.random.default_rng(payoffs), [np.random.default_rng(seed) for seed in players]


def simulate(
    market: Market,
    policies: Sequence[Policy],
    arm_policies: Sequence[ArmPolicy],
    T: int,
    checkpoints: Sequence[int] | None = None,
    keep_matched: bool = False,
) -> Result:
    """Run T steps.

    Args:
        market: who likes whom, who is there when, and the seed.
        policies: one a player; they are reset here.
        arm_policies: one an arm.
        T: number of steps.
        checkpoints: steps at which regret is noted; None: at T.
        keep_matched: keep every step's matching.

    Raises:
        ValueError: the number of policies, T or a checkpoint is wrong, or a policy names an arm that is not there.
    """
    if (len(policies), len(arm_policies)) != (market.players, market.arms):
        raise ValueError(f"need {market.players} policies and {market.arms} arm policies")
    run = _Run(market, policies, arm_policies, Ledger(Field([market]), T, checkpoints, keep_matched))
    for step in range(1, T + 1):
        run.step(step)
    explored = [[getattr(policy, "explored", 0) for policy in policies]]
    return run.ledger.results(np.array(explored, dtype=np.int64))[0]


class _Run:
    """The state of one run."""

    def __init__(
        self, market: Market, policies: Sequence[Policy], arm_policies: Sequence[ArmPolicy], ledger: Ledger
    ) -> None:
        self.market, self.policies, self.arms, self.ledger = market, policies, arm_policies, ledger
        self.payoffs, self.streams = generators(market)
        self.watchers = [policy if isinstance(policy, Watcher) else None for policy in policies]
        for policy, rng in zip(policies, self.streams, strict=True):
            policy.reset(market.arms, rng)

    def step(self, step: int) -> None:
        """Everybody proposes, arms choose, both sides see their payoffs."""
        if step in self.ledger.field.changes:
            self._change(step)
        proposal = np.array([self._ask(i, step) for i in range(self.market.players)], dtype=np.int64)
        winners = [self._choose(arm, proposal, step) for arm in range(self.market.arms)]
        accepted = np.array([arm != STAY and winners[arm] == i for i, arm in enumerate(proposal.tolist())])
        self._tell(proposal, accepted)
        for i, watcher in enumerate(self.watchers):
            if watcher is not None and self.present[i]:
                watcher.see(winners)
        self.ledger.record(step, proposal[None], accepted[None])

    def _change(self, step: int) -> None:
        field = self.ledger.field
        self.present: Bools = field.present(step)[0]
        self.since: Ints = field.first_step(step)[0]
        self.ledger.seat(self.present[None])
        for i in np.flatnonzero(field.reborn(step)[0]).tolist():
            self.policies[i].reset(self.market.arms, self.streams[i])
            for arm in self.arms:
                arm.forget(i)

    def _ask(self, player: int, step: int) -> int:
        if not self.present[player]:
            return STAY
        arm = self.policies[player].act(step - int(self.since[player]) + 1)
        if not STAY <= arm < self.market.arms:
            raise ValueError(f"player {player} proposes to arm {arm}; arms are 0..{self.market.arms - 1}, -1 for none")
        return arm

    def _choose(self, arm: int, proposal: Ints, step: int) -> int:
        proposers = np.flatnonzero(proposal == arm).tolist()
        if not proposers:
            return STAY
        winner = self.arms[arm].choose(proposers, step)
        if winner not in proposers:
            raise ValueError(f"arm {arm} takes player {winner}, who did not propose; proposers are {proposers}")
        return winner

    def _tell(self, proposal: Ints, accepted: Bools) -> None:
        """Payoffs are drawn for everybody, so that the stream does not depend on who was accepted."""
        noise = draw(self.market, self.payoffs, (2, self.market.players))
        for i, arm in enumerate(proposal.tolist()):
            if arm == STAY:
                continue
            won = bool(accepted[i])
            mine, its = (
                payoff(self.market, m, noise[k, i])
                for k, m in enumerate((self.market.u[i, arm], self.market.v[arm, i]))
            )
            self.policies[i].observe(arm, won, float(mine) if won else None)
            if won:
                self.arms[arm].observe(i, float(its))


def draw(market: Market, rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Noise for payoffs: uniform for bernoulli, standard normal for gaussian."""
    return rng.random(shape) if market.noise == "bernoulli" else rng.standard_normal(shape)


def payoff(market: Market, mean: Floats, noise: Floats) -> Floats:
    """Payoffs of these means."""
    return np.where(noise < mean, 1.0, 0.0) if market.noise == "bernoulli" else mean + market.sigma * noise
