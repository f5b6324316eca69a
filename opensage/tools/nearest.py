"""The lines of a file most like a text that was not found, at a bounded cost."""

from __future__ import annotations

import difflib
from collections import Counter

_MOST_LINES = 50_000
_MOST_SHOWN = 30
_SAMPLE = 2000


def nearest_block(text: str, wanted: str) -> str:
    """Numbered lines, as `read` shows them, or "" when nothing is near.

    Windows are scored by how many of their lines are wanted ones; where no line is, the single line most like the first
    wanted one is looked for.
    """
    lines = text.split("\n")[:_MOST_LINES]
    needed = [line.strip() for line in wanted.strip("\n").split("\n")][:200]
    start = _best_window(lines, needed)
    if start is None:
        start = _best_line(lines, needed)
    if start is None:
        return ""
    end = min(len(lines), start + min(len(needed), _MOST_SHOWN) + 1)
    first = max(0, start - 1)
    return "\n".join(f"{number}\t{lines[number - 1].rstrip()[:300]}" for number in range(first + 1, end + 1))


def _best_window(lines: list[str], needed: list[str]) -> int | None:
    wanted = Counter(line for line in needed if len(line) > 2)
    size = len(needed)
    seen: Counter[str] = Counter()
    best, best_score, score = None, 0, 0
    for index, line in enumerate(lines):
        score += _add(seen, wanted, line.strip())
        if index >= size:
            score -= _drop(seen, wanted, lines[index - size].strip())
        if score > best_score:
            best, best_score = max(0, index - size + 1), score
    return best if best is None else _aligned(lines, needed, best)


def _aligned(lines: list[str], needed: list[str], start: int) -> int:
    """The window moved so that its first wanted line stands where it stands in the wanted text."""
    for index in range(start, min(len(lines), start + len(needed))):
        line = lines[index].strip()
        if len(line) > 2 and line in needed:
            return max(0, index - needed.index(line))
    return start


def _add(seen: Counter[str], wanted: Counter[str], line: str) -> int:
    if line not in wanted:
        return 0
    seen[line] += 1
    return len(line) if seen[line] <= wanted[line] else 0


def _drop(seen: Counter[str], wanted: Counter[str], line: str) -> int:
    if line not in wanted:
        return 0
    seen[line] -= 1
    return len(line) if seen[line] < wanted[line] else 0


def _best_line(lines: list[str], needed: list[str]) -> int | None:
    first = next((line for line in needed if line), "")[:300]
    matcher = difflib.SequenceMatcher(a="", b=first, autojunk=False)
    best, best_ratio = None, 0.5
    for index, line in enumerate(lines[:_SAMPLE]):
        matcher.set_seq1(line.strip()[:300])
        if matcher.real_quick_ratio() > best_ratio and matcher.quick_ratio() > best_ratio:
            ratio = matcher.ratio()
            if ratio > best_ratio:
                best, best_ratio = index, ratio
    return best
