"""The history: all problems that were used to train the solver."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import numpy as np

from opensage_agents.selfplay.embedding import Encoder
from opensage_agents.selfplay.errors import BadValue
from opensage_agents.selfplay.lines import read_lines, write_lines
from opensage_agents.selfplay.text import key

Strategy = Literal["reservoir", "fifo", "herding"]
STRATEGIES = ("reservoir", "fifo", "herding")


@dataclass(slots=True)
class Used:
    """One problem: its text, the round that first used it, how often it was used since."""

    question: str
    round: int
    count: int
    tag: float
    """A random number: what is kept of a round are those with the least, which is a reservoir."""


class HistoryBuffer:
    """Used problems without repeats, at most `cap` of them. Not what was generated: what was trained on.

    When it is full, each round keeps an equal part of the places (less when it has fewer): no round is forgotten.

    Args:
        cap: most problems kept; None keeps all.
        strategy: which of a round's are kept: "reservoir" (at random), "herding" (those whose mean comes nearest to the
            round's, needs `encoder`); or "fifo": the last ones, whatever their round.
        seed: of the reservoir.
        encoder: of the questions, for herding.

    Raises:
        BadValue: cap below 1, an unknown strategy, herding without an encoder.
    """

    def __init__(
        self, cap: int | None = None, strategy: Strategy = "reservoir", seed: int = 0, encoder: Encoder | None = None
    ) -> None:
        if cap is not None and cap < 1:
            raise BadValue(f"cap is {cap}: a buffer holds at least one problem")
        if strategy not in STRATEGIES:
            raise BadValue(f"strategy is {strategy!r}: it is one of {', '.join(STRATEGIES)}")
        if strategy == "herding" and encoder is None:
            raise BadValue("herding needs an encoder of the questions: give one, or take strategy reservoir")
        self.cap, self.strategy, self._encoder = cap, strategy, encoder
        self._random = random.Random(seed)
        self._kept: dict[str, Used] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[Used]:
        return iter(self._kept.values())

    @property
    def questions(self) -> list[str]:
        """All texts, in the order in which they came."""
        return [each.question for each in self]

    def add(self, items: Iterable[str], round: int) -> int:
        """Add used problems; returns how many are new. One that is there is counted up; an empty one is left out."""
        fresh = 0
        for question in items:
            name = key(question)
            if name in self._kept:
                self._kept[name].count += 1
            elif name:
                self._kept[name] = Used(question, round, 1, self._random.random())
                fresh += 1
        if self.cap is not None and len(self) > self.cap:
            self._shrink(self.cap)
        return fresh

    def sample(self, number: int, seed: int = 0) -> list[str]:
        """Up to so many texts at random, each at most once."""
        return random.Random(seed).sample(self.questions, min(number, len(self)))

    def _shrink(self, cap: int) -> None:
        if self.strategy == "fifo":
            self._kept = dict(list(self._kept.items())[-cap:])
            return
        places = shares(Counter(each.round for each in self), cap)
        kept: set[str] = set()
        for number, most in places.items():
            names = [name for name, each in self._kept.items() if each.round == number]
            kept.update(names if len(names) <= most else self._chosen(names, most))
        self._kept = {name: each for name, each in self._kept.items() if name in kept}

    def _chosen(self, names: list[str], most: int) -> list[str]:
        if self._encoder is None or self.strategy != "herding":
            return sorted(names, key=lambda name: self._kept[name].tag)[:most]
        rows = self._encoder.encode([self._kept[name].question for name in names]).astype(np.float64)
        return [names[place] for place in herded(rows, most)]

    def save(self, path: Path) -> None:
        """Write JSON lines with `question`, `round` and `count`.

        Raises:
            ConfigError: the file cannot be written.
        """
        write_lines(path, ({"question": each.question, "round": each.round, "count": each.count} for each in self))

    @classmethod
    def load(
        cls, path: Path, cap: int | None = None, strategy: Strategy = "reservoir", seed: int = 0,
        encoder: Encoder | None = None,
    ) -> HistoryBuffer:  # fmt: skip
        """Read JSON lines; `round` and `count` may be missing.

        Raises:
            ConfigError: the file cannot be read.
            BadValue: a line cannot be used; says its number.
        """
        found = cls(cap, strategy, seed, encoder)
        found.cap = None
        for number, entry in read_lines(path):
            round_, count = (entry.get(name, least) for name, least in (("round", 0), ("count", 1)))
            if not (_whole(round_, 0) and _whole(count, 1)):
                raise BadValue(f"{path}:{number}: round and count are whole numbers, count at least 1")
            name = key(entry["question"])
            found.add([entry["question"]], cast("int", round_))
            if name:
                found._kept[name].count += cast("int", count) - 1
        found.cap = cap
        if cap is not None and len(found) > cap:
            found._shrink(cap)
        return found


def _whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def shares(sizes: Counter[int], cap: int) -> dict[int, int]:
    """Places of each round: equal parts, and what a small round leaves goes to the others, later rounds first."""
    left, places = cap, {}
    for done, (number, size) in enumerate(sorted(sizes.items(), key=lambda pair: (pair[1], pair[0]))):
        places[number] = min(size, left // (len(sizes) - done))
        left -= places[number]
    return places


def herded(rows: np.ndarray, most: int) -> list[int]:
    """Places of so many rows whose running mean stays nearest to the mean of all (Welling 2009)."""
    mean, total, chosen = rows.mean(axis=0), np.zeros(rows.shape[1]), []
    free = np.ones(len(rows), dtype=bool)
    for number in range(1, most + 1):
        score = rows @ (mean * number - total) - (rows**2).sum(axis=1) / 2
        best = int(np.argmax(np.where(free, score, -np.inf)))
        free[best] = False
        total += rows[best]
        chosen.append(best)
    return chosen
