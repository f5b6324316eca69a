"""Rules on paths and other arguments, the patterns themselves, and what is offered for "always"."""

from __future__ import annotations

import fnmatch
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opensage.approval import Policy
from opensage.permissions import Rule, Workspace, suggest
from opensage.permissions.globs import HOLE, covers, escape, literal, may_match
from opensage.tools import tool
from opensage.tools.find import list_files
from opensage.tools.shell import shell
from opensage.tools.write import edit, write

PATTERNS = st.text(alphabet="ab*?[]!-", max_size=8)
TEXTS = st.text(alphabet="ab[]-!", max_size=8)


@given(PATTERNS, TEXTS)
def test_covers_is_the_shells_glob(pattern: str, text: str) -> None:
    assert covers(pattern, text) == fnmatch.fnmatchcase(text, pattern)


@given(PATTERNS, TEXTS, TEXTS, st.lists(TEXTS, min_size=1, max_size=4))
def test_holes_stand_for_any_text(pattern: str, head: str, tail: str, fillings: list[str]) -> None:
    text = head + HOLE + tail
    matching = [fnmatch.fnmatchcase(head + filling + tail, pattern) for filling in fillings]
    if covers(pattern, text):
        assert all(matching)
    if any(matching):
        assert may_match(pattern, text)


@given(st.text(max_size=20), st.text(max_size=20))
def test_an_escaped_text_matches_itself_alone(text: str, other: str) -> None:
    text, other = text.replace(HOLE, ""), other.replace(HOLE, "")
    assert covers(escape(text), text)
    assert literal(escape(text)) == text
    assert covers(escape(text), other) == (text == other)


@pytest.mark.parametrize("pattern", ["*a" * 12 + "*b", "*" * 50 + "b", "*?" * 12 + "b", "[!b]*" * 20 + "b", "[" * 500])
def test_no_pattern_is_slow(pattern: str) -> None:
    began = time.process_time()
    covers(pattern, "a" * 1_000_000)
    may_match(pattern, "a" * 20_000 + HOLE + "a" * 20_000)
    assert time.process_time() - began < 2


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    work = tmp_path / "work"
    (work / "src").mkdir(parents=True)
    (work / ".env").write_text("KEY=1\n")
    (work / "link").symlink_to(".env")
    (work / "inside").symlink_to("/workspace/.env")
    (work / "src" / "up").symlink_to("..")
    (work / "loop").symlink_to("loop")
    os.link(work / ".env", work / "hard")
    return Workspace(work, "/workspace")


SPELLINGS = [
    ".env",
    "./.env",
    "a/../.env",
    ".//.env",
    "src/../.env",
    "src/./../.env",
    "/workspace/.env",
    "link",
    "inside",
    "hard",
]
SPELLINGS += ["src/up/.env", "src/up/link", ".ENV", "．env", "/workspace/src/../.env", "HOST/.env", "HOST/../work/.env"]


NAMES = [".env", "./.env", "/workspace/.env", "src/../.env"]
# A hard link is known to be the file only when the rule names the file.
CASES = [
    (pattern, path)
    for pattern in [*NAMES, "*.env", "**/.env"]
    for path in SPELLINGS
    if pattern in NAMES or path != "hard"
]


@pytest.mark.parametrize(("pattern", "path"), CASES)
def test_every_spelling_of_a_denied_path_is_denied(place: Workspace, path: str, pattern: str) -> None:
    path = path.replace("HOST", str(place.host))
    policy = Policy.parse(deny=[f"write({pattern})"], allow=["write"])
    assert policy.ruling(write, {"path": path, "content": "x"}, isolated=True, place=place).verdict == "deny"
    assert policy.ruling(edit, {"path": path, "old": "", "new": ""}, isolated=True, place=place).verdict == "allow"


@pytest.mark.parametrize("path", ["src/a", "./src/b/c", "/workspace/src/a", "src/x/../y", "src/up/src/a"])
def test_an_allow_rule_covers_the_resolved_path(place: Workspace, path: str) -> None:
    policy = Policy.parse(allow=["write(src/*)"])
    assert policy.ruling(write, {"path": path, "content": "x"}, isolated=False, place=place).verdict == "allow"


@pytest.mark.parametrize(
    "path",
    ["src/../.env", "src/up/.env", "src/up/link", "src", "/src/a", "loop", "../src/a", "src/a\ud800/../../b", ""],
)
def test_an_allow_rule_covers_nothing_that_lies_elsewhere(place: Workspace, path: str) -> None:
    policy = Policy.parse(allow=["write(src/*)"])
    assert policy.ruling(write, {"path": path, "content": "src/a"}, isolated=False, place=place).verdict == "ask"


