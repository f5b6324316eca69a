"""A small language model, the same for every way to keep the past, and its training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from .attention import ARMAttention, Aux
from .config import ARMConfig
from .peers import Peer
from .tasks import IGNORED, Batch


class PeerAttention(nn.Module):
    """The projections of `ARMAttention` around another way to keep the past."""

    def __init__(self, config: ARMConfig, peer: Peer) -> None:
        super().__init__()
        self.dim, self.peer = config.head_dim, peer
        width = config.n_heads * config.head_dim
        self.to_q, self.to_k, self.to_v = (nn.Linear(config.d_model, width, bias=False) for _ in range(3))
        self.to_out = nn.Linear(width, config.d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, d] to [B, T, d]."""
        q, k, v = (to(x).unflatten(-1, (-1, self.dim)).transpose(1, 2) for to in (self.to_q, self.to_k, self.to_v))
        return self.to_out(self.peer(q, k, v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    """A short causal convolution, attention, and a feed-forward part, each added to what comes in.

    The convolution lets a value see the key before it, in every method alike.
    """

    def __init__(self, config: ARMConfig, attention: nn.Module, kernel: int = 2) -> None:
        super().__init__()
        d = config.d_model
        self.mix = nn.Conv1d(d, d, kernel, padding=kernel - 1)
        self.norm, self.norm_out = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attention = attention
        self.inner = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x: Tensor) -> tuple[Tensor, Aux | None]:
        """[B, T, d] to [B, T, d], and what the memory says."""
        x = x + self.mix(x.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2)
        found, aux = self.attention(self.norm(x)), None
        if isinstance(found, tuple):
            found, _, aux = found
        x = x + found
        return x + self.inner(self.norm_out(x)), aux


class TinyModel(nn.Module):
    """Embedding, blocks, logits.

    Args:
        vocabulary: tokens.
        config: of the memory; its sizes hold for every method.
        peer: another way to keep the past; None for routed memory.
        layers: blocks.
    """

    def __init__(self, vocabulary: int, config: ARMConfig, peer: Peer | None = None, layers: int = 1) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(vocabulary, config.d_model)
        made = [ARMAttention(config) if peer is None else PeerAttention(config, peer) for _ in range(layers)]
        self.blocks = nn.ModuleList(Block(config, each) for each in made)
        self.out = nn.Linear(config.d_model, vocabulary)

    @property
    def memories(self) -> list[ARMAttention]:
        """The layers of routed memory."""
        return [each for each in self.modules() if isinstance(each, ARMAttention)]

    def forward(self, tokens: Tensor) -> tuple[Tensor, list[Aux]]:
        """Logits [B, T, V] of tokens [B, T]."""
        x, told = self.embed(tokens), list[Aux]()
        for block in self.blocks:
            x, aux = block(x)
            told += [] if aux is None else [aux]
        return self.out(x), told

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor, list[Aux]]:
        """Cross-entropy of what is asked for, the load-balance losses, and what the memories say."""
        logits, told = self(batch.tokens)
        loss = cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), ignore_index=IGNORED)
        return loss, sum((each.balance for each in told), loss.new_zeros(())), told

    @torch.no_grad()
    def accuracy(self, batch: Batch) -> float:
        """Share of what is asked for that is answered, without noise."""
        training = self.training
        self.eval()
        asked = batch.targets != IGNORED
        right = self(batch.tokens)[0].argmax(-1)[asked] == batch.targets[asked]
        self.train(training)
        return float(right.float().mean())


@dataclass(frozen=True, slots=True)
class Training:
    """How a model is trained: batches of `batch` sequences, Adam with a warm-up and a cosine to a tenth."""

    steps: int = 1000
    batch: int = 64
    rate: float = 3e-3
    seed: int = 0


def train(
    model: TinyModel,
    make: Callable[[int, int], Batch],
    how: Training,
    tell: Callable[[int, float], None] | None = None,
) -> list[float]:
    """Train on fresh batches `make(batch, seed)`; returns the losses.

    Raises:
        ValueError: steps or batch below 1.
    """
    if how.steps < 1 or how.batch < 1:
        raise ValueError(f"{how.steps} steps of {how.batch} sequences: both are at least 1")
    optimizer = torch.optim.AdamW(model.parameters(), lr=how.rate, weight_decay=0.01)
    warm = max(1, how.steps // 20)
    plan = torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [
            torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, warm),
            torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(1, how.steps - warm), how.rate / 10),
        ],
        [warm],
    )
    for index, memory in enumerate(model.memories):
        memory.generator = torch.Generator().manual_seed(how.seed + index)
    losses = []
    model.train()
    for step in range(how.steps):
        for memory in model.memories:
            memory.anneal(step / how.steps)
        loss, balance, _ = model.loss(make(how.batch, how.seed * 1_000_003 + step + 1))
        optimizer.zero_grad()
        (loss + balance).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        plan.step()
        losses.append(float(loss.detach()))
        if tell is not None:
            tell(step, losses[-1])
    return losses
