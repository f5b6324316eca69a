"""A map of the repository that fits a number of tokens: the definitions that matter most, by personalised PageRank.

Files are the nodes. A file that calls a function, or mentions a class or a variable, points at the files that define
it: the more, the fewer files define it and the fewer mention it
(Page, Brin, Motwani and Winograd 1999; the use for code follows aider's repository map).
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .index import Index, Symbol, words_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CHARACTERS = 4
"""A token is counted as four characters."""
_DAMPING = 0.85
_COMMON = 12
"""A name that so many files define says nothing."""
_FOCUS = 50.0
_SHOWN = ("class", "interface", "enum", "type", "function", "method", "macro", "variable")


@dataclass(slots=True)
class RepoMap:
    """The text, the files in it, how many there are, and its tokens (four characters each)."""

    text: str
    files: list[str] = field(default_factory=list)
    of: int = 0
    tokens: int = 0


def make_map(index: Index, budget: int = 1000, focus: str = "") -> RepoMap:
    """The map.

    Args:
        index: up to date.
        budget: tokens of the text at most.
        focus: paths, names or words that the task is about.
    """
    words = dict(words_of(index))
    if not words:
        return RepoMap("")
    symbols = index.symbols("s.kind != 'declaration'", most=400_000)
    calls: dict[str, set[str]] = defaultdict(set)
    for path, name in index.rows("SELECT DISTINCT f.path, k.name FROM call k JOIN file f ON f.content = k.content"):
        calls[path].add(name)
    ranked = _Ranking(words, calls, symbols, set(re.findall(r"[\w$./-]+", focus)))
    return _fitted(ranked.scores(), ranked.ranks, budget * CHARACTERS, len(words))


def pagerank(
    sources: NDArray[np.int64], targets: NDArray[np.int64], weights: NDArray[np.float64], start: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Ranks that sum to 1.

    Args:
        sources: (E,) nodes that the edges leave.
        targets: (E,) nodes they point at.
        weights: (E,) positive.
        start: (N,) where a walk begins again, any positive scale.
    """
    import numpy as np

    count = len(start)
    jump = start / start.sum()
    out = np.bincount(sources, weights, count)
    share = weights / out[sources]
    ranks = jump
    for _ in range(100):
        flow = np.bincount(targets, ranks[sources] * share, count)
        new = _DAMPING * (flow + ranks[out == 0].sum() * jump) + (1 - _DAMPING) * jump
        done = float(np.abs(new - ranks).sum()) < 1e-9
        ranks = new
        if done:
            break
    return np.asarray(ranks, dtype=np.float64)


class _Ranking:
    """Ranks of files, and of the definitions in them."""

    def __init__(
        self, words: dict[str, list[str]], calls: dict[str, set[str]], symbols: list[Symbol], focus: set[str]
    ) -> None:
        self.symbols, self.focus = symbols, focus
        self.paths = list(words)
        self.number = {path: number for number, path in enumerate(self.paths)}
        definers: dict[str, set[int]] = defaultdict(set)
        for symbol in symbols:
            definers[symbol.name].add(self.number[symbol.path])
        self.definers = {
            name: files for name, files in definers.items() if len(files) <= _COMMON and len(name.strip("_")) > 2
        }
        self.mentions = Counter(name for mentioned in words.values() for name in mentioned if name in self.definers)
        self.edges = self._edges(words, calls)
        self.ranks = self._ranks(words)

    def _edges(self, words: dict[str, list[str]], calls: dict[str, set[str]]) -> list[tuple[int, int, str, float]]:
        edges = []
        called_only = {one.name for one in self.symbols if one.kind in ("function", "method")}
        for path, mentioned in words.items():
            here, called = self.number[path], calls.get(path, set())
            for name in mentioned:
                if name in called_only and name not in called:
                    continue
                for there in self.definers.get(name, ()):
                    if there != here:
                        edges.append((here, there, name, self._weight(name)))
        return edges

    def _weight(self, name: str) -> float:
        rare = math.log((1 + len(self.paths)) / self.mentions[name]) if self.mentions[name] else 1.0
        weight = max(rare, 0.01) / len(self.definers[name])
        weight *= 0.1 if name.startswith("_") else 1.0
        return weight * 10 if name in self.focus else weight

    def _ranks(self, words: dict[str, list[str]]) -> dict[str, float]:
        import numpy as np

        start = np.ones(len(self.paths))
        for path, mentioned in words.items():
            start[self.number[path]] += _FOCUS * self._near(path, mentioned)
        heads = np.array([edge[:2] for edge in self.edges], dtype=np.int64).reshape(-1, 2)
        weights = np.array([edge[3] for edge in self.edges])
        return dict(zip(self.paths, pagerank(heads[:, 0], heads[:, 1], weights, start).tolist(), strict=True))

    def _near(self, path: str, mentioned: list[str]) -> float:
        """How much a file is what the focus names: by its path, by what it defines, by what it mentions."""
        if not self.focus:
            return 0.0
        here = self.number[path]
        parts = {*path.split("/"), path.rpartition("/")[2].split(".")[0], path}
        defined = sum(here in self.definers.get(word, ()) for word in self.focus)
        return 3.0 * len(parts & self.focus) + 2.0 * defined + 0.3 * len(self.focus.intersection(mentioned))

    def scores(self) -> list[tuple[float, Symbol]]:
        """Definitions, the most important first: each gets its part of the rank that flows into its file."""
        out: dict[int, float] = defaultdict(float)
        for here, _, _, weight in self.edges:
            out[here] += weight
        got: dict[tuple[int, str], float] = defaultdict(float)
        for here, there, name, weight in self.edges:
            got[there, name] += self.ranks[self.paths[here]] * weight / out[here]
        scored = []
        for symbol in self.symbols:
            score = got[self.number[symbol.path], symbol.name] + 1e-3 * self.ranks[symbol.path]
            if symbol.kind in _SHOWN:
                scored.append((score * (20 if symbol.name in self.focus else 1), symbol))
        return sorted(scored, key=lambda pair: (-pair[0], pair[1].path, pair[1].line))


def _fitted(scores: list[tuple[float, Symbol]], ranks: dict[str, float], room: int, of: int) -> RepoMap:
    chosen: dict[str, dict[int, Any]] = {}
    used = 0
    for _, symbol in scores:
        line = _line(symbol)
        lines = chosen.get(symbol.path, {})
        cost = len(line) + 1 + (0 if lines else len(symbol.path) + 2)
        if symbol.line in lines:
            continue
        if used + cost > room:
            break
        chosen.setdefault(symbol.path, {})[symbol.line] = line
        used += cost
    order = sorted(chosen, key=lambda path: (-ranks[path], path))
    text = "".join(f"{path}:\n" + "".join(f"{chosen[path][at]}\n" for at in sorted(chosen[path])) for path in order)
    return RepoMap(text, order, of, math.ceil(len(text) / CHARACTERS))


def _line(symbol: Symbol) -> str:
    depth = symbol.owner.count(".") + 1 if symbol.owner else 0
    return f"{'  ' * min(depth, 3)} {symbol.line} {symbol.signature[:100]}"
