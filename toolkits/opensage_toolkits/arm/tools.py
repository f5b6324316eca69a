"""The functions an agent may call: JSON in, JSON out, bounded."""

from __future__ import annotations

from typing import Any, Literal

__all__ = ["recall", "size"]

MOST_STEPS = 2000
MOST_TOKENS = 512
Method = Literal["arm", "full", "window", "sinks", "fifo", "linear", "delta"]
Task = Literal["mqar", "needle", "copy", "selective_copy"]


def size(
    head_dim: int,
    kv_heads: int,
    layers: int,
    slots: int = 256,
    window: int = 0,
    number_bytes: int = 2,
    tokens: list[int] | None = None,
) -> dict[str, Any]:
    """Bytes of a routed memory of one sequence beside a cache of every token, and what else fits in these bytes.

    Args:
        head_dim: numbers of a key.
        kv_heads: memories in each layer.
        layers: of the model.
        slots: of each memory; the paper has 256.
        window: recent tokens that are kept as well.
        number_bytes: of a number, 2 for bfloat16.
        tokens: lengths of the sequence; 4096, 32768 and 131072 by default.
    """
    given = {"head_dim": head_dim, "kv_heads": kv_heads, "layers": layers, "slots": slots, "number_bytes": number_bytes}
    for name, value in given.items():
        _whole(name, value, 2**24)
    lengths = [_whole("tokens", each, 2**40) for each in tokens or (4096, 32768, 131072)]
    numbers = slots * (2 * head_dim + 1) + _whole("window", window, 2**24, least=0) * 2 * head_dim
    memory = layers * kv_heads * (numbers * number_bytes + slots * 8)
    token = layers * kv_heads * 2 * head_dim * number_bytes
    return {
        "memory_bytes": memory,
        "terms": {
            "keys and values": layers * kv_heads * slots * 2 * head_dim * number_bytes,
            "mass": layers * kv_heads * slots * number_bytes,
            "positions": layers * kv_heads * slots * 8,
            "window": window * token,
        },
        "full_cache_bytes": {str(length): length * token for length in lengths},
        "tokens_of_a_window_of_these_bytes": memory // token,
        "equal_at_tokens": -(-memory // token),
    }


def recall(
    method: Method = "arm",
    task: Task = "mqar",
    steps: int = 300,
    pairs: int = 8,
    length: int = 64,
    slots: int = 16,
    seed: int = 0,
) -> dict[str, Any]:
    """Train a small model that keeps the past in one way, and say how much of what was asked it answers.

    The state of every bounded method has at most the numbers of the routed memory (linear attention and the delta rule
    have their own size, which is said).

    Args:
        method: arm, full, window, sinks, fifo, linear or delta.
        task: mqar (pairs, then keys), needle (one pair), copy, selective_copy.
        steps: of training, at most 2000; 300 take about half a minute with arm.
        pairs: to remember; length of a copy.
        length: tokens of a sequence, at most 512.
        slots: of the memory: 4, 16, 64 or 256.
        seed: of weights and batches.
    """
    from .trials import Trial, tried

    _whole("steps", steps, MOST_STEPS)
    _whole("length", length, MOST_TOKENS)
    if slots not in (4, 16, 64, 256):
        raise ValueError(f"slots is {slots!r}: 4, 16, 64 or 256, the leaves of a tree of four branches")
    trial = Trial(method, task, steps=steps, pairs=_whole("pairs", pairs, 64), length=length, slots=slots, seed=seed)
    return tried(trial)


def _whole(name: str, value: Any, most: int, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{name} must be a whole number from {least} to {most}, got {value!r}")
    return value
