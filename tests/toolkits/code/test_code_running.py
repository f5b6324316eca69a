"""Test runs with structured results."""

from __future__ import annotations

import sys
import time

import pytest

from opensage_toolkits.code.process import run
from opensage_toolkits.code.running import python, run_tests

TESTS = """
import pytest
from shop import total

def test_good():
    assert total([1, 2]) == 3

def test_bad():
    values = [1]
    assert total(values) == 5, "sum of one"

def test_raises():
    total(None)

@pytest.mark.skip
def test_skipped(): ...

@pytest.fixture
def broken():
    raise OSError("no disk")

def test_fixture(broken): ...
"""
UNIT = """
import unittest
from shop import total

class Cases(unittest.TestCase):
    def test_good(self):
        self.assertEqual(total([1]), 1)

    def test_bad(self):
        self.assertEqual(total([1]), 5, "sum of one")

    def test_raises(self):
        total(None)

    def test_parts(self):
        for n in range(3):
            with self.subTest(n=n):
                self.assertLess(n, 2)

    @unittest.skip("later")
    def test_skipped(self): ...
"""


@pytest.fixture
def work(tmp_path, monkeypatch):
    (tmp_path / "shop.py").write_text("def total(values):\n    return sum(values)\n")
    (tmp_path / "test_shop.py").write_text(TESTS)
    (tmp_path / "test_unit.py").write_text(UNIT)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", ":".join(path for path in sys.path if "site-packages" in path))
    return tmp_path


def test_pytest_failures_have_place_message_and_assertion(work):
    report = run_tests(path="test_shop.py", root=work)
    assert (report.runner, report.status, report.exit_code) == ("pytest", "failed", 1)
    assert (report.passed, report.failed, report.errors, report.skipped) == (1, 2, 1, 1)
    bad, raises, fixture = report.failures
    assert (bad.test, bad.file, bad.line) == ("test_shop.py::test_bad", "test_shop.py", 10)
    assert bad.message.startswith("AssertionError: sum of one")
    assert bad.assertion.startswith("assert total(values) == 5")
    assert (raises.file, raises.line) == ("shop.py", 2)
    assert "NoneType" in raises.message
    assert (fixture.kind, fixture.line) == ("error", 20)
    assert report.output == ""


def test_one_test_of_many(work):
    report = run_tests(f"{python()} -m pytest -x", "test_shop.py::test_good", root=work)
    assert (report.runner, report.status, report.passed) == ("pytest", "passed", 1)


def test_a_file_that_does_not_import_is_an_error_with_its_line(work):
    (work / "test_shop.py").write_text("import nothing_there\n")
    report = run_tests(path="test_shop.py", root=work)
    assert (report.status, report.errors) == ("failed", 1)
    assert (report.failures[0].file, report.failures[0].line) == ("test_shop.py", 1)
    assert "nothing_there" in str(report.shown())


def test_unittest(work):
    report = run_tests(f"{python()} -m unittest test_unit", root=work)
    assert (report.runner, report.status) == ("unittest", "failed")
    assert (report.passed, report.failed, report.errors, report.skipped) == (1, 2, 1, 1)
    by_name = {one.test.split(".")[-1].split(" ")[0]: one for one in report.failures}
    assert (by_name["test_bad"].file, by_name["test_bad"].line) == ("test_unit.py", 10)
    assert by_name["test_bad"].assertion == 'self.assertEqual(total([1]), 5, "sum of one")'
    assert (by_name["test_raises"].kind, by_name["test_raises"].file) == ("error", "shop.py")
    assert run_tests(f"{python()} -m unittest", "test_unit.py", root=work).failed == 2


def test_without_pytest_unittest_is_taken(work, monkeypatch):
    monkeypatch.delenv("PYTHONPATH")
    (work / "bin" / "python").unlink()
    (work / "bin" / "python").write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    (work / "bin" / "python").chmod(0o755)
    (work / "test_shop.py").unlink()
    assert run_tests(root=work).runner == "unittest"


def test_any_command_by_its_exit_code(work):
    assert run_tests("true", root=work).status == "passed"
    report = run_tests("echo 'shop.py:2: wrong'; exit 3", root=work)
    assert (report.runner, report.status, report.exit_code) == ("command", "failed", 3)
    assert (report.failures[0].file, report.failures[0].line) == ("shop.py", 2)
    assert "wrong" in report.output
    assert run_tests("no-such-program", root=work).exit_code == 127
    assert run_tests("echo 'unclosed", root=work).status == "failed"


def test_time_ends_the_whole_group(work):
    begun = time.monotonic()
    report = run_tests("sleep 60 & sleep 60", seconds=0.5, root=work)
    assert report.status == "timeout"
    assert time.monotonic() - begun < 10
    (work / "test_shop.py").write_text("import time\ndef test_a(): time.sleep(60)\n")
    assert run_tests(path="test_shop.py", seconds=2, root=work).status == "timeout"


def test_output_is_bounded(work):
    done = run("yes | head -c 3000000", work)
    assert len(done.output) < 70_000
    assert "bytes left out" in done.output
    assert len(run_tests("yes | head -c 3000000; exit 1", root=work).output) < 3100
    many = "import pytest\n@pytest.mark.parametrize('n', range(200))\ndef test_a(n): assert n < 0, 'x' * 5000\n"
    (work / "test_shop.py").write_text(many)
    shown = run_tests(path="test_shop.py", root=work).shown()
    assert (len(shown["failures"]), shown["more_failures"], shown["failed"]) == (20, 180, 200)
    assert len(str(shown)) < 30_000


def test_no_tests_and_a_runner_that_fails(work):
    (work / "test_shop.py").write_text("")
    assert run_tests(path="test_shop.py", root=work).status == "none"
    report = run_tests(path="test_missing.py", root=work)
    assert report.status == "error"
    assert "test_missing.py" in report.output
    assert run_tests("pytest --no-such-option", root=work).status == "error"


def test_a_report_that_the_tests_wrote_over_is_not_believed_to_pass(work):
    (work / "test_shop.py").write_text(
        "import os, sys\ndef test_a():\n"
        "    place = next(a.split('=')[1] for a in sys.argv if 'junitxml' in a)\n"
        "    open(place, 'w').write('<!DOCTYPE x [<!ENTITY a \"b\">]><x>&a;</x>')\n    os._exit(0)\n"
    )
    assert run_tests(path="test_shop.py", root=work).status == "none"


def test_bad_paths_are_refused(work):
    with pytest.raises(ValueError, match="no path"):
        run_tests(path="--co", root=work)
    with pytest.raises(ValueError, match="write it into the command"):
        run_tests("make test", "x", root=work)
