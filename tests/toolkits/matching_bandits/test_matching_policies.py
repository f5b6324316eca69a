"""What one player or arm does, and what the stepper lets it see."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opensage_toolkits.matching_bandits.algorithms import BATCH, policies_of, run_batch
from opensage_toolkits.matching_bandits.baselines import SIGNALS
from opensage_toolkits.matching_bandits.market import Market, UnsupportedSetting, random_market
from opensage_toolkits.matching_bandits.policies import KnownArm, LearningArm, WaySE
from opensage_toolkits.matching_bandits.stepper import simulate
from opensage_toolkits.matching_bandits.two_sided import TwoSidedRule, WaySE2S

U = [[0.9, 0.5, 0.1], [0.8, 0.6, 0.2]]
V = [[0.1, 0.2], [0.4, 0.3], [0.6, 0.5]]


def started(policy, K=3):
    policy.reset(K, np.random.default_rng(0))
    return policy


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 5), st.lists(st.booleans(), min_size=20, max_size=200))
def test_an_explorer_is_served_by_an_arm_once_in_K_steps(K, answers):
    policy = started(WaySE(horizon=10**6), K)
    served = {}
    for age, accepted in enumerate(answers, 1):
        arm = policy.act(age)
        if arm < 0:
            continue
        if policy.parked:
            break
        if accepted:
            assert age - served.get(arm, -K) >= K
            served[arm] = age
        policy.observe(arm, accepted, 0.5 if accepted else None)


def test_K_rejections_in_a_row_are_final_and_fewer_are_not():
    policy = started(WaySE(horizon=100))
    for age in (1, 2):
        assert policy.act(age) == 0
        policy.observe(0, False, None)
    assert policy.act(3) == 0
    policy.observe(0, True, 0.7)
    assert policy.act(4) == 1
    policy.observe(1, True, 0.7)
    policy.act(5)
    policy.observe(2, True, 0.7)
    for age in (6, 7, 8):
        assert policy.act(age) == 0
        policy.observe(0, False, None)
    assert 0 not in [policy.act(age) for age in range(9, 60)]


def test_a_player_whom_no_arm_takes_gives_up_quietly():
    policy = started(WaySE(horizon=100))
    for age in range(1, 10):
        policy.observe(policy.act(age), False, None)
    assert [policy.act(age) for age in (10, 11)] == [-1, -1]


@pytest.mark.parametrize("horizon", [4096, None])
def test_way_se_parks_at_the_best_arm_with_or_without_a_horizon(horizon):
    market = Market(U, V, noise="gaussian", sigma=0.05, seed=1)
    result = simulate(market, [WaySE(horizon), WaySE(horizon)], [KnownArm(row.tolist()) for row in market.v], 4096)
    assert result.final.tolist() == result.benchmark.tolist() == [1, 0]
    assert (result.explored < 4000).all()


def test_a_marked_arm_that_accepts_is_on_trial():
    policy = started(WaySE2S(TwoSidedRule(rate=1e-9)), K=2)  # no coin says probe
    policy.tally.counts, policy.tally.means = [9, 9], [0.9, 0.1]
    patience = TwoSidedRule().patience * 2
    for age in range(1, patience + 1):
        assert policy.act(age) == 0
        policy.observe(0, False, None)
    assert policy.act(20) == 1  # patience is over
    policy.probing = True
    policy.observe(0, True, 1.0)
    assert policy.act(21) == 0
    policy.observe(0, False, None)
    assert policy.act(22) == 1  # one rejection was enough
    policy.probing = True
    policy.observe(0, True, 1.0)
    for age in range(23, 23 + patience):
        assert policy.act(age) == 0
        policy.observe(0, True, 1.0)
    policy.act(40)
    policy.observe(0, False, None)
    assert policy.act(41) == 0  # settled: it has patience again


def test_exploration_has_the_order_of_the_bound():
    rule = TwoSidedRule()
    for K in (2, 3, 4):
        assert rule.eps(1, K) <= 1
        ratio = rule.eps(2**40, K) / rule.eps(2**20, K)
        assert ratio == pytest.approx((4 * 2.0**-20) ** (1 / K), rel=1e-3)


def test_a_learning_arm_tries_who_is_new_and_then_takes_the_better():
    arm = LearningArm(3)
    arm.observe(0, 1.0)
    assert arm.choose([0, 2], 5) == 2
    for _ in range(200):
        arm.observe(0, 1.0)
        arm.observe(2, 0.0)
    assert arm.choose([0, 2], 400) == 0
    arm.forget(2)
    assert arm.choose([0, 2], 400) == 2


class Spy:
    """Proposes to arm 0 and notes what it is shown."""

    def __init__(self):
        self.resets, self.ages, self.seen = 0, [], []

    def reset(self, K, rng):
        self.resets += 1

    def act(self, age):
        self.ages.append(age)
        return 0

    def observe(self, arm, accepted, reward):
        self.seen.append((arm, accepted, reward is None))


@pytest.mark.parametrize(("as_new", "ages"), [(False, [1, 2, 6, 7]), (True, [1, 2, 1, 2])])
def test_a_policy_sees_its_age_and_its_own_fate_alone(as_new, ages):
    market = Market(U, V, arrivals=[3, 1], departures=[4, 99], returns=[8, 0], returns_as_new=as_new)
    spies = [Spy(), Spy()]
    result = simulate(market, spies, [KnownArm(row.tolist()) for row in market.v], 9)
    assert spies[0].ages == ages
    assert spies[0].seen == [(0, False, True)] * 4
    assert spies[0].resets == 1 + as_new
    assert spies[1].seen == [(0, True, False)] * 9
    assert result.collisions == 4


class Rogue(Spy):
    """Names an arm that is not there."""

    def act(self, age):
        return 7


class Thief(KnownArm):
    """Takes a player who did not propose."""

    def choose(self, proposer_ids, age):
        return 1 - proposer_ids[0]


def test_a_rule_that_breaks_the_protocol_is_named():
    market = Market(U, V, arrivals=[1, 50])
    arms = [KnownArm(row.tolist()) for row in market.v]
    with pytest.raises(ValueError, match="player 0 proposes to arm 7"):
        simulate(market, [Rogue(), Spy()], arms, 5)
    with pytest.raises(ValueError, match="arm 0 takes player 1, who did not propose"):
        simulate(market, [Spy(), Spy()], [Thief([0.1, 0.2]), *arms[1:]], 5)
    with pytest.raises(ValueError, match="need 2 policies and 3 arm policies"):
        simulate(market, [Spy()], arms, 5)


@pytest.mark.parametrize(("T", "checkpoints"), [(0, None), (5, [6]), (5, [0]), (5, [])])
def test_steps_and_checkpoints_must_fit(T, checkpoints):
    with pytest.raises(ValueError, match=r"T must be|checkpoints must lie"):
        run_batch([Market(U, V)], "wayse", T, checkpoints)


def test_what_an_algorithm_cannot_do_is_refused():
    leaving = Market(U, V, departures=[9, 9])
    with pytest.raises(UnsupportedSetting, match="use wayse2s"):
        run_batch([leaving], "wayse", 10)
    with pytest.raises(UnsupportedSetting, match="centralised"):
        policies_of(Market(U, V), "ucbgs", 10)
    with pytest.raises(ValueError, match=f"unknown algo 'ucb'; known: {', '.join(BATCH)}"):
        run_batch([leaving], "ucb", 10)
    with pytest.raises(ValueError, match="same N, K"):
        run_batch([Market(U, V), random_market(3, 3, 0.1, np.random.default_rng(0))], "wayse", 10)
    with pytest.raises(ValueError, match="at least one market"):
        run_batch([], "wayse", 10)


def test_signals_of_etgs_follow_phases_of_doubling_length():
    assert sorted(SIGNALS)[:4] == [3, 8, 17, 34]
