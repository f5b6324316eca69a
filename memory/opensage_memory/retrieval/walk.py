"""Personalised PageRank (Haveliwala 2002, "Topic-sensitive PageRank", WWW) over what is around some items."""

from __future__ import annotations

from collections.abc import Mapping

from opensage_memory.item import Edge
from opensage_memory.scope import View
from opensage_memory.store.base import Reader

NODES = 400
HOPS = 2
DAMPING = 0.85
ROUNDS = 30


def walk(reader: Reader, view: View, seeds: Mapping[str, float]) -> dict[str, float]:
    """Ranks of the items shown around the seeds, 0 to 1 by the highest; the walk starts at a seed by its weight.

    Names and sessions are passed through, whatever kinds the view shows, but answer only when it shows them.
    """
    import numpy as np

    wide = view.but(kinds=None)
    around = reader.hop(seeds, wide, HOPS, NODES)
    place = {id: number for number, id in enumerate(around)}
    edges = reader.edges(around, wide, direction="out")
    pairs = [(place[e.source], place[e.target], e.weight) for e in edges if _inside(e, place)]
    if not pairs:
        return {}
    source, target, weight = (np.array(column) for column in zip(*pairs, strict=True))
    ends, starts = np.concatenate((target, source)), np.concatenate((source, target))
    weights = np.concatenate((weight, weight)).astype(float)
    out = np.bincount(starts, weights, minlength=len(place))
    start = np.array([seeds.get(id, 0.0) for id in place])
    start /= start.sum() or 1.0
    rank = start
    for _ in range(ROUNDS):
        flow = weights * rank[starts] / np.maximum(out[starts], 1e-12)
        lost = start * rank[out == 0].sum()
        rank = (1 - DAMPING) * start + DAMPING * (np.bincount(ends, flow, minlength=len(place)) + lost)
    top = float(rank.max()) or 1.0
    shown = reader.get(place, view)
    return {id: float(rank[number]) / top for id, number in place.items() if id in shown}


def _inside(edge: Edge, place: Mapping[str, int]) -> bool:
    return edge.source in place and edge.target in place
