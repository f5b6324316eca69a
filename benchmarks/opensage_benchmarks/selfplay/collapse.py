"""Worlds of self-play: where it collapses, where it does not, and what each reward does there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from opensage_agents.selfplay.metrics import History, collapse_report, means
from opensage_agents.selfplay.worlds import arms_of, simulate, summed
from opensage_benchmarks.checks import Row
from opensage_benchmarks.selfplay.statistics import paired, spread

Runs = dict[str, list[History]]


def told(each: dict[str, Any]) -> str:
    """An arm in a line, as in the tables of the documentation."""
    return (
        f"peak {each['peak']:.3f} ({each['onset']:.0f}) / final {each['final']:.3f}, drop {each['drop']:.3f}, "
        f"effective {each.get('final_effective', float('nan')):.1f}, overlap {means(each['overlap'][-3:]):.2f}"
    )


def t1(seeds: Sequence[int], arms: Sequence[str], title: str = "", **changes: Any) -> Iterator[Row]:
    """Check 5 at phi = 0.02, the world that was chosen to collapse, or a variant of it."""
    runs = simulate("t1", arms, seeds, **changes)
    sums = summed(runs)
    name = f"5 t1{title}, {len(seeds)} seeds from {seeds[0]}"
    yield from (Row(f"{name}: {arm}", told(each)) for arm, each in sums.items())
    host, plug = sums["batch"], sums["oneclass"]
    text = f"{_drops(runs['batch'])}, peak in round {host['onset']:.1f}"
    holds = bool(host["drop"] >= 0.02 and host["onset"] < 25)
    yield Row(f"{name}: drop of the host", text, ">= 0.02, peak before 25", holds)
    yield Row(f"{name}: drop with the plug-in", _drops(runs["oneclass"]), "<= 0.01", plug["drop"] <= 0.01)
    yield _gain(name, plug, host, 0.08)
    ratio = plug["final_effective"] / host["final_effective"]
    yield Row(f"{name}: effective families, plug-in / host", f"{ratio:.2f}", ">= 1.8", ratio >= 1.8)


def _drops(runs: Sequence[History]) -> str:
    return spread([collapse_report(each)["drop"] for each in runs])


def _gain(name: str, plug: dict[str, Any], host: dict[str, Any], least: float) -> Row:
    gain, p = paired(plug["finals"], host["finals"])
    apart = np.subtract(plug["finals"], host["finals"])
    text = f"{spread(apart)}, above 0 in {(apart > 0).sum()} of {len(apart)} (paired t, p = {p:.1g})"
    return Row(f"{name}: final score over the host", text, f">= +{least}, p < 0.01", gain >= least and p < 0.01)


def t1_fast(seeds: Sequence[int], arms: Sequence[str], title: str = "", **changes: Any) -> Iterator[Row]:
    """Check 5 at phi = 0.035, where skills fade faster."""
    runs = simulate("t1", arms, seeds, phi=0.035, **changes)
    sums = summed(runs)
    name = f"5 t1{title} phi 0.035, {len(seeds)} seeds from {seeds[0]}"
    yield from (Row(f"{name}: {arm}", told(each)) for arm, each in sums.items())
    plug, host = sums["oneclass"]["drop"], sums["batch"]["drop"]
    text = f"{_drops(runs['oneclass'])} against {_drops(runs['batch'])}"
    yield Row(f"{name}: drop, plug-in against host", text, "<= 0.04 against >= 0.09", plug <= 0.04 and host >= 0.09)


def kind_world(seeds: Sequence[int]) -> Iterator[Row]:
    """A t1 in which nothing collapses: nothing is required there, and nothing is gained."""
    for arm, each in summed(simulate("t1-kind", ("base", "batch", "oneclass", "nobatch", "random"), seeds)).items():
        yield Row(f"t1-kind (16 families, flat start), {len(seeds)} seeds: {arm}", told(each))


def t2(seeds: Sequence[int], arms: Sequence[str]) -> Iterator[Row]:
    """Check 7: overlap with earlier rounds in the world of texts, lower than the bare baseline's and the host's."""
    runs = simulate("t2", arms, seeds)
    sums = summed(runs)
    name = f"7 t2, {len(seeds)} seeds from {seeds[0]}"
    yield from (Row(f"{name}: {arm}", told(each)) for arm, each in sums.items())
    last = {arm: sums[arm]["overlap"][-3:] for arm in ("base", "batch", "oneclass")}
    text = "; ".join(f"{arm} " + " ".join(f"{value:.3f}" for value in values) for arm, values in last.items())
    lower = bool(np.all(np.less(last["oneclass"], last["base"])) and np.all(np.less(*_empty_as_zero(runs))))
    wanted = "plug-in below the baseline in each, also when an empty round counts as 0"
    yield Row(f"{name}: overlap of the last three rounds", text, wanted, lower)
    yield _beside(runs, len(seeds))
    gain, p = paired(sums["oneclass"]["finals"], sums["batch"]["finals"])
    yield Row(f"{name}: final score, plug-in over host", f"{gain:+.3f} (p = {p:.1g})")


def _empty_as_zero(runs: Runs) -> list[Any]:
    """Overlap of the last three rounds of plug-in and baseline, 0 in a round that used nothing."""
    tables = ([collapse_report(each)["overlap"][-3:] for each in runs[arm]] for arm in ("oneclass", "base"))
    return [np.nan_to_num(np.array(table, dtype=float)).mean(axis=0) for table in tables]


def _beside(runs: Runs, seeds: int) -> Row:
    """What novelty takes off the overlap of the last three rounds, beside what the penalty in the batch takes off."""
    own = {arm: [float(means(collapse_report(each)["overlap"][-3:])) for each in runs[arm]] for arm in runs}
    gained = {arm: means(own["base"]) - means(own[arm]) for arm in ("batch", "oneclass")}
    apart, p = paired(own["oneclass"], own["batch"])
    text = f"plug-in {gained['oneclass']:.3f}, penalty {gained['batch']:.3f} (overlap apart {apart:+.3f}, p = {p:.1g})"
    holds = apart < 0 and p < 0.05
    return Row(f"7 t2 beside the batch penalty, {seeds} seeds: overlap taken off", text, "more, p < 0.05", holds)


def unkind(seeds: Sequence[int]) -> Iterator[Row]:
    """Worlds of texts in which novelty helps less, or harms: faster learning, and labels by majority."""
    for title, changes in (("learning rate 1", {"rate": 1.0}), ("majority labels", {"labels": "majority"})):
        sums = summed(simulate("t2", ("base", "batch", "oneclass", "random"), seeds, **changes))
        for arm, each in sums.items():
            yield Row(f"t2, {title}, {len(seeds)} seeds: {arm}", told(each))
        gain, p = paired(sums["oneclass"]["finals"], sums["batch"]["finals"])
        yield Row(f"t2, {title}: final score, plug-in over host", f"{gain:+.3f} (p = {p:.1g})")


def ablation(seeds: Sequence[int]) -> Iterator[Row]:
    """Check 9: a classifier against the questioner's own samples, and a detector refitted at each step."""
    sums = summed(simulate("t2", ("oneclass", "negatives", "everystep"), seeds))
    usual = np.asarray(sums["oneclass"]["finals"])
    one = float(usual.std(ddof=1))
    yield Row(f"9 t2, {len(seeds)} seeds: default", spread(usual.tolist()))
    for arm in ("negatives", "everystep"):
        better = float(np.mean(sums[arm]["finals"]) - usual.mean())
        text = f"{spread(sums[arm]['finals'])}; {better:+.3f} over the default, whose deviation is {one:.3f}"
        yield Row(f"9 t2, {len(seeds)} seeds: {arm}", text, "not better by more than 1 sd", better <= one)


def capped(seeds: Sequence[int], rounds: int = 36) -> Iterator[Row]:
    """Check 10: a history of 500 against one of all."""
    finals = {}
    for cap in (None, 500):
        sums = summed(simulate("t2", ("oneclass",), seeds, rounds=rounds, cap=cap))
        finals[cap] = sums["oneclass"]["finals"]
    apart = float(np.mean(finals[500]) - np.mean(finals[None]))
    text = f"{spread(finals[500])} against {spread(finals[None])}, apart {apart:+.3f}"
    yield Row(
        f"10 t2, {rounds} rounds, {len(seeds)} seeds: cap 500 against none", text, "within 0.03", abs(apart) <= 0.03
    )


T1_ARMS, T2_ARMS = arms_of("t1"), tuple(arm for arm in arms_of("t2") if arm not in ("negatives", "everystep"))
