"""The checks, each a row: what was measured, what is required, whether it holds (None: nothing is required)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from opensage_agents.judge_irt import Diagnosis, GradedResponseModel, ScoreError, align, diagnose
from opensage_agents.judge_irt.curves import Grid, Patterns, marginal, packed
from opensage_agents.judge_irt.scores import coded
from opensage_benchmarks.checks import Row, counted
from opensage_benchmarks.judge_irt.simulate import FIVE, scores_of

SLOPES = (1.041, 1.227, 2.30, 1.093)
INTERCEPTS = ((4.863, 2.639, -1.465), (2.924, 0.901, -2.267), (5.24, 2.22, -1.97), (3.347, 0.991, -1.687))
LOGLIK, GIRTH, MIRT = -1608.87, -1608.924, -1608.8715


def read_science(folder: Path) -> Any:
    """The 392 x 4 attitude scores, levels 1 to 4."""
    return np.genfromtxt(folder / "tabular" / "science_grm.csv", delimiter=",", skip_header=1)


def reference(scores: Any) -> Row:
    """Check 1: log-likelihood, slopes, intercepts that others publish."""
    model = GradedResponseModel(method="mml").fit(scores)
    slopes = np.abs(model.discrimination_ - SLOPES).max()
    intercepts = np.abs(-model.discrimination_[:, None] * model.thresholds_ - INTERCEPTS).max()
    near = abs(model.loglik_ - LOGLIK) <= 0.01 and slopes <= 0.03 and intercepts <= 0.05
    holds = near and model.loglik_ >= GIRTH and model.loglik_ >= MIRT - 0.01 and model.converged_
    told = f"log-likelihood {model.loglik_:.4f}, largest difference of a {slopes:.4f}, of intercepts {intercepts:.4f}"
    return Row("1 Science data, MML", told, "-1608.87 +- 0.01, 0.03, 0.05; no worse than girth and mirt", holds)


RECOVERED = "a <= 0.20, b <= 0.10, r >= 0.90"


def _recovered(seed: int) -> tuple[float, float, float]:
    """Relative error of the slopes, RMSE of the thresholds, correlation of the quality, for a judge of that seed."""
    theta, scores = scores_of(800, [2.5] * 4, seed)
    model = GradedResponseModel().fit(scores)
    error = np.abs(model.discrimination_ / 2.5 - 1).max()
    rmse = np.sqrt(((model.thresholds_ - np.array(FIVE)) ** 2).mean())
    return float(error), float(rmse), float(np.corrcoef(model.posterior(scores)[0], theta)[0, 1])


def _near(error: float, rmse: float, r: float) -> bool:
    return error <= 0.20 and rmse <= 0.10 and r >= 0.90


def recovery(seeds: Sequence[int]) -> Row:
    """Check 2: slopes, thresholds and quality of simulated judges come back."""
    found = [_recovered(seed) for seed in seeds]
    a, b, r = np.array(found).T
    told = f"a {_range(a)}, b {_range(b)}, r {_range(r)}"
    return Row(f"2 recovery, {len(seeds)} seeds", told, RECOVERED, all(_near(*each) for each in found))


def _range(values: Any) -> str:
    return f"{np.min(values):.3f} to {np.max(values):.3f}"


def probabilities(seeds: Sequence[int]) -> Row:
    """Check 3: probabilities and order for random inputs, some with levels that are never given."""
    worst, ordered, least = 0.0, True, 1.0
    for seed in seeds:
        _, scores = scores_of(60, [4.0, 0.5, 2.0], seed)
        scores[scores[:, 0] == 3, 0] = 4  # an empty level in the middle
        model = GradedResponseModel(5, method=("map", "mml")[seed % 2]).fit(scores)
        shares = model.category_probs(np.linspace(-12, 12, 241))
        worst, least = max(worst, float(np.abs(shares.sum(axis=2) - 1).max())), min(least, float(shares.min()))
        ordered = ordered and bool((np.diff(model.thresholds_, axis=1) > 0).all())
    told = f"sums off by {worst:.1e}, least {least:.1e}, thresholds {'increase' if ordered else 'DO NOT increase'}"
    return Row("3 probabilities", told, "1e-12, >= 0, increase", worst <= 1e-12 and least >= 0 and ordered)


def two_levels(seed: int) -> Row:
    """Check 4: with two levels the likelihood is the two-parameter logistic model's, computed apart."""
    _, scores = scores_of(300, [1.5, 0.8, 2.0], seed, [0.3])
    model = GradedResponseModel(method="mml").fit(scores)
    points = np.linspace(-6, 6, model.n_quad_)
    weights = np.exp(-(points**2) / 2) / np.exp(-(points**2) / 2).sum()
    yes = 1 / (1 + np.exp(-model.discrimination_[:, None] * (points - model.thresholds_)))
    likely = np.prod(np.where(scores[:, :, None] == 2, yes, 1 - yes), axis=1) @ weights
    gap = abs(float(np.log(likely).sum()) - model.loglik_)
    return Row("4 two levels are the 2PL", f"log-likelihoods differ by {gap:.1e}", "1e-8", gap <= 1e-8)


