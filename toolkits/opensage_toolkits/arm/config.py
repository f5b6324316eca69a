"""How a routed memory is built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Gate = Literal["token", "token+slot", "overwrite"]
RouterInput = Literal["hidden", "key"]
Read = Literal["all", "topm", "policy"]
MOST_SLOTS = 2**16


@dataclass(frozen=True, slots=True)
class ARMConfig:
    """Sizes and choices of one layer of routed memory.

    The paper gives the tree, the gated blend and a learned number of slots to read; what is marked [R] is our
    reconstruction.

    Attributes:
        d_model: width of the hidden states.
        n_heads: query heads.
        n_kv_heads: memories, one for each key-value head; a divisor of `n_heads`.
        head_dim: numbers of a key, and of a value.
        branching: children of a node of the tree (the paper: 4).
        depth: levels of the tree (the paper: 4); there are `branching ** depth` slots.
        window: recent tokens that are read exactly, in the same softmax [R]; 0 for none.
        gate: what the gate sees: the hidden state; or also the slot that will be written, as it was at the last
            multiple of `chunk` tokens [R], so that training stays parallel; "overwrite" always blends fully.
        router_in: what the write router sees: the hidden state or the key [R].
        tau: temperature of the router's Gumbel-Softmax at the start and at the end of training [R].
        balance: weight of the load-balance loss, `S * sum_y f_y p_y` as in mixtures of experts [R].
        read: every written slot; the `most_read` slots of the highest score; or as many as a policy says.
        most_read: M for `read="topm"`.
        mass_bias: whether log of a slot's mass is added to its score, so that slots that hold little are read little.
        chunk: tokens that are scanned at once; a matter of speed, unless the gate sees slots.
        nodes: router weights of each node of the tree, or shared by the nodes of a level [R].
    """

    d_model: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    branching: int = 4
    depth: int = 4
    window: int = 0
    gate: Gate = "token"
    router_in: RouterInput = "hidden"
    tau: tuple[float, float] = (1.0, 0.3)
    balance: float = 0.01
    read: Read = "all"
    most_read: int | None = None
    mass_bias: bool = True
    chunk: int = 32
    nodes: Literal["own", "shared"] = "own"

    def __post_init__(self) -> None:
        """Raises ValueError that names the field, before anything is allocated."""
        _check_sizes(self)
        _check_choices(self)

    @property
    def slots(self) -> int:
        """S, the leaves of the tree."""
        return int(self.branching**self.depth)

    @property
    def grid(self) -> tuple[int, ...]:
        """The numbers of slots that a policy chooses from: powers of two below S, and S."""
        powers = [2**k for k in range(self.slots.bit_length()) if 2**k < self.slots]
        return (*powers, self.slots)


def _check_sizes(config: ARMConfig) -> None:
    for name in ("d_model", "n_heads", "n_kv_heads", "head_dim", "chunk"):
        if getattr(config, name) < 1:
            raise ValueError(f"{name} is {getattr(config, name)}: it is at least 1")
    if config.n_heads % config.n_kv_heads:
        raise ValueError(f"n_heads {config.n_heads} is no multiple of n_kv_heads {config.n_kv_heads}")
    if config.branching < 2:
        raise ValueError(f"branching is {config.branching}: a node has at least 2 children")
    if config.depth < 1:
        raise ValueError(f"depth is {config.depth}: the tree has at least 1 level")
    if config.depth > 16 or config.slots > MOST_SLOTS:
        raise ValueError(f"branching {config.branching} and depth {config.depth} make more than {MOST_SLOTS} slots")
    if config.window < 0:
        raise ValueError(f"window is {config.window}: it is 0 or more tokens")
    if config.most_read is not None and not 1 <= config.most_read <= config.slots:
        raise ValueError(f"most_read is {config.most_read}: it is 1 to {config.slots}")


def _check_choices(config: ARMConfig) -> None:
    known = {"gate": Gate, "router_in": RouterInput, "read": Read}
    for name, kind in known.items():
        if getattr(config, name) not in get_args(kind):
            raise ValueError(f"{name} is {getattr(config, name)!r}: it is one of {', '.join(get_args(kind))}")
    if config.nodes not in ("own", "shared"):
        raise ValueError(f"nodes is {config.nodes!r}: it is own or shared")
    if len(config.tau) != 2 or not all(0 < each < float("inf") for each in config.tau):
        raise ValueError(f"tau is {config.tau}: two temperatures over 0 are wanted")
    if not 0 <= config.balance < float("inf"):
        raise ValueError(f"balance is {config.balance}: it is 0 or more")
    if config.read == "topm" and config.most_read is None:
        raise ValueError("read='topm' needs most_read")
