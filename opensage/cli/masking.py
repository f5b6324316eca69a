"""The secrets that this command hides in whatever it prints."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache

from opensage.secrets import Mask

_patterns: tuple[str, ...] = ()


def use_patterns(patterns: Sequence[str]) -> Mask:
    """Hide what matches these patterns too, from now on; returns the mask."""
    global _patterns
    _patterns = tuple(patterns)
    return current()


def current() -> Mask:
    """The mask of this process: its environment, and the patterns of the settings once they are read."""
    return _made(tuple(os.environ.items()), _patterns)


@lru_cache(maxsize=4)
def _made(env: tuple[tuple[str, str], ...], patterns: tuple[str, ...]) -> Mask:
    return Mask.of(dict(env), patterns)


def masked(text: str) -> str:
    """The text without secrets."""
    return current().text(text)
