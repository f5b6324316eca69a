"""The acceptance checks of the methods at a small size; `bench` runs them at full size."""

from __future__ import annotations

import pytest

from opensage_toolkits.matching_bandits import checks
from opensage_toolkits.matching_bandits.two_sided import TwoSidedRule


def test_check_1_way_se_ends_in_the_player_optimal_matching():
    report = checks.stability(3, 0.3, T=2**12, seeds=20)
    assert report["ok"], report


def test_check_2_way_se_regret_grows_with_log_T():
    report = checks.log_growth(3, 0.3, [2**12, 2**13], seeds=20)
    assert report["power"] <= 0.35
    assert report["ci95"][1] <= 0.45
    assert report["worst_regret"][1] > report["worst_regret"][0]


@pytest.mark.slow
def test_check_3_exploring_time_grows_like_the_bound():
    report = checks.exponents([3, 4, 5], [0.15, 0.2, 0.3], horizon=2**12, seeds=4)
    assert report["ok"], report


def test_check_5_ages_taken_for_the_time_break_etgs():
    report = checks.clocks(3, 0.3, [2**11, 2**12, 2**13], seeds=12)
    assert report["ok"], report


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["random", "several"])
@pytest.mark.parametrize("size", [2, 3])
def test_check_8_two_sided_regret_is_sublinear_and_nothing_locks_in(size, kind):
    report = checks.two_sided(size, 0.2, [2**10, 2**11, 2**12, 2**13], 20, kind)
    assert report["ok"], report


def test_check_8_can_fail():
    """Without decay the regret is linear; it is seen within a few thousand steps."""
    report = checks.two_sided(2, 0.2, [2**9, 2**10, 2**11, 2**12], 8, "random", TwoSidedRule(rate=0.5, decay=False))
    assert not report["ok"], report
    assert report["power"] > 0.8


@pytest.mark.parametrize("size", [2, 4])
def test_players_get_out_of_the_arm_optimal_matching(size):
    report = checks.locked_start(size, 0.15, T=2**12, seeds=12)
    assert report["locked_in"] == 0, report


def test_without_walks_four_players_stay_locked_in():
    report = checks.locked_start(4, 0.15, T=2**12, seeds=12, rule=TwoSidedRule(walk=0.0, upward=0.0))
    assert report["locked_in"] > 0, report
