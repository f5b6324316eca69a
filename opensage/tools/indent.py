"""Indentation of a replacement, when the model wrote the text to replace with another indentation than the file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import gcd

_TAB = 4


@dataclass(frozen=True, slots=True)
class Reindent:
    """How indentation as the model wrote it maps to the file's.

    Attributes:
        known: pairs seen in the matched lines.
        unit: one step of the model's indentation, in columns.
        tabs: whether the file indents by tabs.
        slope: columns of the file's per column of the model's.
    """

    known: dict[str, str]
    unit: int
    tabs: bool
    slope: float

    @classmethod
    def between(cls, old: list[str], found: list[str], new: list[str]) -> Reindent | None:
        """The mapping, or None when one indentation of `old` stands for two in the file: then nobody can know."""
        known: dict[str, str] = {}
        for mine, theirs in zip(old, found, strict=False):
            if mine.strip() and known.setdefault(_indent(mine), _indent(theirs)) != _indent(theirs):
                return None
        if len(set(known.values())) < len(known):
            return None
        indents = {_indent(line) for line in [*old, *new] if line.strip()}
        return cls(known, _unit(indents), any("\t" in theirs for theirs in known.values()), _slope(known))

    def apply(self, text: str) -> str:
        """Every line of the text with the file's indentation; blank lines lose theirs."""
        return "\n".join(self._line(line) for line in text.split("\n"))

    def _line(self, line: str) -> str:
        if not line.strip():
            return line.lstrip(" \t")
        mine = _indent(line)
        return self._theirs(mine) + line[len(mine) :]

    def _theirs(self, mine: str) -> str:
        """An indentation seen in the matched lines as it is there; another by its distance to the nearest seen one."""
        if mine in self.known:
            return self.known[mine]
        width = _width(mine)
        anchors = sorted(self.known, key=_width)
        anchor = max((one for one in anchors if _width(one) <= width), key=_width, default=anchors[0])
        base, extra = self.known[anchor], width - _width(anchor)
        if extra < 0:
            return base[: max(0, len(base) - len(self._steps(-extra)))]
        return base + self._steps(extra)

    def _steps(self, columns: int) -> str:
        if not self.tabs:
            return " " * round(columns * self.slope)
        whole, rest = divmod(columns, self.unit)
        return "\t" * whole + " " * rest


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _width(indent: str) -> int:
    return len(indent.expandtabs(_TAB))


def _unit(indents: Iterable[str]) -> int:
    """The step of these indentations, in columns."""
    unit = gcd(*(_width(indent) for indent in indents)) or _TAB
    return _TAB if unit % _TAB == 0 else unit


def _slope(known: dict[str, str]) -> float:
    """1 when the file's lines are all shifted alike, else how much wider its steps are."""
    widths = sorted((_width(mine), _width(theirs)) for mine, theirs in known.items())
    (mine_low, theirs_low), (mine_high, theirs_high) = widths[0], widths[-1]
    return (theirs_high - theirs_low) / (mine_high - mine_low) if mine_high > mine_low else 1.0
