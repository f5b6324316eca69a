"""A note when a file cannot be read any more; never a refusal."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opensage.tools.syntax import newly_broken
from opensage.tools.write import edit, write

GOOD = {"a.json": '{"a": [1, 2]}', "a.toml": "[a]\nb = 1\n", "a.yaml": "a:\n  - 1\n", "a.pyi": "def f() -> int: ...\n"}
BAD = {
    "a.json": ('{"a": [1,\n2}', "line 2: Expecting ',' delimiter\n    2 | 2}"),
    "a.toml": ("[a]\nb = = 1\n", "line 2: Invalid value\n    2 | b = = 1"),
    "a.yaml": ("a:\n  - 1\n b: [\n", "line 3: "),
    "a.YML": ("a: b: c\n", "line 1: mapping values are not allowed in this context\n    1 | a: b: c"),
    "a.pyi": ("def f(\n", "line 1: '(' was never closed\n    1 | def f("),
}


@pytest.mark.parametrize("name", BAD)
def test_the_line_is_shown(name):
    text, said = BAD[name]
    assert newly_broken(name, None, text).startswith(said)
    assert newly_broken(name, text, text + "\n") == "", "it was broken before"
    assert newly_broken(f"x/{name}.txt", None, text) == ""


@pytest.mark.parametrize("name", GOOD)
def test_what_is_well_is_not_spoken_of(name):
    assert newly_broken(name, None, GOOD[name]) == ""
    assert newly_broken(name, BAD[name][0], GOOD[name]) == ""


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("text", ["[" * 100_000, "{" * 3000, "a: &a [*a]\n" * 5000, "\0", "\ud800", "", "- " * 30_000])
def test_hostile_texts_end_soon(name, text):
    begun = time.process_time()
    assert isinstance(newly_broken(name, None, text), str)
    assert time.process_time() - begun < 5


def test_long_lines_and_long_files_are_bounded():
    assert len(newly_broken("a.json", None, "[" + "x" * 100_000)) < 300
    assert newly_broken("a.json", None, "[" * 500_000) == ""


@given(st.sampled_from(sorted(BAD)), st.text(max_size=80))
def test_any_text_is_answered(name, text):
    assert isinstance(newly_broken(name, None, text), str)


def test_the_edit_is_made_and_noted(bench):
    (bench.folder / "a.json").write_text('{"a": 1}\n')
    got = bench.call(edit, path="a.json", old="1}", new="1")
    assert got.startswith("edited a.json: 1 place at line 1\nwarning: a.json does not parse now: line 2: ")
    assert (bench.folder / "a.json").read_text() == '{"a": 1\n'
    assert "warning: b.toml does not parse now: line 1" in bench.call(write, path="b.toml", content="x\n")
    assert "warning" not in bench.call(write, path="c.yaml", content="a: 1\n---\nb: 2\n")
