"""Failures, and which of two is to be shown."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

PRIORITY = ("violated", "wrong_answer", "crashed", "recursion", "timeout", "hung")
SLOW = ("timeout", "hung")
_TOKEN = re.compile(r"[^\W\d_]{1,4}|\d{1,3}|\s+|.", re.S)


def tokens(text: str) -> int:
    """About how many tokens a model reads: up to four letters, three digits or one sign each."""
    return len(_TOKEN.findall(text))


@dataclass(frozen=True, slots=True)
class Failure:
    """One input and what went wrong."""

    args: Any
    text: str
    outcome: str
    prop: str
    message: str
    result: str = ""
    step: str = ""
    """Of a machine: the rule or invariant that failed."""
    wanted: str = ""
    """Of a public example: the result that is right."""

    @property
    def kind(self) -> tuple[str, str]:
        """Shrinking keeps both: the outcome and the property, of a machine the rule."""
        return self.outcome, self.step or self.prop

    @property
    def key(self) -> tuple[int, int, str]:
        """Less is shown: the fewest tokens, then the shortest, then the first in the alphabet."""
        return tokens(self.text), len(self.text), self.text

    @property
    def order(self) -> tuple[int, tuple[int, int, str], str]:
        """Across classes: the priority first."""
        return PRIORITY.index(self.outcome), self.key, self.prop


def text_of(args: Any) -> str:
    """The arguments as they stand in a call."""
    return ", ".join(map(repr, args))
