"""The edit matcher: where a model meant a piece of text, and what the file becomes.

From strict to tolerant: as it stands; without line numbers copied from `read`; line by line without trailing blanks;
line by line without indentation (the new text is indented as the file is); with typographic quotes and dashes made
plain. A tolerant match compares every line, so equal first and last lines alone never match. Several places are refused
unless all are wanted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from opensage.errors import ToolError
from opensage.tools.indent import Reindent
from opensage.tools.nearest import nearest_block

_NUMBERED = re.compile(r"[ ]*\d+(?:\t|[|→] ?)")
_PLAIN = str.maketrans("‘’‚‛“”„‟′″‐‑‒–—―−\u00a0\u202f\u2007", "''''\"\"\"\"'\"-------   ")
_ENOUGH = 20


@dataclass(frozen=True, slots=True)
class EditResult:
    """What an edit made.

    Attributes:
        text: the whole new text.
        count: how many places changed.
        line: 1-based line of the first of them.
        how: "exact", or what had to be overlooked, e.g. "indentation".
    """

    text: str
    count: int
    line: int
    how: str


@dataclass(frozen=True, slots=True)
class _Place:
    start: int
    end: int
    new: str


@dataclass(frozen=True, slots=True)
class _File:
    """The text, whether most of its lines end in CRLF, and whether every place is wanted.

    When it is not, overlapping places count too (they are ambiguous), and a few are enough.
    """

    text: str
    crlf: bool
    all: bool

    def fit(self, start: int, end: int, new: str) -> str:
        """The new text with the line ends of its place, or of the file where the place is within one line."""
        breaks = self.text.count("\n", start, end)
        crlf = self.text.count("\r\n", start, end) * 2 > breaks if breaks else self.crlf
        return _crlf(new) if crlf else new

    def fit_lines(self, start: int, end: int, old: str, new: str) -> str:
        """The same for whole lines: no final newline where the place has none."""
        if old.endswith("\n") and not self.text.endswith("\n", start, end):
            new = new.removesuffix("\n")
        return self.fit(start, end, new)


class NotFound(ToolError):
    """The text to replace is nowhere in the file."""


def apply_edit(text: str, old: str, new: str, all: bool = False) -> EditResult:
    """Replace `old` by `new` in `text`. Outside the places found, nothing changes; CRLF lines stay CRLF.

    Args:
        text: the whole file.
        old: the text to replace; empty only when `text` is empty.
        new: its replacement.
        all: replace every place instead of refusing several.

    Raises:
        ToolError: not found (with the nearest block), found several times (with the lines), or nothing to do.
    """
    if old == new:
        raise ToolError("old and new are the same: nothing to change")
    if old == "":
        if text:
            raise ToolError("old is empty but the file is not: copy the lines to change into old, or use write")
        return EditResult(new, 1, 1, "exact")
    file = _File(text, text.count("\r\n") * 2 > text.count("\n"), all)
    for how, places in _attempts(file, old, new):
        if places:
            return _replace(text, places, all, how)
    raise NotFound(_not_found(text, old, new))


def _attempts(file: _File, old: str, new: str) -> Iterator[tuple[str, list[_Place]]]:
    yield "exact", _exact(file, old, new)
    pairs = [("", old, new)]
    bare = _without_numbers(old)
    if bare is not None:
        pairs.append(("line numbers", bare, _without_numbers(new) or new))
        yield "line numbers", _exact(file, *pairs[1][1:])
    for how, finder in (("trailing blanks", _by_lines), ("indentation", _by_indent), ("quotes or dashes", _by_plain)):
        for prefix, old_text, new_text in pairs:
            yield ", ".join(filter(None, (prefix, how))), finder(file, old_text, new_text)


def _replace(text: str, places: list[_Place], all: bool, how: str) -> EditResult:
    if len(places) > 1 and not all:
        raise ToolError(_ambiguous(text, places))
    pieces, at, count = [], 0, 0
    for place in places:
        if place.start >= at or count == 0:  # overlapping places: the first wins
            pieces += [text[at : place.start], place.new]
            at, count = place.end, count + 1
    pieces.append(text[at:])
    result = "".join(pieces)
    if result == text:
        raise ToolError("the file already reads like this: nothing to change")
    return EditResult(result, count, _line(text, places[0].start), how)


def _exact(file: _File, old: str, new: str) -> list[_Place]:
    """Places of `old` as it stands, or with the file's CRLF line ends. Overlapping places count: they are ambiguous."""
    for wanted in dict.fromkeys((old, _crlf(old) if "\r\n" in file.text else old)):
        spans = [(at, at + len(wanted)) for at in _find_all(file, wanted)]
        if spans:
            fitted = file.fit(*spans[0], new)
            return [_Place(start, end, fitted) for start, end in spans]
    return []


