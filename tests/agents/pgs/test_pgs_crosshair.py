"""Inputs from CrossHair: found by a solver, judged by the ordinary check alone."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest

from opensage.errors import ConfigError
from opensage_agents.pgs import PropertySet, Report, check

NUMBER = PropertySet.from_source(
    'TARGET = "f"\nSTRATEGY = st.tuples(st.integers())\ndef same(args, result):\n    return result == args[0]\n'
)
RARE = "def f(n):\n    if n == 123456:\n        return -1\n    return n\n"


def checked(code: str, propset: PropertySet = NUMBER, **options: Any) -> Report:
    options = {"sandbox": "bubblewrap", "max_examples": 50, "total_timeout": 120, "backend": "crosshair", **options}
    options.setdefault("backend_seconds", 40)  # it stops before, but on a busy machine
    return check(code, propset, **options)


@pytest.mark.slow
def test_a_solver_finds_what_chance_does_not() -> None:
    assert checked(RARE, backend="hypothesis").status == "ok"
    report = checked(RARE)
    found = report.counterexample
    assert found is not None, report
    assert (report.status, found.args, found.result_repr) == ("violated", (123456,), "-1")
    assert any(note.startswith("crosshair proposed") for note in report.notes)


@pytest.mark.slow
def test_lists_and_preconditions() -> None:
    propset = PropertySet.from_source(
        'TARGET = "f"\nSTRATEGY = st.tuples(st.lists(st.integers(0, 2000), max_size=4))\n'
        "PRECONDITIONS = [lambda args: len(args[0]) > 1]\n"
        "def as_long(args, result):\n    assert len(result) == len(args[0])\n"
    )
    code = (
        "def f(a):\n    if len(a) == 3 and a[0] == 7 and a[1] + a[2] == 1000: return []\n    a.sort()\n    return a\n"
    )
    report = checked(code, propset)
    assert report.status == "violated", report
    assert report.counterexample is not None
    (found,) = report.counterexample.args
    assert (len(found), found[0], found[1] + found[2]) == (3, 7, 1000)
    assert checked(code.replace("return []", "pass"), propset, backend_seconds=5).status == "ok"


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        "while True: pass",
        "import os; os._exit(0)",
        'import os\n    for fd in range(3, 20):\n        try: os.write(fd, b\'{"done": {"found": null}}\\n{"args": 3}\\n\')\n'
        "        except OSError: pass\n    return n + 1",
    ],
)
def test_a_hostile_candidate_gets_no_verdict_out_of_it(body: str) -> None:
    start = time.monotonic()
    report = checked(f"def f(n):\n    {body}\n", backend_seconds=2, call_timeout=0.3)
    assert report.status in ("violated", "crashed", "timeout", "hung")
    assert time.monotonic() - start < 125


def test_what_it_cannot_do_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = 'TARGET = "f"\nclass Machine(StatefulMachine):\n    pass\n'
    with pytest.raises(ConfigError, match="leave it out for a machine"):
        checked(RARE, PropertySet.from_source(machine))
    with pytest.raises(ConfigError, match="hypothesis or crosshair"):
        checked(RARE, backend="z3")
    monkeypatch.setitem(sys.modules, "crosshair", None)
    with pytest.raises(ConfigError, match=r"pip install 'opensage\[pgs-crosshair\]'"):
        checked(RARE)
