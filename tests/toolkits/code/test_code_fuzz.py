"""The fuzzer finds what is hidden behind comparisons, and makes it small."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opensage_toolkits.code.fuzz_driver import minimised
from opensage_toolkits.code.inspecting import fuzz
from opensage_toolkits.code.lookup import Lookup

SHOP = """\
import os
import time


def parse(text: str) -> int:
    if text.startswith("cfg"):
        if len(text) > 5 and text[4] == "=":
            raise KeyError(text)
    return len(text)


def mean(values: list[int]) -> float:
    return sum(values) / len(values)


def checked(text: str) -> int:
    return int(text)


def deep(n: int):
    if n > 1000:
        raise OverflowError(n)
    return n


def dies(data: bytes):
    if b"die!" in data:
        os._exit(7)


def slow(text: str):
    while "loop" in text:
        time.sleep(0.01)


def plain(a, b=1):
    return a + b


def hungry(n: int):
    return bytearray(1 << 40) if n else None


class Shop:
    @staticmethod
    def sell(x: int) -> float:
        return 1 / (x - 100)
"""


@pytest.fixture
def work(tmp_path):
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "shop.py").write_text(SHOP)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    (tmp_path / ".venv" / "bin" / "python").chmod(0o755)
    return tmp_path


def found(work, name, seconds=2.0, **options):
    with Lookup(work, work / "index.sqlite") as lookup:
        symbol = lookup.one(name)
    return fuzz(symbol, seconds, root=work, **options)


def test_behind_nested_comparisons(work):
    report = found(work, "parse", 4.0)
    (crash,) = report["crashes"]
    assert (crash["file"], crash["line"]) == ("pkg/shop.py", 8)
    assert crash["error"].startswith("KeyError")
    text = crash["call"].removeprefix("parse(").removesuffix(")")
    assert len(eval(text)) == 6
    assert report["lines_reached"] >= 3
    assert report["calls"] > 100


def test_lists_ints_and_methods(work):
    assert found(work, "mean", 1.0)["crashes"][0]["call"] == "mean([])"
    assert found(work, "deep", 1.0)["crashes"][0]["call"] == "deep(1001)"
    assert found(work, "Shop.sell", 1.0)["crashes"][0]["call"] == "Shop.sell(100)"


def test_exceptions_that_are_right_are_none(work):
    assert found(work, "checked", 1.0)["crashes"][0]["error"].startswith("ValueError")
    assert found(work, "checked", 1.0, expected=["ValueError"])["crashes"] == []


def test_the_types_can_be_given(work):
    assert found(work, "plain", 0.5, types=["int", "str"])["crashes"][0]["error"].startswith("TypeError")
    said = found(work, "plain", 0.5)
    assert "the type of a is not known" in said["output"]
    assert "name 'dict' is not defined" in found(work, "plain", 0.5, types=["list[dict]", "int"])["output"]


def test_what_ends_or_holds_the_process(work):
    report = found(work, "dies", 5.0)
    assert "ended with 7" in report["ended"]
    assert "die!" in report["ended"]
    (hang,) = found(work, "slow", 5.0)["crashes"]
    assert hang["error"] == "it did not end in 1 s"
    assert "loop" in hang["call"]
    assert found(work, "hungry", 0.5)["crashes"][0]["error"].startswith("MemoryError")


def test_the_same_seed_gives_the_same_crash(work):
    assert found(work, "mean", 0.5, seed=3)["crashes"] == found(work, "mean", 0.5, seed=3)["crashes"]


def test_only_python_functions(work):
    (work / "a.js").write_text("function f() {}\n")
    with pytest.raises(ValueError, match="not a Python function"):
        found(work, "f")


@given(st.text(max_size=60), st.sampled_from("abcx0"))
def test_minimised_text_still_holds_and_no_character_can_go(text, wanted):
    def holds(value):
        return wanted in value

    value = text + wanted
    assert minimised(value, holds) == wanted


@given(st.lists(st.integers(), max_size=30), st.integers())
def test_minimised_lists(values, wanted):
    small = minimised([*values, wanted], lambda value: any(each >= wanted for each in value))
    assert len(small) == 1
    assert small[0] >= wanted
    assert abs(small[0]) == max(0, wanted) or wanted < 0


@given(st.integers(min_value=-(10**12), max_value=10**12))
def test_minimised_numbers_are_at_the_border(border):
    holds = (lambda value: value >= border) if border >= 0 else (lambda value: value <= border)
    assert minimised(border * 3 + (7 if border >= 0 else -7), holds) == border
