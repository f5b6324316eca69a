"""The acceptance checks at full size and the peers side by side: `python -m opensage_toolkits.matching_bandits.bench`.

Prints one JSON object. `--quick` takes minutes instead of an hour; `--only NAME` (again and again) chooses parts.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import checks
from .algorithms import BATCH, run_batch
from .growth import fit_growth
from .ledger import Result
from .market import Floats, Ints, Market, random_market
from .policies import ArmPolicy, KnownArm, Policy
from .stepper import simulate
from .two_sided import TwoSidedRule

VARIANTS: dict[str, tuple[TwoSidedRule, float]] = {
    "as shipped": (TwoSidedRule(), 1.0),
    "no walks": (TwoSidedRule(walk=0.0, upward=0.5), 1.0),
    "uniform probes only": (TwoSidedRule(walk=0.0, upward=0.0), 1.0),
    "no trial": (TwoSidedRule(trial=False), 1.0),
    "patience K": (TwoSidedRule(patience=1), 1.0),
    "marks cleared at ages 2^k": (TwoSidedRule(forget=True), 1.0),
    "rate 1": (TwoSidedRule(rate=1.0), 1.0),
    "rate 1/4": (TwoSidedRule(rate=0.25), 1.0),
    "constant rate 0.1": (TwoSidedRule(rate=0.1, decay=False), 1.0),
    "arms without optimism": (TwoSidedRule(), 0.0),
    "the sketch: uniform probes, no trial, patience K, clearing": (
        TwoSidedRule(rate=1.0, upward=0.0, walk=0.0, patience=1, trial=False, forget=True),
        1.0,
    ),
}


def solve_with_matching(market: Market) -> Ints:
    """The player-optimal matching by the package `matching`; players that nobody wants fill its equal sides."""
    from matching.games import StableMarriage

    extra = [f"p{i}" for i in range(market.players, market.arms)]
    arms = [f"a{j}" for j in range(market.arms)]
    wishes = {f"p{i}": [f"a{j}" for j in np.argsort(-row)] for i, row in enumerate(market.u)}
    ranks = {f"a{j}": [f"p{i}" for i in np.argsort(-row)] + extra for j, row in enumerate(market.v)}
    game = StableMarriage.create_from_dictionaries({**wishes, **dict.fromkeys(extra, arms)}, ranks)
    found = {str(player): str(arm) for player, arm in game.solve(optimal="suitor").items()}
    return np.array([int(found[f"p{i}"][1:]) for i in range(market.players)])


class MabWiserPlayer:
    """A player who minds nobody else: UCB1 of `mabwiser`, for which a rejection is a reward of 0."""

    def reset(self, K: int, rng: np.random.Generator) -> None:
        """Tries each arm once before the library takes over."""
        from mabwiser.mab import MAB, LearningPolicy

        self.K, self.tried = K, list[float]()
        self.mab = MAB(list(range(K)), LearningPolicy.UCB1(alpha=1.0), seed=int(rng.integers(2**31)))

    def act(self, age: int) -> int:
        """The library's choice."""
        return len(self.tried) if len(self.tried) < self.K else int(self.mab.predict())

    def observe(self, arm: int, accepted: bool, reward: float | None) -> None:
        """Hand the payoff on."""
        if len(self.tried) < self.K:
            self.tried.append(reward or 0.0)
            if len(self.tried) == self.K:
                self.mab.fit(list(range(self.K)), self.tried)
        else:
            self.mab.partial_fit([arm], [reward or 0.0])


def run_mabwiser(market: Market, T: int, checkpoints: Sequence[int]) -> Result:
    """Independent UCB1 players on a market whose arms know their tastes."""
    players: list[Policy] = [MabWiserPlayer() for _ in range(market.players)]
    arms: list[ArmPolicy] = [KnownArm(row.tolist()) for row in market.v]
    return simulate(market, players, arms, T, checkpoints)


