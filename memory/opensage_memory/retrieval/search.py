"""One search: candidates from words, vectors and graph, one score, the best of them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from functools import lru_cache

from opensage_memory.errors import BadInput
from opensage_memory.item import ABOUT, KINDS, MENTIONS, to_micros
from opensage_memory.retrieval.hit import Hit
from opensage_memory.retrieval.scoring import Candidate, Question, Score, Weights, read_question, score
from opensage_memory.retrieval.walk import walk
from opensage_memory.scope import View
from opensage_memory.store.base import Outline, Reader
from opensage_memory.text import entities

FOUND_BY_DEFAULT = tuple(kind for kind in KINDS if kind not in ("entity", "session"))
LONGEST = 20_000
"""Characters of a query that are read."""
MAX_K = 1000
CANDIDATES = 100
"""Items that the words of a question bring at least; their surroundings come on top."""
ENOUGH = 40
"""Items found by words and vectors that make a look at names needless."""
NAMED = 8
"""Names in a question that are looked up."""
LINKED = 40
"""Items that each of them brings."""
USED, USED_MOST, AGED = 0.01, 0.03, 0.03
"""Ranking without deleting: what is recalled gains up to USED_MOST, what is a year old loses AGED. Tie-breakers."""
DAY = 86_400_000_000
"""Microseconds."""
YEAR = 365.25 * DAY


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked.

    Attributes:
        text: literal text.
        k: how many hits at most.
        kinds: only these kinds; None for all but entities and sessions.
        vector: of the text.
        budget_tokens: bound on the texts of all hits together.
        explain: fill parts and path.
        walk: what a unit of personalised PageRank around the question's names and best hits adds; 0 for none.
    """

    text: str
    k: int
    kinds: tuple[str, ...] | None = None
    vector: Sequence[float] | None = None
    budget_tokens: int | None = None
    explain: bool = False
    walk: float = 0.0


class Search:
    """Searches one consistent state through one view."""

    def __init__(self, reader: Reader, view: View, model: str = "", weights: Weights | None = None) -> None:
        self._reader, self._view, self._model, self._weights = reader, view, model, weights

    def best(self, query: Query) -> list[Hit]:
        """The best k hits, best first."""
        check(query)
        view = self._view.but(kinds=query.kinds or FOUND_BY_DEFAULT)
        question = read_question(query.text[:LONGEST], (view.as_of or view.now).date())
        near = self._near(query, view)
        found = self._found(query, question, view, near)
        outlines = {each.id: each for each in self._reader.outlines(found, view)}
        scores = self._score(question, [_candidate(each, near) for each in outlines.values()], max(30, 2 * query.k))
        scores = _adjusted(scores, outlines, view.now)
        if query.walk:
            scores = self._walked(query, view, scores)
        scores = [each for each in scores if each.total > 0][: query.k]
        items = self._reader.get((each.id for each in scores), view)
        said = set(found)
        hits = [
            Hit(items[each.id], each.total, each.parts, path(outlines.get(each.id), said))
            for each in scores
            if each.id in items
        ]
        return within(hits if query.explain else [replace(hit, parts={}, path=()) for hit in hits], query.budget_tokens)

    def _near(self, query: Query, view: View) -> dict[str, float]:
        if query.vector is None or not self._model:
            return {}
        return dict(self._reader.nearest(self._model, query.vector, view, max(CANDIDATES, 4 * query.k)))

    def _found(self, query: Query, question: Question, view: View, near: dict[str, float]) -> list[str]:
        """Ids of what words, vectors and (where these are few) names bring."""
        count = max(CANDIDATES, 3 * query.k)
        found = [id for id, _ in self._reader.lexical(question.terms, view, count)]
        found += near
        if len(found) < ENOUGH:  # what mentions a name has its words: they find it, unless they are few
            found += self._linked(query, view)
        return list(dict.fromkeys(found))

    def _linked(self, query: Query, view: View) -> list[str]:
        """Items that mention what the question names, or are about it."""
        keys = [" ".join(name.casefold().split()) for name, _ in entities(query.text[:2000])][:NAMED]
        names = view.but(kinds=("entity",))
        found = [entity.id for key in dict.fromkeys(keys) for entity in self._reader.find(names, key, 4)]
        if not found:
            return []
        wide = view.but(kinds=(*(view.kinds or ()), "entity"))
        edges = self._reader.edges(found, wide, types=(MENTIONS, ABOUT), direction="in", limit=LINKED)
        return [edge.source for edge in edges]

    def _score(self, question: Question, candidates: Sequence[Candidate], best: int) -> list[Score]:
        counts = self._reader.frequencies(question.terms)
        return score(question, candidates, counts, self._reader.size(), self._weights, best=best)

    def _walked(self, query: Query, view: View, scores: list[Score]) -> list[Score]:
        ranks = walk(self._reader, view, {each.id: each.total for each in scores[:20] if each.total > 0})
        known = {each.id: each for each in scores}
        for id in ranks:
            known.setdefault(id, Score(id, 0.0))
        gains = {id: query.walk * ranks.get(id, 0.0) for id in known}
        lifted = [Score(id, each.total + gains[id], {**each.parts, "walk": gains[id]}) for id, each in known.items()]
        return sorted(lifted, key=lambda each: -each.total)


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


def path(each: Outline | None, said: Collection[str]) -> tuple[str, ...]:
    """How an item that was not found by itself is joined to one that was."""
    if each is None or each.id in said:
        return ()
    if each.asked in said:
        return (f"{each.asked} <-REPLY_TO- {each.id}",)
    if each.previous in said:
        return (f"{each.previous} -NEXT-> {each.id}",)
    return (f"{each.next} <-NEXT- {each.id}",) if each.next in said else ()


def _candidate(each: Outline, near: dict[str, float]) -> Candidate:
    day = None if each.at is None else _day(each.at // DAY)
    links = (each.session, each.previous, each.next, each.asked)
    return Candidate(each.id, each.tokens, each.author, *links, day, near.get(each.id))


@lru_cache(maxsize=4096)
def _day(number: int) -> date:
    """The day that many days after 1970-01-01."""
    return date(1970, 1, 1) + timedelta(days=number)


def _adjusted(scores: list[Score], outlines: Mapping[str, Outline], now: datetime) -> list[Score]:
    """Use and age break ties: nothing is lost by them."""
    present = to_micros(now) or 0
    changed = []
    for each in scores:
        outline = outlines[each.id]
        used = min(USED_MOST, USED * math.log1p(outline.uses))
        aged = -AGED * (1 - math.exp(-max(0, present - outline.created) / YEAR)) if each.total > 0 else 0.0
        total = max(each.total + used + aged, each.total * 0.5) if each.total > 0 else 0.0
        changed.append(Score(each.id, total, {**each.parts, "use": used, "age": aged}))
    return sorted(changed, key=lambda each: -each.total)