CELLS = {
    "consistent": ([2.5] * 4, "pass"),
    "one insensitive wording": ([2.5, 2.5, 2.5, 0.6], "prompt_sensitive"),
    "insensitive": ([0.5] * 4, "low_discrimination"),
}


CELL_BOUNDS: dict[str, tuple[str, Callable[[float, float], bool]]] = {
    "consistent": ("C_V <= 0.10, rho >= 0.80", lambda cv, rho: cv <= 0.10 and rho >= 0.80),
    "one insensitive wording": ("C_V >= 0.35, rho >= 0.75", lambda cv, rho: cv >= 0.35 and rho >= 0.75),
    "insensitive": ("rho <= 0.45", lambda _cv, rho: rho <= 0.45),
}


def _lands(name: str, found: Diagnosis) -> bool:
    return CELL_BOUNDS[name][1](found.cv, found.rho) and found.verdict == CELLS[name][1]


def cells(seeds: Sequence[int]) -> Iterator[Row]:
    """Check 5: simulated judges land in their cell."""
    for name, (slopes, verdict) in CELLS.items():
        found = [diagnose(scores_of(800, slopes, seed)[1]) for seed in seeds]
        cv, rho = np.array([(each.cv, each.rho) for each in found]).T
        told = f"C_V {_range(cv)}, rho {_range(rho)}, {', '.join(sorted({each.verdict for each in found}))}"
        wanted = f"{CELL_BOUNDS[name][0]}, {verdict}"
        yield Row(f"5 {name}, {len(seeds)} seeds", told, wanted, all(_lands(name, each) for each in found))


def fresh(seeds: Sequence[int]) -> Iterator[Row]:
    """Checks 2 and 5 at other seeds: how often chance lets them hold, with intervals; nothing is required of that."""
    name = f"{len(seeds)} seeds from {seeds[0]}"
    yield counted(f"2 recovery, {name}", [_near(*_recovered(seed)) for seed in seeds], RECOVERED)
    for cell, (slopes, verdict) in CELLS.items():
        held = [_lands(cell, diagnose(scores_of(800, slopes, seed)[1])) for seed in seeds]
        yield counted(f"5 {cell}, {name}", held, f"{CELL_BOUNDS[cell][0]}, {verdict}")


def invariance(seed: int) -> Row:
    """Check 7: order of samples and variants does not matter, another numbering raises, a duplicate does no harm."""
    _, scores = scores_of(400, [2.5, 1.5, 2.0, 1.0], seed)
    rng, first = np.random.default_rng(seed), diagnose(scores)
    rows, columns = rng.permutation(400), rng.permutation(4)
    other = diagnose(scores[rows][:, columns])
    gap = max(
        np.abs(other.theta - first.theta[rows]).max(),
        np.abs(other.model.thresholds_ - first.model.thresholds_[columns]).max(),
        abs(other.cv - first.cv), abs(other.rho - first.rho),
    )  # fmt: skip
    doubled = diagnose(np.hstack([scores, scores[:, :1]]))
    renamed = _refused(scores + 10)
    told = f"permuted: {gap:.1e}; with a duplicate rho {first.rho:.3f} -> {doubled.rho:.3f}; 11..15 {renamed}"
    holds = gap <= 1e-6 and doubled.rho <= 1 and doubled.model.converged_ and renamed == "refused"
    return Row("7 invariance", told, "1e-6, rho <= 1, refused", bool(holds))


def _refused(scores: Any) -> str:
    try:
        diagnose(scores)
    except ScoreError:
        return "refused"
    return "TAKEN"


def gate(seed: int) -> Row:
    """Check 10: a judge that fails yields no figures unless forced, and that is said."""
    bad, human = scores_of(300, [0.5] * 4, seed)[1], scores_of(300, [2.0] * 3, seed)[1]
    closed, forced = align(bad, human), align(bad, human, force=True)
    silent = closed.status == "gated" and closed.ratio is None and closed.distance is None
    said = forced.status == "forced" and forced.ratio is not None and any("forced" in each for each in forced.warnings)
    return Row(
        "10 gate", f"{closed.status}, then {forced.status}", "gated without figures; forced says so", silent and said
    )


