"""What is known about a task, for the agent that begins with it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from opensage.errors import OpenSageError
from opensage.log.memory_events import Recalled
from opensage.memory.place import explained
from opensage.memory.reach import Reach

if TYPE_CHECKING:
    from opensage_memory import Hit

SMALL_TOKENS = 300
"""What a small local model is given at most."""
SECONDS = 5.0
"""A task waits no longer for what is known about it."""
RECALL = ("fact", "procedure", "summary", "message", "turn", "observation", "document", "chunk", "symbol")
"""What an agent's own question finds."""
KINDS = tuple(kind for kind in RECALL if kind != "observation")
"""What is found for a task: output of tools is left to questions."""
ANSWER = 0.5
"""Share of the best score that an item must have from what is around it, e.g. the question that it answers."""
_CANDIDATES = 40
_LONGEST = 4_000
"""Characters of a task that are looked for."""


async def recalled(reach: Reach, task: str, budget_tokens: int, known: set[str]) -> Recalled | None:
    """What the memory has about a task, or None; `known` are ids that the conversation was shown already.

    Raises:
        MemoryUnavailable: the memory cannot be read.
    """
    if budget_tokens <= 0 or not reach.place.exists:
        return None
    work = reach.place.call(lambda: _recalled(reach, task[:_LONGEST], budget_tokens, known))
    try:
        return await asyncio.wait_for(work, SECONDS)
    except TimeoutError:
        raise OpenSageError(f"memory: {reach.place.where} gave no answer within {SECONDS:.0f} s") from None


def _recalled(reach: Reach, task: str, budget_tokens: int, known: set[str]) -> Recalled | None:
    from opensage_memory.retrieval.context import compose

    with explained():
        hits = reach.news(reach.memory.search(task, reach.scopes, _CANDIDATES, kinds=KINDS, explain=True))
        fresh = [hit for hit in hits if hit.item.id not in known and hit.item.key.partition("#")[0] != reach.session]
        with reach.memory.store.read() as reader:
            made = compose(_telling(fresh, task), budget_tokens, reader)
        if not made.text:
            return None
        used(reach, made.ids)
    return Recalled(text=reach.mask.text(made.text), ids=list(made.ids))


def used(reach: Reach, ids: Sequence[str]) -> None:
    """Count a recall."""
    if ids and reach.memory.store.writable:
        with reach.memory.store.write() as writer:
            writer.use(ids)


def _telling(hits: list[Hit], task: str) -> list[Hit]:
    """Hits that share enough words with the task, and what was answered to them.

    With one common word of many a hit is about something else. That the same was asked before tells nothing.
    """
    from opensage_memory.text import query_tokens, tokens

    wanted, asked = set(query_tokens(task)), " ".join(task.split())
    least = min(2, len(wanted))
    fit = {hit.item.id: hit.score for hit in hits if len(wanted & set(tokens(hit.item.text))) >= least}
    near = ANSWER * max(fit.values(), default=math.inf)
    kept = [hit for hit in hits if hit.item.id in fit or hit.parts.get("around", 0.0) >= near]
    return [hit for hit in kept if " ".join(hit.item.text.split()) != asked]
