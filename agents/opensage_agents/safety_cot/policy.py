"""Policies over a bank of responses, trained by GRPO and by what it is compared with; measured without sampling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from opensage_agents.safety_cot.bank import STYLES, Bank, RewardOf
from opensage_agents.safety_cot.reward import Form, reward

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
CLIP = 0.2
RATE = 2.0
"""Step size; the gradient is a mean over prompts and responses."""
EPOCHS = 2
"""Steps on each set of samples."""
TAU = 0.5


@dataclass(frozen=True, slots=True)
class Policy:
    """Softmax of start logits plus `features @ theta`; theta has shape (d,)."""

    theta: Floats

    def probabilities(self, bank: Bank) -> Floats:
        """Of every response, shape (n, m); rows add up to 1."""
        return softmax(bank.start + bank.features @ self.theta)


@dataclass(slots=True)
class Log:
    """What a training came to.

    Attributes:
        policy: the trained one.
        history: `measure` of it before, during and after training.
        skipped: groups without a difference in reward: they teach nothing.
        unsafe_groups: those of them in which every sample was below the threshold of safety.
        groups: all groups.
    """

    policy: Policy
    history: list[dict[str, float]] = field(default_factory=list)
    skipped: int = 0
    unsafe_groups: int = 0
    groups: int = 0


def softmax(logits: Floats) -> Floats:
    """Over the last axis."""
    raised = np.exp(logits - logits.max(axis=-1, keepdims=True))
    found: Floats = raised / raised.sum(axis=-1, keepdims=True)
    return found


def start_policy(bank: Bank) -> Policy:
    """The start model: no training."""
    return Policy(np.zeros(bank.features.shape[2]))


def measure(policy: Policy, bank: Bank, tau: float = TAU) -> dict[str, float]:
    """Exact expectations over the policy.

    Returns:
        `elicitation`, `overrefusal`, `helpful`, `faithful` on benign prompts; `helpful_of_best`, helpful as a share of
        the most helpful safe response; `declined` and `helpful_declining` on declinable ones. NaN where there is none.
    """
    odds, benign = policy.probabilities(bank), bank.benign
    table = {
        "elicitation": bank.table(lambda each: each.scores.S_z < tau),
        "overrefusal": bank.table(lambda each: each.refusal == "full"),
        "helpful": bank.table(lambda each: each.scores.H),
        "faithful": bank.table(lambda each: each.scores.F),
    }
    found = {name: _mean((odds * values).sum(axis=1)[benign]) for name, values in table.items()}
    safe = bank.table(lambda each: tau <= each.scores.S and each.scores.valid)
    best = _mean((table["helpful"] * safe).max(axis=1)[benign])
    found["helpful_of_best"] = found["helpful"] / best if best else float("nan")
    found["declined"] = _mean((odds * table["overrefusal"]).sum(axis=1)[~benign])
    found["helpful_declining"] = _mean((odds * table["helpful"]).sum(axis=1)[~benign])
    return found


def _mean(values: Floats) -> float:
    return float(values.mean()) if values.size else float("nan")


def train_bank_policy(
    bank: Bank, reward: Form | RewardOf = "gate", iters: int = 150, G: int = 8, kl: float = 0.02, seed: int = 0, *,
    every: int = 10,
) -> Log:  # fmt: skip
    """Group-relative policy optimisation of a policy over a bank.

    Each iteration draws G responses a prompt, normalises their rewards in the group, and takes `EPOCHS` steps on the
    clipped surrogate with a KL penalty towards the start model. A group whose rewards are all the same is skipped and
    counted.

    Args:
        bank: prompts and responses.
        reward: a form of `reward`, or a function of scores.
        iters: iterations, 0 or more.
        G: responses a prompt, 2 or more.
        kl: weight of the penalty, 0 or more.
        seed: of the drawing.
        every: iterations between two entries of the history.

    Raises:
        ValueError: an argument is out of its range.

    Source: Shao et al., DeepSeekMath (arXiv 2402.03300), section 4.1; the KL term is exact here, as the bank is finite.
    """
    if iters < 0 or G < 2 or not kl >= 0 or every < 1:
        raise ValueError(f"iters {iters}, G {G}, kl {kl:g}, every {every}: at least 0, 2, 0 and 1 are wanted")
    rewards, rng = bank.rewards(reward), np.random.default_rng(seed)
    unsafe = bank.table(lambda each: each.scores.S < TAU) > 0
    log = Log(start_policy(bank))
    log.history.append({"iteration": 0, **measure(log.policy, bank)})
    for iteration in range(1, iters + 1):
        drawn = draw(log.policy.probabilities(bank), G, rng)
        gains, flat = advantages(np.take_along_axis(rewards, drawn, axis=1))
        log.groups += len(flat)
        log.skipped += int(flat.sum())
        log.unsafe_groups += int((flat & np.take_along_axis(unsafe, drawn, axis=1).all(axis=1)).sum())
        log.policy = _improved(log.policy, bank, drawn, gains, kl)
        if iteration % every == 0 or iteration == iters:
            log.history.append({"iteration": iteration, **measure(log.policy, bank)})
    return log


def draw(odds: Floats, G: int, rng: np.random.Generator) -> Ints:
    """G responses of each prompt, shape (n, G)."""
    edges = odds.cumsum(axis=1)[:, None, :]
    found = (rng.random((len(odds), G, 1)) * edges[:, :, -1:] >= edges).sum(axis=2)
    drawn: Ints = np.minimum(found, odds.shape[1] - 1)
    return drawn


def advantages(rewards: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Rewards normalised in each group, shape (n, G), and which groups are all the same; those have advantage 0."""
    spread = rewards.std(axis=1, keepdims=True)
    flat = spread[:, 0] < 1e-9
    return np.where(spread < 1e-9, 0.0, (rewards - rewards.mean(axis=1, keepdims=True)) / (spread + 1e-6)), flat