def peers(quick: bool) -> dict[str, Any]:
    """One table: the same markets, arrivals and seeds for every algorithm."""
    T, seeds = (2048, 4) if quick else (16384, 8)
    steps = [T // 8, T // 4, T // 2, T]
    markets = checks.arriving_markets(3, 0.3, seeds, last=T // 16)
    table = {name: _row(run_batch(markets, name, T, steps), steps) for name in BATCH}
    table["mabwiser UCB1"] = _row([run_mabwiser(market, T, steps) for market in markets], steps)
    return {"K": 3, "gap": 0.3, "T": steps, "seeds": seeds, "last_arrival": T // 16, "table": table}


def _row(results: list[Result], steps: Sequence[int]) -> dict[str, Any]:
    worst: Floats = np.array([r.worst for r in results])
    fit = fit_growth(steps, np.maximum(worst, 1.0))
    return {
        "worst_regret": [round(float(x), 1) for x in worst.mean(axis=0)],
        "sum_regret": round(float(np.mean([r.regret[-1].sum() for r in results])), 1),
        "power": round(fit.power, 3),
        "off_second_half": round(float(np.mean(checks.off_share(results, steps[-1] - steps[-2]))), 3),
        "collisions": round(float(np.mean([r.collisions for r in results])), 1),
    }


def oracle(quick: bool) -> dict[str, Any]:
    """Checks 10 and 11 on 500 random markets."""
    rng = np.random.default_rng(10)
    sizes = [sorted(rng.integers(1, 7, 2)) for _ in range(500)]
    markets = [random_market(int(n), int(k), 0.1, rng) for n, k in sizes]
    return {"against_matching": checks.oracle(solve_with_matching, markets), "arrivals": checks.arrivals_lower(markets)}


def way_se(quick: bool) -> dict[str, Any]:
    """Checks 1, 2, 3 and 5."""
    T, seeds = (2**13, 20) if quick else (2**16, 20)
    horizons = [2**k for k in range(12, 15 if quick else 17)]
    sizes, gaps = ([3, 4, 5], [0.15, 0.2, 0.3]) if quick else ([3, 4, 5, 6, 7, 8], [0.1, 0.15, 0.2, 0.3])
    return {
        "stability": [
            checks.stability(size, 0.3 if quick else 0.2, T, seeds) for size in ([3] if quick else [3, 4, 5])
        ],
        "log_growth": checks.log_growth(3, 0.3, horizons, seeds),
        "exponents": checks.exponents(sizes, gaps, 2**12 if quick else 2**16, 4 if quick else 10),
        "clocks": checks.clocks(3, 0.3, [2**k for k in range(11, 15 if quick else 17)], seeds),
    }


def way_se_2s(quick: bool) -> dict[str, Any]:
    """Check 8, and the start in the wrong stable matching."""
    horizons = [2**k for k in range(10, 14 if quick else 18)]
    runs = [checks.two_sided(size, 0.2, horizons, 20, kind) for size in (2, 3) for kind in ("random", "several")]
    larger = [] if quick else [checks.two_sided(4, 0.15, horizons[:6], 20, kind) for kind in ("random", "several")]
    locked = [checks.locked_start(size, 0.15, 2**12 if quick else 2**14, 20) for size in (2, 3, 4, 5)]
    return {"growth": runs, "K=4": larger, "locked_start": locked}


def variants(quick: bool) -> dict[str, Any]:
    """Check 8 for the two-sided rules that were tried, and how many of 20 markets of four stay locked in."""
    horizons = [2**k for k in range(9 if quick else 10, 12 if quick else 14)]
    table: dict[str, Any] = {}
    for name, (rule, arm_c) in VARIANTS.items():
        runs = [
            checks.two_sided(size, 0.2, horizons, 20, kind, rule, arm_c)
            for size in (2, 3)
            for kind in ("random", "several")
        ]
        table[name] = {f"K={r['K']} {r['kind']}": _short(r) for r in runs}
        table[name]["locked_start K=4"] = checks.locked_start(4, 0.15, horizons[-1], 20, rule)["locked_in"]
        print(f"{name}: {table[name]}", file=sys.stderr)
    return {"T": horizons, "seeds": 20, "table": table}


def _short(report: dict[str, Any]) -> dict[str, Any]:
    kept = {
        "worst_regret": report["worst_regret"][-1],
        "power": round(report["power"], 2),
        "worst_seed": report["worst_seed"],
    }
    return {**kept, "ci95": [round(x, 2) for x in report["ci95"]], "locked_in": report["locked_in"]}


PARTS: dict[str, Callable[[bool], dict[str, Any]]] = {
    "oracle": oracle,
    "way_se": way_se,
    "way_se_2s": way_se_2s,
    "peers": peers,
    "variants": variants,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the parts asked for and print one JSON object; 1 if a check fails."""
    parser = argparse.ArgumentParser(prog="matching_bandits.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes: minutes instead of an hour")
    parser.add_argument("--only", action="append", choices=list(PARTS), help="this part (may be repeated)")
    wish = parser.parse_args(argv)
    report: dict[str, Any] = {"quick": wish.quick}
    for name in wish.only or PARTS:
        begun = time.process_time()
        report[name] = {**PARTS[name](wish.quick), "cpu_seconds": round(time.process_time() - begun, 1)}
        print(f"{name}: {report[name]['cpu_seconds']} s of CPU", file=sys.stderr)
    print(json.dumps(report, indent=1))
    return 0 if all(_passed(part) for name, part in report.items() if name not in ("quick", "variants")) else 1


def _passed(part: Any) -> bool:
    if isinstance(part, dict):
        return part.get("ok", True) and all(_passed(value) for value in part.values())
    return all(_passed(value) for value in part) if isinstance(part, list) else True


if __name__ == "__main__":
    sys.exit(main())
