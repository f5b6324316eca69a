"""A layer of attention whose past is a routed memory: parallel for training, step by step for decoding."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from .config import ARMConfig
from .memory import ARMState, RoutedMemory, finite
from .policy import MemoryPolicy
from .router import Choice, balance_loss, entropy
from .scan import Reading, scan_chunk


@dataclass(frozen=True, slots=True)
class Aux:
    """What a forward pass says beside its output.

    Attributes:
        balance: the load-balance loss, times its weight.
        entropy: of the router, mean in nats.
        gamma: [B, K, T] the gates.
        M: mean number of slots that a token reads at most; S when all are.
        read: of each token, [B, T]; None without a policy.
        counts: [K, S] how many tokens each slot got.
    """

    balance: Tensor
    entropy: Tensor
    gamma: Tensor
    M: Tensor
    read: Tensor | None
    counts: Tensor


class ARMAttention(nn.Module):
    """Multi-head attention with routed memory (arXiv 2609.24417), grouped-query when there are fewer memories.

    Keys that go into the memory carry no rotary positions: rotated keys of different positions cannot be averaged.

    Args:
        config: sizes and choices.
        checked: whether inputs that are not finite raise ValueError.
    """

    def __init__(self, config: ARMConfig, *, checked: bool = False) -> None:
        super().__init__()
        self.config = config
        width, memories = config.n_heads * config.head_dim, config.n_kv_heads * config.head_dim
        self.to_q = nn.Linear(config.d_model, width, bias=False)
        self.to_k = nn.Linear(config.d_model, memories, bias=False)
        self.to_v = nn.Linear(config.d_model, memories, bias=False)
        self.to_out = nn.Linear(width, config.d_model, bias=False)
        self.memory = RoutedMemory(config, checked=checked)
        self.policy = MemoryPolicy(config) if config.read == "policy" else None
        self.tau = config.tau[0]
        self.generator: torch.Generator | None = None
        """Of the sampling in training; the global one when there is none."""

    def anneal(self, done: float) -> None:
        """Set the temperature for a share of training that is done, 0 to 1: geometric between the two of `tau`."""
        first, last = self.config.tau
        self.tau = first * (last / first) ** min(max(done, 0.0), 1.0)

    def forward(
        self, x: Tensor, state: ARMState | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, ARMState, Aux]:
        """All tokens at once: each is written, then reads.

        Args:
            x: [B, T, d].
            state: the past; an empty one when there is none.
            mask: [B, T] booleans, False for padding, which writes nothing and gets zeros.

        Returns:
            y [B, T, d], the state after the last token, and what else is to be known.

        Raises:
            ValueError: shapes or dtypes that do not fit, an empty sequence, a mask without a token; in checked mode
                what is not finite.
        """
        real = self._checked(x, state, mask)
        state = state or self.memory.init(x.shape[0], x.dtype, x.device)
        q, k, v = self._projected(x)
        choice = self.memory.route(x, k, self.tau if self.training else None, self.generator)
        choice = Choice(choice.w * real[:, None, :, None].to(x.dtype), choice.log_p)
        reads = self._reads(x, choice.log_p)
        out, gamma, state = self._scanned(x, q, k, v, choice.w, reads, real, state)
        y = self.to_out(out.transpose(1, 2).flatten(2)) * real.unsqueeze(-1).to(x.dtype)
        return y, state, self._aux(choice, gamma, reads, real)

    def step(self, x: Tensor, state: ARMState) -> tuple[Tensor, ARMState]:
        """One token, [B, d]: its time and memory do not depend on how many came before.

        Raises:
            ValueError: it does not fit the state.
        """
        if x.ndim != 2 or x.shape[1] != self.config.d_model:
            raise ValueError(f"x is {tuple(x.shape)}: [batch, {self.config.d_model}] is wanted")
        q, k, v = (each[:, :, 0] for each in self._projected(x.unsqueeze(1)))
        state = self.memory.write(state, x, k, v)
        out, _ = self.memory.read(state, q, M=self._most(x, k))
        return self.to_out(out.flatten(1)), state

    def _most(self, x: Tensor, k: Tensor) -> int | Tensor | None:
        """M of one token: the configuration's, or for each sequence [B] the policy's."""
        if self.policy is None:
            return self.config.most_read if self.config.read == "topm" else None
        undecided = self.memory.entropy(x.unsqueeze(1), k.unsqueeze(2)).mean(1)
        choice = self.policy.choice(self.policy(x.unsqueeze(1), undecided), None)
        return self.policy.mean(choice)[:, 0]

    def _projected(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        dim = self.config.head_dim
        q, k, v = (to(x).unflatten(-1, (-1, dim)).transpose(1, 2) for to in (self.to_q, self.to_k, self.to_v))
        return q, k, v

    def _checked(self, x: Tensor, state: ARMState | None, mask: Tensor | None) -> Tensor:
        if x.ndim != 3 or x.shape[2] != self.config.d_model or not x.shape[0] or not x.shape[1]:
            raise ValueError(f"x is {tuple(x.shape)}: [batch, tokens, {self.config.d_model}], neither empty, is wanted")
        if state is not None and (state.slots.mass.shape[0], state.slots.mass.dtype) != (x.shape[0], x.dtype):
            held = f"batch {state.slots.mass.shape[0]}, {state.slots.mass.dtype}"
            raise ValueError(f"x is of batch {x.shape[0]}, {x.dtype}, but the state of {held}")
        if mask is None:
            mask = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        if mask.shape != x.shape[:2] or mask.dtype != torch.bool:
            raise ValueError(f"mask is {mask.dtype} {tuple(mask.shape)}: booleans {tuple(x.shape[:2])} are wanted")
        if not bool(mask.any(1).all()):
            raise ValueError("a row of the mask has no token: leave the row out")
        if self.memory.checked:
            finite(x=x[mask])
        return mask

    def _reads(self, x: Tensor, log_p: Tensor) -> Tensor | None:
        """The policy's choice for each token, [B, T, G]; None without a policy."""
        if self.policy is None:
            return None
        logits = self.policy(x, entropy(log_p).mean(1))
        return self.policy.choice(logits, self.tau if self.training else None, self.generator)

    def _scanned(
        self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, w: Tensor, reads: Tensor | None, real: Tensor, state: ARMState
    ) -> tuple[Tensor, Tensor, ARMState]:
        """Chunk by chunk; chunks end at multiples of `chunk` of the position, wherever the sequence was cut."""
        outs, gates, slots, seen, chunk = [], [], state.slots, state.seen, self.config.chunk
        windows, at = self._windows(k, v, real, state), 0
        while at < x.shape[1]:
            end = min(x.shape[1], at + chunk - (state.length + at) % chunk)
            part = slice(at, end)
            gamma = self.memory.gate(x[:, part], w[:, :, part], seen)
            near = None if windows is None else (windows[0][:, :, part], windows[1][:, :, part], windows[2][:, part])
            reading = self._reading(None if reads is None else reads[:, part])
            out, slots = scan_chunk(
                q[:, :, part], k[:, :, part], v[:, :, part], w[:, :, part], gamma, slots, reading, near
            )
            if seen is not None and (state.length + end) % chunk == 0:
                seen = slots
            outs.append(out)
            gates.append(gamma)
            at = end
        gamma = torch.cat(gates, 2)
        state = self._after(replace(state, slots=slots, seen=seen), k, v, w, gamma, real)
        return torch.cat(outs, 2), gamma, state

    def _reading(self, reads: Tensor | None) -> Reading:
        config = self.config
        if reads is not None:
            return Reading(config.mass_bias, choice=reads[:, None, None], grid=config.grid)
        return Reading(config.mass_bias, most=config.most_read if config.read == "topm" else None)

    def _windows(self, k: Tensor, v: Tensor, real: Tensor, state: ARMState) -> tuple[Tensor, Tensor, Tensor] | None:
        """For each token the last `window` ones, itself included: [B, K, T, W, D] twice, and [B, T, W]."""
        size = self.config.window
        if not size:
            return None
        keys, values = torch.cat([state.recent_keys, k], 2), torch.cat([state.recent_values, v], 2)
        known = torch.cat([state.recent_real, real], 1)
        near = [each.unfold(2, size, 1)[:, :, 1:].transpose(-1, -2) for each in (keys, values)]
        return near[0], near[1], known.unfold(1, size, 1)[:, 1:]

    def _after(self, state: ARMState, k: Tensor, v: Tensor, w: Tensor, gamma: Tensor, real: Tensor) -> ARMState:
        """The state at the end: positions of the last writes, and the window."""
        steps, size = k.shape[2], self.config.window
        put = (w * gamma.unsqueeze(-1)).detach() > 0
        at = torch.arange(state.length, state.length + steps, device=k.device)[:, None]
        last = torch.where(put, at, torch.full_like(at, -1)).amax(2)
        state = replace(state, last=torch.maximum(state.last, last), length=state.length + steps)
        if not size:
            return state
        return replace(
            state,
            recent_keys=torch.cat([state.recent_keys, k], 2)[:, :, -size:],
            recent_values=torch.cat([state.recent_values, v], 2)[:, :, -size:],
            recent_real=torch.cat([state.recent_real, real], 1)[:, -size:],
        )

    def _aux(self, choice: Choice, gamma: Tensor, reads: Tensor | None, real: Tensor) -> Aux:
        slots, counted = self.config.slots, real.to(gamma.dtype)
        mean = gamma.new_tensor(float(self.config.most_read or slots))
        read = None if reads is None or self.policy is None else self.policy.mean(reads)
        if read is not None:
            mean = (read * counted).sum() / counted.sum()
        undecided = (entropy(choice.log_p).mean(1) * counted).sum() / counted.sum()
        balance = self.config.balance * balance_loss(choice, real)
        return Aux(balance, undecided, gamma, mean, read, choice.w.detach().round().sum((0, 2)))
