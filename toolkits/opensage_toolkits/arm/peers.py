"""Other ways to keep a bounded past, behind one call: `peer(q, k, v) -> out`.

`trained` ones have a mask or a recurrence that does not depend on what is seen, so that a model can be trained with
them; `posthoc` ones drop or merge by what was attended to, and run on a model that was trained with full attention.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import elu, normalize, scaled_dot_product_attention

Peer = Callable[[Tensor, Tensor, Tensor], Tensor]
SINKS = 4


def full(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal softmax attention, [B, H, T, D] each."""
    return scaled_dot_product_attention(q, k, v, is_causal=True)


def masked(mask: Callable[[Tensor, Tensor], Tensor]) -> Peer:
    """Causal attention of those pairs (t, j), j <= t, that a mask keeps."""

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        at = torch.arange(q.shape[2], device=q.device)
        kept = mask(at[:, None], at[None, :]) & (at[None, :] <= at[:, None])
        return scaled_dot_product_attention(q, k, v, attn_mask=kept)

    return run


def window(size: int) -> Peer:
    """The last `size` tokens, the present one among them; a ring of slots that are overwritten in turn is the same."""
    return masked(lambda t, j: j > t - size)


def sinks(size: int, first: int = SINKS) -> Peer:
    """The first tokens and the last `size - first` ones (StreamingLLM, arXiv 2309.17453)."""
    return masked(lambda t, j: (j < first) | (j > t - max(1, size - first)))


def linear(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Linear attention with elu + 1 (arXiv 2006.16236): a state of D x (D + 1) numbers."""
    q, k = elu(q) + 1, elu(k) + 1
    score = (q @ k.transpose(-1, -2)).tril()
    return score @ v / score.sum(-1, keepdim=True)


def delta(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """DeltaNet with beta 1 (arXiv 2406.06484): `S <- S + (v - S k) k^T`, unit keys; a state of D x D numbers.

    All steps at once: what each step writes solves a unit triangular system.
    """
    k = normalize(k, dim=-1)
    own = (k @ k.transpose(-1, -2)).tril(-1)
    eye = torch.eye(own.shape[-1], dtype=own.dtype, device=own.device)
    written = torch.linalg.solve_triangular(eye + own, v, upper=False, unitriangular=True)
    return (q @ k.transpose(-1, -2)).tril() @ written


def evicting(size: int, worth: str, seed: int = 0) -> Peer:
    """A cache of `size` tokens that drops one when it is full.

    Args:
        size: tokens that are kept.
        worth: "h2o" drops the token of the least attention so far outside the recent half (arXiv 2306.14048); "tova"
            that of the least attention now (arXiv 2401.06104); "random" any; "merge" averages the two closest keys.
        seed: of "random".
    """
    if worth not in ("h2o", "tova", "random", "merge"):
        raise ValueError(f"worth is {worth!r}: it is h2o, tova, random or merge")

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        cache, outs = _Cache(size, worth, torch.Generator().manual_seed(seed)), []
        with torch.no_grad():
            for t in range(q.shape[2]):
                outs.append(cache.step(q[:, :, t], k[:, :, t], v[:, :, t]))
        return torch.stack(outs, 2)

    return run


class _Cache:
    """Keys and values that are kept, and the attention each had."""

    def __init__(self, size: int, worth: str, generator: torch.Generator) -> None:
        self.size, self.worth, self.generator = size, worth, generator
        self.k: Tensor | None = None

    def step(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Take a token [B, H, D] in, read, and drop one if there are too many."""
        if self.k is None:
            self.k, self.v, self.sum = k.unsqueeze(2), v.unsqueeze(2), k.new_zeros(*k.shape[:2], 1)
            self.count = torch.ones_like(self.sum)
        else:
            self.k, self.v = torch.cat([self.k, k.unsqueeze(2)], 2), torch.cat([self.v, v.unsqueeze(2)], 2)
            self.sum = torch.nn.functional.pad(self.sum, (0, 1))
            self.count = torch.nn.functional.pad(self.count, (0, 1), value=1.0)
        p = (torch.einsum("bhd,bhnd->bhn", q, self.k) / math.sqrt(q.shape[-1])).softmax(-1)
        self.sum = self.sum + p
        out = torch.einsum("bhn,bhnd->bhd", p, self.v)
        if self.k.shape[2] > self.size:
            self._shrink(p)
        return out

    def _shrink(self, p: Tensor) -> None:
        if self.worth == "merge":
            self._merge()
        else:
            self._drop(self._worth(p).argmin(-1))

    def _worth(self, p: Tensor) -> Tensor:
        if self.worth == "random":
            return torch.rand(p.shape, generator=self.generator)
        if self.worth == "tova":
            return p
        recent = torch.arange(p.shape[-1], device=p.device) >= p.shape[-1] - self.size // 2
        return torch.where(recent, torch.full_like(self.sum, torch.inf), self.sum)

    def _merge(self) -> None:
        """Average the closest pair of keys, weighted by how many tokens stand in each."""
        assert self.k is not None
        near = torch.cdist(self.k, self.k) + torch.diag(self.k.new_full((self.k.shape[2],), torch.inf))
        flat = near.flatten(2).argmin(-1)
        first, second = flat // near.shape[-1], flat % near.shape[-1]
        for name in ("k", "v"):
            each = getattr(self, name)
            one, two = _taken(each, first), _taken(each, second)
            n, m = (self.count.gather(2, at.unsqueeze(-1)).unsqueeze(-1) for at in (first, second))
            index = first[..., None, None].expand(-1, -1, 1, each.shape[-1])
            setattr(self, name, each.scatter(2, index, (n * one + m * two) / (n + m)))
        self.count = self.count.scatter_add(2, first.unsqueeze(-1), self.count.gather(2, second.unsqueeze(-1)))
        self._drop(second)

    def _drop(self, at: Tensor) -> None:
        assert self.k is not None
        kept = torch.arange(self.k.shape[2], device=at.device) != at.unsqueeze(-1)
        shape = (*kept.shape[:2], self.k.shape[2] - 1)
        self.k, self.v = (each[kept].reshape(*shape, -1) for each in (self.k, self.v))
        self.sum, self.count = (each[kept].reshape(shape) for each in (self.sum, self.count))


def _taken(each: Tensor, at: Tensor) -> Tensor:
    return each.gather(2, at[..., None, None].expand(-1, -1, 1, each.shape[-1]))


def of_budget(name: str, numbers: int, dim: int) -> tuple[Peer, int]:
    """A peer that keeps at most so many numbers for each head, and how many it keeps.

    Args:
        name: full, window, sinks, fifo, linear, delta, h2o, tova, random or merge.
        numbers: of the state of one head; a token is `2 D` of them, with h2o and merge one more.
        dim: D.

    Raises:
        ValueError: an unknown name, or less than one token fits.
    """
    each = 2 * dim + (1 if name in ("h2o", "merge") else 0)
    size = numbers // each
    fixed: dict[str, tuple[Peer, int]] = {
        "full": (full, -1),
        "linear": (linear, dim * (dim + 1)),
        "delta": (delta, dim * dim),
    }
    if name in fixed:
        return fixed[name]
    if size < 1:
        raise ValueError(f"{numbers} numbers are less than one token of {name}, {each}")
    if name in ("window", "fifo"):
        return window(size), size * each
    if name == "sinks":
        return sinks(size, min(SINKS, size - 1)), size * each
    return evicting(size, name), size * each
