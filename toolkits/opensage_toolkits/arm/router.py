"""The tree that says into which slot a token is written."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .config import ARMConfig


class Router(nn.Module):
    """A soft decision tree for each memory: the probability of a leaf is the product of the branches on its way.

    The parameterisation is a reconstruction [R]: linear logits `w_{level,node} . x + b` for each node of a level, or
    shared by the nodes of a level.

    Args:
        dim: numbers of the input x.
        config: branching, depth, nodes, memories.
        per_head: whether x differs by memory, as keys do: [B, K, T, dim] instead of [B, T, dim].
    """

    def __init__(self, dim: int, config: ARMConfig, *, per_head: bool = False) -> None:
        super().__init__()
        self.branching, self.depth, self.per_head = config.branching, config.depth, per_head
        counts = [1 if config.nodes == "shared" else config.branching**level for level in range(config.depth)]
        shapes = [(config.n_kv_heads, count, config.branching) for count in counts]
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(*shape, dim) / math.sqrt(dim)) for shape in shapes)
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(shape)) for shape in shapes)

    def forward(self, x: Tensor) -> Tensor:
        """Log probabilities of the leaves, [B, K, T, S]."""
        ways = "bktd,knjd->bktnj" if self.per_head else "btd,knjd->bktnj"
        total = x.new_zeros(())
        for level, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            logits = torch.einsum(ways, x, weight) + bias.unsqueeze(1)
            branch = logits.log_softmax(-1).expand(-1, -1, -1, self.branching**level, -1).flatten(3)
            below = self.branching ** (self.depth - level - 1)
            total = total + branch.repeat_interleave(below, -1)
        return total


@dataclass(frozen=True, slots=True)
class Choice:
    """Where tokens go.

    Attributes:
        w: [B, K, T, S], one-hot rows in the forward pass; the gradient is that of the soft choice.
        log_p: [B, K, T, S], log probabilities of the leaves, without noise.
    """

    w: Tensor
    log_p: Tensor


def choose(log_p: Tensor, tau: float | None, generator: torch.Generator | None = None, *, hard: bool = True) -> Choice:
    """A leaf for each token.

    With a temperature, a sample from the leaves by the Gumbel trick, with the gradient of the softmax at that
    temperature (straight-through). Without one, the leaf of the highest probability, no noise. That is the argmax over
    leaves, not the greedy way down the tree.

    Args:
        log_p: log probabilities of the leaves.
        tau: temperature, over 0; None for evaluation.
        generator: of the noise.
        hard: one-hot rows; otherwise the soft choice itself.

    Raises:
        ValueError: tau is not over 0.
    """
    if tau is not None and not tau > 0:
        raise ValueError(f"tau is {tau}: a temperature is over 0")
    if tau is None:
        return Choice(one_hot(log_p), log_p)
    uniform = torch.rand(log_p.shape, generator=generator, device=log_p.device, dtype=log_p.dtype)
    tiny = torch.finfo(log_p.dtype).tiny
    noisy = log_p - (-uniform.clamp(tiny, 1 - torch.finfo(log_p.dtype).eps).log()).log()
    soft = (noisy / tau).softmax(-1)
    return Choice(one_hot(noisy) + soft - soft.detach() if hard else soft, log_p)


def one_hot(score: Tensor) -> Tensor:
    """Rows of zeros with a 1 at the highest score, the first of equals; of the dtype of the scores."""
    return torch.zeros_like(score).scatter(-1, score.argmax(-1, keepdim=True), 1.0)


def balance_loss(choice: Choice, real: Tensor) -> Tensor:
    """`S * sum_y f_y p_y`: share of tokens that go to a leaf times its mean probability; 1 when all are used alike.

    Args:
        choice: of the leaves.
        real: [B, T], which tokens count.
    """
    counted = real[:, None, :, None].to(choice.w.dtype)
    tokens = counted.sum().clamp(min=1)
    f = (choice.w.detach() * counted).sum((0, 2)) / tokens
    p = (choice.log_p.exp() * counted).sum((0, 2)) / tokens
    return choice.w.shape[-1] * (f * p).sum(-1).mean()


def entropy(log_p: Tensor) -> Tensor:
    """Of the leaves, in nats, [B, K, T]."""
    return -(log_p.exp() * log_p).sum(-1)


def used(counts: Tensor) -> Tensor:
    """The effective share of slots in use: exp of the entropy of where tokens went, over S.

    Args:
        counts: [..., S] how many tokens each slot got.
    """
    share = counts / counts.sum(-1, keepdim=True).clamp(min=1)
    return torch.exp(-(share * share.clamp(min=1e-12).log()).sum(-1)) / counts.shape[-1]
