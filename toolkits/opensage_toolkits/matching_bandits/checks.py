"""The acceptance checks of the methods as functions: `bench` runs them at full size, the tests at a small one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .algorithms import run_batch, run_two_sided
from .batch import BatchArms, simulate_batch
from .batch_policies import BatchLearningArms, BatchWaySE, BatchWaySE2S
from .growth import Growth, fit_growth
from .ledger import Field, Result
from .market import Floats, Ints, Market, cyclic_market, random_market
from .stability import blocking_pairs, stable_matching
from .two_sided import TwoSidedRule

Report = dict[str, Any]


def arriving_markets(size: int, gap: float, seeds: int, last: int = 1000, seed: int = 1) -> list[Market]:
    """Random N = K markets whose players arrive in the first `last` steps; every fourth has `size` stable matchings."""
    rng = np.random.default_rng(seed)
    return [
        cyclic_market(size, gap, rng, arrivals=rng.integers(1, last, size), seed=s)
        if s % 4 == 3
        else random_market(size, size, gap, rng, arrivals=rng.integers(1, last, size), seed=s)
        for s in range(seeds)
    ]


def stability(size: int, gap: float, T: int, seeds: int) -> Report:
    """Check 1: Way-SE ends in the player-optimal stable matching and stays there for the last tenth of the steps."""
    markets = arriving_markets(size, gap, seeds)
    results = run_batch(markets, "wayse", T, [T - T // 10, T])
    still = [int(r.off_steps[1] == r.off_steps[0]) for r in results]
    stable = [not blocking_pairs(m.u, m.v, r.final) for m, r in zip(markets, results, strict=True)]
    report = {"K": size, "T": T, "seeds": seeds, "exact_last_tenth": sum(still), "stable_at_end": sum(stable)}
    return {**report, "ok": sum(still) >= 0.95 * seeds and sum(stable) >= 0.95 * seeds}


def log_growth(size: int, gap: float, horizons: Sequence[int], seeds: int) -> Report:
    """Check 2: Way-SE's worst regret over horizon-tuned runs, one a horizon, is linear in log T."""
    markets = arriving_markets(size, gap, seeds)
    stacked = [market for _ in horizons for market in markets]
    field, tuned = Field(stacked), np.repeat(np.asarray(horizons, dtype=np.int64), seeds)
    results = simulate_batch(BatchWaySE(field, tuned), BatchArms(field), max(horizons), horizons)
    worst = np.array([r.worst for r in results]).reshape(len(horizons), seeds, len(horizons))
    own = np.stack([worst[c, :, c] for c in range(len(horizons))], axis=1)
    fit = fit_growth(horizons, own)
    ok = fit.log_r2 >= 0.9 and fit.power <= 0.35 and _upper(fit) <= 0.45
    return {"K": size, "T": list(horizons), "worst_regret": _means(own), **fit.as_dict(), "ok": ok}


def exploring_time(size: int, gap: float, horizon: int, seeds: int) -> float:
    """Mean over seeds of the steps that all players of a Way-SE run spend exploring; every row has this exact gap."""
    rng = np.random.default_rng(3)
    markets = [random_market(size, size, gap, rng, even=True, seed=s) for s in range(seeds)]
    field = Field(markets)
    players = BatchWaySE(field, np.full(seeds, horizon))
    limit = int(4 * size * 2 * np.log(horizon) / gap**2)  # a player alone needs a quarter of it
    results = simulate_batch(players, BatchArms(field), limit)
    if not players.parked.all():
        raise ValueError(f"some player still explores after {limit} steps")
    return float(np.mean([r.explored.sum() for r in results]))


def exponents(sizes: Sequence[int], gaps: Sequence[float], horizon: int, seeds: int) -> Report:
    """Check 3: exploring time grows like K^p, p in [1.3, 2.3], and like 1/gap^q, q in [1.6, 2.3]."""
    by_size = [exploring_time(size, min(gaps), horizon, seeds) for size in sizes]
    by_gap = [exploring_time(3, gap, horizon, seeds) for gap in gaps]
    p, q = _power(sizes, by_size), _power([1 / gap for gap in gaps], by_gap)
    ok = 1.3 <= p <= 2.3 and 1.6 <= q <= 2.3
    return {"K": list(sizes), "by_K": by_size, "p": p, "gap": list(gaps), "by_gap": by_gap, "q": q, "ok": ok}


def clocks(size: int, gap: float, horizons: Sequence[int], seeds: int) -> Report:
    """Check 5: ETGS that takes ages for the time has linear regret where Way-SE and ETGS with a clock do not."""
    markets = arriving_markets(size, gap, seeds)
    report: Report = {"K": size, "T": list(horizons)}
    for algo in ("etgs", "etgs-ages", "wayse"):
        worst = np.array([r.worst for r in run_batch(markets, algo, max(horizons), horizons)])
        report[algo] = {"worst_regret": _means(worst), **fit_growth(horizons, worst).as_dict()}
    ages = report["etgs-ages"]
    return {**report, "ok": ages["power"] >= 0.85 and report["etgs"]["power"] < 0.6 and report["wayse"]["power"] < 0.6}


