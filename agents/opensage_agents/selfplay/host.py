"""The host's own reward, after R-Zero: uncertainty of the solver, less repetition within the batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opensage.errors import ConfigError

Array = NDArray[np.float64]
INVALID = -1.0
"""Reward of what is no question, in the place of the base reward."""
CUT = 0.5
"""Distance at which clusters are cut."""


def majority(answers: Sequence[str]) -> tuple[str, float]:
    """The most frequent answer (the first of several) and its share; ("", 0.0) without answers. "" is no answer."""
    counts = Counter(each for each in answers if each)
    if not counts:
        return "", 0.0
    label, count = max(counts.items(), key=lambda pair: pair[1])
    return label, count / len(answers)


def base_reward(s: Any) -> Array:
    """min(s, 1 - s): 0.5 where the solver is right, or of one mind, half of the time."""
    s = np.asarray(s, dtype=np.float64)
    return np.asarray(np.minimum(s, 1 - s))


def bleu_matrix(texts: Sequence[str]) -> Array:
    """Symmetric BLEU-4 between texts, (n, n), in [0, 1]; words, add-one smoothing from pairs on, brevity penalty."""
    words = [text.casefold().split() for text in texts]
    lengths = np.array([len(each) for each in words], dtype=np.float64)
    logs = np.zeros((len(texts), len(texts)))
    for size in range(1, 5):
        counts = _ngrams(words, size)
        shared = np.array([np.minimum(row, counts).sum(axis=1) for row in counts]).reshape(logs.shape)
        most = np.maximum(lengths - size + 1, 0)[:, None]
        extra = 0 if size == 1 else 1
        logs += np.log(np.maximum((shared + extra) / np.maximum(most + extra, 1), 1e-9))
    brevity = np.exp(np.minimum(0, 1 - lengths[None, :] / np.maximum(lengths[:, None], 1)))
    found = brevity * np.exp(logs / 4)
    return np.asarray(np.clip((found + found.T) / 2, 0, 1))


def _ngrams(words: Sequence[list[str]], size: int) -> NDArray[np.float64]:
    known: dict[tuple[str, ...], int] = {}
    rows = []
    for each in words:
        grams = Counter(tuple(each[place : place + size]) for place in range(len(each) - size + 1))
        rows.append([(known.setdefault(gram, len(known)), count) for gram, count in grams.items()])
    found = np.zeros((len(words), max(1, len(known))))
    for number, row in enumerate(rows):
        for place, count in row:
            found[number, place] = count
    return found


def clusters(texts: Sequence[str], cut: float = CUT) -> NDArray[np.int64]:
    """A cluster's number for each text: average linkage on 1 - BLEU, cut at this distance."""
    try:
        from scipy.cluster.hierarchy import fcluster, linkage
        from scipy.spatial.distance import squareform
    except ImportError as error:
        raise ConfigError("the batch penalty needs scipy: pip install 'opensage[selfplay]'") from error
    distinct = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    places = np.array([distinct[text] for text in texts], dtype=np.int64)
    if len(distinct) < 2:
        return np.zeros(len(texts), dtype=np.int64)
    apart = 1 - bleu_matrix(list(distinct))
    np.fill_diagonal(apart, 0)
    # Linkage weighs each distinct text once: repeats would only add zeros to its averages.
    labels = fcluster(linkage(squareform(apart, checks=False), "average"), cut, "distance")
    return np.asarray(labels[places], dtype=np.int64)


def batch_penalty(texts: Sequence[str], cut: float = CUT) -> Array:
    """Share of the batch that lies in each text's cluster."""
    if not len(texts):
        return np.zeros(0)
    labels = clusters(texts, cut)
    return np.asarray(np.bincount(labels)[labels] / len(texts))


def host_reward(texts: Sequence[str], s: Any, valid: Any = None, *, penalty: bool = True) -> Array:
    """R-Zero's reward: min(s, 1 - s), or -1 where the question is not valid, less the batch penalty."""
    base = base_reward(s)
    if valid is not None:
        base = np.where(np.asarray(valid, dtype=bool), base, INVALID)
    return base - batch_penalty(texts) if penalty else base
