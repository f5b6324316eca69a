"""How many slots a token reads: a policy over powers of two, trained after the memory.

The paper states a Markov decision process; its policy network and training were not found. Reconstructed [R]: a small
network of the hidden state and the router's entropy, trained through a straight-through Gumbel choice with the loss
plus `lambda * E[M] / S`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .config import ARMConfig
from .router import choose


class MemoryPolicy(nn.Module):
    """Logits over `config.grid` for each token."""

    def __init__(self, config: ARMConfig, hidden: int = 32) -> None:
        super().__init__()
        self.grid = config.grid
        self.inner = nn.Sequential(nn.Linear(config.d_model + 1, hidden), nn.Tanh(), nn.Linear(hidden, len(self.grid)))
        last = self.inner[-1]
        assert isinstance(last, nn.Linear)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)

    def forward(self, h: Tensor, entropy: Tensor | None = None) -> Tensor:
        """Logits [B, T, G] of hidden states [B, T, d] and the router's entropy [B, T]; zeros when it is not given."""
        told = h.new_zeros(h.shape[:2]) if entropy is None else entropy
        return self.inner(torch.cat([h, told.unsqueeze(-1)], -1))

    def choice(self, logits: Tensor, tau: float | None, generator: torch.Generator | None = None) -> Tensor:
        """One-hot rows over the grid, [B, T, G]: sampled with a gradient at a temperature, the highest without."""
        return choose(logits.log_softmax(-1), tau, generator).w

    def mean(self, choice: Tensor) -> Tensor:
        """M of each token, [B, T]."""
        return choice @ choice.new_tensor(self.grid)


@dataclass(frozen=True, slots=True)
class PolicyStep:
    """One step of training: the task's loss, and the mean M over S."""

    loss: float
    read: float


def train_policy(
    parameters: Iterable[nn.Parameter],
    forward: Callable[[], tuple[Tensor, Tensor]],
    *,
    steps: int,
    price: float,
    rate: float = 3e-3,
    tell: Callable[[int, PolicyStep], None] | None = None,
) -> list[PolicyStep]:
    """Train policies against the price of reading; everything else stays as it is.

    Args:
        parameters: of the policies alone.
        forward: makes a batch; returns the task's loss and the mean M / S of it, both with gradients.
        steps: of Adam.
        price: lambda, 0 or more: what reading all slots costs in units of the loss.
        rate: of learning.
        tell: called after each step.

    Raises:
        ValueError: price is below 0, or steps below 1.
    """
    if not price >= 0:
        raise ValueError(f"price is {price}: lambda is 0 or more")
    if steps < 1:
        raise ValueError(f"steps is {steps}: it is at least 1")
    optimizer, told = torch.optim.Adam(list(parameters), lr=rate), []
    for number in range(steps):
        loss, read = forward()
        optimizer.zero_grad()
        torch.autograd.backward(loss + price * read, inputs=[p for g in optimizer.param_groups for p in g["params"]])
        optimizer.step()
        told.append(PolicyStep(float(loss.detach()), float(read.detach())))
        if tell is not None:
            tell(number, told[-1])
    return told
