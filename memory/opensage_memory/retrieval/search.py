"""One search: candidates from words, vectors and graph, one score, the best of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opensage_memory.errors import BadInput
from opensage_memory.item import KINDS
from opensage_memory.retrieval.hit import Hit
from opensage_memory.scope import View
from opensage_memory.store.base import Reader
from opensage_memory.text import query_tokens

FOUND_BY_DEFAULT = tuple(kind for kind in KINDS if kind not in ("entity", "session"))
LONGEST = 20_000
MAX_K = 1000


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked."""

    text: str
    k: int
    kinds: tuple[str, ...] | None = None
    vector: Sequence[float] | None = None
    budget_tokens: int | None = None
    explain: bool = False


class Search:
    """Searches one consistent state through one view."""

    def __init__(self, reader: Reader, view: View, model: str = "") -> None:
        self._reader, self._view, self._model = reader, view, model

    def best(self, query: Query) -> list[Hit]:
        """The best k hits, best first."""
        check(query)
        view = self._view.but(kinds=query.kinds or FOUND_BY_DEFAULT)
        found = dict(self._reader.lexical(query_tokens(query.text[:LONGEST]), view, max(200, 4 * query.k)))
        items = self._reader.get(found, view)
        hits = [Hit(items[id], score, {"words": score} if query.explain else {}) for id, score in found.items()]
        return within(hits[: query.k], query.budget_tokens)


def check(query: Query) -> None:
    """Whether it can be answered.

    Raises:
        BadInput: no text, no number, an unknown kind.
    """
    if not isinstance(query.text, str):
        raise BadInput(f"a query is a text, not {type(query.text).__name__}")
    if not isinstance(query.k, int) or not 1 <= query.k <= MAX_K:
        raise BadInput(f"k is how many hits are wanted, 1 to {MAX_K}, not {query.k!r}")
    for kind in query.kinds or ():
        if kind not in KINDS:
            raise BadInput(f"{kind!r} is no kind of item: use one of {', '.join(KINDS)}")


def within(hits: list[Hit], budget_tokens: int | None) -> list[Hit]:
    """The best hits whose texts together fit into the budget, four characters a token."""
    if budget_tokens is None:
        return hits
    left, kept = budget_tokens * 4, list[Hit]()
    for hit in hits:
        if len(hit.item.text) <= left:
            left -= len(hit.item.text)
            kept.append(hit)
    return kept