def moving_markets(size: int, gap: float, T: int, seeds: int, kind: str, seed: int = 7) -> list[Market]:
    """Markets where all arrive in the first tenth and two players leave and come back, at times that scale with T."""
    rng = np.random.default_rng([seed, size, T])
    markets = []
    for s in range(seeds):
        leaving = rng.permutation(size) < 2
        times: dict[str, Any] = {
            "arrivals": rng.integers(1, max(2, T // 10), size),
            "departures": np.where(leaving, rng.integers(3 * T // 10, T // 2, size), 2 * T),
            "returns": np.where(leaving, rng.integers(55 * T // 100, 7 * T // 10, size), 0),
            "returns_as_new": bool(s % 2),
            "seed": s,
        }
        several = kind == "several"
        markets.append(
            cyclic_market(size, gap, rng, **times) if several else random_market(size, size, gap, rng, **times)
        )
    return markets


def two_sided(
    size: int,
    gap: float,
    horizons: Sequence[int],
    seeds: int,
    kind: str,
    rule: TwoSidedRule | None = None,
    arm_c: float = 1.0,
) -> Report:
    """Check 8: the worst regret of Way-SE-2S grows sublinearly and nobody stays in another stable matching.

    `kind` is "random" or "several" (as many stable matchings as players). `off_share` is the share of the last tenth
    of the steps, at the longest horizon, in which the matching is not the benchmark: the mean and the worst seed.
    """
    last = max(horizons)
    steps = sorted({step for T in horizons for step in (T - T // 10, T)})
    markets = [market for T in horizons for market in moving_markets(size, gap, T, seeds, kind)]
    results = run_two_sided(
        markets, rule or TwoSidedRule(), last, steps, arm_c
    )  # all horizons at once: the steps count
    own = [[r.at(T) for r in results[c * seeds : (c + 1) * seeds]] for c, T in enumerate(horizons)]
    worst = np.array([[regret.max() for regret, _ in row] for row in own]).T
    positive = np.array([[losses.max() for _, losses in row] for row in own]).T
    fit = fit_growth(horizons, np.maximum(worst, 1.0))
    off = off_share([r for r, T in zip(results, np.repeat(horizons, seeds), strict=True) if last == T], last // 10)
    report = {"K": size, "kind": kind, "T": list(horizons), "worst_regret": _means(worst), **fit.as_dict()}
    report["positive_part"] = _means(positive)
    report |= {
        "worst_seed": round(float(worst[:, -1].max()), 1),
        "off_share": [round(float(off.mean()), 3), round(float(off.max()), 3)],
    }
    return {**report, "locked_in": int((off > 0.9).sum()), "ok": _upper(fit) <= 0.85 and not (off > 0.9).any()}


def locked_start(size: int, gap: float, T: int, seeds: int, rule: TwoSidedRule | None = None) -> Report:
    """Way-SE-2S put into the arm-optimal matching, tastes known and better arms marked: how many get out by step T."""
    rng = np.random.default_rng(9)
    markets = [cyclic_market(size, gap, rng, seed=s) for s in range(seeds)]
    field = Field(markets)
    players, arms = BatchWaySE2S(field, rule), BatchLearningArms(field)
    for tally, truth in ((players.tally, field.u), (arms.tally, field.liked)):
        tally.counts[:], tally.means[:] = 1000.0, truth
    worst = np.stack([arm_optimal(market) for market in markets])
    players.marked[:] = field.u > np.take_along_axis(field.u, worst[:, :, None], 2)
    off = off_share(simulate_batch(players, arms, T, [T - T // 10, T]), T // 10)
    return {
        "K": size,
        "T": T,
        "seeds": seeds,
        "off_share": round(float(off.mean()), 3),
        "locked_in": int((off > 0.9).sum()),
    }


def arm_optimal(market: Market) -> Ints:
    """The stable matching that arms like best, as the arm of each player, (N,); needs N = K."""
    return np.argsort(stable_matching(market.v, market.u))


def off_share(results: Sequence[Result], steps: int) -> Floats:
    """Share of the last `steps` in which the matching was not the benchmark, (S,); their start is a checkpoint."""
    return np.array([r.off_steps[-1] - r.off_steps[r.index(r.checkpoints[-1] - steps)] for r in results]) / steps


def oracle(solve: Callable[[Market], Ints], markets: Sequence[Market]) -> Report:
    """Check 10: deferred acceptance here equals another solver's matching on every market."""
    wrong = [k for k, m in enumerate(markets) if (solve(m) != stable_matching(m.u, m.v)).any()]
    return {"markets": len(markets), "differ": wrong[:5], "ok": not wrong}


def arrivals_lower(markets: Sequence[Market]) -> Report:
    """Check 11: when one more player comes, nobody there before gets a better benchmark."""
    risen = 0
    for market in markets:
        before = np.zeros(market.players)
        for here in range(1, market.players + 1):
            present = np.arange(market.players) < here
            pay = market.u[np.arange(market.players), stable_matching(market.u, market.v, present)]
            risen += int((pay[: here - 1] > before[: here - 1]).any())
            before = pay
    return {"markets": len(markets), "risen": risen, "ok": risen == 0}


def _power(x: Sequence[float], y: Sequence[float]) -> float:
    return round(float(np.polyfit(np.log(x), np.log(y), 1)[0]), 3)


def _means(rows: Floats) -> list[float]:
    return [round(float(value), 1) for value in rows.mean(axis=0)]


def _upper(fit: Growth) -> float:
    return fit.ci95[1] if fit.ci95 else np.inf
