"""Whether one run resolves more than another, on the tasks that both have."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from opensage_benchmarks.swe.errors import BenchError
from opensage_benchmarks.swe.grade.reports import read_summary

_Z = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Rate:
    """A resolved rate and its 95 % interval (Wilson 1927, without continuity correction)."""

    resolved: int
    total: int
    low: float
    high: float

    @property
    def rate(self) -> float:
        """Between 0 and 1; 0 without tasks."""
        return self.resolved / self.total if self.total else 0.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """A against B.

    Attributes:
        a, b: on the tasks that both have.
        difference: rate of A less rate of B.
        low, high: its 95 % interval (Newcombe 1998, method 10, for paired rates).
        p_value: exact, two-sided (McNemar 1947): of the tasks that only one resolves, is either favoured?
        only_a, only_b: tasks that only one of them resolves.
        missing_in_a, missing_in_b: tasks that only the other has.
    """

    a: Rate
    b: Rate
    difference: float
    low: float
    high: float
    p_value: float
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    missing_in_a: tuple[str, ...]
    missing_in_b: tuple[str, ...]

    def as_record(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def wilson(resolved: int, total: int) -> Rate:
    """A rate with its interval; from 0 to 1 when nothing was tried."""
    if total == 0:
        return Rate(0, 0, 0.0, 1.0)
    p, z2 = resolved / total, _Z * _Z
    middle = (p + z2 / (2 * total)) / (1 + z2 / total)
    half = _Z / (1 + z2 / total) * math.sqrt(p * (1 - p) / total + z2 / (4 * total * total))
    low = 0.0 if resolved == 0 else max(0.0, middle - half)
    return Rate(resolved, total, low, 1.0 if resolved == total else min(1.0, middle + half))


def mcnemar(only_a: int, only_b: int) -> float:
    """The exact two-sided p-value: a binomial test of one half on the tasks that only one resolves."""
    total, less = only_a + only_b, min(only_a, only_b)
    tail = sum(math.comb(total, k) for k in range(less + 1))
    return min(1.0, 2 * tail / (1 << total))


def paired_interval(both: int, only_a: int, only_b: int, neither: int) -> tuple[float, float]:
    """The 95 % interval of the difference of two paired rates, made of their Wilson intervals and their correlation."""
    total = both + only_a + only_b + neither
    if total == 0:
        return -1.0, 1.0
    a, b = wilson(both + only_a, total), wilson(both + only_b, total)
    phi = _correlation(both, only_a, only_b, neither)
    difference = a.rate - b.rate
    below = _spread(a.rate - a.low, b.high - b.rate, phi)
    above = _spread(a.high - a.rate, b.rate - b.low, phi)
    return max(-1.0, difference - below), min(1.0, difference + above)


def _spread(one: float, other: float, phi: float) -> float:
    return math.sqrt(max(0.0, one * one - 2 * phi * one * other + other * other))


def _correlation(both: int, only_a: int, only_b: int, neither: int) -> float:
    """Newcombe's phi: its positive numerator is lessened by half the number of tasks, though not below 0."""
    product = (both + only_a) * (only_b + neither) * (both + only_b) * (only_a + neither)
    if product == 0:
        return 0.0
    top = both * neither - only_a * only_b
    half = (both + only_a + only_b + neither) / 2
    return (max(top - half, 0.0) if top > 0 else top) / math.sqrt(product)


def compare(a: Path | Mapping[str, Any], b: Path | Mapping[str, Any]) -> Comparison:
    """Compare two summaries of `evaluate`, or of swebench. A task counts for a run that submitted something for it.

    Raises:
        BenchError: a file is no summary, or they have no task in common.
    """
    first, second = read_summary(a), read_summary(b)
    ids_a, ids_b = _tried(first), _tried(second)
    common = ids_a & ids_b
    if not common:
        raise BenchError("the two runs have no task in common: compare runs on the same tasks")
    won_a, won_b = common & set(first["resolved_ids"]), common & set(second["resolved_ids"])
    only_a, only_b = tuple(sorted(won_a - won_b)), tuple(sorted(won_b - won_a))
    both = len(won_a & won_b)
    low, high = paired_interval(both, len(only_a), len(only_b), len(common) - len(won_a | won_b))
    return Comparison(
        wilson(len(won_a), len(common)),
        wilson(len(won_b), len(common)),
        (len(won_a) - len(won_b)) / len(common),
        low,
        high,
        mcnemar(len(only_a), len(only_b)),
        only_a,
        only_b,
        tuple(sorted(ids_b - ids_a)),
        tuple(sorted(ids_a - ids_b)),
    )


def _tried(summary: Mapping[str, Any]) -> set[str]:
    return set(summary.get("submitted_ids") or summary["resolved_ids"])