def gradient(seed: int) -> Row:
    """Check 11: the gradient against central differences, relative to its largest entry."""
    _, scores = scores_of(200, [2.0, 1.0, 0.7], seed)
    data, grid, p = Patterns.of(coded(scores).levels, 5), Grid.of(61, 6.0), 3
    rng = np.random.default_rng(seed)
    free = packed(np.full(p, 1.3), np.tile(FIVE, (p, 1))) + rng.normal(scale=0.2, size=5 * p)
    steps = np.eye(len(free)) * 1e-5
    rough = np.array(
        [(marginal(free + e, p, data, grid)[0] - marginal(free - e, p, data, grid)[0]) / 2e-5 for e in steps]
    )
    slope = marginal(free, p, data, grid)[1]
    gap = float(np.abs(slope - rough).max() / np.abs(slope).max())
    return Row("11 gradient", f"differs by {gap:.1e}", "1e-5", gap <= 1e-5)


def large() -> Row:
    """Check 11: 20,000 samples x 4 variants x 5 levels."""
    _, scores = scores_of(20_000, [2.5] * 4, 0)
    start = time.process_time()
    model = GradedResponseModel().fit(scores)
    spent = time.process_time() - start
    told = f"{spent:.1f} s of CPU, {model.n_iter_} iterations, {'' if model.converged_ else 'NOT '}converged"
    return Row("11 20,000 x 4 x 5", told, "< 20 s", spent < 20 and model.converged_)


def peers(python: str, scores: Any) -> Iterator[Row]:
    """Check 1: girth and mirt in one process with us; py-irt on the same scores cut in two, where it is installed."""
    from opensage_benchmarks.judge_irt.child import run_peers

    found = run_peers(python, scores)
    ours, mirt, girth = found["ours"], found["mirt"], found["girth"]
    told = f"ours {ours['loglik']:.4f}, girth {girth['loglik']:.4f}, mirt {mirt['loglik']:.4f}"
    holds = ours["loglik"] >= girth["loglik"] and ours["loglik"] >= mirt["loglik"] - 0.01
    yield Row("1 peers' log-likelihood", told, "no worse (mirt: less 0.01)", holds, found)
    times = mirt["seconds"] / ours["seconds"]
    each = ", ".join(
        f"{name} {found[name]['seconds']:.2f} (first {found[name]['first']:.2f})" for name in ("ours", "girth", "mirt")
    )
    told = f"{each} s of CPU: {times:.1f} x"
    yield Row("1 peers' time, one process", told, ">= 5 x faster than mirt", times >= 5)
    if "py-irt" not in found:
        yield Row("4 two levels, py-irt", "not installed there", "no worse")
        return
    told = "; ".join(
        f"{name} {found[name]['loglik']:.3f} in {found[name]['seconds']:.2f} s of CPU, a {_range(found[name]['a'])}"
        for name in ("ours, two levels", "py-irt")
    )
    no_worse = found["ours, two levels"]["loglik"] >= found["py-irt"]["loglik"]
    yield Row("4 two levels, py-irt", f"log-likelihood {told}", "no worse", no_worse)


def noise(samples: Sequence[int], seeds: Sequence[int]) -> Row:
    """How large C_V is for a judge whose wordings are all the same, by the number of samples."""
    told = {}
    for j in samples:
        found = [diagnose(scores_of(j, [2.5] * 4, 100 + seed)[1], n_categories=5) for seed in seeds]
        told[j] = (float(np.median([each.cv for each in found])), sum(each.passed for each in found))
    text = "; ".join(f"J = {j}: median {cv:.3f}, {n} of {len(seeds)} pass" for j, (cv, n) in told.items())
    return Row("C_V of a perfectly consistent judge", text, "", None, told)


SCALES = {3: (-0.8, 0.8), 5: FIVE, 7: (-1.8, -1.1, -0.4, 0.4, 1.1, 1.8)}


def scales(seeds: Sequence[int]) -> Row:
    """The shape of a published result: from 3 to 5 points rho rises a little."""
    rho = {
        k: float(np.mean([diagnose(scores_of(800, [2.5] * 4, seed, cuts)[1]).rho for seed in seeds]))
        for k, cuts in SCALES.items()
    }
    told = ", ".join(f"{k} points {value:.3f}" for k, value in rho.items())
    return Row("rho by scale", told, "3 below 5 (published: 0.91, 0.95)", rho[3] < rho[5], rho)
