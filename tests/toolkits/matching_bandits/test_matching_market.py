"""The market refuses what it cannot mean, and says where."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opensage_toolkits.matching_bandits.algorithms import run_batch, run_plain
from opensage_toolkits.matching_bandits.market import Market, TieError, cyclic_market, random_market

U = [[0.9, 0.5, 0.1], [0.8, 0.6, 0.2]]
V = [[0.1, 0.2], [0.4, 0.3], [0.6, 0.5]]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"u": [[0.1], [0.2]], "v": [[0.1, 0.2]]}, "need N <= K, got N=2 players and K=1 arms"),
        ({"u": [[0.9, 0.5, 0.9], [0.8, 0.6, 0.2]]}, "tie in row 0 of u: columns 0 and 2"),
        ({"v": [[0.1, 0.2], [0.4, 0.4], [0.6, 0.5]]}, "tie in row 1 of v: columns 0 and 1"),
        ({"u": [[0.9, np.nan, 0.1], [0.8, 0.6, 0.2]]}, r"u\[0, 1\] = nan"),
        ({"u": [[0.9, 0.5, 0.1], [0.8, 1.5, 0.2]]}, r"u\[1, 1\] = 1.5"),
        ({"u": [[0.9, 0.5, 0.1], [0.8, np.inf, 0.2]]}, r"u\[1, 1\] = inf"),
        ({"v": [[0.1, 0.2], [0.4, 0.3]]}, r"shape \(K, N\) = \(3, 2\), got \(2, 2\)"),
        ({"v": [[0, 1], [5, 1], [1, 0]]}, "ranks 0..N-1 or 1..N"),
        ({"u": [[0.9, 0.5], [0.8]]}, "rows of equal length"),
        ({"u": []}, "at least one row and column"),
        ({"arrivals": [1, 0]}, r"arrivals\[1\] = 0 must be >= 1"),
        ({"arrivals": [1, 2.5]}, "whole step numbers"),
        ({"arrivals": [1, 2, 3]}, r"shape \(2,\), got \(3,\)"),
        ({"arrivals": [5, 5], "departures": [9, 4]}, r"departures\[1\] = 4 is before arrivals\[1\] = 5"),
        ({"departures": [9, 9], "returns": [0, 10]}, r"returns\[1\] must be 0"),
        ({"returns": [5, 5]}, "nobody departs"),
        ({"noise": "cauchy"}, "'bernoulli' or 'gaussian'"),
        ({"sigma": np.nan}, "sigma"),
    ],
)
def test_bad_markets_are_refused(change, said):
    with pytest.raises(ValueError, match=said):
        Market(**{"u": U, "v": V, **change})


def test_a_tie_has_its_own_error():
    with pytest.raises(TieError):
        Market([[0.5, 0.5]], [[0.5], [0.5]])


def test_the_market_keeps_its_own_copy():
    u = np.array(U)
    market = Market(u, V)
    u[0, 0] = 0.0
    assert market.u[0, 0] == 0.9


@pytest.mark.parametrize("first", [0, 1])
def test_ranks_are_smallest_first(first):
    ranks = np.array([[1, 0], [0, 1], [1, 0]]) + first
    assert Market(U, ranks).v.argmax(axis=1).tolist() == [1, 0, 1]


def test_presence_has_closed_ends_and_returns():
    market = Market(U, V, arrivals=[1, 3], departures=[4, 9], returns=[7, 0])
    there = np.array([market.present(t) for t in range(1, 12)]).T.astype(int).tolist()
    assert there[0] == [1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1]
    assert there[1] == [0, 0, 1, 1, 1, 1, 1, 1, 1, 0, 0]


@pytest.mark.parametrize("algo", ["wayse", "wayse2s", "etgs", "caucb"])
def test_nobody_present_costs_nothing(algo):
    market = Market(U, V, arrivals=[1000, 2000])
    for result in (run_plain(market, algo, 50), *run_batch([market], algo, 50)):
        assert not result.regret.any()
        assert result.final.tolist() == [-1, -1] == result.benchmark.tolist()
        assert result.collisions == 0


@given(st.integers(1, 6), st.integers(0, 5), st.floats(0.01, 0.09), st.booleans(), st.integers(0, 2**31))
def test_random_markets_keep_their_gap(players, more, gap, even, seed):
    market = random_market(players, players + more, gap, np.random.default_rng(seed), even)
    assert market.gap() >= gap - 1e-9
    if even and players + more > 1:
        assert market.gap() == pytest.approx(gap)


@pytest.mark.parametrize(
    "make", [lambda gap: random_market(3, 3, gap, np.random.default_rng(0)), lambda gap: cyclic_market(3, gap)]
)
@pytest.mark.parametrize("gap", [0.0, -0.1, 0.6, float("nan")])
def test_impossible_gaps_are_refused(make, gap):
    with pytest.raises(ValueError, match="gap"):
        make(gap)
