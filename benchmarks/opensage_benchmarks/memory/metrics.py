"""Recall and reciprocal rank of evidence in a ranking."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

CUTS = (5, 10, 20)


def measure(ranking: Sequence[str], evidence: AbstractSet[str]) -> dict[str, float]:
    """Recall at each of `CUTS`, and the reciprocal rank of the first evidence (0 when none is ranked)."""
    if not evidence:
        raise ValueError("a question without evidence has no recall")
    places = {id: place for place, id in reversed(list(enumerate(ranking, 1)))}
    ranks = [places[id] for id in evidence if id in places]
    found = {f"recall@{cut}": sum(rank <= cut for rank in ranks) / len(evidence) for cut in CUTS}
    return {**found, "mrr": 1 / min(ranks) if ranks else 0.0}


def by_category(measured: Iterable[tuple[str, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    """Means and their number `n` for each category, and for all of them together under `all`."""
    groups: dict[str, list[Mapping[str, float]]] = defaultdict(list)
    for category, each in measured:
        groups[category].append(each)
    groups = {**dict(sorted(groups.items())), "all": [each for group in groups.values() for each in group]}
    return {name: _mean(group) for name, group in groups.items() if group}


def _mean(group: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {"n": len(group), **{name: sum(each[name] for each in group) / len(group) for name in group[0]}}
