"""Texts of problems: what is the same problem, and what is only other numbers and names."""

from __future__ import annotations

import re
import unicodedata

LONGEST = 2_000
"""Characters of a problem that are looked at. A longer one gets no bonus, so that length does not pay."""

_NUMBER = re.compile(r"(?<![A-Za-z_])[-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?%?")
_WORD = re.compile(r"[^\W\d_]+")
_NAME = re.compile(r"(?<![.!?:\n] )(?<!^)(?<=[\w,;'(] )[A-Z][a-z]+|[A-Z][a-z]+(?= (?:has|had|is|was|and [A-Z])\b)")
_FIRST = re.compile(r"[A-Z][a-z]+(?= [a-z]+(?:s|ed)\b)")
# Sentences begin with these too, and then a verb or a plural may follow.
_OTHERS = (
    "A All An And Are Both Calculate Check Compute Count Each Every Find For From Get Given How I If In Is It Its Let "
    "List Make Merge Number Numbers Of On Print Python Remove Return Reverse Sort Split Sum Take Test That The Their "
    "There These They This Those To True False None What When Where Which While Who Why With Write You"
)
_NO_NAMES = frozenset(_OTHERS.split())


def normalised(text: str) -> str:
    """The text with each number as `0` and each name as `Name`, so that those alone make nothing new.

    A name is a capitalised word within a sentence, or before a verb at its beginning. A heuristic: it errs on odd
    texts, but always in the same way.
    """
    text = _NUMBER.sub("0", unicodedata.normalize("NFKC", text[:LONGEST]))
    text = _NAME.sub(_named, text)
    return " ".join(_FIRST.sub(_named, text).split())


def _named(found: re.Match[str]) -> str:
    return found[0] if found[0] in _NO_NAMES else "Name"


def key(text: str) -> str:
    """What two texts have in common that are the same problem: letters without case, blanks as one."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def wordlike(text: str) -> bool:
    """Whether it has any word at all: blanks, digits and signs alone are no question."""
    return bool(_WORD.search(text))
