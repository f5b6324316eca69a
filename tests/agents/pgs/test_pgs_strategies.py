"""Inputs without a model: what is drawn, and what is never drawn."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opensage_agents.pgs import PropertyError, PropertySet, check, strategy_from
from opensage_agents.pgs.strategies import Inputs

COUNT = 60


def drawn(inputs: Inputs, count: int = COUNT) -> list[tuple[Any, ...]]:
    """What passes the preconditions; the texts see `st` alone."""
    space = {"st": st}
    strategy = eval(inputs.strategy, space)
    tests = [eval(each, space) for each in inputs.preconditions]
    found: list[tuple[Any, ...]] = []
    seen = 0

    @settings(
        max_examples=count, database=None, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    @given(strategy)
    def collect(args: tuple[Any, ...]) -> None:
        nonlocal seen
        seen += 1
        if all(test(args) for test in tests):
            found.append(args)

    collect()
    assert len(found) > seen / 2, "most drawn inputs are thrown away"
    return found


def inputs(*rows: tuple[Any, ...], code: str = "") -> Inputs:
    return strategy_from(code, "f", [(row, None) for row in rows])


def first(*values: Any, code: str = "") -> list[Any]:
    """What is drawn for one argument with these values."""
    return [args[0] for args in drawn(inputs(*((each,) for each in values), code=code))]


@pytest.mark.parametrize(
    ("annotation", "kind"),
    [
        ("int", int), ("bool", bool), ("float", float), ("str", str), ("bytes", bytes), ("None", type(None)),
        ("list[int]", list), ("List[int]", list), ("typing.Sequence[str]", list), ("set[str]", set),
        ("frozenset[int]", frozenset), ("dict[str, list[int]]", dict), ("tuple[int, ...]", tuple),
        ("'int'", int), ("Annotated[int, 3]", int), ("Literal['a', 'b']", str),
    ],
)  # fmt: skip
def test_an_annotation_says_the_type(annotation: str, kind: type) -> None:
    for (value,) in drawn(strategy_from(f"def f(a: {annotation}): ...", "f"), 20):
        assert type(value) is kind


def test_annotations_of_parts_are_followed() -> None:
    code = "def f(a: dict[str, list[bool]], b: tuple[int, str], c: int | None, d: Optional[list[int]]) -> int:\n    return 0"
    for a, b, c, d in drawn(strategy_from(code, "f")):
        assert all(type(key) is str and all(type(each) is bool for each in value) for key, value in a.items())
        assert [type(each) for each in b] == [int, str]
        assert c is None or type(c) is int
        assert d is None or all(type(each) is int for each in d)


@pytest.mark.parametrize("text", ["def f(a: str): pass", "def f(a: str) -> int", "def f(a: str) -> int:", "f(a: str)"])
def test_a_signature_is_enough(text: str) -> None:
    assert all(type(each) is str for (each,) in drawn(strategy_from(text, "f"), 10))


def test_methods_lose_self_and_needless_arguments_are_left_out() -> None:
    code = "class A:\n    def f(self, a: int, b=3, *c, d=4): ...\n    @staticmethod\n    def g(a: int): ..."
    assert {len(args) for args in drawn(strategy_from(code, "A.f"), 10)} == {1}
    assert {len(args) for args in drawn(strategy_from(code, "A.g"), 10)} == {1}


def test_without_any_hint_there_are_several_types() -> None:
    kinds = {type(each) for args in drawn(strategy_from("def f(a, b): ...", "f")) for each in args}
    assert kinds == {int, str, list}


def test_nothing_known_is_said() -> None:
    with pytest.raises(PropertyError, match="give its signature or an example"):
        strategy_from("def g(): ...", "f")


def test_code_is_not_run(tmp_path: Any) -> None:
    place = tmp_path / "ran"
    code = f"open({str(place)!r}, 'w')\ndef f(a: open({str(place)!r}, 'w')): ..."
    strategy_from(code, "f", [((1,), 1)])
    assert not place.exists()


def test_code_that_is_no_python_hinders_no_examples() -> None:
    assert drawn(strategy_from("def f(a:\n  (((", "f", [((3,), 1)]), 5)


def test_numbers_stay_near_to_what_was_seen() -> None:
    assert set(first(4)) <= set(range(13))
    assert {0, 1} <= set(first(4))
    assert set(first(3, 1, 8)) <= set(range(1, 14))
    assert min(first(30, 40, 50)) == 2
    assert min(first(-4, 3, 7)) < 0
    assert all(0.25 <= each <= 6 for each in first(0.25, 1.5, 4.0))
    assert all(type(each) is bool for each in first(True, False))
    assert max(first(10**5000)) <= 10**19


def test_texts_have_letters_of_the_same_classes() -> None:
    assert set("".join(first("()(", ")("))) <= set("()")
    letters = set("".join(first("hello world")))
    assert letters <= set("abcdefghijklmnopqrstuvwxyz ")
    assert len(letters) > 8
    assert "" in first("hello", "world", "there")
    assert set("".join(first("MCMXCIV", "XIV", "LVIII", "MMXXII", "CCCXC"))) <= set("MCXIVL")
    assert {len(each) for each in first("a", "b", "c")} == {1}


def test_lists_are_generalised_by_their_elements() -> None:
    found = first([1, 2], [], [3])
    assert [] in found
    assert max(map(len, found)) <= 8
    assert [] not in first([1, 2], [5], [3])
    assert all(
        len(each) == 2 and isinstance(each, list) for inside in first([[1, 2]], [[3, 4], [5, 6]]) for each in inside
    )
    assert {type(each) for inside in first([1, None], [None]) for each in inside} == {int, type(None)}


def test_fixed_tuples_and_free_ones() -> None:
    assert all([type(each) for each in value] == [int, str] for value in first((1, "a"), (2, "b")))
    assert len({len(value) for value in first((1,), (2, 3))}) > 2


def test_pairs_from_json_and_from_python_are_pairs() -> None:
    for pairs in first([(1, 2), (3, 4)], [[1, 2], [5, 6], [3, 9]]):
        assert all(type(pair) is list and [type(each) for each in pair] == [int, int] for pair in pairs)


def test_tables_stay_rectangular() -> None:
    for table in first([[1, 2], [3, 4]], [[1, 2, 3]], [[1], [2]]):
        assert len({len(row) for row in table}) == 1
    assert all(len(row) == len(table) for table in first([[1, 2], [3, 4]], [[1]], [[1, 2, 3]] * 3) for row in table)


def test_dictionaries_and_records() -> None:
    assert all(type(key) is str and type(value) is int for each in first({"a": 1}, {}) for key, value in each.items())
    assert all(each.keys() == {"x", "y"} for each in first(*[{"x": at, "y": "a"} for at in range(3)]))


def test_lists_within_lists_to_any_depth() -> None:
    def depth(value: Any) -> int:
        return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0

    assert {depth(each) for each in first([1, [2, [3]]], [[], 4])} >= {1, 2, 3}


def test_words_and_numbers_keep_their_places() -> None:
    for tokens in first([3.0, 5.0, "+"], [2.0, 2.0, "+", 1.0, "-"]):
        assert [isinstance(each, str) for each in tokens] in ([False, False, True], [False, False, True, False, True])


def test_values_of_other_types_are_taken_as_they_are() -> None:
    assert set(first(2j, 3j)) == {2j, 3j}


def test_examples_weigh_more_than_an_annotation_that_is_wrong() -> None:
    assert {type(each) for each in first("a", "b", code="def f(a: int): ...")} == {str}
    assert {type(each) for each in first(1, 2, code="def f(a: list[int] | int): ...")} == {list, int}
    assert {type(each) for each in first([1, 2], code="def f(a: tuple[int, int]): ...")} == {tuple}
    assert all(len(each) != 2 or each for each in first([1, 2, 3], code="def f(a: tuple[int, int]): ..."))


def test_calls_with_more_and_with_fewer_arguments() -> None:
    assert {len(args) for args in drawn(inputs((1,), (2, 3)))} == {1, 2}


RELATED = {
    "ascending": ([([1, 3, 5],), ([2, 2, 9],), ([4],)], lambda a: a == sorted(a)),
    "distinct": ([([5, 1, 3],), ([2, 9, 4],), ([4],)], lambda a: len(set(a)) == len(a)),
    "index": ([([5, 1, 5], 0), ([2, 2, 4], 2), ([4, 3], 1)], lambda a, n: 0 <= n < len(a)),
    "count": ([([5, 1, 5], 3), ([2, 2, 4], 1), ([4, 3], 2)], lambda a, n: 1 <= n <= len(a)),
    "present": ([([50, 10, 50], 50), ([20, 20, 40], 40), ([40, 30], 30)], lambda a, n: n in a),
    "same length": ([([5, 1], [2, 3]), ([1], [2]), ([4, 1, 4], [3, 5, 5])], lambda a, b: len(a) == len(b)),
    "texts": ([("ab", "cd"), ("a", "b"), ("abc", "bcd")], lambda a, b: len(a) == len(b)),
    "below": ([([5, 1, 5], 9), ([2, 2], 4), ([], 2)], lambda a, n: all(0 <= each < n for each in a)),
    "ascending and distinct": ([([1, 3, 5], 9), ([2, 5, 9], 1), ([4], -3)], lambda a, _: a == sorted(set(a))),
}  # fmt: skip


@pytest.mark.parametrize("name", RELATED)
def test_what_all_examples_have_is_kept(name: str) -> None:
    rows, holds = RELATED[name]
    found = inputs(*rows)
    assert found.preconditions
    assert all(holds(*args) for args in drawn(found))
    assert not inputs(*rows[:2]).preconditions


def test_a_relation_that_one_example_lacks_is_not_kept() -> None:
    found = inputs(([3, 1, 3],), ([1, 2, 3],), ([1, 2, 2],))
    assert found.preconditions == ()
    assert any(a != sorted(a) for (a,) in drawn(found))


def test_a_search_finds_and_does_not_find() -> None:
    found = drawn(inputs(([30, 10, 50], 50), ([20, 20, 40], 99), ([90, 30], 30)))
    assert {args[1] in args[0] for args in found} == {True, False}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)
ROWS = st.integers(1, 3).flatmap(lambda n: st.lists(st.tuples(*[VALUES] * n), min_size=1, max_size=4))
NUMBERS = st.lists(
    st.tuples(st.lists(st.integers(0, 6), max_size=4), st.integers(0, 4), st.lists(st.integers(0, 6), max_size=4)),
    min_size=3, max_size=4,
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(ROWS | NUMBERS, st.data())
def test_any_examples_give_a_strategy_and_pass_their_own_preconditions(rows: list[tuple[Any, ...]], data: Any) -> None:
    found = inputs(*rows)
    for text in found.preconditions:
        assert all(eval(text)(row) for row in rows)
    space = {"st": st, "nan": float("nan"), "inf": float("inf")}
    assert len(data.draw(eval(found.strategy, space))) == len(rows[0])


def test_huge_examples_give_small_inputs() -> None:
    found = inputs((list(range(10**5)), "x" * 10**6, 10**30), ([], "", 0), ([1], "y", 1))
    assert len(found.strategy) < 2000
    assert all(len(a) <= 8 and len(b) <= 8 and c <= 10**19 for a, b, c in drawn(found, 20))


def test_the_texts_serve_a_check() -> None:
    found = inputs(([3, 1, 2], 1), ([5, 4], 0), ([9, 9, 9], 2))
    text = "def is_one(args, result):\n    return result == args[0][args[1]]\n"
    propset = PropertySet("f", found.strategy, preconditions=list(found.preconditions), examples=[(([1], 0), 1)])
    propset = PropertySet.from_source(propset.to_source() + text)
    report = check("def f(a, n):\n    return a[n]", propset, sandbox="bubblewrap", max_examples=30, total_timeout=60)
    assert report.status == "ok"
    assert report.stats.examples == 30
