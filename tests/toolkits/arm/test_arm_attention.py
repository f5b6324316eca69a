"""The layer: parallel and step by step are the same; states, padding, bad input."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from opensage_toolkits.arm.attention import ARMAttention
from opensage_toolkits.arm.config import ARMConfig
from opensage_toolkits.arm.memory import RoutedMemory

SMALL = ARMConfig(d_model=12, n_heads=4, n_kv_heads=2, head_dim=6, branching=2, depth=3, chunk=8)
KINDS = {
    "plain": SMALL,
    "window": replace(SMALL, window=3),
    "slot gate": replace(SMALL, gate="token+slot"),
    "overwrite": replace(SMALL, gate="overwrite"),
    "top 3": replace(SMALL, read="topm", most_read=3),
    "by key": replace(SMALL, router_in="key", nodes="shared"),
    "no bias": replace(SMALL, mass_bias=False),
    "policy": replace(SMALL, read="policy"),
}


def layer(config: ARMConfig, seed: int = 0, **options: Any) -> ARMAttention:
    torch.manual_seed(seed)
    made = ARMAttention(config, **options).double().eval()
    for part in (made.memory.gate, made.policy):
        for each in part.parameters() if part is not None else ():
            torch.nn.init.normal_(each)
    return made


def tokens(steps: int, batch: int = 2, seed: int = 1) -> torch.Tensor:
    return torch.randn(batch, steps, 12, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("kind", list(KINDS))
def test_step_by_step_is_the_parallel_pass(kind: str) -> None:
    attention, x = layer(KINDS[kind]), tokens(37)
    whole, end, _ = attention(x)
    state = attention.memory.init(2, torch.float64)
    for t in range(37):
        y, state = attention.step(x[:, t], state)
        assert (y - whole[:, t]).abs().max() <= 1e-10, t
    assert (state.slots.keys - end.slots.keys).abs().max() <= 1e-10
    assert (state.last == end.last).all()
    assert state.length == end.length == 37


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("cut", [1, 8, 13])
def test_a_sequence_in_two_calls_is_the_same(kind: str, cut: int) -> None:
    attention, x = layer(KINDS[kind]), tokens(30)
    whole, end, _ = attention(x)
    first, held, _ = attention(x[:, :cut])
    second, last, _ = attention(x[:, cut:], held)
    assert (torch.cat([first, second], 1) - whole).abs().max() <= 1e-10
    assert (last.slots.values - end.slots.values).abs().max() <= 1e-10


@pytest.mark.parametrize("kind", ["plain", "window", "top 3", "by key"])
def test_padding_writes_nothing(kind: str) -> None:
    attention, x = layer(KINDS[kind]), tokens(20)
    whole, end, _ = attention(x)
    padded = torch.cat([torch.full((2, 5, 12), 9.0, dtype=torch.float64), x], 1)
    mask = torch.ones(2, 25, dtype=torch.bool)
    mask[:, :5] = False
    y, state, _ = attention(padded, mask=mask)
    assert (y[:, :5] == 0).all()
    assert (y[:, 5:] - whole).abs().max() <= 1e-10
    assert (state.slots.mass - end.slots.mass).abs().max() <= 1e-12


def test_padding_at_the_end_writes_nothing() -> None:
    attention, x = layer(SMALL), tokens(20)
    _, end, _ = attention(x[:, :15])
    mask = torch.ones(2, 20, dtype=torch.bool)
    mask[:, 15:] = False
    _, state, _ = attention(x, mask=mask)
    assert (state.slots.keys - end.slots.keys).abs().max() <= 1e-12


def test_float32_and_bfloat16_follow_the_input() -> None:
    torch.manual_seed(0)
    attention, x = ARMAttention(SMALL).eval(), tokens(30).float()
    whole = attention(x)[0]
    state = attention.memory.init(2)
    for t in range(30):
        y, state = attention.step(x[:, t], state)
        assert (y - whole[:, t]).abs().max() <= 1e-5
    assert attention.bfloat16()(x.bfloat16())[0].dtype == torch.bfloat16


def test_the_state_does_not_grow() -> None:
    attention = layer(replace(SMALL, window=4)).float()
    sizes = set()
    state = None
    with torch.no_grad():
        for _ in range(10):
            state = attention(tokens(100).float(), state)[1]
            sizes.add(state.nbytes)
    assert state is not None
    assert state.length == 1000
    numbers = 2 * 2 * 8 * (2 * 6 + 1) + 2 * 2 * 2 * 4 * 6  # slots with mass, and the window's keys and values
    assert sizes == {4 * numbers + 8 * 2 * 2 * 8 + 2 * 4}


def test_mass_is_its_recursion() -> None:
    attention, x = layer(SMALL), tokens(25, batch=1)
    _, state, aux = attention(x)
    k = attention.to_k(x).unflatten(-1, (2, 6)).transpose(1, 2)
    slot = attention.memory.route(x, k).w.argmax(-1)
    for head in range(2):
        mass = [0.0] * 8
        for t in range(25):
            s, g = int(slot[0, head, t]), float(aux.gamma[0, head, t].detach())
            mass[s] = (1 - g) * mass[s] + g
        assert torch.allclose(state.slots.mass[0, head], torch.tensor(mass, dtype=torch.float64), atol=1e-12)


def test_training_reaches_the_router_and_the_gate() -> None:
    attention = layer(replace(SMALL, read="policy")).train()
    assert attention.policy is not None
    y, _, aux = attention(tokens(20))
    (y.square().mean() + aux.balance + 0.1 * aux.M / 8).backward()
    for part in (attention.memory.router, attention.memory.gate, attention.policy):
        assert any(each.grad is not None and each.grad.abs().max() > 0 for each in part.parameters()), part


def test_noise_is_off_in_evaluation_and_of_a_generator_in_training() -> None:
    attention, x = layer(SMALL), tokens(20)
    assert torch.equal(attention(x)[0], attention(x)[0])
    attention.train()
    runs = []
    for seed in (1, 1, 2):
        attention.generator = torch.Generator().manual_seed(seed)
        runs.append(attention(x)[0])
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


def test_a_policy_reads_as_many_as_it_says() -> None:
    attention, x = layer(replace(SMALL, read="policy")), tokens(12)
    assert attention.policy is not None
    last: Any = attention.policy.inner[-1]
    fixed = layer(replace(SMALL, read="topm", most_read=2))
    fixed.load_state_dict({k: v for k, v in attention.state_dict().items() if not k.startswith("policy")})
    with torch.no_grad():
        last.weight.zero_()
        last.bias.copy_(torch.tensor([0.0, 9.0, 0.0, 0.0]))
    assert attention.policy.grid == (1, 2, 4, 8)
    y, _, aux = attention(x)
    assert float(aux.M) == 2
    assert (y - fixed(x)[0]).abs().max() <= 1e-12


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("branching", 1, "branching is 1"), ("depth", 0, "depth is 0"), ("window", -1, "window is -1"),
        ("n_kv_heads", 3, "no multiple"), ("depth", 60, "more than 65536 slots"), ("tau", (0.0, 1.0), "over 0"),
        ("tau", (1.0, -1.0), "over 0"), ("most_read", 9, "1 to 8"), ("most_read", 0, "1 to 8"), ("gate", "x", "gate is 'x'"),
        ("read", "some", "read is"), ("head_dim", 0, "head_dim is 0"), ("balance", -1.0, "balance"), ("read", "topm", "needs most_read"),
        ("nodes", "x", "nodes is"), ("tau", (1.0,), "two temperatures"),
    ],
)  # fmt: skip
def test_bad_configurations(field: str, value: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        replace(SMALL, **{field: value})


def test_bad_input_of_the_layer() -> None:
    attention, x = layer(SMALL), tokens(5)
    _, state, _ = attention(x)
    bad: list[tuple[str, Any]] = [
        ("neither empty", lambda: attention(x[:, :0])),
        ("neither empty", lambda: attention(x[..., :4])),
        ("batch 2", lambda: attention(x[:1], state)),
        ("float32", lambda: attention.float()(x.float(), state)),
        ("no token", lambda: attention.double()(x, mask=torch.zeros(2, 5, dtype=torch.bool))),
        ("mask is", lambda: attention(x, mask=torch.ones(2, 4, dtype=torch.bool))),
        ("x is", lambda: attention.step(x, state)),
    ]
    for said, call in bad:
        with pytest.raises(ValueError, match=said):
            call()


def test_bad_input_of_the_memory() -> None:
    memory = layer(SMALL).memory
    state, h, k = memory.init(2, torch.float64), tokens(1)[:, 0], torch.ones(2, 2, 6, dtype=torch.float64)
    q = torch.ones(2, 4, 6, dtype=torch.float64)
    with pytest.raises(ValueError, match="nothing was written"):
        memory.read(state, q)
    written = memory.write(state, h, k, k)
    bad: list[tuple[str, Any]] = [
        ("M is 0", lambda: memory.read(written, q, M=0)), ("M is 9", lambda: memory.read(written, q, M=9)),
        ("q is", lambda: memory.read(written, q[:1])), ("k is", lambda: memory.write(state, h, k[:1], k)),
        ("v is torch.float32", lambda: memory.write(state, h, k, k.float())), ("h is", lambda: memory.write(state, h[:1], k, k)),
        ("batch is 0", lambda: memory.init(0)), ("floating", lambda: memory.init(1, torch.int64)),
        ("tau is 0", lambda: memory.write(state, h, k, k, tau=0.0)),
    ]  # fmt: skip
    for said, call in bad:
        with pytest.raises(ValueError, match=said):
            call()


def test_what_is_not_finite_is_refused_in_checked_mode() -> None:
    memory = RoutedMemory(SMALL, checked=True).double()
    h, k = tokens(1)[:, 0], torch.ones(2, 2, 6, dtype=torch.float64)
    with pytest.raises(ValueError, match="k holds NaN"):
        memory.write(memory.init(2, torch.float64), h, k * torch.nan, k)
    x = tokens(5)
    x[0, 2, 3] = torch.inf
    with pytest.raises(ValueError, match="x holds NaN or infinity"):
        layer(SMALL, checked=True)(x)
    mask = torch.ones(2, 5, dtype=torch.bool)
    mask[0, 2] = False
    layer(SMALL, checked=True)(x, mask=mask)  # padding may hold anything


def test_a_read_says_its_weights() -> None:
    memory = layer(replace(SMALL, window=2)).memory
    state = memory.init(2, torch.float64)
    for t in range(4):
        k = torch.randn(2, 2, 6, dtype=torch.float64)
        state = memory.write(state, tokens(4)[:, t], k, k)
    _, told = memory.read(state, torch.ones(2, 4, 6, dtype=torch.float64), M=1)
    assert (told["weights"] > 0).sum(-1).max() == 1
    assert torch.allclose(told["weights"].sum(-1) + told["recent"].sum(-1), torch.ones(2, 4, dtype=torch.float64))
    assert torch.isfinite(
        memory.write(memory.init(2, torch.float64), tokens(1)[:, 0], k, k, hard=False).slots.keys
    ).all()
