"""The secrets that this command hides in whatever it prints."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import lru_cache

from opensage.secrets import Mask

_patterns: tuple[str, ...] = ()
_more: tuple[tuple[str, str], ...] = ()


def use_patterns(patterns: Sequence[str], more: Mapping[str, str] | None = None) -> Mask:
    """Hide what matches these patterns too, and `more` secrets by name, from now on; returns the mask."""
    global _patterns, _more
    _patterns = tuple(patterns)
    _more = _more if more is None else tuple(more.items())
    return current()


def current() -> Mask:
    """The mask of this process: its environment, and the patterns of the settings once they are read."""
    return _made(tuple(os.environ.items()), _patterns, _more)


@lru_cache(maxsize=4)
def _made(env: tuple[tuple[str, str], ...], patterns: tuple[str, ...], more: tuple[tuple[str, str], ...]) -> Mask:
    return Mask.of(dict(env), patterns, dict(more))


def masked(text: str) -> str:
    """The text without secrets."""
    return current().text(text)
