"""The vectorised stepper gives the very runs of the plain one."""

from __future__ import annotations

import numpy as np
import pytest

from opensage_toolkits.matching_bandits import batch
from opensage_toolkits.matching_bandits.algorithms import BATCH, run_batch, run_plain
from opensage_toolkits.matching_bandits.batch import simulate_batch
from opensage_toolkits.matching_bandits.batch_policies import BatchLearningArms, BatchWaySE2S
from opensage_toolkits.matching_bandits.ledger import Field
from opensage_toolkits.matching_bandits.market import random_market
from opensage_toolkits.matching_bandits.policies import LearningArm
from opensage_toolkits.matching_bandits.stepper import simulate
from opensage_toolkits.matching_bandits.two_sided import TwoSidedRule, WaySE2S

T = 700


def markets(noise, moving, runs=4):
    rng = np.random.default_rng(5)
    times = {"departures": [250, 10**6, 400], "returns": [420, 0, 500]} if moving else {}
    return [
        random_market(
            3,
            4,
            0.2,
            rng,
            arrivals=rng.integers(1, 100, 3),
            noise=noise,
            seed=s,
            **times,
            **({"returns_as_new": s % 2 == 1} if moving else {}),
        )
        for s in range(runs)
    ]


def assert_same(a, b):
    assert (a.matched == b.matched).all()
    assert np.allclose(a.regret, b.regret, atol=1e-9)
    assert np.allclose(a.regret_pos, b.regret_pos, atol=1e-9)
    for name in ("unstable_steps", "off_steps", "final", "benchmark", "explored", "last_unstable", "collisions"):
        assert np.array_equal(getattr(a, name), getattr(b, name)), name


@pytest.mark.parametrize("noise", ["bernoulli", "gaussian"])
@pytest.mark.parametrize("algo", [name for name in BATCH if name != "ucbgs"])
def test_both_steppers_agree(algo, noise):
    runs = markets(noise, moving=algo != "wayse")
    for market, found in zip(runs, run_batch(runs, algo, T, [100, T], keep_matched=True), strict=True):
        assert_same(run_plain(market, algo, T, [100, T], keep_matched=True), found)


@pytest.mark.parametrize(
    "rule",
    [
        TwoSidedRule(rate=1.0, upward=0.0, walk=0.0, patience=1, trial=False, forget=True),
        TwoSidedRule(rate=0.2, decay=False),
    ],
)
def test_variants_of_the_two_sided_rule_agree(rule):
    runs = markets("bernoulli", moving=True, runs=3)
    field = Field(runs)
    found = simulate_batch(BatchWaySE2S(field, rule), BatchLearningArms(field), T, keep_matched=True)
    for market, result in zip(runs, found, strict=True):
        policies, arms = [WaySE2S(rule) for _ in range(3)], [LearningArm(3) for _ in range(4)]
        assert_same(simulate(market, policies, arms, T, keep_matched=True), result)


def test_a_run_does_not_depend_on_its_neighbours_or_on_blocks(monkeypatch):
    runs = markets("bernoulli", moving=True)
    together = run_batch(runs, "wayse2s", T, keep_matched=True)
    monkeypatch.setattr(batch, "BLOCK", 37)
    assert_same(run_batch(runs[2:3], "wayse2s", T, keep_matched=True)[0], together[2])


def test_checkpoints_are_prefixes():
    market = markets("bernoulli", moving=False)[0]
    whole = run_batch([market], "wayse", T, [200, 500, T])[0]
    part = run_batch([market], "caucb", 200)[0]
    assert np.allclose(run_batch([market], "caucb", T, [200, T])[0].regret[0], part.regret[0])
    assert whole.regret.shape == (3, 3)
    assert (np.diff(whole.regret_pos, axis=0) >= 0).all()
    assert (whole.regret_pos >= whole.regret - 1e-9).all()


def test_a_platform_with_everybody_s_bounds_reaches_the_benchmark():
    result = run_batch(markets("gaussian", moving=True), "ucbgs", 4 * T, [2 * T, 4 * T])
    assert all((r.off_steps[1] - r.off_steps[0]) < 0.2 * T for r in result)
    assert all(r.collisions == 0 for r in result)
