"""The functions an agent may call: JSON in, JSON out, bounded."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from . import growth as _growth
from . import stability as _stability
from .algorithms import check_algorithm, run_batch
from .ledger import Result
from .market import Floats, Market, random_market, ranks_to_utilities, utilities

__all__ = ["blocking_pairs", "check", "growth", "run", "stable_matching"]

MOST_STEPS = 2**18
MOST_SEEDS = 64
MOST_SIDE = 12
MOST_CELLS = 2**25  # steps x seeds x players of one algorithm, kept while it runs
_TIMES = ("arrivals", "departures", "returns", "returns_as_new", "noise", "sigma")
_RANDOM = ("players", "arms", "gap", "last_arrival", "seed")


def run(
    spec: dict[str, Any], algo: str = "wayse", T: int = 16384, seeds: int = 4, checkpoints: list[int] | None = None
) -> dict[str, Any]:
    """Simulate a matching market with learning players and report regret and the matchings reached.

    Args:
        spec: {"u": rows of players over arms in [0,1], "v": rows of arms over players in [0,1] or integer ranks, and
            optionally "arrivals", "departures", "returns" (steps, 0 = never), "returns_as_new", "noise" ("bernoulli" or
            "gaussian"), "sigma"}; or {"random": {"players": 3, "arms": 3, "gap": 0.2, "last_arrival": 99, "seed": 0}}.
        algo: names with commas: wayse, wayse2s, etgs, etgs-ages, caucb, ucbgs.
        T: steps, at most 262144. 16384 steps take about 5 s an algorithm.
        seeds: runs of the same market, at most 64.
        checkpoints: steps at which regret is noted; by default T/16, T/8, T/4, T/2 and T.
    """
    market = _market(spec)
    names = [name.strip() for name in str(algo).split(",")]
    for name in names:
        check_algorithm(name, market)
    T, seeds = _whole("T", T, MOST_STEPS), _whole("seeds", seeds, MOST_SEEDS)
    if T * seeds * market.players > MOST_CELLS:
        raise ValueError(f"T x seeds x players must be at most {MOST_CELLS}; take fewer steps or seeds")
    steps = checkpoints or sorted({max(1, T // part) for part in (16, 8, 4, 2, 1)})
    copies = [_seeded(market, seed) for seed in range(seeds)]
    present = market.present(T)
    return {
        "T": T,
        "checkpoints": sorted(set(steps)),
        "market": {"u": market.u.tolist(), "v": market.v.tolist(), "present": present.tolist(), "gap": market.gap()},
        "benchmark": _stability.stable_matching(market.u, market.v, present).tolist(),
        "algos": {name: _summary(run_batch(copies, name, T, steps, keep_matched=True)) for name in names},
    }


def check(result: dict[str, Any]) -> dict[str, Any]:
    """Check what `run` returned: whether each seed's usual matching at the end is stable and the player-optimal one.

    Args:
        result: the whole result of `run`.
    """
    market = _need(result, "market", "result")
    u, v, present = (_need(market, key, 'result["market"]') for key in ("u", "v", "present"))
    best = _stability.stable_matching(u, v, present).tolist()
    algos = {}
    for name, entry in _need(result, "algos", "result").items():
        finals = [_need(one, "usual", "a run") for one in _need(entry, "runs", f'result["algos"]["{name}"]')]
        pairs = [_stability.blocking_pairs(u, v, final, present) for final in finals]
        algos[name] = {
            "runs": len(finals),
            "stable": sum(not found for found in pairs),
            "player_optimal": sum(final == best for final in finals),
            "blocking": [[seed, *found[0]] for seed, found in enumerate(pairs) if found][:10],
        }
    ok = all(entry["player_optimal"] == entry["runs"] for entry in algos.values())
    return {"ok": ok, "benchmark": best, "algos": algos}


def stable_matching(u: list[list[float]], v: list[list[float]], present: list[bool] | None = None) -> dict[str, Any]:
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
    u: list[list[float]], v: list[list[float]], matching: list[int], present: list[bool] | None = None
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


def _market(spec: dict[str, Any]) -> Market:
    if not isinstance(spec, dict):
        raise ValueError('spec must be an object with "u" and "v", or with "random"')
    if "random" in spec:
        return _bounded(_random(spec["random"]))
    u, v = _need(spec, "u", "spec"), _need(spec, "v", "spec")
    _known(spec, ("u", "v", *_TIMES), "spec")
    return _bounded(Market(u, v, **{key: spec[key] for key in _TIMES if spec.get(key) is not None}))


def _random(wish: dict[str, Any]) -> Market:
    players, arms = (_whole(key, _need(wish, key, 'spec["random"]'), MOST_SIDE) for key in ("players", "arms"))
    _known(wish, _RANDOM, 'spec["random"]')
    last = _whole("last_arrival", wish.get("last_arrival", 1), MOST_STEPS)
    rng = np.random.default_rng(_whole("seed", wish.get("seed", 0), 2**31, least=0))
    gap = float(wish.get("gap", 0.5 / max(players, arms)))
    return random_market(players, arms, gap, rng, arrivals=rng.integers(1, last + 1, players))


def _bounded(market: Market) -> Market:
    if market.arms > MOST_SIDE:
        raise ValueError(f"at most {MOST_SIDE} arms here, got {market.arms}; larger markets through the Python API")
    return market


def _seeded(market: Market, seed: int) -> Market:
    back = None if market.returns is None else np.where(market.returns > MOST_STEPS, 0, market.returns)
    return Market(
        market.u,
        market.v,
        market.arrivals,
        market.departures,
        back,
        market.returns_as_new,
        market.noise,
        market.sigma,
        seed,
    )


def _summary(results: list[Result]) -> dict[str, Any]:
    worst = np.stack([r.worst for r in results])
    return {
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


def _known(values: dict[str, Any], keys: tuple[str, ...], where: str) -> None:
    if odd := sorted(set(values) - set(keys)):
        raise ValueError(f'{where} has an unknown key "{odd[0]}"; known: {", ".join(keys)}')


def _whole(name: str, value: Any, most: int, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{name} must be a whole number from {least} to {most}, got {value!r}")
    return value


def _means(rows: Any) -> list[float]:
    return [round(float(value), 3) for value in rows.mean(axis=0)]