def test_wildcards_in_names_of_files(place: Workspace) -> None:
    named = Policy.parse(deny=["write(a[1]*.txt)"])
    for path in ("a[1]*.txt", "a1b.txt"):  # the letters as they stand, and as a pattern
        assert named.ruling(write, {"path": path}, isolated=True, place=place).verdict == "deny"
    assert named.ruling(write, {"path": "a2.txt"}, isolated=True, place=place).verdict == "allow"


def test_main_arguments_that_are_no_string() -> None:
    @tool(target="paths", changes=True)
    def touch(paths: list[str]) -> str:
        """Touch."""
        return ""

    @tool(target="n")
    def count(n: int) -> str:
        """Count."""
        return ""

    policy = Policy.parse(deny=["touch(.env)", "count(7)", 'count({*"n": 9*)', "list(.)"], allow=["touch(a*)"])

    def verdict(what: Any, **arguments: Any) -> str:
        return policy.ruling(what, arguments, isolated=False, place=Workspace(Path("/nowhere"))).verdict

    assert verdict(touch, paths=["a", "b/../.env"]) == "deny"
    assert verdict(touch, paths='["a", ".env"]') == "deny"  # the tool would read it as a list
    assert verdict(touch, paths=["a1", "a2"]) == "allow"
    assert verdict(touch, paths=["a1", "b"]) == "ask"
    assert verdict(touch, paths=[]) == verdict(touch, paths=None) == "ask"
    assert [verdict(count, n=n) for n in (7, "7", 8, 9)] == ["deny", "deny", "allow", "deny"]
    assert verdict(list_files) == verdict(list_files, path="./") == "deny"  # the default is the argument


def test_the_text_of_other_arguments_is_not_the_main_one() -> None:
    policy = Policy.parse(allow=["write(*docs*)"], deny=["write(*secret*)"])
    ruling = policy.ruling(write, {"path": "a", "content": "docs secret"}, isolated=False)
    assert ruling.verdict == "ask"


def test_tool_names_are_globs_and_strengths_are_ordered() -> None:
    both = Policy.parse(allow=["*"], ask=["w*"], deny=["write(a)"])
    assert [
        both.ruling(t, {"path": p}, isolated=True).verdict for t, p in ((write, "a"), (write, "b"), (edit, "a"))
    ] == [
        "deny",
        "ask",
        "allow",
    ]
    both.always.append(Rule.parse("*"))
    assert [both.ruling(write, {"path": p}, isolated=True).verdict for p in ("a", "b")] == ["deny", "allow"]


def test_a_huge_argument_costs_little() -> None:
    policy = Policy.parse(deny=["write(.env)", "write({*zzz*)"], allow=["write(*.py)"])
    began = time.process_time()
    policy.ruling(write, {"path": "a.py", "content": "x" * 5_000_000}, isolated=True)
    assert time.process_time() - began < 2


@given(st.text())
@settings(deadline=None)
def test_no_text_breaks_a_rule_on_paths(text: str) -> None:
    assert Policy.parse(deny=["write(a)"]).ruling(write, {"path": text}, isolated=True).verdict in ("allow", "deny")


@pytest.mark.parametrize(
    ("command", "offered"),
    [
        ("git status --short", "shell(git status *)"),
        ("touch a", "shell(touch *)"),
        ("git -C x status", "shell(git -C x status)"),
        ("rm -rf build*", "shell(rm *)"),
        ("python x.py", "shell(python x.py)"),
        ("sh -c 'a'", "shell(sh -c 'a')"),
        ("cd a && make", "shell(cd a && make)"),
        ("cat *.py > o", "shell(cat [*].py > o)"),
        ("ls $x", "shell(ls *)"),
        ("a\nb", None),
        ("a \x1b[2K", None),
        ("x" * 500 + " ; a", None),
        ("*", "shell([*])"),
    ],
)
def test_what_is_offered_for_always(command: str, offered: str | None) -> None:
    place = Workspace(Path("/nowhere"))
    rule = suggest(shell, {"command": command}, place)
    assert (None if rule is None else str(rule)) == offered
    if rule is not None:  # it does cover the call that it was offered for, and reads back as what was shown
        policy = Policy(always=[Rule.parse(str(rule))])
        assert policy.ruling(shell, {"command": command}, isolated=False, place=place).verdict == "allow"
        assert (
            policy.ruling(shell, {"command": f"{command}; curl x | sh"}, isolated=False, place=place).verdict == "ask"
        )
