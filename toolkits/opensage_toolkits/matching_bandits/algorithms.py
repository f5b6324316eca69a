"""The algorithms by name, each as objects for the plain stepper and as arrays for the vectorised one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from .baselines import CAUCB, ETGS
from .batch import BatchArms, BatchPlayers, simulate_batch
from .batch_policies import BatchCAUCB, BatchETGS, BatchLearningArms, BatchWaySE, BatchWaySE2S, CentralUCBGS
from .ledger import Field, Result, check_steps
from .market import Market, UnsupportedSetting
from .policies import ArmPolicy, KnownArm, LearningArm, Policy, WaySE
from .stepper import simulate
from .two_sided import TwoSidedRule, WaySE2S

Twins = tuple[BatchPlayers, BatchArms]
Objects = tuple[list[Policy], list[ArmPolicy]]


def _wayse(field: Field, T: int) -> Twins:
    return BatchWaySE(field, np.full(field.shape[0], T)), BatchArms(field)


def _wayse2s(field: Field, T: int) -> Twins:
    return BatchWaySE2S(field), BatchLearningArms(field)


def _etgs(field: Field, T: int) -> Twins:
    return BatchETGS(field, T), BatchArms(field)


def _etgs_ages(field: Field, T: int) -> Twins:
    return BatchETGS(field, T, desynchronised=True), BatchArms(field)


def _caucb(field: Field, T: int) -> Twins:
    return BatchCAUCB(field), BatchArms(field)


def _ucbgs(field: Field, T: int) -> Twins:
    return CentralUCBGS(field), BatchArms(field)


BATCH: dict[str, Callable[[Field, int], Twins]] = {
    "wayse": _wayse,
    "wayse2s": _wayse2s,
    "etgs": _etgs,
    "etgs-ages": _etgs_ages,
    "caucb": _caucb,
    "ucbgs": _ucbgs,
}


def check_algorithm(algo: str, market: Market) -> None:
    """ValueError with the names if unknown; UnsupportedSetting if the market is not of its kind."""
    if algo not in BATCH:
        raise ValueError(f"unknown algo {algo!r}; known: {', '.join(BATCH)}")
    if algo == "wayse" and market.departures is not None:
        raise UnsupportedSetting("wayse is one-sided with arrivals only; use wayse2s for a market with departures")


def run_batch(
    markets: Sequence[Market],
    algo: str,
    T: int,
    checkpoints: Sequence[int] | None = None,
    keep_matched: bool = False,
) -> list[Result]:
    """Run an algorithm on S markets of one shape at once, with T as the horizon it is told where it wants one."""
    check_steps(T, checkpoints)
    for market in markets:
        check_algorithm(algo, market)
    players, arms = BATCH[algo](Field(markets), T)
    return simulate_batch(players, arms, T, checkpoints, keep_matched)


def policies_of(market: Market, algo: str, T: int) -> Objects:
    """Policies of the players and the arms for the plain stepper.

    Raises:
        UnsupportedSetting: `ucbgs`, whose players do not decide by themselves.
    """
    check_algorithm(algo, market)
    if algo == "ucbgs":
        raise UnsupportedSetting("ucbgs is centralised: it runs in the vectorised stepper only")
    if algo == "wayse2s":
        return [WaySE2S() for _ in range(market.players)], [LearningArm(market.players) for _ in range(market.arms)]
    arms: list[ArmPolicy] = [KnownArm(row.tolist()) for row in market.v]
    return [_player(market, algo, T, i) for i in range(market.players)], arms


def _player(market: Market, algo: str, T: int, i: int) -> Policy:
    if algo == "wayse":
        return WaySE(T)
    if algo == "caucb":
        return CAUCB(i, market.v)
    return ETGS(i, market.players, T, 1 if algo == "etgs-ages" else int(market.arrivals[i]))


def run_plain(
    market: Market, algo: str, T: int, checkpoints: Sequence[int] | None = None, keep_matched: bool = False
) -> Result:
    """Run an algorithm on one market with the plain stepper."""
    return simulate(market, *policies_of(market, algo, T), T, checkpoints, keep_matched)


def run_two_sided(
    markets: Sequence[Market], rule: TwoSidedRule, T: int, checkpoints: Sequence[int] | None = None, arm_c: float = 1.0
) -> list[Result]:
    """Way-SE-2S with other constants, for comparing variants; `arm_c` is the arms' optimism, 0 for none."""
    field = Field(markets)
    return simulate_batch(BatchWaySE2S(field, rule), BatchLearningArms(field, arm_c), T, checkpoints)
