"""Every step's read of a gated memory without a loop over the steps.

A slot is an exponential average of what was written to it: with `a_i = 1 - gamma_i w_i`, the write of token j stands
in it at step t with the weight `gamma_j w_j prod_{j < i <= t} a_i`. Within a chunk these weights are a triangular
matrix for each slot. It is built by products of halves, never by quotients or logarithms of cumulative products: those
break down where a gate is exactly 0 or 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Slots:
    """What the slots hold.

    Attributes:
        keys, values: [B, K, S, D], weighted sums of what was written; the blend is the sum over the mass.
        mass: [B, K, S], in [0, 1]: `m <- (1 - gamma) m + gamma` of the slot that is written; 0 was never written.
    """

    keys: Tensor
    values: Tensor
    mass: Tensor

    @classmethod
    def empty(cls, batch: int, heads: int, slots: int, dim: int, like: Tensor) -> Slots:
        """Slots that nothing was written to, of the dtype and on the device of a tensor."""
        zeros = like.new_zeros(batch, heads, slots, dim)
        return cls(zeros, zeros, like.new_zeros(batch, heads, slots))


@dataclass(frozen=True, slots=True)
class Reading:
    """How slots are read.

    Attributes:
        mass_bias: whether log mass is added to the scores.
        most: M, the slots of the highest score that are read, or a tensor of them beside the scores; None reads all.
        choice: instead of `most`, for each token one-hot over `grid`, [B, 1, 1, T, G].
        grid: numbers of slots to choose from.
    """

    mass_bias: bool = True
    most: int | Tensor | None = None
    choice: Tensor | None = None
    grid: tuple[int, ...] = ()


def routed_memory_scan(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    w: Tensor,
    gamma: Tensor,
    *,
    chunk: int = 32,
    reading: Reading | None = None,
    start: Slots | None = None,
) -> tuple[Tensor, Slots]:
    """Write every token, then read with its query; all tokens at once.

    Args:
        q: [B, H, T, D] queries; H is a multiple of K, the heads of the memory.
        k: [B, K, T, D] keys that are written.
        v: [B, K, T, D] values, likewise.
        w: [B, K, T, S] weights of the slots of each write, a one-hot row or a soft one; a row of zeros writes nothing.
        gamma: [B, K, T] gates in [0, 1].
        chunk: tokens that are scanned at once; memory grows as `T * chunk * S`.
        reading: how slots are read.
        start: what the slots hold at the beginning.

    Returns:
        out [B, H, T, D], and the slots at the end. A token that finds nothing written reads zeros.

    Raises:
        ValueError: shapes that do not fit, an empty sequence, a chunk below 1.
    """
    check_shapes(q, k, v, w, gamma)
    if chunk < 1:
        raise ValueError(f"chunk is {chunk}: it is at least 1")
    state = start or Slots.empty(k.shape[0], k.shape[1], w.shape[-1], k.shape[-1], k)
    outs = []
    for at in range(0, k.shape[2], chunk):
        part = slice(at, at + chunk)
        out, state = scan_chunk(
            q[:, :, part], k[:, :, part], v[:, :, part], w[:, :, part], gamma[:, :, part], state, reading or Reading()
        )
        outs.append(out)
    return torch.cat(outs, 2), state


def check_shapes(q: Tensor, k: Tensor, v: Tensor, w: Tensor, gamma: Tensor) -> None:
    """Whether the tensors of a scan fit together.

    Raises:
        ValueError: they do not; the shapes are in the text.
    """
    shapes = {name: tuple(each.shape) for name, each in {"q": q, "k": k, "v": v, "w": w, "gamma": gamma}.items()}
    if any(len(shape) != 4 for name, shape in shapes.items() if name != "gamma") or len(shapes["gamma"]) != 3:
        raise ValueError(f"q, k, v and w have 4 dimensions and gamma 3, not {shapes}")
    batch, heads, steps, dim = shapes["k"]
    wanted = {
        "v": (batch, heads, steps, dim),
        "w": (batch, heads, steps, shapes["w"][-1]),
        "gamma": (batch, heads, steps),
    }
    for name, shape in wanted.items():
        if shapes[name] != shape:
            raise ValueError(f"{name} is {shapes[name]}, but k of {shapes['k']} wants {shape}")
    if shapes["q"][0] != batch or shapes["q"][2:] != (steps, dim) or shapes["q"][1] % heads:
        raise ValueError(f"q is {shapes['q']}, but k of {shapes['k']} wants ({batch}, n * {heads}, {steps}, {dim})")
    if not steps or not batch or not dim or not shapes["w"][-1]:
        raise ValueError(f"an empty sequence, batch, head or memory: k is {shapes['k']}, w {shapes['w']}")


def scan_chunk(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    w: Tensor,
    gamma: Tensor,
    start: Slots,
    reading: Reading,
    window: tuple[Tensor, Tensor, Tensor] | None = None,
) -> tuple[Tensor, Slots]:
    """One chunk of `routed_memory_scan`.

    Args:
        q: [B, H, C, D].
        k: [B, K, C, D].
        v: [B, K, C, D].
        w: [B, K, C, S].
        gamma: [B, K, C].
        start: the slots before it.
        reading: how they are read.
        window: keys and values [B, K, T, W, D] that each token also reads, and which are real [B, T, W].
    """
    scale = 1.0 / math.sqrt(k.shape[-1])
    grouped = q.unflatten(1, (k.shape[1], -1))  # [B, K, G, C, D]
    gates = gamma.unsqueeze(-1) * w  # [B, K, C, S]
    kept = decay(1.0 - gates)  # [B, K, C(t), C(j), S]
    since = kept[..., 0, :] * (1.0 - gates[..., :1, :])  # [B, K, C, S], what is left of the start
    put = kept * gates.unsqueeze(2)
    mass = since * start.mass.unsqueeze(2) + put.sum(3)
    score = torch.einsum("bkgtd,bksd->bkgts", grouped, start.keys) * since.unsqueeze(2)
    pairs = torch.einsum("bkgtd,bkjd->bkgtj", grouped, k)
    score = scale * (score + torch.einsum("bkgtj,bktjs->bkgts", pairs, put)) / safe(mass).unsqueeze(2)
    p, recent = weights(score, mass.unsqueeze(2), reading, _window_scores(grouped, window, scale))
    share = p / safe(mass).unsqueeze(2)
    out = torch.einsum("bkgts,bksd->bkgtd", share * since.unsqueeze(2), start.values)
    out = out + torch.einsum("bkgtj,bkjd->bkgtd", torch.einsum("bkgts,bktjs->bkgtj", share, put), v)
    if window is not None and recent is not None:
        out = out + torch.einsum("bkgtw,bktwd->bkgtd", recent, window[1])
    last_put, last_since = put[:, :, -1], since[:, :, -1].unsqueeze(-1)
    end = Slots(
        start.keys * last_since + torch.einsum("bkjs,bkjd->bksd", last_put, k),
        start.values * last_since + torch.einsum("bkjs,bkjd->bksd", last_put, v),
        mass[:, :, -1],
    )
    return out.flatten(1, 2), end


def decay(a: Tensor) -> Tensor:
    """Products of a run of factors: `L[t, j] = prod_{j < i <= t} a_i` for j <= t, else 0.

    Args:
        a: [..., C, S].

    Returns:
        [..., C, C, S]. Blocks of twice the size are put together from two blocks: what leads out of the first times
        what leads into the second. No division, so that factors of exactly 0 and gradients through them are right.
    """
    length = a.shape[-2]
    size = 1 << (length - 1).bit_length()
    a = torch.nn.functional.pad(a, (0, 0, 0, size - length), value=1.0)
    blocks = torch.ones_like(a).unsqueeze(-2).unsqueeze(-2)  # [..., C, 1, 1, S]: C blocks of size 1
    width = 1
    while width < size:
        first, second = blocks[..., 0::2, :, :, :], blocks[..., 1::2, :, :, :]
        head = a.unflatten(-2, (-1, 2, width))[..., 1, 0, :]  # the first factor of each second block
        into = second[..., :, 0, :] * head.unsqueeze(-2)
        cross = into.unsqueeze(-2) * first[..., -1:, :, :]
        top = torch.cat([first, torch.zeros_like(first)], -2)
        blocks = torch.cat([top, torch.cat([cross, second], -2)], -3)
        width *= 2
    return blocks[..., 0, :length, :length, :]


def safe(mass: Tensor) -> Tensor:
    """The mass to divide by: 1 for slots that hold nothing."""
    return torch.where(mass > 0, mass, torch.ones_like(mass))


def _window_scores(grouped: Tensor, window: tuple[Tensor, Tensor, Tensor] | None, scale: float) -> Tensor | None:
    if window is None:
        return None
    score = torch.einsum("bkgtd,bktwd->bkgtw", grouped, window[0]) * scale
    return score.masked_fill(~window[2][:, None, None], -torch.inf)


def weights(score: Tensor, mass: Tensor, reading: Reading, recent: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """One softmax over the slots that are read and the recent tokens.

    Args:
        score: [..., S] of the slots.
        mass: [..., S]; a slot of mass 0 gets exactly nothing.
        reading: which slots are read.
        recent: [..., W] scores of recent tokens, -inf for those that are none.

    Returns:
        Weights of the slots and of the recent tokens; zeros where there is nothing to read.
    """
    held = mass > 0
    if reading.mass_bias:
        score = score + safe(mass).log()
    score = torch.where(held, score, torch.full_like(score, -torch.inf))
    if reading.choice is not None:
        return _chosen(score, reading, recent)
    if reading.most is not None:
        score = torch.where(ranks(score) < reading.most, score, torch.full_like(score, -torch.inf))
    return _softmax(score, recent)


def _chosen(score: Tensor, reading: Reading, recent: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """A mixture of the reads of each number of slots; `choice` has the gradient of the policy."""
    assert reading.choice is not None
    place, slots, near = ranks(score), torch.zeros_like(score), None if recent is None else torch.zeros_like(recent)
    for index, most in enumerate(reading.grid):
        share = reading.choice[..., index].unsqueeze(-1)
        part, part_near = _softmax(torch.where(place < most, score, torch.full_like(score, -torch.inf)), recent)
        slots = slots + share * part
        near = None if near is None or part_near is None else near + share * part_near
    return slots, near


def ranks(score: Tensor) -> Tensor:
    """The place of each score in descending order, from 0; ties by index."""
    return score.argsort(dim=-1, descending=True, stable=True).argsort(dim=-1, stable=True)


def _softmax(score: Tensor, recent: Tensor | None) -> tuple[Tensor, Tensor | None]:
    whole = score if recent is None else torch.cat([score, recent.expand(*score.shape[:-1], -1)], -1)
    top = whole.amax(-1, keepdim=True)
    none = torch.isneginf(top)
    raised = (whole - torch.where(none, torch.zeros_like(top), top).detach()).exp()
    p = raised / torch.where(none, torch.ones_like(top), raised.sum(-1, keepdim=True))
    if recent is None:
        return p, None
    return p[..., : score.shape[-1]], p[..., score.shape[-1] :]
