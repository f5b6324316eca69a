"""What a price of reading does: a policy trained on a memory that is trained already, for several prices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from . import tasks
from .model import TinyModel, Training, train
from .policy import train_policy
from .tasks import IGNORED, Batch, Vocabulary
from .trials import TESTS, Trial

EASY, KEYS, TAU = 1, 16, 0.7


def batch_of(pairs: int, trial: Trial, number: int, seed: int) -> Batch:
    """Sequences of one difficulty, all of one length and one set of keys."""
    return tasks.mqar(number, pairs, KEYS, trial.length, seed=seed)


def mixed(trial: Trial, number: int, seed: int) -> Batch:
    """Half with one pair, half with all of them."""
    parts = [batch_of(pairs, trial, number // 2, seed) for pairs in (EASY, trial.pairs)]
    return Batch(torch.cat([each.tokens for each in parts]), torch.cat([each.targets for each in parts]))


def priced(trial: Trial, prices: Sequence[float], steps: int = 200) -> list[dict[str, Any]]:
    """One memory, and for each price lambda a policy for it.

    Returns:
        For "all slots" and each price: accuracy and the mean M at the questions, of easy and of hard sequences.

    Raises:
        ValueError: sizes that do not fit, or a price below 0.
    """
    words = Vocabulary(KEYS, 16).size
    torch.manual_seed(trial.seed)
    base = TinyModel(words, trial.config)
    train(base, lambda n, s: mixed(trial, n, s), Training(trial.steps, seed=trial.seed))
    rows = [{"price": None, **_measured(base, trial)}]
    for price in prices:
        torch.manual_seed(trial.seed)
        model = TinyModel(words, replace(trial.config, read="policy"))
        model.load_state_dict(base.state_dict(), strict=False)
        _train_policy(model, trial, price, steps)
        rows.append({"price": price, **_measured(model, trial)})
    return rows


def _train_policy(model: TinyModel, trial: Trial, price: float, steps: int) -> None:
    (memory,) = model.memories
    assert memory.policy is not None
    model.train()
    memory.tau, memory.generator = TAU, torch.Generator().manual_seed(trial.seed)
    seeds = iter(range(10**6, 10**6 + steps))

    def forward() -> tuple[Tensor, Tensor]:
        loss, _, told = model.loss(mixed(trial, 64, next(seeds)))
        return loss, told[0].M / trial.slots

    train_policy(memory.policy.parameters(), forward, steps=steps, price=price, rate=1e-2)


@torch.no_grad()
def _measured(model: TinyModel, trial: Trial) -> dict[str, Any]:
    model.eval()
    found: dict[str, Any] = {}
    for name, pairs in (("easy", EASY), ("hard", trial.pairs)):
        batch = batch_of(pairs, trial, TESTS, 10**9)
        told = model(batch.tokens)[1][0]
        asked = batch.targets != IGNORED
        mean = float(trial.slots) if told.read is None else float(told.read[asked].mean())
        found |= {f"{name}_accuracy": round(model.accuracy(batch), 4), f"{name}_M": round(mean, 2)}
        found[f"{name}_M_all_tokens"] = round(float(told.M), 2)
    return found
