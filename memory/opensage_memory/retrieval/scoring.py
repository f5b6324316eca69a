"""The score of an item for a question: its words, those around it, who wrote it, when, and how near its vector is.

BM25F (Robertson, Zaragoza & Taylor 2004, "Simple BM25 extension to multiple weighted fields", CIKM) with the graph as
its fields: what stands around an item in a conversation counts as if the item said it too, only less. A word that the
item and its neighbours share saturates once, where a sum of their scores would count it twice.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Any, NamedTuple

from opensage_memory.text import DateSpan, dates, query_tokens, tokens

if TYPE_CHECKING:
    import numpy as np

    Floats = np.ndarray[Any, np.dtype[Any]]

_MAX_TERMS = 64
"""Words of a question that are looked at, the first ones: a query may be a page."""


@dataclass(frozen=True, slots=True)
class Weights:
    """What counts how much; each tuned on LoCoMo conversations 26, 30 and 41, and flat around the value.

    Attributes:
        saturation: BM25's k1: how much a word's repetition adds.
        length: BM25's b: how much a long text is discounted, 0 to 1.
        previous: words of the item before, as a share of own words.
        next: words of the item after.
        second_previous: words of the item two before.
        second_next: words of the item two after.
        reply: words of the question that the item answers; added to `previous` where that is the item before.
        session: each word's logarithm of the number of items with it in the item's session, as a share of own words.
        author: added when the question names the item's author and not everyone. The lexical score is 0 to 1.
        date: added when the question names a date that the item's covers.
        time: added when the question asks for a time and the item tells one.
        vector: added per unit of cosine.
    """

    saturation: float = 0.9
    length: float = 0.4
    previous: float = 0.3
    next: float = 0.1
    second_previous: float = 0.2
    second_next: float = 0.05
    reply: float = 0.5
    session: float = 0.1
    author: float = 0.13
    date: float = 0.16
    time: float = 0.11
    vector: float = 0.35


class Candidate(NamedTuple):
    """An item that may answer.

    Attributes:
        id: its id.
        tokens: its tokens joined by spaces, as they are indexed.
        author: who wrote it.
        session: id of the session it belongs to, empty for none.
        previous: id of the item before it in its session, empty for none.
        next: id of the item after it.
        asked: id of the question that it answers.
        at: the day it was said or began to be true.
        similarity: cosine of its vector and the question's, None without one.
    """

    id: str
    tokens: str
    author: str = ""
    session: str = ""
    previous: str = ""
    next: str = ""
    asked: str = ""
    at: date | None = None
    similarity: float | None = None


@dataclass(frozen=True, slots=True)
class Score:
    """How well an item answers; the `parts` (words, around, author, date, time, vector) sum up to `total`."""

    id: str
    total: float
    parts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Question:
    """What a question asks for.

    Attributes:
        terms: distinct tokens to look for, in order.
        words: all its tokens.
        spans: dates it names.
        asks_time: whether it wants to know when, or how long.
    """

    terms: tuple[str, ...]
    words: frozenset[str]
    spans: tuple[DateSpan, ...] = ()
    asks_time: bool = False


_ASKS_TIME = re.compile(
    r"\s*(?:when|(?:in |on )?(?:what|which) (?:year|month|week|day|date|time)|how long)\b", re.IGNORECASE
)
_TIME_WORDS = """
yesterday today tomorrow tonight ago last next week weekend month year day recently since just
monday tuesday wednesday thursday friday saturday sunday
january february march april may june july august september october november december
"""
_YEAR = re.compile(r"(?:^| )\d{4}(?: |$)")
_TELLS_TIME = frozenset(token for word in _TIME_WORDS.split() for token in tokens(word))


def read_question(text: str, today: date | None = None) -> Question:
    """Terms, dates (with `today`, also `last week` and the like), and whether a time is asked for, in English."""
    terms = tuple(query_tokens(text)[:_MAX_TERMS])
    return Question(terms, frozenset(tokens(text)), tuple(dates(text, today)), _ASKS_TIME.match(text) is not None)


def score(
    question: Question,
    candidates: Sequence[Candidate],
    frequencies: Mapping[str, int],
    total: int,
    weights: Weights | None = None,
    average: float = 0.0,
    best: int | None = None,
) -> list[Score]:
    """The best candidates (None: all), best first, equals in their order; totals compare across questions.

    `frequencies` tells in how many of the `total` items each term occurs, `average` how many tokens an item has (0: the
    candidates' mean). Linear in the candidates' tokens.
    """
    if not candidates:
        return []
    import numpy as np

    rule = weights or Weights()
    idf = {term: _idf(frequencies.get(term, 0), total) for term in question.terms}
    own, both = _lexical(candidates, idf, rule, average)
    named = _named(question, candidates)
    parts = {
        "words": own,
        "around": both - own,
        "author": np.array([each.author in named for each in candidates]) * rule.author,
        "date": np.array(_dated(question, candidates)) * rule.date,
        "time": np.array([question.asks_time and _tells_time(each) for each in candidates]) * rule.time,
        "vector": np.array(_similar(candidates)) * rule.vector,
    }
    totals = np.sum(list(parts.values()), axis=0)
    columns = {name: values for name, values in parts.items() if values.any()}
    return [
        Score(candidates[place].id, float(totals[place]), {name: float(part[place]) for name, part in columns.items()})
        for place in np.argsort(-totals, kind="stable")[:best].tolist()
    ]


def _idf(frequency: int, total: int) -> float:
    return math.log1p((max(0, total - frequency) + 0.5) / (frequency + 0.5))


def _named(question: Question, candidates: Sequence[Candidate]) -> frozenset[str]:
    """The authors that the question names, by whole or first name; none if it names all."""
    authors = {each.author for each in candidates}
    named = {author for author in authors if (name := tokens(author)) and name[0] in question.words}
    return frozenset(named) if named != authors else frozenset()


def _dated(question: Question, candidates: Sequence[Candidate]) -> list[bool]:
    days = {each.at for each in candidates if each.at} if question.spans else set()
    asked = {day for day in days if any(span.covers(day) for span in question.spans)}
    return [each.at in asked for each in candidates]


def _tells_time(candidate: Candidate) -> bool:
    return _YEAR.search(candidate.tokens) is not None or not _TELLS_TIME.isdisjoint(candidate.tokens.split())


def _similar(candidates: Sequence[Candidate]) -> list[float]:
    """Their similarities; an item without a vector is taken as a usual one, so that it is not found worse for that."""
    known = [each.similarity for each in candidates if each.similarity is not None]
    usual = sum(known) / len(known) if known else 0.0
    return [usual if each.similarity is None else each.similarity for each in candidates]


def _lexical(
    candidates: Sequence[Candidate], idf: Mapping[str, float], rule: Weights, average: float
) -> tuple[Floats, Floats]:
    """The share of the best BM25 that the terms could have, by own words, and by those around too."""
    import numpy as np

    counts = _counts([each.tokens for each in candidates], list(idf))
    lengths = np.array([each.tokens.count(" ") + 1 for each in candidates])
    discount = 1 - rule.length + rule.length * lengths / (average or lengths.mean())
    own = counts / np.append(discount, 1)
    share = np.array(list(idf.values())) / (sum(idf.values()) or 1.0)
    alone, both = (share @ (each / (each + rule.saturation)) for each in (own, own + _around(candidates, own, rule)))
    return alone[:-1], both[:-1]


def _counts(texts: Sequence[str], terms: Sequence[str]) -> Floats:
    """How often each term is in each text, and a last column of zeros, which stands for a neighbour that is none."""
    import numpy as np

    counts = np.zeros((len(terms), len(texts) + 1))
    wholes = [(row, term, f" {term} ") for row, term in enumerate(terms)]
    for place, text in enumerate(texts):
        # Looking for a part of a string is far quicker than splitting it, and most texts do not have most terms.
        apart = ""
        for row, term, whole in wholes:
            if term in text:
                apart = apart or f" {text.replace(' ', '  ')} "
                counts[row, place] = apart.count(whole)
    return counts


def _around(candidates: Sequence[Candidate], own: Floats, rule: Weights) -> Floats:
    """What neighbours and session lend."""
    import numpy as np

    place = {each.id: number for number, each in enumerate(candidates)}
    none = len(candidates)

    def of(ids: Iterable[str]) -> Floats:
        return np.array([*(place.get(id, none) for id in ids), none])

    previous, following = of(each.previous for each in candidates), of(each.next for each in candidates)
    lent: Floats = rule.previous * own[:, previous] + rule.next * own[:, following]
    lent += rule.second_previous * own[:, previous[previous]] + rule.second_next * own[:, following[following]]
    lent += rule.reply * own[:, of(each.asked for each in candidates)]
    sessions: dict[str, int] = {}
    member = np.array([sessions.setdefault(each.session, len(sessions)) if each.session else -1 for each in candidates])
    sums = np.zeros((len(own), len(sessions) + 1))
    for row, has in enumerate(own[:, :-1] > 0):
        sums[row] = np.bincount(member[has] % sums.shape[1], minlength=sums.shape[1])
    sums[:, -1] = 0
    lent[:, :-1] += rule.session * np.log1p(sums)[:, member]
    return lent
