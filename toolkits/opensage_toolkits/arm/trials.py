"""One way to keep the past, trained and tested on one task of recall."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from . import tasks
from .config import ARMConfig, Gate
from .model import TinyModel, Training, train
from .peers import of_budget
from .router import used
from .tasks import Batch, Vocabulary

POSTHOC = ("h2o", "tova", "random", "merge")
"""Caches that drop by what was attended to: put into a model that was trained with full attention."""
TESTS = 512


@dataclass(frozen=True, slots=True)
class Trial:
    """A method, a task, sizes. `gate` and `balance` are of routed memory alone."""

    method: str
    task: str
    steps: int = 1000
    pairs: int = 8
    length: int = 64
    slots: int = 16
    seed: int = 0
    gate: Gate = "token"
    balance: float = 0.01
    width: int = 48

    @property
    def config(self) -> ARMConfig:
        """One head of `width` numbers, and a tree of four branches with so many leaves."""
        depth, width = (self.slots.bit_length() - 1) // 2, self.width
        return ARMConfig(width, 1, 1, width, branching=4, depth=depth, gate=self.gate, balance=self.balance)

    @property
    def numbers(self) -> int:
        """Of the state of one head: keys, values, mass, and the position, which takes the room of two."""
        return self.slots * (2 * self.width + 3)


def makers(trial: Trial) -> tuple[Callable[[int, int], Batch], int]:
    """What makes a batch of a size and a seed, and how many tokens there are."""
    pairs, length = trial.pairs, trial.length
    made: dict[str, tuple[Callable[[int, int], Batch], int]] = {
        "mqar": (lambda n, s: tasks.mqar(n, pairs, 2 * pairs, length, seed=s), Vocabulary(2 * pairs, 16).size),
        "needle": (lambda n, s: tasks.needle(n, length, (s % 11) / 10, seed=s), Vocabulary(16, 16).size),
        "copy": (lambda n, s: tasks.copy(n, length, pairs, seed=s), Vocabulary(pairs, 16).size),
        "selective_copy": (lambda n, s: tasks.selective_copy(n, length, pairs, seed=s), Vocabulary(pairs, 16).size),
    }
    if trial.task not in made:
        raise ValueError(f"task is {trial.task!r}: it is one of {', '.join(made)}")
    make, words = made[trial.task]
    make(1, 0)  # sizes that do not fit are told before anything is trained
    return make, words


def tried(trial: Trial, tell: Callable[[int, float], None] | None = None) -> dict[str, Any]:
    """Train and test; accuracy on sequences that were not trained on, without noise.

    Raises:
        ValueError: an unknown method or task, or sizes that do not fit.
    """
    make, words = makers(trial)
    name = "full" if trial.method in POSTHOC else trial.method
    peer, numbers = (None, trial.numbers) if name == "arm" else of_budget(name, trial.numbers, trial.width)
    torch.manual_seed(trial.seed)
    model, begun = TinyModel(words, trial.config, peer), time.process_time()
    train(model, make, Training(trial.steps, seed=trial.seed), tell)
    seconds = time.process_time() - begun
    if trial.method in POSTHOC:
        numbers = put_posthoc(model, trial)
    told = {**asdict(trial), "numbers": numbers, "cpu_seconds": round(seconds, 1), "posthoc": trial.method in POSTHOC}
    return {**told, "accuracy": accuracy(model, make), "chance": 1 / 16, **_of_memory(model, make)}


def put_posthoc(model: TinyModel, trial: Trial) -> int:
    """Make a model that was trained with full attention keep a bounded cache; returns its numbers."""
    peer, numbers = of_budget(trial.method, trial.numbers, trial.width)
    for block in model.blocks:
        block.attention.peer = peer
    return numbers


def accuracy(model: TinyModel, make: Callable[[int, int], Batch]) -> float:
    """Of eleven batches, so that a needle lies at each of its depths once."""
    found: list[float] = [model.accuracy(make(TESTS // 8, 10**9 + at)) for at in range(11)]
    return round(sum(found) / len(found), 4)


@torch.no_grad()
def _of_memory(model: TinyModel, make: Callable[[int, int], Batch]) -> dict[str, Any]:
    """The share of slots in use by entropy, and the mean gate."""
    if not model.memories:
        return {}
    model.eval()
    aux = model(make(TESTS, 10**9).tokens)[1][0]
    return {"used": round(float(used(aux.counts).mean()), 3), "gamma": round(float(aux.gamma.mean()), 4)}