def _find_all(file: _File, wanted: str) -> Iterator[int]:
    at = file.text.find(wanted)
    found = 0
    while at >= 0 and (file.all or found < _ENOUGH):
        yield at
        found += 1
        at = file.text.find(wanted, at + (len(wanted) if file.all else 1))


def _by_lines(file: _File, old: str, new: str) -> list[_Place]:
    return [
        _Place(start, end, file.fit_lines(start, end, old, new)) for start, end, _ in _windows(file, old, str.rstrip)
    ]


def _by_indent(file: _File, old: str, new: str) -> list[_Place]:
    places = []
    for start, end, lines in _windows(file, old, str.strip):
        shift = Reindent.between(old.split("\n"), lines, new.split("\n"))
        if shift is not None:
            places.append(_Place(start, end, file.fit_lines(start, end, old, shift.apply(new))))
    return places


def _by_plain(file: _File, old: str, new: str) -> list[_Place]:
    """Places where only typographic characters differ, and only if there is just one."""
    places = _exact(_File(file.text.translate(_PLAIN), file.crlf, file.all), old.translate(_PLAIN), new)
    return places if len(places) == 1 else []


def _windows(file: _File, old: str, key: Callable[[str], str]) -> Iterator[tuple[int, int, list[str]]]:
    """Runs of whole lines whose keys are those of `old`: (start, end, the lines)."""
    wanted = [key(line) for line in _old_lines(old)]
    if not any(wanted):
        return
    lines = file.text.split("\n")
    starts = _starts(lines)
    for first in _runs([key(line) for line in lines], wanted, file.all):
        last = first + len(wanted) - 1
        end = starts[last] + len(lines[last].removesuffix("\r"))
        if old.endswith("\n") and last + 1 < len(lines):
            end = starts[last + 1]
        yield starts[first], end, lines[first : last + 1]


def _runs(keys: list[str], wanted: list[str], all: bool) -> Iterator[int]:
    """Where `wanted` begins in `keys`. Only places of its rarest key are tried, so that most cost nothing."""
    counts = Counter(keys)
    pivot = min(range(len(wanted)), key=lambda index: counts[wanted[index]])
    found = free = 0
    for at, key in enumerate(keys):
        first = at - pivot
        if key != wanted[pivot] or first < free or keys[first : first + len(wanted)] != wanted:
            continue
        yield first
        found, free = found + 1, first + (len(wanted) if all else 1)
        if not all and found >= _ENOUGH:
            return


def _old_lines(old: str) -> list[str]:
    lines = old.split("\n")
    return lines[:-1] if old.endswith("\n") else lines


def _starts(lines: list[str]) -> list[int]:
    starts, at = [], 0
    for line in lines:
        starts.append(at)
        at += len(line) + 1
    return starts


def _crlf(text: str) -> str:
    return re.sub(r"(?<!\r)\n", "\r\n", text)


def _without_numbers(text: str) -> str | None:
    """The text without the line numbers that `read` shows, or None unless every line has one."""
    lines = text.split("\n")
    bare = [_NUMBERED.sub("", line, count=1) for line in lines]
    numbered = all(one != two or not one.strip() for one, two in zip(lines, bare, strict=True))
    return "\n".join(bare) if numbered and bare != lines else None


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _ambiguous(text: str, places: list[_Place]) -> str:
    lines = ", ".join(str(_line(text, place.start)) for place in places[:10])
    more = ", …" if len(places) > 10 else ""
    count = f"{len(places)} times" if len(places) < _ENOUGH else "many times"
    return (
        f"old is found {count} (lines {lines}{more}): add lines around it to old until it is unique, "
        "or set all=true to change every one"
    )


def _not_found(text: str, old: str, new: str) -> str:
    if not text.strip():
        return "old is not found: the file is empty; use write"
    if new.strip() and len(new) > 3 and new in text:
        return f"old is not found, but new is there already (line {_line(text, text.find(new))}): was it edited before?"
    block = nearest_block(text, old)
    if not block:
        return "old is not found and nothing in the file is like it: read the file and copy the lines from there"
    return (
        f"old is not found. The nearest lines are:\n{block}\n"
        "Copy old exactly from the file, without line numbers, and call edit again."
    )
