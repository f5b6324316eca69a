"""`check`: outcomes, bad code, bad properties, selection."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from opensage.errors import ConfigError
from opensage_agents.pgs import Property, PropertyError, PropertySet, Report, check, find_vacuous
from opensage_agents.pgs.cli import told
from opensage_agents.pgs.inside import codec
from opensage_agents.pgs.mutants import mutants

HEAD = 'TARGET = "f"\nSTRATEGY = st.tuples(st.lists(st.integers(-9, 99)))\n'
SORTED = HEAD + 'def is_sorted(args, result):\n    assert result == sorted(args[0]), "not sorted"\n'
NUMBER = 'TARGET = "f"\nSTRATEGY = st.tuples(st.integers(0, 50))\n'


def checked(code: str, text: str, **options: Any) -> Report:
    options = {"sandbox": "bubblewrap", "max_examples": 30, "total_timeout": 60, "call_timeout": 0.3, **options}
    return check(code, PropertySet.from_source(text), **options)


def test_a_violation_is_shrunk_and_the_same_in_each_run() -> None:
    code = "def f(a):\n    return sorted(set(a))"
    first = checked(code, SORTED)
    assert first.status == "violated"
    found = first.counterexample
    assert found is not None
    assert (found.args, found.args_repr, found.result_repr) == (([0, 0],), "[0, 0]", "[0]")
    assert found.property == "is_sorted"
    assert found.message == "not sorted"
    assert len(found.args_repr) < len(found.shrunk_from)
    assert checked(code, SORTED).to_dict(times=False) == first.to_dict(times=False)
    text = told(first, "f")
    assert "f([0, 0]) == [0]" in text
    assert "shrunk from f(" in text


def test_code_that_holds() -> None:
    report = checked("def f(a):\n    a.sort()\n    return a", SORTED)
    assert report.status == "ok"
    assert report.notes == ("the candidate changes its arguments",)
    assert report.stats.evaluations == {"is_sorted": report.stats.calls}


def test_the_checker_sees_the_arguments_before_and_after() -> None:
    text = HEAD + "def unchanged(args, result, after):\n    assert args == after, f'{args} became {after}'\n"
    report = checked("def f(a):\n    a.append(1)", text)
    assert report.counterexample is not None
    assert report.counterexample.message == "([],) became ([1],)"


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ("return 1 // n", "crashed", "ZeroDivisionError"),
        ("return f(n + 1)", "recursion", "RecursionError"),
        pytest.param("import time\n    return time.sleep(1e6)", "hung", "waits", marks=pytest.mark.slow),
    ],
)
def test_each_outcome_has_its_status(body: str, status: str, said: str) -> None:
    report = checked(f"def f(n):\n    {body}", NUMBER + "def any_result(args, result):\n    return True\n")
    assert report.status == status
    assert said in report.message


@pytest.mark.slow
def test_slow_and_endless_are_told_apart() -> None:
    work = "def f(n):\n    import time\n    end = time.process_time() + 0.6\n    while {}: pass\n    return n"
    text = NUMBER + "def any_result(args, result):\n    return True\n"
    slow = checked(work.format("time.process_time() < end"), text, max_examples=2)
    endless = checked(work.format("True"), text, max_examples=2)
    assert {slow.status, endless.status} <= {"timeout", "hung"}
    assert endless.status == "hung"


def test_the_priority_is_violation_before_crash() -> None:
    code = "def f(n):\n    if n < 10: raise ValueError('small')\n    return n if n < 20 else -n"
    report = checked(code, NUMBER + "def same(args, result):\n    return result == args[0]\n", max_examples=60)
    assert report.status == "violated"
    assert report.counterexample is not None
    assert report.counterexample.args == (20,)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def f(a:\n", "line 1"),
        ("def g(a):\n    return a\n", "does not define f"),
        ("f = 3\n", "not a function"),
        ("def f(a, b):\n    return a\n", "takes 2 arguments"),
        ("import no_such_module\ndef f(a):\n    return a\n", "no_such_module"),
    ],
)
def test_invalid_code(code: str, said: str) -> None:
    report = checked(code, SORTED)
    assert report.status == "invalid_code"
    assert said in report.message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEAD + "def bad(args, result):\n    return result.nothing\n", "AttributeError"),
        (HEAD + "def slow(args, result):\n    while True: pass\n", "CPU time"),
        ('TARGET = "f"\nSTRATEGY = st.lists(st.integers())\ndef p(args, result):\n    return True\n', "tuples"),
        ('TARGET = "f"\nSTRATEGY = no_such()\ndef p(args, result):\n    return True\n', "no_such"),
        (HEAD + "PRECONDITIONS = [lambda args: False]\ndef p(args, result):\n    return True\n", "filter"),
        ("open('/etc/shadow').read()\n" + SORTED, "line 1"),
    ],
)
def test_an_unusable_property_is_the_testers_fault(text: str, said: str) -> None:
    report = checked("def f(a):\n    return sorted(a)", text)
    assert report.status == "invalid_property"
    assert said in report.message


def test_one_bad_property_does_not_hide_the_others() -> None:
    report = checked("def f(a):\n    return sorted(set(a))", SORTED + "def bad(args, result):\n    return 1 / 0\n")
    assert report.status == "violated"
    assert list(report.invalid) == ["bad"]


def test_a_result_that_changes_is_no_counterexample() -> None:
    code = "import itertools\ncount = itertools.count()\ndef f(n):\n    return n if next(count) % 5 else -1"
    report = checked(code, NUMBER + "def same(args, result):\n    return result == args[0]\n")
    assert report.status == "inconclusive"
    assert any(note.startswith("flaky") for note in report.notes)


def test_state_between_calls_can_be_shut_out() -> None:
    code = "seen = []\ndef f(n):\n    seen.append(n)\n    return len(seen)"
    text = NUMBER + "def is_one(args, result):\n    return result == 1\n"
    assert checked(code, text, fresh_per_call=True).status == "ok"


def test_public_examples_are_run_first_and_a_wrong_answer_is_told() -> None:
    text = NUMBER + "EXAMPLES = [((3,), 4)]\ndef positive(args, result):\n    return result >= 0\n"
    report = checked("def f(n):\n    return n", text)
    assert report.status == "violated"
    assert report.counterexample is not None
    assert (report.counterexample.outcome, report.counterexample.message) == ("wrong_answer", "expected 4")


def test_earlier_counterexamples_are_replayed() -> None:
    text = NUMBER + "def not_that_one(args, result):\n    return result == args[0]\n"
    report = checked("def f(n):\n    return n if n != 777 else 0", text, replay=[(777,)])
    assert report.counterexample is not None
    assert report.counterexample.args == (777,)
    assert not report.counterexample.shrunk


def test_the_filter_drops_what_rejects_a_pair() -> None:
    text = SORTED + "def ascends_strictly(args, result):\n    return all(a < b for a, b in zip(result, result[1:]))\n"
    text += "@prop(when=lambda args: len(args[0]) > 9)\ndef of_long_ones(args, result):\n    return True\n"
    report = PropertySet.from_source(text).validate([(([2, 1, 2],), [1, 2, 2])], sandbox="bubblewrap")
    assert report.kept == ("is_sorted",)
    assert report.undecided == ("of_long_ones",)
    assert "[2, 1, 2] -> [1, 2, 2]" in report.dropped["ascends_strictly"]


def test_vacuous_properties_are_found() -> None:
    code = (
        "def f(a):\n    out = []\n    for x in a:\n        at = 0\n        while at < len(out) and out[at] <= x:\n"
        "            at += 1\n        out.insert(at, x)\n    return out"
    )
    text = SORTED + "def always(args, result):\n    return True\ndef a_list(args, result):\n"
    text += "    return isinstance(result, list)\n@prop(when=lambda args: False)\ndef never(args, result):\n    return True\n"
    report = find_vacuous(code, PropertySet.from_source(text), sandbox="bubblewrap", inputs=15)
    assert report.mutants >= 5
    assert set(report.vacuous) == {"always", "a_list", "never"}


def test_property_files_are_read_without_running_them() -> None:
    text = "import os\n" + SORTED + 'ADAPTER = """\ndef call(function, a):\n    return function(a)\n"""\n'
    propset = PropertySet.from_source(text)
    assert (propset.target, propset.names, propset.setup) == ("f", ["is_sorted"], "import os")
    assert PropertySet.from_source(propset.to_source()) == propset
    with pytest.raises(PropertyError, match="no STRATEGY"):
        PropertySet.from_source('TARGET = "f"')
    with pytest.raises(PropertyError, match="line 1"):
        PropertySet.from_source("def (")


def always_true(args: Any, result: Any) -> bool:
    return True


def test_a_property_may_be_a_function_of_a_file() -> None:
    propset = PropertySet("f", "st.tuples()", [Property("always_true", always_true, kind="output", source="human")])
    again = PropertySet.from_source(propset.to_source())
    assert (again.properties[0].kind, again.properties[0].source) == ("output", "human")
    with pytest.raises(PropertyError, match="give the property as text"):
        PropertySet("f", "st.tuples()", [Property("len", len)]).to_source()


@pytest.mark.parametrize(
    "value", [None, 3, 1 << 70, -(1 << 4000), 0.1, "é\ud800", b"x", (1, [2]), {(1, 2): {3}}, frozenset({1}), 2j]
)
def test_values_come_back_as_they_were(value: object) -> None:
    assert codec.decode(codec.encode(value)) == value


def test_iterators_are_drained_and_objects_told() -> None:
    assert codec.encode(iter([1, 2])) == [1, 2]
    assert repr(codec.decode(codec.encode(object()))) == "<object object>"
    with pytest.raises(codec.TooLarge):
        codec.encode(iter(int, 1))
    nested: list[Any] = []
    nested.append(nested)
    with pytest.raises(codec.TooLarge):
        codec.encode(nested)


def test_mutants_are_programs_that_differ() -> None:
    code = "def f(a, b):\n    if a < b:\n        return a + 1\n    return b"
    found = mutants(code, "f")
    assert len(set(found)) == len(found) >= 5
    for each in found:
        compile(each, "m", "exec")


def test_without_hypothesis_the_error_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    with pytest.raises(ConfigError, match=r"pip install 'opensage\[pgs\]'"):
        checked("def f(a):\n    return a", SORTED)
