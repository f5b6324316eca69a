"""Evidence retrieval: all turns of a conversation are stored in a memory, and each question ranks them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from opensage_benchmarks.memory.dialogue import Conversation
from opensage_benchmarks.memory.metrics import by_category, measure

DEPTH = 60
"""Turns that are ranked for a question."""


def store(conversation: Conversation, path: Path, embedder: Any = None) -> Any:
    """A memory with one message for each turn; its scope is the conversation's name, its keys the turns' ids."""
    from opensage_memory import Memory, New

    memory = Memory(path, embedder=embedder)
    news = [
        New(turn.text, "message", turn.id, turn.at, trust="user", author=turn.author, session=turn.session)
        for turn in conversation.turns
        if turn.text.strip()
    ]
    memory.add_many(news, conversation.name)
    return memory


def evaluate(conversation: Conversation, memory: Any, **options: Any) -> dict[str, Any]:
    """Recall and rank by category, and milliseconds of CPU of a search for ten (median), embedding included."""
    measured: list[tuple[str, dict[str, float]]] = []
    spent: list[float] = []
    for question in conversation.questions:
        began = time.process_time()
        memory.search(question.text, conversation.name, kinds=("message",), **options)
        spent.append((time.process_time() - began) * 1e3)
        hits = memory.search(question.text, conversation.name, k=DEPTH, kinds=("message",), **options)
        measured.append((question.category, measure([hit.item.key for hit in hits], question.evidence)))
    return {"categories": measured, "turns": len(conversation.turns), "cpu_ms": statistics.median(spent)}


def summary(results: Iterable[dict[str, Any]], categories: Sequence[str] = ("1", "2", "3", "4")) -> dict[str, Any]:
    """Means over the questions of several conversations, for each category and for the named ones together."""
    measured = [pair for result in results for pair in result["categories"]]
    table = by_category(measured)
    chosen = by_category([pair for pair in measured if pair[0] in categories])
    return {**table, "all": chosen["all"]} if chosen else table
