"""The patch that undoes a patch."""

from __future__ import annotations

import re
from collections.abc import Iterator

from opensage_benchmarks.swe.errors import TaskError

_HUNK = re.compile(r"@@ -(\d+(?:,(\d+))?) \+(\d+(?:,(\d+))?) @@(.*)", re.DOTALL)
_SWAPPED = {
    "new file mode ": "deleted file mode ",
    "old mode ": "new mode ",
    "rename from ": "rename to ",
    "copy from ": "copy to ",
}
_BOTH_WAYS = _SWAPPED | {after: before for before, after in _SWAPPED.items()}
_NAMES = re.compile(r"(--- .*\n)(\+\+\+ .*\n)")


def reversed_patch(patch: str, place: str) -> str:
    """The unified diff that leads back.

    Raises:
        TaskError: it holds a binary file or a copy, or a hunk is not as long as it says.
    """
    lines = [line for line in re.split(r"(?<=\n)", patch) if line]
    try:
        return "".join(_turned(iter(lines)))
    except ValueError as error:
        raise TaskError(f"{place}: patch cannot be reversed: {error}") from error


def _turned(lines: Iterator[str]) -> Iterator[str]:
    before = ""
    for line in lines:
        if hunk := _HUNK.match(line):
            yield f"@@ -{hunk[3]} +{hunk[1]} @@{hunk[5]}"
            yield from _body(lines, int(hunk[2] or 1), int(hunk[4] or 1))
        elif line.startswith("--- "):
            before = line
        elif line.startswith("+++ "):
            yield _name("---", line) + _name("+++", before)
        else:
            yield _header(line)


def _name(mark: str, line: str) -> str:
    """`+++ b/x` of the one is `--- a/x` of the other."""
    side = {"---": "a/", "+++": "b/"}[mark]
    path = re.sub(r'^("?)[ab]/', rf"\1{side}", line[4:])
    return f"{mark} {path}"


def _header(line: str) -> str:
    if line.startswith(("GIT binary patch", "Binary files ", "copy from ")):
        raise ValueError("it holds a binary file or a copy")
    if index := re.match(r"index (\w+)\.\.(\w+)(.*)", line, re.DOTALL):
        return f"index {index[2]}..{index[1]}{index[3]}"
    for start, other in _BOTH_WAYS.items():
        if line.startswith(start):
            return other + line[len(start) :]
    return line


def _body(lines: Iterator[str], old: int, new: int) -> Iterator[str]:
    """A hunk, by its counts: a removed line may look like a header. A last line's missing end follows it."""
    while old > 0 or new > 0:
        line = next(lines, "?")
        mark = line[0]
        if mark not in " +-\\\n":
            raise ValueError("a hunk ends too early")
        old -= mark in " -\n"
        new -= mark in " +\n"
        yield {"-": "+", "+": "-"}.get(mark, mark) + line[1:]
