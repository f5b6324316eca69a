"""Unified diffs for people, at a bounded cost whatever the size of the file."""

from __future__ import annotations

import difflib
import re

_CONTEXT = 3
_MOST_LINES = 2000
_HUNK = re.compile(r"@@ -(\d+)(,?\d*) \+(\d+)(,?\d*) @@")


def unified_diff(before: str, after: str, path: str) -> str:
    """The difference as a unified diff, or a line that says it is too large to show.

    What both begin and end with is cut off first, so that a small change costs the same in a large file.
    """
    if before == after:
        return ""
    old, new = before.split("\n"), after.split("\n")
    head = _common(old, new)
    tail = _common(old[head:][::-1], new[head:][::-1])
    start, keep = max(0, head - _CONTEXT), max(0, tail - _CONTEXT)
    old_part, new_part = old[start : len(old) - keep], new[start : len(new) - keep]
    if len(old_part) + len(new_part) > _MOST_LINES:
        return f"--- {path}\n+++ {path}\n(about {len(old_part)} lines became {len(new_part)}: too many to show)\n"
    source = path if before else "/dev/null"
    # A file's last newline gives one more empty "line": only its absence is worth a word.
    lines = difflib.unified_diff(_lines(old_part, keep), _lines(new_part, keep), source, path, n=_CONTEXT)
    return "".join(_HUNK.sub(lambda found: _shift(found, start), line) for line in lines)


def _lines(part: list[str], kept: int) -> list[str]:
    if kept:
        return [line + "\n" for line in part]
    ended = [line + "\n" for line in part[:-1]]
    return ended + ([part[-1] + "\n\\ No newline at end of file\n"] if part[-1] else [])


def _shift(found: re.Match[str], start: int) -> str:
    return f"@@ -{int(found[1]) + start}{found[2]} +{int(found[3]) + start}{found[4]} @@"


def _common(one: list[str], two: list[str]) -> int:
    count = 0
    for left, right in zip(one, two, strict=False):
        if left != right:
            break
        count += 1
    return count
