"""Made tasks of recall: what must be remembered stands at the front, the question at the end, beyond any window.

A batch is tokens [B, T] and targets [B, T], both int64; a target of -100 is not asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

IGNORED = -100


@dataclass(frozen=True, slots=True)
class Batch:
    """Tokens and what must be answered, [B, T] each."""

    tokens: Tensor
    targets: Tensor


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Where each kind of token begins: 0 is filler, then keys, values, and distractors."""

    keys: int
    values: int
    noise: int = 16

    @property
    def size(self) -> int:
        """Tokens in all."""
        return 1 + self.keys + self.values + self.noise

    @property
    def first_value(self) -> int:
        """The token of value 0."""
        return 1 + self.keys

    @property
    def first_noise(self) -> int:
        """The first distractor."""
        return 1 + self.keys + self.values


def mqar(
    batch: int, n_pairs: int, n_keys: int, steps: int, *, values: int = 16, queries: int | None = None, seed: int = 0
) -> Batch:
    """Associative recall (after "Zoology", Arora et al. 2023, arXiv 2312.04927): pairs, distractors, then keys alone.

    Each pair is a key token and its value token; the values are asked for at the keys in the end.

    Args:
        batch: sequences.
        n_pairs: pairs to remember, at most `n_keys`.
        n_keys: different keys.
        steps: T; pairs and queries must fit.
        values: different values: chance is 1 / values.
        queries: keys asked for, all pairs by default.
        seed: of the sequences.

    Raises:
        ValueError: they do not fit, or a number is below 1.
    """
    asked = n_pairs if queries is None else queries
    if not (1 <= n_pairs <= n_keys and 1 <= asked <= n_pairs and batch >= 1 and values >= 1):
        raise ValueError(f"{n_pairs} pairs of {n_keys} keys, {asked} queries: 1 <= queries <= pairs <= keys is wanted")
    if 2 * n_pairs + asked > steps:
        raise ValueError(f"{n_pairs} pairs and {asked} queries need {2 * n_pairs + asked} tokens, T is {steps}")
    words, g = Vocabulary(n_keys, values), torch.Generator().manual_seed(seed)
    order = torch.rand(batch, n_keys, generator=g).argsort(1)[:, :n_pairs]
    held = torch.randint(0, values, (batch, n_pairs), generator=g)
    tokens = torch.randint(words.first_noise, words.size, (batch, steps), generator=g)
    tokens[:, 0 : 2 * n_pairs : 2] = 1 + order
    tokens[:, 1 : 2 * n_pairs : 2] = words.first_value + held
    which = torch.rand(batch, n_pairs, generator=g).argsort(1)[:, :asked]
    tokens[:, steps - asked :] = 1 + order.gather(1, which)
    targets = torch.full_like(tokens, IGNORED)
    targets[:, steps - asked :] = words.first_value + held.gather(1, which)
    return Batch(tokens, targets)


def needle(batch: int, steps: int, depth: float, *, n_keys: int = 16, values: int = 16, seed: int = 0) -> Batch:
    """One pair at a depth (0 the front, 1 just before the question) among distractors; its key at the end.

    Raises:
        ValueError: depth is outside [0, 1], or T is below 4.
    """
    if not 0 <= depth <= 1 or steps < 4:
        raise ValueError(f"depth {depth} in {steps} tokens: a depth in [0, 1] and at least 4 tokens are wanted")
    words, g = Vocabulary(n_keys, values), torch.Generator().manual_seed(seed)
    tokens = torch.randint(words.first_noise, words.size, (batch, steps), generator=g)
    key, value = (torch.randint(0, most, (batch,), generator=g) for most in (n_keys, values))
    at = round(depth * (steps - 3))
    tokens[:, at], tokens[:, at + 1], tokens[:, -1] = 1 + key, words.first_value + value, 1 + key
    targets = torch.full_like(tokens, IGNORED)
    targets[:, -1] = words.first_value + value
    return Batch(tokens, targets)


def copy(batch: int, steps: int, length: int, *, values: int = 16, seed: int = 0) -> Batch:
    """Values at the front, distractors, then as many numbered questions: the i-th key asks for the i-th value.

    Raises:
        ValueError: twice the length does not fit.
    """
    if length < 1 or 2 * length > steps:
        raise ValueError(f"a copy of {length} needs {2 * length} tokens, T is {steps}")
    words, g = Vocabulary(length, values), torch.Generator().manual_seed(seed)
    tokens = torch.randint(words.first_noise, words.size, (batch, steps), generator=g)
    held = words.first_value + torch.randint(0, values, (batch, length), generator=g)
    tokens[:, :length], tokens[:, steps - length :] = held, 1 + torch.arange(length)
    targets = torch.full_like(tokens, IGNORED)
    targets[:, steps - length :] = held
    return Batch(tokens, targets)


def selective_copy(batch: int, steps: int, length: int, *, values: int = 16, seed: int = 0) -> Batch:
    """As `copy`, with the values scattered among the distractors (after "Mamba", arXiv 2312.00752).

    Raises:
        ValueError: twice the length does not fit.
    """
    made = copy(batch, steps, length, values=values, seed=seed)
    g = torch.Generator().manual_seed(seed + 1)
    room = steps - length
    places = torch.rand(batch, room, generator=g).argsort(1)[:, :length].sort(1).values
    front = made.tokens[:, :length].clone()
    made.tokens[:, :length] = made.tokens[:, length : 2 * length] if room >= 2 * length else 0
    made.tokens[:, :room].scatter_(1, places, front)
    return made
