from __future__ import annotations

import re
import time

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from opensage.errors import ToolError
from opensage.tools.diff import unified_diff
from opensage.tools.edit import NotFound, apply_edit
from opensage.tools.indent import Reindent

FILE = """\
import os


class Greeter:
    def hello(self, name):
        if name:
            return "hello " + name
        return "hello"

    def bye(self, name):
        if name:
            return "bye " + name
        return "bye"
"""


def test_exact_text_is_replaced_and_nothing_else():
    got = apply_edit(FILE, '"bye " + name', '"ciao " + name')
    assert got.text == FILE.replace('"bye " +', '"ciao " +')
    assert (got.count, got.line, got.how) == (1, 12, "exact")


def test_several_places_are_refused_with_their_lines():
    with pytest.raises(ToolError, match=r"found 2 times \(lines 6, 11\).*all=true") as caught:
        apply_edit(FILE, "if name:", "if not name:")
    assert not isinstance(caught.value, NotFound)
    assert apply_edit(FILE, "if name:", "if not name:", all=True).count == 2


def test_overlapping_places_are_several():
    with pytest.raises(ToolError, match="2 times"):
        apply_edit("x\nx\nx\n", "x\nx\n", "y\n")
    assert apply_edit("aaa", "aa", "b", all=True).text == "ba"


def test_empty_and_same_texts():
    assert apply_edit("", "", "new\n").text == "new\n"
    with pytest.raises(ToolError, match="old is empty"):
        apply_edit("x", "", "new")
    with pytest.raises(ToolError, match="the same"):
        apply_edit("x", "x", "x")
    with pytest.raises(ToolError, match="file is empty"):
        apply_edit("", "x", "y")
    with pytest.raises(ToolError, match="reads like this"):
        apply_edit("a\n", "a ", "a")


def test_trailing_blanks_are_overlooked():
    got = apply_edit("a  \nb\t\nc\n", "a\nb\n", "x\ny\n")
    assert (got.text, got.how) == ("x\ny\nc\n", "trailing blanks")
    assert apply_edit("a\nb\nc", "a \nb", "x").text == "x\nc"
    assert apply_edit("a\n  \nb\n", "a\n\nb", "x").text == "x\n"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        # The base indentation is missing.
        (
            'def bye(self, name):\n    if name:\n        return "bye " + name\n',
            'def bye(self, name):\n    if name:\n        for _ in "ab":\n            print()\n'
            '        return "ciao " + name\n',
            '    def bye(self, name):\n        if name:\n            for _ in "ab":\n                print()\n'
            '            return "ciao " + name\n',
        ),
        # Two columns a step where the file has four.
        (
            '  def bye(self, name):\n    if name:\n      return "bye " + name',
            "  def bye(self, name):\n    if name:\n      if 1:\n        return 2\n    return 3",
            "    def bye(self, name):\n        if name:\n            if 1:\n"
            "                return 2\n        return 3\n",
        ),
        # Tabs where the file has spaces.
        (
            '\tdef bye(self, name):\n\t\tif name:\n\t\t\treturn "bye " + name',
            "\tdef bye(self, name):\n\t\tif name:\n\t\t\twhile 1:\n\t\t\t\treturn 2",
            "    def bye(self, name):\n        if name:\n            while 1:\n                return 2\n",
        ),
    ],
)
def test_new_text_gets_the_indentation_of_the_file(old, new, expected):
    block = '    def bye(self, name):\n        if name:\n            return "bye " + name\n'
    got = apply_edit(FILE, old, new)
    assert got.text == FILE.replace(block, expected)
    assert got.how == "indentation"


def test_spaces_become_the_tabs_of_the_file():
    text = "if a:\n\tif b:\n\t\tc\n\t\td\n"
    assert apply_edit(text, "        c\n        d", "        c\n            e\n        d").text == (
        "if a:\n\tif b:\n\t\tc\n\t\t\te\n\t\td\n"
    )
    assert apply_edit(text, "    if b:\n        c", "    if b:\n\n        e\n    f").text == (
        "if a:\n\tif b:\n\n\t\te\n\tf\n\t\td\n"
    )


def test_indentation_that_cannot_be_known_is_refused():
    with pytest.raises(NotFound):  # flattened: nobody knows where a new line belongs
        apply_edit("def f():\n    if a:\n        b\n    c\n", "if a:\nb", "if a:\nz")


