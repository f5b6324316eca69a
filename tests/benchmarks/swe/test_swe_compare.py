"""Paired comparison of two runs."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from opensage_benchmarks.swe.compare import compare, mcnemar, paired_interval, wilson
from opensage_benchmarks.swe.errors import BenchError


def summary(resolved, submitted):
    return {"resolved_ids": resolved, "submitted_ids": submitted}


def test_known_values():
    """Newcombe 1998, Statistics in Medicine 17: the table with 36, 12, 2, 0 of 50, its method 10; Wilson: 81 of 263."""
    low, high = paired_interval(36, 12, 2, 0)
    assert (round(low, 4), round(high, 4)) == (0.0569, 0.3404)
    found = wilson(81, 263)
    assert (round(found.low, 4), round(found.high, 4)) == (0.2553, 0.3662)
    assert mcnemar(10, 2) == pytest.approx(0.03857421875)
    assert mcnemar(0, 0) == 1.0


def test_mcnemar_is_the_binomial_test():
    for a, b in ((3, 9), (0, 6), (5, 5), (40, 61)):
        assert mcnemar(a, b) == pytest.approx(binomtest(a, a + b).pvalue)


@given(st.tuples(*[st.integers(0, 60)] * 4))
def test_intervals_hold_their_difference(cells):
    both, only_a, only_b, neither = cells
    total = sum(cells)
    low, high = paired_interval(*cells)
    difference = (only_a - only_b) / total if total else 0
    assert -1 <= low <= difference + 1e-12
    assert difference - 1e-12 <= high <= 1
    turned = paired_interval(both, only_b, only_a, neither)
    assert math.isclose(turned[0], -high, abs_tol=1e-9)
    assert math.isclose(turned[1], -low, abs_tol=1e-9)


def test_tasks_won_lost_and_missing(tmp_path):
    a = tmp_path / "a.json"
    a.write_text(json.dumps(summary(["1", "2", "9"], ["1", "2", "3", "4", "9"])))
    found = compare(a, summary(["2", "3"], ["1", "2", "3", "4", "8"]))
    assert (found.only_a, found.only_b, found.missing_in_a, found.missing_in_b) == (("1",), ("3",), ("8",), ("9",))
    assert (found.a.resolved, found.b.resolved, found.a.total, found.difference, found.p_value) == (2, 2, 4, 0.0, 1.0)
    assert json.dumps(found.as_record())


@pytest.mark.parametrize("text", ["[]", "{", '{"resolved_ids": 3}'])
def test_what_is_no_summary(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(BenchError, match="no summary"):
        compare(tmp_path / "a.json", summary([], ["1"]))
    with pytest.raises(BenchError, match="in common"):
        compare(summary(["1"], ["1"]), summary(["2"], ["2"]))
