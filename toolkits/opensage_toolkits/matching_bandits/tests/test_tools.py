"""Quick tests that travel with the toolkit."""

from __future__ import annotations

import json

from ..tools import blocking_pairs, check, growth, random_market, run, stable_matching

U = [[0.9, 0.5, 0.1], [0.8, 0.6, 0.2], [0.3, 0.7, 0.5]]
V = [[3, 1, 2], [1, 2, 3], [1, 2, 3]]


def test_matching_is_stable() -> None:
    matching = stable_matching(U, V)["matching"]
    assert matching == [1, 0, 2]
    assert blocking_pairs(U, V, matching) == {"stable": True, "pairs": []}
    assert blocking_pairs(U, V, [0, 1, 2])["pairs"] == [[1, 0]]


def test_run_reaches_the_benchmark() -> None:
    result = json.loads(json.dumps(run(U, V, ["wayse", "ucbgs"], T=4096, seeds=2, arrivals=[1, 50, 100])))
    assert result["benchmark"] == [1, 0, 2]
    assert check(**result)["ok"]


def test_growth_of_a_power_law() -> None:
    assert abs(growth([10, 100, 1000], [[1, 10, 100], [2, 20, 200]])["power"] - 1) < 1e-9


def test_random_market_can_be_run() -> None:
    assert len(run(**random_market(2, 3, 0.3, seed=4), T=64, seeds=1)["algos"]["wayse"]["runs"]) == 1