@pytest.mark.parametrize(
    ("text", "old"),
    [
        ("begin\nother\nend\n", "begin\nbody\nend\n"),
        ("begin\nother\nmore\nend\n", "begin\nbody\nend"),
        ("  begin\n  other\n  end\n", "begin\nbody\nend"),
        ("def f():\n    return 1\n\n\ndef g():\n    return 1\n", "def f():\n    x = 2\n    return 1"),
    ],
)
def test_equal_ends_with_another_body_do_not_match(text, old):
    with pytest.raises(NotFound):
        apply_edit(text, old, "new")


def test_blank_lines_alone_never_match_by_tolerance():
    with pytest.raises(NotFound):
        apply_edit("a\n  \nb\n", " \n \n", "x")


def test_crlf_stays_crlf():
    text = "one\r\ntwo\r\nthree\r\n"
    assert apply_edit(text, "one\ntwo\n", "1\n2\n2b\n").text == "1\r\n2\r\n2b\r\nthree\r\n"
    assert apply_edit(text, "two", "2\n3").text == "one\r\n2\r\n3\r\nthree\r\n"
    assert apply_edit(text, "one\r\ntwo", "1\r\n2").text == "1\r\n2\r\nthree\r\n"
    assert apply_edit("  a\r\n  b\r\nc", "a\nb", "x\ny").text == "  x\r\n  y\r\nc"
    assert apply_edit("a \r\nb\r\nc", "a\nb\n", "x\ny\n").text == "x\r\ny\r\nc"


def test_mixed_line_ends_follow_their_place():
    text = "a\r\nb\r\nc\nd\ne\nf\n"
    assert apply_edit(text, "a\nb", "x\ny").text == "x\r\ny\r\nc\nd\ne\nf\n"
    assert apply_edit(text, "c\nd", "x\ny").text == "a\r\nb\r\nx\ny\ne\nf\n"
    assert apply_edit(text, "e", "x\ny").text == "a\r\nb\r\nc\nd\nx\ny\nf\n"


def test_a_missing_final_newline_stays_missing():
    assert apply_edit("a\nb", "b", "c").text == "a\nc"
    assert apply_edit("a\n  b", "b\n", "c\n").text == "a\n  c"
    assert apply_edit("a\nb ", "a\nb\n", "c\n").text == "c"


def test_line_numbers_copied_from_read_are_taken_off():
    assert apply_edit(
        FILE, '12\t            return "bye " + name\n13\t        return "bye"', "12\t            pass"
    ).text == (FILE.replace('            return "bye " + name\n        return "bye"', "            pass"))
    assert apply_edit(FILE, "1\timport os\n", "import sys\n").text == FILE.replace("os", "sys")
    assert apply_edit("1\ta\n", "1\ta", "1\tb").text == "1\tb\n"  # the file itself is numbered
    got = apply_edit("  if a:\n    b\n", "1\tif a:\n2\t  b", "1\tif c:\n2\t  b")
    assert (got.text, got.how) == ("  if c:\n    b\n", "line numbers, indentation")


def test_typographic_characters_are_overlooked_only_once():
    got = apply_edit("print(“hi” – 1)\nx\n", 'print("hi" - 1)', 'print("ho")')
    assert (got.text, got.how) == ('print("ho")\nx\n', "quotes or dashes")
    assert apply_edit("it's\n", "it’s", "is").text == "is\n"
    with pytest.raises(NotFound):
        apply_edit("“a”\n“a”\n", '"a"', "b", all=True)


def test_not_found_shows_the_nearest_lines():
    with pytest.raises(NotFound) as caught:
        apply_edit(FILE, '    def bye(self, name):\n        if nam:\n            return "bye" + name\n', "x")
    assert '10\t    def bye(self, name):\n11\t        if name:\n12\t            return "bye " + name' in str(
        caught.value
    )
    with pytest.raises(NotFound, match='7\t            return "hello " \\+ name'):
        apply_edit(FILE, 'return "hallo " + name', "x")
    with pytest.raises(NotFound, match="nothing in the file is like it"):
        apply_edit(FILE, "§§§§§§§§§§§§§§§§§§", "x")
    with pytest.raises(NotFound, match=r"new is there already \(line 1\)"):
        apply_edit("new line\n", "old line", "new line")


@pytest.mark.parametrize(
    ("text", "old"),
    [
        ("x\n" * 100_000, "x\n" * 3000 + "y"),
        ("a" * 2_000_000, "b" * 5000),
        ("".join(f"line {n} of many\n" for n in range(60_000)), "line 59999 of manx\nline 3 of few"),
        ("}\n" * 100_000, "  }\n  }\n  z"),
        ("ab" * 500_000, "\n".join(["ab"] * 2000)),
    ],
)
def test_a_large_file_costs_a_bounded_time(text, old):
    start = time.process_time()
    with pytest.raises(NotFound):
        apply_edit(text, old, "new")
    assert time.process_time() - start < 5


