"""T2: a world of texts. A small solver picks programs by the words of a question, and learns which gave the answer."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from opensage_agents.selfplay.buffer import HistoryBuffer, Strategy
from opensage_agents.selfplay.detector import KindName
from opensage_agents.selfplay.embedding import Encoder
from opensage_agents.selfplay.errors import BadValue
from opensage_agents.selfplay.loop import Attempt, SelfPlayLoop
from opensage_agents.selfplay.metrics import History, effective, overlap
from opensage_agents.selfplay.policy import SoftmaxQuestioner
from opensage_agents.selfplay.questions import NUMBER, SHAPE, SKILLS, Ints, clause, rendered, results

Array = NDArray[np.float64]
Cells = NDArray[np.int64]
SAMPLES = 10
"""Answers to each question."""


@dataclass(frozen=True, slots=True)
class T2:
    """The world's constants.

    Attributes:
        rounds, steps, batch, pool: of the loop.
        rate: of the solver's learning.
        fade: share of the solver's weights that each round loses.
        labels: "checked": s is the share of right samples, and the right answer teaches. "majority": s is the share of
            the majority's answer, which teaches, right or wrong (R-Zero).
        taught: chance that a phrase of the solver's first lesson had its right program.
        spread: standard deviation of a skill's first logit.
        keep: pull back to the first logits.
        embedder: "hash" or "minilm".
        kind: of detector.
        cap, strategy: of the history.
        lam: weight of novelty.
    """

    rounds: int = 12
    steps: int = 10
    batch: int = 64
    pool: int = 128
    rate: float = 0.5
    fade: float = 0.03
    labels: Literal["checked", "majority"] = "checked"
    taught: float = 0.75
    spread: float = 1.0
    keep: float = 0.999
    embedder: str = "hash"
    kind: KindName = "knn"
    cap: int | None = None
    strategy: Strategy = "reservoir"
    lam: float = 0.5

    def __post_init__(self) -> None:
        """Refuse what is no world."""
        if not (0 <= self.fade < 1 and 0 <= self.taught <= 1):
            raise BadValue(f"fade is {self.fade} and taught {self.taught}: both are shares")


@cache
def vocabulary() -> tuple[Array, dict[str, int]]:
    """Words of each phrase, (skills * 3, words), and their columns. Numbers and names are no words."""
    texts = [clause(skill, phrase, "", "", "") for skill in range(NUMBER) for phrase in range(3)]
    words = [re.findall(r"[a-z]+", text.lower()) for text in texts]
    columns = {word: place for place, word in enumerate(sorted({word for each in words for word in each}))}
    found = np.zeros((len(texts), len(columns)))
    for row, each in enumerate(words):
        found[row, [columns[word] for word in each]] = 1
    return found / np.linalg.norm(found, axis=1, keepdims=True), columns


class TextSolver:
    """A bag of words to a choice among the skills' programs, for each step of a question."""

    def __init__(self, world: T2, rng: np.random.Generator) -> None:
        self._world, self._rng = world, rng
        self._words = vocabulary()[0]
        self.weights = np.zeros((self._words.shape[1], NUMBER))
        self._learn_first()
        self._grid = _grid()

    def _learn_first(self) -> None:
        """A short lesson on two of three phrases, with wrong programs among them."""
        rows = np.array([3 * skill + phrase for skill in range(NUMBER) for phrase in (0, 1)])
        right = self._rng.random(len(rows)) < self._world.taught
        programs = np.where(right, rows // 3, self._rng.integers(NUMBER, size=len(rows)))
        wanted = np.eye(NUMBER)[programs]
        for _ in range(60):
            self.weights += 0.5 * self._words[rows].T @ (wanted - self._choice()[rows])

    def _choice(self) -> Array:
        logits = self._words @ self.weights
        found = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(found / found.sum(axis=1, keepdims=True))

    def attempt(self, items: Cells) -> Attempt:
        """Ten samples of each, with fresh numbers. `labels` has rows of three numbers and the answer that teaches."""
        first, second, p1, p2 = np.unravel_index(items, SHAPE)
        nonsense, single = first == NUMBER, second == NUMBER
        numbers = self._rng.integers(2, 41, (len(items), 3))
        choice = self._choice()
        rows = [np.minimum(skill, NUMBER - 1) * 3 + phrase for skill, phrase in ((first, p1), (second, p2))]
        answers = self._follow(self._drawn(choice[rows[0]]), numbers[:, 0], numbers[:, 1])
        onward = self._follow(self._drawn(choice[rows[1]]), answers, numbers[:, 2])
        answers = np.where(single[:, None], answers, onward)
        answers = np.where(nonsense[:, None], self._rng.integers(0, 10**6, answers.shape), answers)
        if self._world.labels == "majority":
            votes = (answers[:, :, None] == answers[:, None, :]).sum(axis=2)
            label = answers[np.arange(len(items)), votes.argmax(axis=1)]
        else:
            label = np.where(nonsense, -(10**9), _right(first, second, numbers))  # nobody can know
        shares = (answers == label[:, None]).mean(axis=1)
        return Attempt(shares, ~(nonsense & (p1 < 2)), np.column_stack([numbers, label]))

    def _drawn(self, chances: Array) -> Ints:
        edges = chances.cumsum(axis=1)
        drawn = self._rng.random((len(chances), SAMPLES, 1)) * edges[:, None, -1:]
        return np.asarray((drawn > edges[:, None, :]).sum(axis=2))

    def _follow(self, programs: Ints, x: Ints, y: Ints) -> Ints:
        """What drawn programs give, (n, samples)."""
        x = np.broadcast_to(x[:, None] if x.ndim == 1 else x, programs.shape)
        found = results(x, np.broadcast_to(y[:, None], programs.shape))
        return np.asarray(np.take_along_axis(found, programs[..., None], axis=-1)[..., 0])

    def train(self, items: Cells, attempt: Attempt) -> None:
        """One step towards the programs that give the majority's answer; then everything fades a little."""
        first, second, p1, p2 = np.unravel_index(items, SHAPE)
        keep = first < NUMBER
        if keep.any():
            one, two = 3 * first + p1, np.where(second < NUMBER, 3 * second + p2, -1)
            self._step(one[keep], two[keep], attempt.labels[keep])
        self.weights *= 1 - self._world.fade

    def _step(self, one: Ints, two: Ints, labels: Ints) -> None:
        choice = self._choice()
        start, then = choice[one], choice[two]
        joint = start[:, :, None] * np.where((two < 0)[:, None], np.eye(NUMBER)[:1], then)[:, None, :]
        joint = joint * (_outcomes(two, labels) == labels[:, 3, None, None])
        total = joint.sum(axis=(1, 2), keepdims=True)
        joint = np.divide(joint, total, out=np.zeros_like(joint), where=total > 0)
        fine = total[:, 0, 0] > 0
        pairs = fine & (two >= 0)
        self.weights += self._world.rate * self._words[one[fine]].T @ (joint.sum(axis=2) - start)[fine]
        self.weights += self._world.rate * self._words[two[pairs]].T @ (joint.sum(axis=1) - then)[pairs]

    def held_out(self) -> float:
        """Chance of a right answer on a fixed grid: all skills and pairs of skills, each in three ways."""
        one, two, labels = self._grid
        choice = self._choice()
        then = np.where((two < 0)[:, None], np.eye(NUMBER)[:1], choice[two])
        right = _outcomes(two, labels) == labels[:, 3, None, None]
        return float((choice[one][:, :, None] * then[:, None, :] * right).sum(axis=(1, 2)).mean())


def _outcomes(two: Ints, labels: Ints) -> Ints:
    """What each pair of programs gives, (n, skills, skills); of questions of one step the first program's, repeated."""
    first = results(labels[:, 0], labels[:, 1])
    second = results(first, np.broadcast_to(labels[:, 2, None], first.shape))
    return np.where((two < 0)[:, None, None], first[:, :, None], second)


@cache
def _grid() -> tuple[Ints, Ints, Ints]:
    rng = np.random.default_rng(12345)
    skills = [(a, b) for a in range(NUMBER) for b in range(NUMBER + 1)]
    cells = [(a, b, p, q) for a, b in skills for p, q in ((0, 1), (1, 2), (2, 0))]
    first, second, p1, p2 = (np.array(each) for each in zip(*cells, strict=True))
    two = np.where(second < NUMBER, 3 * second + p2, -1)
    numbers = rng.integers(2, 41, (len(cells), 3))
    return 3 * first + p1, two, np.column_stack([numbers, _right(first, second, numbers)])


def _right(first: Ints, second: Ints, numbers: Ints) -> Ints:
    """The answers."""
    place = np.arange(len(numbers))
    steps = results(numbers[:, 0], numbers[:, 1])[place, np.minimum(first, NUMBER - 1)]
    after = results(steps, numbers[:, 2])[place, np.minimum(second, NUMBER - 1)]
    return np.where(second < NUMBER, after, steps)


@dataclass(slots=True)
class Texts:
    """Embeddings of all cells, and the texts of the used ones."""

    encoder: Encoder
    plain: list[str] = field(init=False)
    rows: NDArray[np.float32] = field(init=False)

    def __post_init__(self) -> None:
        self.plain = [rendered(cell, random.Random(cell)) for cell in range(int(np.prod(SHAPE)))]
        self.rows = self.encoder.encode(self.plain)


@cache
def texts(embedder: str) -> Texts:
    """The same for all runs of a process: embedding is what costs."""
    return Texts(Encoder(embedder))


def simulate(arm: str, seed: int, world: T2 | None = None) -> History:
    """One run. Figures of each round: `effective` pairs of skills among the used, `overlap`, `novelty`, `seen`.

    Raises:
        BadValue: no such arm.
    """
    from opensage_agents.selfplay.arms import open_arm

    world = world or T2()
    rng = np.random.default_rng(seed)
    known = texts(world.embedder)
    solver = TextSolver(world, rng)
    start = rng.normal(0, world.spread, SHAPE[0])[:, None, None, None] + rng.normal(0, 0.1, SHAPE)
    start = start + rng.normal(0, world.spread, SHAPE[1])[None, :, None, None]
    questioner = SoftmaxQuestioner(start, rng, keep=world.keep)
    history = HistoryBuffer(world.cap, world.strategy, seed, known.encoder)
    reward = open_arm(arm, world, known, history, questioner, seed)
    before: list[Cells] = []

    def observe(_pool: Cells, _attempt: Attempt, used: Cells, _number: int) -> dict[str, float]:
        pairs = np.array(np.unravel_index(used, SHAPE))[:2]
        earlier = np.unique(np.concatenate(before)) if before else np.zeros(0, dtype=np.int64)
        before.append(used)
        return {
            "effective": effective(pairs[0] * (NUMBER + 1) + pairs[1]),
            "overlap": overlap(known.rows[used], known.rows[earlier]),
            **reward.figures(used),
        }

    loop = SelfPlayLoop(
        questioner, solver, reward, world.rounds, steps=world.steps, batch=world.batch, pool=world.pool, observe=observe
    )
    return loop.run()


def world_of(**changes: Any) -> T2:
    """The world with other constants."""
    return replace(T2(), **changes)


__all__ = ["SKILLS", "T2", "TextSolver", "simulate", "texts", "world_of"]
