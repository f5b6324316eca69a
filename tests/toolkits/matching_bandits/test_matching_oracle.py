"""Deferred acceptance against another package, against brute force, and what follows from it (checks 10 and 11)."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opensage_toolkits.matching_bandits import bench
from opensage_toolkits.matching_bandits.checks import arm_optimal
from opensage_toolkits.matching_bandits.market import TieError, cyclic_market, random_market
from opensage_toolkits.matching_bandits.stability import blocking_pairs, stable_matching, stable_matchings


def test_oracle_and_arrivals_on_500_markets():
    report = bench.oracle(quick=False)
    assert report["against_matching"] == {"markets": 500, "differ": [], "ok": True}
    assert report["arrivals"] == {"markets": 500, "risen": 0, "ok": True}


def test_the_comparison_with_another_solver_can_fail():
    market = cyclic_market(3, 0.2)
    assert not bench.checks.oracle(arm_optimal, [market])["ok"]


@st.composite
def small_markets(draw):
    players = draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return random_market(players, draw(st.integers(players, 4)), 0.1, rng), rng.random(players) < 0.7


@settings(max_examples=60, deadline=None)
@given(small_markets())
def test_player_optimal_by_brute_force(case):
    market, present = case
    arms = range(market.arms)
    there = np.flatnonzero(present)
    stable = []
    for chosen in itertools.permutations(arms, len(there)):  # N <= K: a stable matching leaves nobody out
        matching = np.full(market.players, -1)
        matching[there] = chosen
        if not blocking_pairs(market.u, market.v, matching, present):
            stable.append(matching)
    best = stable_matching(market.u, market.v, present)
    assert any((matching == best).all() for matching in stable)
    for matching in stable:
        assert all(market.u[i, best[i]] >= market.u[i, matching[i]] for i in there)


def test_many_markets_at_once_are_the_same():
    rng = np.random.default_rng(2)
    markets = [random_market(3, 5, 0.1, rng) for _ in range(30)]
    present = rng.random((30, 3)) < 0.7
    together = stable_matchings(np.stack([m.u for m in markets]), np.stack([m.v.T for m in markets]), present)
    for market, there, found in zip(markets, present, together, strict=True):
        assert (stable_matching(market.u, market.v, there) == found).all()
        assert (found[~there] == -1).all()


@pytest.mark.parametrize("size", [2, 3, 5])
def test_a_cyclic_market_has_as_many_stable_matchings_as_players(size):
    market = cyclic_market(size, 0.1)
    shifts = [(np.arange(size) + shift) % size for shift in range(size)]
    assert all(not blocking_pairs(market.u, market.v, matching) for matching in shifts)
    assert stable_matching(market.u, market.v).tolist() == shifts[0].tolist()
    assert arm_optimal(market).tolist() == shifts[-1].tolist()


U, V = [[0.9, 0.5], [0.8, 0.6]], [[0.1, 0.2], [0.4, 0.3]]


def test_blocking_pairs_are_found():
    assert blocking_pairs(U, V, [0, 1]) == [(1, 0)]
    assert blocking_pairs(U, V, [1, 0]) == []
    assert blocking_pairs(U, V, [-1, 0]) == [(0, 1)]
    assert blocking_pairs(U, V, [-1, 0], [False, True]) == []


@pytest.mark.parametrize(
    ("matching", "said"),
    [([0, 0], "one arm to two"), ([0, 2], "no arm"), ([0], "2 whole"), ([0.0, 1.0], "2 whole"), ([-2, 0], "no arm")],
)
def test_what_is_no_matching_is_refused(matching, said):
    with pytest.raises(ValueError, match=said):
        blocking_pairs(U, V, matching)


def test_an_absent_player_cannot_hold_an_arm():
    with pytest.raises(ValueError, match="absent"):
        blocking_pairs(U, V, [1, 0], [False, True])


def test_tastes_must_fit_together():
    with pytest.raises(ValueError, match=r"\(K, N\)"):
        stable_matching(U, [[0.1, 0.2]])
    with pytest.raises(TieError):
        stable_matching([[0.5, 0.5], [0.8, 0.6]], V)
    with pytest.raises(ValueError, match="finite"):
        stable_matching([[np.nan, 0.5], [0.8, 0.6]], V)
