"""What a prompt must pass before it is kept, and how alike two prompts are."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from opensage_agents.safety_cot.taxonomy import DENY, compiled
from opensage_agents.safety_cot.words import stems

WIDTH = 1024
"""Buckets of the hashed words and pairs of words."""
_BENIGN = re.compile(
    r"\b(?:explain|compare|describe|outline|discuss|summari[sz]e|tell the story|timeline|what led to"
    r"|write (?:a|an|the|three) (?:outline|museum|audio|timeline|policy|questions?))",
    re.I,
)
_HARMFUL = re.compile(
    r"\b(?:instructions?|recipe|bypass|evade|undetected|secretly|step[- ]by[- ]step|hurt"
    r"|attack (?:a|the|my)|get away with|without (?:being|getting) (?:caught|noticed))\b",
    re.I,
)
_WORD = re.compile(r"[a-z0-9]+")
Vector = NDArray[np.float32]


def benign_intent(prompt: str) -> float:
    """How likely a prompt has a benign wish: cues in a linear score through a logistic curve. Rules, English."""
    score = 1.5 * len(_BENIGN.findall(prompt)) - 4.0 * len(_HARMFUL.findall(prompt)) - 0.5
    return 1 / (1 + math.exp(-score))


def topic_score(prompt: str, lexicon: set[str]) -> float:
    """How much a prompt is about a sensitive domain: two of its words are enough for 1."""
    return min(1.0, len(stems(prompt) & lexicon) / 2)


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters of `synthesise`.

    Attributes:
        intent: prompt → probability of a benign wish; `tau_intent` is wanted.
        topic: prompt and lexicon of the domain → score; `tau_topic` is wanted.
        deny: regular expressions, whatever the case; a taxonomy that matches one stops the run.
        cosine: likeness from which a prompt counts as the same as an earlier one.
    """

    intent: Callable[[str], float] = benign_intent
    topic: Callable[[str, set[str]], float] = topic_score
    deny: Sequence[str] = field(default=DENY)
    tau_intent: float = 0.5
    tau_topic: float = 0.5
    cosine: float = 0.9

    def patterns(self) -> list[re.Pattern[str]]:
        """The deny patterns, compiled."""
        return compiled(self.deny)


def vector(text: str) -> Vector:
    """Counts of words and pairs of words in hashed buckets, of length 1. The hash is the same everywhere."""
    words = _WORD.findall(text.lower())
    found = np.zeros(WIDTH, dtype=np.float32)
    for token in (*words, *(f"{a} {b}" for a, b in pairwise(words))):
        found[zlib.crc32(token.encode()) % WIDTH] += 1
    norm = float(np.linalg.norm(found))
    return found / norm if norm else found


class Seen:
    """The prompts kept so far, for a look whether a new one is the same.

    Args:
        cosine: likeness from which two count as the same.
    """

    def __init__(self, cosine: float) -> None:
        self._cosine, self._number = cosine, 0
        self._rows: Vector = np.zeros((64, WIDTH), dtype=np.float32)

    def add(self, text: str) -> bool:
        """Keep a prompt; false, and not kept, when it is like an earlier one."""
        new = vector(text)
        if self._number and float((self._rows[: self._number] @ new).max()) >= self._cosine:
            return False
        if self._number == len(self._rows):
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
        self._rows[self._number] = new
        self._number += 1
        return True


def duplicates(texts: Sequence[str], cosine: float) -> int:
    """Pairs of texts that are at least so alike."""
    if not texts:
        return 0
    rows = np.stack([vector(text) for text in texts])
    found = 0
    for at in range(0, len(rows), 256):
        alike = rows[at : at + 256] @ rows.T >= cosine
        found += int(np.triu(alike, k=at + 1).sum())
    return found
