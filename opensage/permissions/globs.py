"""Shell globs over texts that may have holes: places whose content nobody knows before the program runs.

A hole stands for any text, also none. `covers` asks whether a pattern matches whatever fills the holes, `may_match`
whether it does for some filling. Both take time proportional to the text, for every pattern.
"""

from __future__ import annotations

import fnmatch
import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache

HOLE = "\0"
"""No argument holds a NUL: it is dropped when arguments are read."""
_CLASS = re.compile(r"\[!?\]?[^\]]*\]")
_WILD = re.compile(r"[*?[]")


def fold(text: str) -> str:
    """The text without differences of case and of Unicode form, so that look-alikes are alike."""
    return text if text.isascii() and text.islower() else unicodedata.normalize("NFKC", text).casefold()


def literal(pattern: str) -> str | None:
    """The only text that the pattern matches, or None when it has wildcards. `[*]` is a star."""
    tokens = [token[1] if len(token) == 3 else token for token in _tokens(pattern)]
    plain = all(len(token) == 1 for token in tokens) and not {"*", "?"} & set(_tokens(pattern))
    return "".join(tokens) if plain else None


def escape(text: str) -> str:
    """A pattern that matches this text alone."""
    return _WILD.sub(lambda found: f"[{found[0]}]", text)


def covers(pattern: str, text: str) -> bool:
    """Whether the pattern matches the text whatever its holes hold: only a star takes a hole."""
    if HOLE not in text:
        return _regex(pattern).fullmatch(text) is not None
    steps = _steps(pattern)
    return _run(steps, text, lambda active: active & steps.stars)


def may_match(pattern: str, text: str) -> bool:
    """Whether the pattern matches the text for some content of its holes."""
    if HOLE not in text:
        return covers(pattern, text)
    steps = _steps(pattern)
    # What fills the hole may take the pattern from its first open place to any later one.
    return _run(steps, text, lambda active: steps.all & ~((active & -active) - 1) if active else 0)


@lru_cache(maxsize=512)
def _regex(pattern: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(pattern))


class _Steps:
    """A pattern as bit masks: bit i is the place before its i-th step."""

    def __init__(self, pattern: str) -> None:
        tokens = _tokens(pattern)
        self.accept = 1 << len(tokens)
        self.all = (self.accept << 1) - 1
        self.stars = sum(1 << place for place, token in enumerate(tokens) if token == "*")
        self._tests = [None if token == "*" else _regex(token) for token in tokens]
        self._masks: dict[str, int] = {}

    def mask(self, character: str) -> int:
        """The places whose step takes this character."""
        found = self._masks.get(character)
        if found is None:
            found = sum(1 << place for place, test in enumerate(self._tests) if test and test.fullmatch(character))
            self._masks[character] = found
        return found

    def closure(self, active: int) -> int:
        """With the places reached by letting a star match nothing."""
        return active | (active & self.stars) << 1


@lru_cache(maxsize=512)
def _steps(pattern: str) -> _Steps:
    return _Steps(pattern)


def _tokens(pattern: str) -> list[str]:
    tokens: list[str] = []
    place = 0
    while place < len(pattern):
        group = _CLASS.match(pattern, place) if pattern[place] == "[" else None
        token = group[0] if group else pattern[place]
        place += len(token)
        if token == "[":
            token = "[[]"  # a bracket that is never closed stands for itself
        if token != "*" or tokens[-1:] != ["*"]:
            tokens.append(token)
    return tokens


def _run(steps: _Steps, text: str, across: Callable[[int], int]) -> bool:
    active = steps.closure(1)
    for character in text:
        onward = (active & steps.mask(character)) << 1 | active & steps.stars
        active = steps.closure(across(active) if character == HOLE else onward)
        if not active:
            return False
    return bool(active & steps.accept)
