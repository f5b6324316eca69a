"""One memory of routed slots: written and read token by token."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from .config import ARMConfig
from .router import Choice, Router, choose, entropy
from .scan import Reading, Slots, safe, weights


@dataclass(frozen=True, slots=True)
class ARMState:
    """All that a layer keeps of the past; its size does not depend on how long that is.

    Attributes:
        slots: keys and values [B, K, S, D] as weighted sums, mass [B, K, S].
        last: [B, K, S] int64, the position of the last write; -1 for none.
        length: tokens so far, padding included.
        recent_keys, recent_values: [B, K, W, D], the last tokens of the window, oldest first.
        recent_real: [B, W], which of them are tokens.
        seen: the slots at the last multiple of `chunk` tokens, for a gate that looks at slots; else None.
    """

    slots: Slots
    last: Tensor
    length: int
    recent_keys: Tensor
    recent_values: Tensor
    recent_real: Tensor
    seen: Slots | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        slots = [self.slots] if self.seen is None else [self.slots, self.seen]
        tensors = [each for one in slots for each in (one.keys, one.values, one.mass)]
        tensors += [self.last, self.recent_keys, self.recent_values, self.recent_real]
        return sum(each.numel() * each.element_size() for each in tensors)

    @property
    def blend(self) -> tuple[Tensor, Tensor]:
        """Keys and values of the slots [B, K, S, D]: averages of what was written; zeros where nothing was."""
        mass = safe(self.slots.mass).unsqueeze(-1)
        return self.slots.keys / mass, self.slots.values / mass


class Gate(nn.Module):
    """How much of a token is blended into its slot.

    Reconstructed [R]: a linear map of the hidden state, and of the slot's old content when it sees slots.
    """

    def __init__(self, config: ARMConfig) -> None:
        super().__init__()
        self.kind = config.gate
        self.of_token = nn.Linear(config.d_model, config.n_kv_heads)
        self.of_slot = nn.Linear(2 * config.head_dim, 1, bias=False) if config.gate == "token+slot" else None
        nn.init.zeros_(self.of_token.weight)
        nn.init.ones_(self.of_token.bias)

    def forward(self, h: Tensor, w: Tensor, seen: Slots | None) -> Tensor:
        """Gates [B, K, T] in (0, 1), of hidden states [B, T, d] and chosen slots [B, K, T, S]."""
        if self.kind == "overwrite":
            return w.new_ones(w.shape[:3])
        logit = self.of_token(h).transpose(1, 2)
        if self.of_slot is not None and seen is not None:
            old = torch.cat([seen.keys, seen.values], -1) / safe(seen.mass).unsqueeze(-1)
            logit = logit + self.of_slot(torch.einsum("bkts,bksd->bktd", w, old)).squeeze(-1)
        return torch.sigmoid(logit)


class RoutedMemory(nn.Module):
    """Slots, the router that picks one for each token, and the gate that blends it in.

    Args:
        config: sizes.
        checked: whether keys, values and hidden states that are not finite raise ValueError; they spread to a slot
            otherwise, and from there to every read.
    """

    def __init__(self, config: ARMConfig, *, checked: bool = False) -> None:
        super().__init__()
        self.config, self.checked = config, checked
        keyed = config.router_in == "key"
        self.router = Router(config.head_dim if keyed else config.d_model, config, per_head=keyed)
        self.gate = Gate(config)

    def init(self, batch: int, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> ARMState:
        """Empty slots.

        Raises:
            ValueError: batch is below 1, or the dtype is not a floating one.
        """
        if batch < 1:
            raise ValueError(f"batch is {batch}: it is at least 1")
        if not dtype.is_floating_point:
            raise ValueError(f"dtype is {dtype}: a floating one is wanted")
        config, like = self.config, torch.zeros((), dtype=dtype, device=device)
        slots = Slots.empty(batch, config.n_kv_heads, config.slots, config.head_dim, like)
        recent = like.new_zeros(batch, config.n_kv_heads, config.window, config.head_dim)
        real = torch.zeros(batch, config.window, dtype=torch.bool, device=device)
        last = torch.full(slots.mass.shape, -1, dtype=torch.int64, device=device)
        return ARMState(slots, last, 0, recent, recent, real, slots if config.gate == "token+slot" else None)

    def route(self, h: Tensor, k: Tensor, tau: float | None = None, generator: torch.Generator | None = None) -> Choice:
        """A slot for each token: of hidden states [B, T, d], or of keys [B, K, T, D]."""
        return choose(self.router(k if self.config.router_in == "key" else h), tau, generator)

    def write(
        self,
        state: ARMState,
        h: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        hard: bool = True,
        tau: float | None = None,
        generator: torch.Generator | None = None,
        real: Tensor | None = None,
    ) -> ARMState:
        """Blend one token into one slot of each memory.

        Args:
            state: what is held; it is not changed.
            h: [B, d] hidden states.
            k: [B, K, D] keys.
            v: [B, K, D] values.
            hard: one slot; otherwise all of them, by their probability, as a comparison.
            tau: samples the slot at this temperature; None takes the most probable one.
            generator: of the sampling.
            real: [B], False for padding, which writes nothing.

        Raises:
            ValueError: shapes, dtypes or devices that do not fit the state; in checked mode, what is not finite.
        """
        _fits(self.config, state, h, k, v)
        if self.checked:
            finite(h=h, k=k, v=v)
        choice = self.route(h.unsqueeze(1), k.unsqueeze(2), tau, generator)
        w = choice.w[:, :, 0] if hard else choice.log_p[:, :, 0].exp()
        real = torch.ones(h.shape[0], dtype=torch.bool, device=h.device) if real is None else real
        w = w * real[:, None, None].to(w.dtype)
        gamma = self.gate(h.unsqueeze(1), w.unsqueeze(2), state.seen)
        slots = _blended(state.slots, gamma * w, k, v)
        return self._moved(state, slots, w * gamma, k, v, real)

    def _moved(self, state: ARMState, slots: Slots, put: Tensor, k: Tensor, v: Tensor, real: Tensor) -> ARMState:
        """The state one token later."""
        last = torch.where(put > 0, torch.full_like(state.last, state.length), state.last)
        length = state.length + 1
        new = replace(state, slots=slots, last=last, length=length)
        if state.seen is not None and length % self.config.chunk == 0:
            new = replace(new, seen=slots)
        if not self.config.window:
            return new
        return replace(
            new,
            recent_keys=torch.cat([state.recent_keys[:, :, 1:], k.unsqueeze(2)], 2),
            recent_values=torch.cat([state.recent_values[:, :, 1:], v.unsqueeze(2)], 2),
            recent_real=torch.cat([state.recent_real[:, 1:], real.unsqueeze(1)], 1),
        )

    def read(self, state: ARMState, q: Tensor, *, M: int | Tensor | None = None) -> tuple[Tensor, dict[str, Any]]:
        """What a query finds.

        Args:
            state: what is held.
            q: [B, H, D].
            M: how many slots are read, those of the highest score; [B] for each sequence; the configuration's without.

        Returns:
            out [B, H, D]; and `weights` [B, H, S], `recent` [B, H, W] or None, `M`.

        Raises:
            ValueError: M is outside 1 to S, the shape does not fit, or nothing was written and there is no window.
        """
        config = self.config
        most = config.most_read if M is None else M
        if isinstance(most, Tensor):
            most = most.reshape(-1, 1, 1, 1)
        elif most is not None and not 1 <= most <= config.slots:
            raise ValueError(f"M is {most}: it is 1 to {config.slots}")
        if tuple(q.shape) != (state.slots.mass.shape[0], config.n_heads, config.head_dim):
            raise ValueError(f"q is {tuple(q.shape)}: [batch, {config.n_heads}, {config.head_dim}] is wanted")
        if not config.window and not bool((state.slots.mass > 0).any(-1).all()):
            raise ValueError("nothing was written yet: write a token before reading, or give a window")
        grouped = q.unflatten(1, (config.n_kv_heads, -1))
        scale = 1.0 / math.sqrt(config.head_dim)
        keys, values = state.blend
        score = torch.einsum("bkgd,bksd->bkgs", grouped, keys) * scale
        recent = None
        if config.window:
            recent = torch.einsum("bkgd,bkwd->bkgw", grouped, state.recent_keys) * scale
            recent = recent.masked_fill(~state.recent_real[:, None, None], -torch.inf)
        p, near = weights(score, state.slots.mass.unsqueeze(2), Reading(config.mass_bias, most=most), recent)
        out = torch.einsum("bkgs,bksd->bkgd", p, values)
        if near is not None:
            out = out + torch.einsum("bkgw,bkwd->bkgd", near, state.recent_values)
        told = {"weights": p.flatten(1, 2), "recent": None if near is None else near.flatten(1, 2), "M": most}
        return out.flatten(1, 2), told

    def entropy(self, h: Tensor, k: Tensor) -> Tensor:
        """How undecided the router is about each token, [B, K, T] in nats."""
        return entropy(self.router(k if self.config.router_in == "key" else h))


def _blended(slots: Slots, put: Tensor, k: Tensor, v: Tensor) -> Slots:
    kept, new = 1.0 - put, put.unsqueeze(-1)
    return Slots(
        slots.keys * kept.unsqueeze(-1) + new * k.unsqueeze(2),
        slots.values * kept.unsqueeze(-1) + new * v.unsqueeze(2),
        slots.mass * kept + put,
    )


def _fits(config: ARMConfig, state: ARMState, h: Tensor, k: Tensor, v: Tensor) -> None:
    batch = state.slots.mass.shape[0]
    if tuple(h.shape) != (batch, config.d_model):
        raise ValueError(f"h is {tuple(h.shape)}: the state wants ({batch}, {config.d_model})")
    for name, each in (("k", k), ("v", v)):
        if tuple(each.shape) != (batch, config.n_kv_heads, config.head_dim):
            raise ValueError(
                f"{name} is {tuple(each.shape)}: the state wants ({batch}, {config.n_kv_heads}, {config.head_dim})"
            )
        if each.dtype != state.slots.keys.dtype or each.device != state.slots.keys.device:
            held = f"{state.slots.keys.dtype} on {state.slots.keys.device}"
            raise ValueError(f"{name} is {each.dtype} on {each.device}, the state {held}: make both the same")


def finite(**tensors: Tensor) -> None:
    """Raises ValueError that names the first tensor with NaN or infinity in it."""
    for name, each in tensors.items():
        if not bool(torch.isfinite(each).all()):
            raise ValueError(f"{name} holds NaN or infinity: it would spread from a slot to every later read")
