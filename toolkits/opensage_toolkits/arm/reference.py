"""The memory as its definition reads, one token after the other in float64: slow, and what the scan is held against."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .scan import check_shapes


def routed_memory_reference(
    q: Tensor, k: Tensor, v: Tensor, w: Tensor, gamma: Tensor, *, mass_bias: bool = True, most: int | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`scan.routed_memory_scan` as a loop.

    Returns:
        out [B, H, T, D], and the slots at the end: keys and values [B, K, S, D] as averages, mass [B, K, S]; float64.

    Raises:
        ValueError: shapes that do not fit.
    """
    check_shapes(q, k, v, w, gamma)
    q, k, v, w, gamma = (each.double() for each in (q, k, v, w, gamma))
    batch, heads, steps, dim = q.shape
    group, out = heads // k.shape[1], torch.zeros_like(q)
    keys, values = (k.new_zeros(batch, k.shape[1], w.shape[-1], dim) for _ in range(2))
    mass = k.new_zeros(batch, k.shape[1], w.shape[-1])
    for t in range(steps):
        put = gamma[:, :, t, None] * w[:, :, t]
        new = mass * (1 - put) + put
        share = torch.where(new > 0, put / new.clamp(min=1e-300), 0.0)  # of the new token in the average
        keys = keys + share[..., None] * (k[:, :, t, None] - keys)
        values = values + share[..., None] * (v[:, :, t, None] - values)
        mass = new
        for head in range(heads):
            out[:, head, t] = _read(q[:, head, t], keys[:, head // group], values[:, head // group],
                                    mass[:, head // group], mass_bias, most)  # fmt: skip
    return out, keys, values, mass


def _read(q: Tensor, keys: Tensor, values: Tensor, mass: Tensor, mass_bias: bool, most: int | None) -> Tensor:
    score = (keys @ q[:, :, None]).squeeze(-1) / math.sqrt(q.shape[-1])
    score = torch.where(mass > 0, score + (mass.clamp(min=1e-300).log() if mass_bias else 0.0), -math.inf)
    if most is not None:
        order = score.argsort(dim=-1, descending=True, stable=True)
        score = score.scatter(-1, order[:, most:], -math.inf)
    empty = torch.isneginf(score).all(-1, keepdim=True)
    p = torch.where(empty, torch.zeros_like(score), torch.where(empty, torch.zeros_like(score), score).softmax(-1))
    return (p[:, None] @ values).squeeze(1)