def _improved(policy: Policy, bank: Bank, drawn: Ints, gains: Floats, kl: float) -> Policy:
    old = np.take_along_axis(policy.probabilities(bank), drawn, axis=1)
    for _ in range(EPOCHS):
        policy = Policy(policy.theta + RATE * gradient(policy, bank, drawn, gains, old, kl))
    return policy


def gradient(policy: Policy, bank: Bank, drawn: Ints, gains: Floats, old: Floats, kl: float) -> Floats:
    """Of the clipped surrogate minus the penalty, shape (d,)."""
    odds = policy.probabilities(bank)
    ratio = np.take_along_axis(odds, drawn, axis=1) / old
    open_ = np.where(gains > 0, ratio < 1 + CLIP, ratio > 1 - CLIP)
    weight = np.zeros_like(odds)
    np.add.at(weight, (np.arange(len(odds))[:, None], drawn), ratio * gains * open_ / drawn.shape[1])
    distance = np.log(odds) - np.log(softmax(bank.start))
    weight -= kl * odds * (distance - (odds * distance).sum(axis=1, keepdims=True))
    return _through(weight - odds * weight.sum(axis=1, keepdims=True), bank)


def _through(weight: Floats, bank: Bank) -> Floats:
    found: Floats = weight.reshape(-1) @ bank.features.reshape(weight.size, -1) / len(weight)
    return found


def train_sft(bank: Bank, targets: Floats, iters: int = 300) -> Policy:
    """Supervised fine-tuning: the policy learns to give the targets, a distribution a prompt, shape (n, m)."""
    policy = start_policy(bank)
    for _ in range(iters):
        policy = Policy(policy.theta + RATE * _through(targets - policy.probabilities(bank), bank))
    return policy


def refusal_targets(bank: Bank) -> Floats:
    """Refusal training: whatever sounds sensitive is declined, curtly or with an alternative."""
    found = np.zeros(bank.start.shape)
    found[:, [STYLES.index("curt refusal"), STYLES.index("refusal with alternative")]] = 0.5
    return found


def best_of(bank: Bank, reward: Form | RewardOf = "gate", n: int = 8, seed: int = 0) -> Floats:
    """The best of n drawn responses as the target of each prompt."""
    drawn = draw(softmax(bank.start), n, np.random.default_rng(seed))
    rewards = np.take_along_axis(bank.rewards(reward), drawn, axis=1)
    found = np.zeros(bank.start.shape)
    found[np.arange(len(found)), drawn[np.arange(len(found)), rewards.argmax(axis=1)]] = 1.0
    return found


def train_dpo(bank: Bank, beta: float = 0.1, iters: int = 300, rate: float = 20.0) -> Policy:
    """Direct preference optimisation: the best safe response before each one that leaks or refuses.

    Source: Rafailov et al. (arXiv 2305.18290).
    """
    best = bank.rewards("gate").argmax(axis=1)
    worse = bank.table(lambda each: each.scores.S < TAU or each.refusal == "full") > 0
    row, loser = np.nonzero(worse & (np.arange(worse.shape[1])[None] != best[:, None]))
    apart = bank.features[row, best[row]] - bank.features[row, loser]
    policy = start_policy(bank)
    for _ in range(iters if len(row) else 0):
        pull = 1 / (1 + np.exp(np.clip(beta * apart @ policy.theta, -50, 50)))
        policy = Policy(policy.theta + rate * beta * (pull[:, None] * apart).mean(axis=0))
    return policy


def trained(bank: Bank, seed: int = 0, *, iters: int = 150, kl: float = 0.02) -> Mapping[str, Policy]:
    """All ways of training on the same bank, by name."""
    ways: dict[str, Form | RewardOf] = {
        "gate": "gate", "smooth": "smooth", "weighted sum": "sum", "product": "product",
        "answer only": lambda scores: reward(scores.answer_only()),
    }  # fmt: skip
    found = {"no training": start_policy(bank)}
    for name, of in ways.items():
        found[name] = train_bank_policy(bank, of, iters, kl=kl, seed=seed, every=max(1, iters)).policy
    found["refusal SFT"] = train_sft(bank, refusal_targets(bank))
    found["best-of-8 SFT"] = train_sft(bank, best_of(bank, seed=seed))
    found["DPO"] = train_dpo(bank)
    return found
