"""Python stopped at a line; the tests that reach a function."""

from __future__ import annotations

import sys

import pytest

from opensage_toolkits.code.inspecting import covers, debug
from opensage_toolkits.code.lookup import Lookup

SHOP = """\
class Odd:
    def __repr__(self):
        raise OSError("no repr")


def total(values):
    odd, big = Odd(), list(range(10_000))
    result = 0
    for value in values:
        result += value

    return result


def main(words):
    return total([len(word) for word in words])


if __name__ == "__main__":
    import sys

    print("begun")
    main(sys.argv[1:])
    main([None])
"""
TESTS = """\
import threading
import shop

def test_direct():
    assert shop.total([1, 2]) == 3

def test_through_a_thread():
    thread = threading.Thread(target=shop.main, args=(["a"],))
    thread.start()
    thread.join()

def test_other():
    shop.Odd()

def test_fails():
    expected = 4
    assert shop.total([1]) == expected
"""


@pytest.fixture
def work(tmp_path, monkeypatch):
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "test_shop.py").write_text(TESTS)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (tmp_path / ".venv" / "bin" / "python").chmod(0o755)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    return tmp_path


def test_a_script_stops_at_a_line(work):
    found = debug("shop.py one three", "shop.py:10", ["result + 1", "nope", "odd"], "value > 3", root=work)
    assert (found["stopped"], found["file"], found["line"], found["function"]) == ("breakpoint", "shop.py", 10, "total")
    assert (found["locals"]["result"], found["locals"]["value"]) == ("3", "5")
    assert found["locals"]["odd"].startswith("<Odd")
    assert len(found["locals"]["big"]) < 200
    assert found["expressions"]["result + 1"] == "4"
    assert found["expressions"]["nope"].startswith("NameError")
    assert [frame["function"] for frame in found["stack"]] == ["total", "main", "<module>"]
    assert "> 10         result += value" in found["source"]
    assert "begun" in found["output"]


def test_the_hit_and_the_next_line_with_code(work):
    found = debug("shop.py a bb ccc", "shop.py:10", hit=3, root=work)
    assert (found["hits"], found["locals"]["value"]) == (3, "3")
    assert debug("shop.py a", "shop.py:11", root=work)["line"] == 12


def test_a_test_stops_at_a_line(work):
    found = debug("test_shop.py::test_direct", "shop.py:12", ["values"], root=work)
    assert found["expressions"] == {"values": "[1, 2]"}
    assert [frame["function"] for frame in found["stack"]] == ["total", "test_direct"]


def test_without_a_breakpoint_it_stops_at_the_exception(work):
    found = debug("shop.py", root=work)
    assert (found["stopped"], found["raised_at"]) == ("exception", 16)
    assert found["error"].startswith("TypeError")
    found = debug("test_shop.py::test_fails", root=work)
    assert (found["stopped"], found["locals"]["expected"], found["raised_at"]) == ("exception", "4", 17)


def test_what_never_comes_is_said(work):
    found = debug("test_shop.py::test_other", "shop.py:12", root=work)
    assert (found["stopped"], found["why"]) == ("ended", "shop.py:12 was reached 0 times")
    (work / "slow.py").write_text("import time\ntime.sleep(60)\nx = 1\n")
    assert debug("slow.py", "slow.py:3", seconds=1.5, root=work)["stopped"] == "timeout"
    (work / "dies.py").write_text("import os\nos._exit(3)\nx = 1\n")
    assert debug("dies.py", "dies.py:3", root=work)["why"] == "it ended with exit code 3"
    assert "no code at line 99" in debug("dies.py", "dies.py:99", root=work)["output"]


@pytest.mark.parametrize(
    ("target", "place", "said"),
    [
        ("", "", "target is a script"),
        ("--version", "", "target is a script"),
        ("nope.py", "", "there is no file"),
        ("shop.py", "shop.py", "must be file:line"),
        ("shop.py", "../x.py:1", "outside"),
        ("../shop.py", "", "outside"),
    ],
)
def test_bad_targets_are_refused(work, target, place, said):
    with pytest.raises(ValueError, match=said):
        debug(target, place, root=work)


def symbol(work, name):
    with Lookup(work, work / "index.sqlite") as lookup:
        return lookup.one(name)


def test_the_tests_that_reach_a_function(work):
    found = covers(symbol(work, "total"), root=work)
    assert found["ran"] == 4
    assert {row["test"] for row in found["tests"]} == {
        "test_shop.py::test_direct",
        "test_shop.py::test_through_a_thread",
        "test_shop.py::test_fails",
    }
    found = covers(symbol(work, "main"), "test_shop.py", root=work)
    assert found["tests"] == [{"test": "test_shop.py::test_through_a_thread", "calls": 1}]
    assert covers(symbol(work, "Odd.__repr__"), "test_shop.py::test_other", root=work)["tests"] == []
    with pytest.raises(ValueError, match="is a class, not a Python function"):
        covers(symbol(work, "Odd"), root=work)


def test_without_pytest_the_tests_of_unittest(work):
    (work / ".venv" / "bin" / "python").write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    (work / "test_unit.py").write_text(
        "import unittest\nimport shop\nclass Cases(unittest.TestCase):\n"
        "    def test_one(self): shop.total([])\n    def test_two(self): pass\n"
    )
    (work / "test_shop.py").unlink()
    found = covers(symbol(work, "total"), root=work)
    assert (found["ran"], found["tests"]) == (2, [{"test": "test_unit.Cases.test_one", "calls": 1}])


def test_tests_that_never_end_still_tell_what_ran(work):
    (work / "test_shop.py").write_text(TESTS + "\ndef test_zz():\n    import time\n    time.sleep(60)\n")
    found = covers(symbol(work, "main"), seconds=6, root=work)
    assert found["reached_by"] == 1
    assert "did not end in 6 s" in found["note"]


def test_several_definitions_are_said(work):
    (work / "other.py").write_text("def total(): ...\n")
    with pytest.raises(ValueError, match=r"total is defined 2 times: take one of other.py:total, shop.py:total"):
        symbol(work, "total")
