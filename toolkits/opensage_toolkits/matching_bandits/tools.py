"""The functions an agent may call: JSON in, JSON out, bounded."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

import numpy as np

from . import growth as _growth
from . import market as _market
from . import stability as _stability
from .algorithms import check_algorithm, run_batch
from .ledger import Result
from .market import Floats, Market, ranks_to_utilities, utilities

__all__ = ["blocking_pairs", "check", "growth", "random_market", "run", "stable_matching"]

MOST_STEPS = 2**18
MOST_SEEDS = 64
MOST_SIDE = 12
MOST_WORK = 2**19  # steps x algorithms: some minutes
MOST_CELLS = 2**25  # steps x seeds x players of one algorithm, kept while it runs


def run(
    u: list[list[float]],
    v: list[list[int]] | list[list[float]],
    algo: list[Literal["wayse", "wayse2s", "etgs", "etgs-ages", "caucb", "ucbgs"]] = ["wayse"],  # noqa: B006  # not changed
    T: int = 16384,
    seeds: int = 4,
    checkpoints: list[int] | None = None,
    arrivals: list[int] | None = None,
    departures: list[int] | None = None,
    returns: list[int] | None = None,
    returns_as_new: bool = False,
    noise: Literal["bernoulli", "gaussian"] = "bernoulli",
    sigma: float = 0.1,
) -> dict[str, Any]:
    """Simulate a matching market with learning players: regret, and the matchings reached.

    Args:
        u: mean utility of each arm (column) to each player (row), in [0, 1], no ties in a row; at most a row a column.
        v: mean utility of each player (column) to each arm (row), in [0, 1], or integer ranks, the smallest the best.
        algo: algorithms; wayse is for markets that nobody leaves, wayse2s learns both sides.
        T: steps, at most 262144; 16384 steps take about 5 s an algorithm.
        seeds: runs of the same market, at most 64.
        checkpoints: steps at which regret is noted; by default T/16, T/8, T/4, T/2 and T.
        arrivals: first step of each player, 1 by default.
        departures: last step of each player.
        returns: step from which a player who left is back, 0 for never.
        returns_as_new: who returns has forgotten everything, and so have the arms about it.
        noise: law of the payoffs.
        sigma: standard deviation of gaussian payoffs.
    """
    T, seeds = _whole("T", T, MOST_STEPS), _whole("seeds", seeds, MOST_SEEDS)
    come = np.array(1) if arrivals is None else arrivals
    rest = (departures, returns, returns_as_new, noise, sigma)
    markets = [_bounded(Market(u, v, come, *rest, seed=seed)) for seed in range(seeds)]  # type: ignore[arg-type]  # lists
    for name in algo:
        check_algorithm(name, markets[0])
    if T * len(algo) > MOST_WORK:
        raise ValueError(f"T x algorithms must be at most {MOST_WORK}; take fewer steps, or one algorithm a call")
    if T * seeds * markets[0].players > MOST_CELLS:
        raise ValueError(f"T x seeds x players must be at most {MOST_CELLS}; take fewer steps or seeds")
    steps = checkpoints or [max(1, T // part) for part in (16, 8, 4, 2, 1)]
    market, present = markets[0], markets[0].present(T)
    return {
        "market": {"u": market.u.tolist(), "v": market.v.tolist(), "present": present.tolist(), "gap": market.gap()},
        "benchmark": _stability.stable_matching(market.u, market.v, present).tolist(),
        "algos": {name: _summary(run_batch(markets, name, T, steps, keep_matched=True)) for name in algo},
    }


def check(market: dict[str, Any], algos: dict[str, Any], benchmark: list[int] | None = None) -> dict[str, Any]:
    """Check a result of `run`: is each seed's usual matching at the end stable, and the player-optimal one?

    Args:
        market: as `run` returned it, with u, v and present.
        algos: as `run` returned it; of each algorithm only the runs' "usual" is looked at.
        benchmark: as `run` returned it; computed anew, and compared if given.
    """
    u, v, present = (_need(market, key, "market") for key in ("u", "v", "present"))
    best = _stability.stable_matching(u, v, present).tolist()
    found = {name: _verdict(entry, f'algos["{name}"]', u, v, present, best) for name, entry in algos.items()}
    ok = benchmark in (None, best) and all(entry["player_optimal"] == entry["runs"] for entry in found.values())
    return {"ok": ok, "benchmark": best, "algos": found}


def random_market(
    players: int = 3, arms: int = 3, gap: float = 0.2, last_arrival: int = 1, seed: int = 0
) -> dict[str, Any]:
    """A market with random tastes, as arguments for `run`.

    Args:
        players: at most 12, and not more than arms.
        arms: at most 12.
        gap: least distance between two utilities of a row, at most 0.9 / (arms - 1).
        last_arrival: players come at random steps up to this one.
        seed: of the random numbers.
    """
    rng = np.random.default_rng(_whole("seed", seed, 2**31, least=0))
    arrivals = rng.integers(
        1, _whole("last_arrival", last_arrival, MOST_STEPS) + 1, _whole("players", players, MOST_SIDE)
    )
    made = _market.random_market(players, _whole("arms", arms, MOST_SIDE), gap, rng, arrivals=arrivals)
    return {"u": made.u.tolist(), "v": made.v.tolist(), "arrivals": made.arrivals.tolist()}


def stable_matching(
    u: list[list[float]], v: list[list[int]] | list[list[float]], present: list[bool] | None = None
) -> dict[str, Any]:
    """The player-optimal stable matching, by deferred acceptance.

    Args:
        u: utility of each arm (column) to each player (row), in [0, 1], no ties in a row.
        v: utility of each player (column) to each arm (row), in [0, 1], or integer ranks with the smallest the best.
        present: which players take part; all by default.
    """
    left, right = _tastes(u, v)
    matching = _stability.stable_matching(left, right, present)
    return {"matching": matching.tolist(), "unmatched": np.flatnonzero(matching < 0).tolist()}


def blocking_pairs(
    u: list[list[float]], v: list[list[int]] | list[list[float]], matching: list[int], present: list[bool] | None = None
) -> dict[str, Any]:
    """Pairs (player, arm) who would rather have each other than whom the matching gives them.

    Args:
        u: utility of each arm (column) to each player (row), in [0, 1].
        v: utility of each player (column) to each arm (row), in [0, 1], or integer ranks with the smallest the best.
        matching: the arm of each player, -1 for none.
        present: which players take part; all by default.
    """
    left, right = _tastes(u, v)
    pairs = _stability.blocking_pairs(left, right, matching, present)
    return {"stable": not pairs, "pairs": [list(pair) for pair in pairs]}


def growth(T_grid: list[float], regret: list[list[float]]) -> dict[str, Any]:
    """Fit how regret grows with the horizon: exponent of a power law with its 95 % interval, and a logarithmic fit.

    Args:
        T_grid: at least two horizons.
        regret: one row a seed, one value a horizon.
    """
    return _growth.fit_growth(T_grid, regret).as_dict()


def _bounded(market: Market) -> Market:
    if market.arms > MOST_SIDE:
        raise ValueError(f"at most {MOST_SIDE} arms here, got {market.arms}; larger markets through the Python API")
    return market


def _verdict(entry: Any, where: str, u: Any, v: Any, present: Any, best: list[int]) -> dict[str, Any]:
    finals = [_need(one, "usual", f"{where}: a run") for one in _need(entry, "runs", where)]
    pairs = [_stability.blocking_pairs(u, v, final, present) for final in finals]
    return {
        "runs": len(finals),
        "stable": sum(not found for found in pairs),
        "player_optimal": sum(final == best for final in finals),
        "blocking": [{"seed": seed, "pair": list(found[0])} for seed, found in enumerate(pairs) if found][:10],
    }


def _summary(results: list[Result]) -> dict[str, Any]:
    worst = np.stack([r.worst for r in results])
    return {
        "checkpoints": results[0].checkpoints.tolist(),
        "worst_regret": _means(worst),
        "sum_regret": _means(np.stack([r.regret.sum(axis=1) for r in results])),
        "worst_regret_positive_part": _means(np.stack([r.regret_pos.max(axis=1) for r in results])),
        "unstable_steps": _means(np.stack([r.unstable_steps for r in results])),
        "collisions": float(np.mean([r.collisions for r in results])),
        "growth": _fit(results[0].checkpoints, worst),
        "runs": [{"seed": seed, "usual": _usual(r), "final": r.final.tolist()} for seed, r in enumerate(results)],
    }


def _fit(steps: Any, worst: Floats) -> dict[str, Any] | None:
    """No fit through one point, nor through regret that is not positive."""
    if len(steps) < 2 or (worst.mean(axis=0) <= 0).any():
        return None
    return _growth.fit_growth(steps, worst, resamples=200).as_dict()


def _usual(result: Result) -> list[int]:
    """The matching seen most often in the last tenth of the steps: the last step alone may be an exploring one."""
    assert result.matched is not None
    tail = result.matched[-max(1, len(result.matched) // 10) :]
    return list(Counter(map(tuple, tail.tolist())).most_common(1)[0][0])


def _tastes(u: Any, v: Any) -> tuple[Floats, Floats]:
    ranks = np.asarray(v).dtype.kind in "iu"
    return utilities("u", u), ranks_to_utilities(v) if ranks else utilities("v", v)


def _need(values: Any, key: str, where: str) -> Any:
    if not isinstance(values, dict) or key not in values:
        raise ValueError(f'{where} lacks "{key}"')
    return values[key]


def _whole(name: str, value: Any, most: int, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{name} must be a whole number from {least} to {most}, got {value!r}")
    return value


def _means(rows: Any) -> list[float]:
    return [round(float(value), 3) for value in rows.mean(axis=0)]