def test_many_places_cost_a_bounded_time():
    start = time.process_time()
    assert apply_edit("}\n" * 100_000, "}", "]", all=True).text == "]\n" * 100_000
    with pytest.raises(ToolError, match="times"):
        apply_edit("  }\n" * 50_000, "}  ", "]")
    assert time.process_time() - start < 5


plain_piece = st.text(alphabet=st.sampled_from("ab \t\n“é\udcff{}1"), max_size=12)
piece = st.text(alphabet=st.sampled_from("ab \t\n\r“é\udcff{}1"), max_size=12)


@settings(max_examples=200, deadline=None)
@given(plain_piece, plain_piece, plain_piece, plain_piece, st.booleans())
@example("a", "aa", "1", "", True)
def test_an_exact_place_is_replaced_byte_for_byte(before, old, new, after, all):
    assume(old and old != new)
    text = before + old + after
    try:
        got = apply_edit(text, old, new, all)
    except NotFound:
        raise AssertionError("it is there") from None
    except ToolError:
        return
    places = sum(text.startswith(old, at) for at in range(len(text)))  # overlapping ones too
    if got.count == 1 and places == 1:
        assert got.text == before + new + after
    else:
        assert got.text == text.replace(old, new)


@settings(max_examples=600, deadline=None)
@given(st.lists(piece, max_size=6), st.lists(piece, max_size=4), st.lists(piece, max_size=4), st.booleans())
def test_any_texts_give_a_result_or_a_tool_error_and_lose_nothing(lines, old_lines, new_lines, all):
    text, old, new = ("\n".join(part) for part in (lines, old_lines, new_lines))
    try:
        got = apply_edit(text, old, new, all)
    except ToolError:
        return
    assert got.text != text
    if got.count == 1 and text:
        head = _common(text, got.text)
        tail = _common(text[::-1], got.text[::-1])
        changed = max(0, len(text) - head - tail)
        assert changed <= len(old) + sum(len(line) - len(line.strip()) for line in lines) + text.count("\r") + 40


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(["a", "  b", "    c", "", "\td", "x = 1"]), min_size=1, max_size=8), st.data())
def test_an_indented_copy_of_lines_is_found(lines, data):
    start = data.draw(st.integers(0, len(lines) - 1))
    end = data.draw(st.integers(start + 1, len(lines)))
    wanted = ["  " + line if line else "" for line in lines[start:end]]
    assume(any(line.strip() for line in wanted))
    try:
        got = apply_edit("\n".join(lines), "\n".join(wanted), "NEW", all=True)
    except NotFound:
        known = Reindent.between(wanted, lines[start:end], ["NEW"])
        assert known is None  # one indentation stood for two
        return
    assert "NEW" in got.text


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from("abc"), max_size=30), st.lists(st.sampled_from("abc"), max_size=30), st.booleans())
def test_a_diff_applied_gives_the_new_text(old, new, ended):
    before = "\n".join(old) + ("\n" if ended else "")
    after = "\n".join(new) + ("\n" if ended else "")
    diff = unified_diff(before, after, "file")
    assert bool(diff) == (before != after)
    if diff:
        assert patched(before, diff) == after


def patched(text: str, diff: str) -> str:
    """The text with a unified diff applied, every context line checked."""
    source = text.splitlines(keepends=True)
    out: list[str] = []
    at = 0
    previous = ""
    for line in diff.splitlines(keepends=True)[2:]:
        if found := re.match(r"@@ -(\d+)(?:,(\d+))? ", line):
            start = int(found[1]) - (found[2] != "0")
            out += source[at:start]
            at = start
        elif line[0] in " -":
            assert source[at].rstrip("\n") == line[1:].rstrip("\n")
            out += [source[at]] if line[0] == " " else []
            at += 1
        elif line[0] == "+":
            out.append(line[1:])
        else:
            assert line == "\\ No newline at end of file\n"
            if previous == "+":
                out[-1] = out[-1].removesuffix("\n")
        previous = line[0]
    return "".join(out + source[at:])


def test_a_diff_of_a_large_file_is_cheap():
    before = "".join(f"line {n}\n" for n in range(200_000))
    start = time.process_time()
    diff = unified_diff(before, before.replace("line 150000\n", "changed\n"), "big")
    assert time.process_time() - start < 2
    assert "@@ -149998,7 +149998,7 @@" in diff
    assert "too many to show" in unified_diff(before, before.replace("line", "row"), "big")


def _common(one: str, two: str) -> int:
    count = 0
    for left, right in zip(one, two, strict=False):
        if left != right:
            break
        count += 1
    return count
