"""Starter properties without a model: which ones the examples show, and what they find."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opensage_agents.pgs import PropertySet, check, ghostwritten

SORTED = [(([3, 1, 2],), [1, 2, 3]), (([5, 4, 4, 9],), [4, 4, 5, 9]), (([],), [])]


def shown(*examples: tuple[Any, Any]) -> set[str]:
    """Names of the properties of these pairs, but for the type."""
    return set(ghostwritten("f", "", examples).names) - {"is_of_the_type"}


def one(function: Any, *values: Any) -> list[tuple[Any, Any]]:
    return [((value,), function(value)) for value in values]


def verdict(propset: PropertySet, name: str, args: tuple[Any, ...], result: Any) -> bool:
    space: dict[str, Any] = {}
    exec(next(each.text for each in propset.properties if each.name == name), space)
    try:
        space[name](args, result)
    except AssertionError as error:
        assert str(error)
        return False
    return True


LISTS = ([3, 1, 2, 3], [5, 4, 9], [8, 2, 2, 6, 1])
CATALOGUE = [
    (one(sorted, *LISTS), {"is_ascending", "holds_the_same_elements"}),
    (one(lambda a: sorted(a)[::-1], *LISTS), {"is_descending", "holds_the_same_elements"}),
    (one(lambda a: sorted(set(a)), *LISTS), {"is_ascending", "takes_elements_of", "has_each_element_once"}),
    (one(lambda a: [each for each in a if each > 2], *LISTS), {"is_a_subsequence"}),
    (one(lambda a: [each + 20 for each in a], *LISTS), {"has_the_same_length"}),
    (one(lambda a: [each + 20 for each in a[1:]], *LISTS), {"is_not_longer"}),
    (one(lambda a: a + a, *LISTS), {"has_elements_of"}),
    (one(max, *LISTS), {"is_an_element"}),
    (one(lambda a: sum(a) / len(a), *LISTS), {"lies_within"}),
    (one(lambda a: [a[:2], a[2:]], *LISTS), {"joins_to_the_argument"}),
    (one(str.split, "a b", "c d e"), set()),
    (one(lambda a: a.split(" "), "a b", "c d e"), set()),
    (one(list, "abc", "dea"), {"joins_to_the_argument"}),
    (one(lambda a: a[::-1], "abc", "dea"), {"holds_the_same_elements"}),
    (one(lambda a: a.count("a"), "banana", "a", "cat"), {"is_not_negative", "is_at_most_the_length"}),
    (one(lambda a: abs(a), -3, 4, -5), {"is_not_negative"}),
    (one(lambda a: a - 7, 9, 10, 11), set()),
    (one(lambda a: a > 7, 9, 1, 11), set()),
]


@pytest.mark.parametrize(("examples", "names"), CATALOGUE)
def test_the_catalogue(examples: list[tuple[Any, Any]], names: set[str]) -> None:
    assert shown(*examples) == names
    propset = ghostwritten("f", "", examples)
    assert {each.source for each in propset.properties} == {"ghostwriter"}
    assert all(each.reason for each in propset.properties)
    for args, result in examples:
        assert all(verdict(propset, name, args, result) for name in propset.names)


WRONG = [
    ("is_ascending", SORTED, ([2, 1],), [2, 1]),
    ("holds_the_same_elements", SORTED, ([2, 1, 1],), [1, 2]),
    ("holds_the_same_elements", SORTED, ([1],), 7),
    ("is_of_the_type", SORTED, ([1],), ["a"]),
    ("is_of_the_type", SORTED, ([1],), "1"),
    ("is_of_the_type", one(len, "ab", "c"), ("a",), True),
    ("is_of_the_type", one(len, "ab", "c"), ("a",), 0.5),
    ("is_of_the_type", one(lambda a: {"n": a}, 1, 2), (1,), [1]),
    ("is_a_subsequence", CATALOGUE[3][0], ([1, 2, 3],), [3, 2]),
    ("takes_elements_of", CATALOGUE[2][0], ([1, 2],), [1, 1]),
    ("has_each_element_once", CATALOGUE[2][0], ([1, 1],), [1, 1]),
    ("has_the_same_length", CATALOGUE[4][0], ([1, 2],), [5]),
    ("is_an_element", CATALOGUE[7][0], ([1, 2],), 3),
    ("lies_within", CATALOGUE[8][0], ([1, 2],), 3),
    ("joins_to_the_argument", CATALOGUE[9][0], ([1, 2],), [[1], [1, 2]]),
    ("is_at_most_the_length", CATALOGUE[14][0], ("aa",), 3),
    ("is_not_negative", CATALOGUE[15][0], (1,), -1),
]


@pytest.mark.parametrize(("name", "examples", "args", "result"), WRONG)
def test_each_rejects_a_wrong_result(name: str, examples: Any, args: tuple[Any, ...], result: Any) -> None:
    propset = ghostwritten("f", "", examples)
    assert not verdict(propset, name, args, result)
    assert verdict(propset, name, args, None)


def test_one_example_shows_nothing() -> None:
    assert ghostwritten("f", "", SORTED[:1]).names == []
    assert ghostwritten("f", "def f(a: list[int]): ...").names == []
    assert ghostwritten("f", "", [((1,), 1), ((1, 2), 3)]).names == []


def test_what_could_not_have_failed_is_not_shown() -> None:
    assert shown(*one(sorted, [1], [], [2])) == set()
    assert "is_ascending" not in shown(*one(list, [1, 2, 3], [4, 5, 9]))


def test_a_contradiction_drops_a_property() -> None:
    assert "is_ascending" not in shown(*SORTED, (([1],), [2, 1]))


def test_the_set_reads_back_and_holds_inputs_and_examples() -> None:
    propset = ghostwritten("A.f", "class A:\n    def f(self, a: list[int]): ...", SORTED)
    again = PropertySet.from_source(propset.to_source())
    assert (again.names, again.entry) == (propset.names, "A.f")
    assert again.examples == SORTED
    assert again.strategy.startswith("st.tuples(st.lists(st.integers(")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | st.text("ab", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xy"), inner, max_size=2),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.tuples(VALUES), VALUES), min_size=2, max_size=4), VALUES)
def test_every_property_accepts_all_examples_and_judges_any_result(pairs: list[tuple[Any, Any]], other: Any) -> None:
    propset = ghostwritten("f", "", pairs)
    assert PropertySet.from_source(propset.to_source()).names == propset.names
    for name in propset.names:
        assert all(verdict(propset, name, *pair) for pair in pairs)
        assert verdict(propset, name, pairs[0][0], other) in (True, False)


@pytest.mark.parametrize(
    ("code", "status", "broken"),
    [
        ("def f(a):\n    return sorted(a)", "ok", ""),
        ("def f(a):\n    return sorted(set(a)) if len(a) != 4 else sorted(a)", "violated", "holds_the_same_elements"),
    ],
)
def test_a_fault_that_no_example_shows_is_found(code: str, status: str, broken: str) -> None:
    propset = ghostwritten("f", code, SORTED)
    report = check(code, propset, sandbox="bubblewrap", max_examples=60, total_timeout=60)
    assert report.status == status
    assert (report.counterexample.property if report.counterexample else "") == broken
