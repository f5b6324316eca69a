"""The parallel scan is the loop, whatever the gates; its gradients are right."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from opensage_toolkits.arm.reference import routed_memory_reference
from opensage_toolkits.arm.scan import Reading, Slots, decay, routed_memory_scan

GATES = {
    "random": lambda shape, g: torch.rand(shape, generator=g, dtype=torch.float64),
    "zeros and ones": lambda shape, g: torch.randint(0, 2, shape, generator=g).double(),
    "one": lambda shape, g: torch.ones(shape, dtype=torch.float64),
    "nearly one": lambda shape, g: torch.full(shape, 1 - 1e-12, dtype=torch.float64),
    "tiny": lambda shape, g: torch.full(shape, 1e-9, dtype=torch.float64),
}


def inputs(steps: int, gates: str = "random", seed: int = 0, heads: int = 2, memories: int = 1) -> list[Tensor]:
    g = torch.Generator().manual_seed(seed)
    q = torch.randn(2, heads, steps, 4, generator=g, dtype=torch.float64)
    k, v = (torch.randn(2, memories, steps, 4, generator=g, dtype=torch.float64) for _ in range(2))
    slot = torch.randint(0, 5, (2, memories, steps, 1), generator=g)
    w = torch.zeros(2, memories, steps, 5, dtype=torch.float64).scatter(-1, slot, 1.0)
    return [q, k, v, w, GATES[gates]((2, memories, steps), g)]


@pytest.mark.parametrize("gates", list(GATES))
@pytest.mark.parametrize(("steps", "chunk"), [(1, 32), (7, 3), (130, 32), (64, 64)])
def test_the_scan_is_the_loop(gates: str, steps: int, chunk: int) -> None:
    data = inputs(steps, gates)
    out, keys, values, mass = routed_memory_reference(*data)
    got, slots = routed_memory_scan(*data, chunk=chunk)
    assert (got - out).abs().max() <= 1e-10
    assert (slots.mass - mass).abs().max() <= 1e-12
    held = mass[..., None].clamp(min=1e-300)
    assert ((slots.keys / held - keys) * (mass > 0)[..., None]).abs().max() <= 1e-10
    assert ((slots.values / held - values) * (mass > 0)[..., None]).abs().max() <= 1e-10


@pytest.mark.parametrize("gates", ["random", "zeros and ones", "one"])
def test_two_thousand_tokens_in_float32(gates: str) -> None:
    data = inputs(2048, gates)
    out = routed_memory_reference(*data)[0]
    assert (routed_memory_scan(*data)[0] - out).abs().max() <= 1e-10
    got = routed_memory_scan(*(each.float() for each in data))[0]
    assert got.dtype == torch.float32
    assert (got.double() - out).abs().max() <= 1e-5


@pytest.mark.parametrize("most", [1, 2, 5])
@pytest.mark.parametrize("bias", [True, False])
def test_reads_of_the_best_slots_are_those_of_the_loop(most: int, bias: bool) -> None:
    data = inputs(40, seed=most)
    out = routed_memory_reference(*data, mass_bias=bias, most=most)[0]
    got, _ = routed_memory_scan(*data, chunk=16, reading=Reading(bias, most=most))
    assert (got - out).abs().max() <= 1e-10


def test_several_queries_share_a_memory() -> None:
    data = inputs(20, heads=6, memories=3)
    assert (routed_memory_scan(*data, chunk=8)[0] - routed_memory_reference(*data)[0]).abs().max() <= 1e-10


def test_soft_writes_are_the_loop_too() -> None:
    q, k, v, w, gamma = inputs(50)
    soft = torch.randn(w.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64).softmax(-1)
    data = [q, k, v, soft, gamma]
    assert (routed_memory_scan(*data, chunk=16)[0] - routed_memory_reference(*data)[0]).abs().max() <= 1e-10


@pytest.mark.parametrize("gates", ["random", "zeros and ones", "one"])
def test_gradients(gates: str) -> None:
    """By finite differences, with soft writes; also where a gate is exactly 0 or 1, inside a chunk and across chunks.

    Where a gate is 0 or 1, it is not varied itself: beyond the ends there is no memory.
    """
    q, k, v, w, gamma = inputs(6, gates)
    soft = (w + 0.1).softmax(-1)
    gamma[..., 0] = 0.7  # something is written before the first read
    varied = [q, k, v, soft] + ([gamma] if gates == "random" else [])
    for each in varied:
        each.requires_grad_()

    def run(*given: Tensor) -> Any:
        whole = [*given, gamma][:5]
        return routed_memory_scan(*whole, chunk=4)[0]  # type: ignore[arg-type]

    assert torch.autograd.gradcheck(run, varied, atol=1e-6)


def test_products_of_runs() -> None:
    a = torch.rand(2, 7, 3, dtype=torch.float64)
    a[0, 3] = 0
    found = decay(a)
    for t in range(7):
        for j in range(7):
            wanted = a[:, j + 1 : t + 1].prod(1) if j <= t else torch.zeros(2, 3, dtype=torch.float64)
            assert torch.allclose(found[:, t, j], wanted, atol=1e-15)


def test_it_goes_on_from_what_is_held() -> None:
    data = inputs(30)
    whole, end = routed_memory_scan(*data, chunk=8)
    first, held = routed_memory_scan(*(each[:, :, :11] for each in data), chunk=8)
    second, last = routed_memory_scan(*(each[:, :, 11:] for each in data), chunk=8, start=held)
    assert (torch.cat([first, second], 2) - whole).abs().max() <= 1e-12
    assert (last.keys - end.keys).abs().max() <= 1e-12


def test_a_slot_is_a_convex_combination_of_what_was_written() -> None:
    q, k, v, w, gamma = inputs(200, seed=9)
    _, slots = routed_memory_scan(q, k, v, w, gamma)
    for name, held in (("k", slots.keys), ("v", slots.values)):
        source = k if name == "k" else v
        for b in range(2):
            for s in range(5):
                written = source[b, 0][w[b, 0, :, s] > 0]
                blend = held[b, 0, s] / slots.mass[b, 0, s]
                assert (blend >= written.min(0).values - 1e-12).all()
                assert (blend <= written.max(0).values + 1e-12).all()


def test_slots_that_hold_nothing_get_exactly_nothing() -> None:
    q, k, v, w, gamma = inputs(9)
    w = torch.zeros_like(w)
    w[..., 2] = 1
    poison = Slots.empty(2, 1, 5, 4, k)
    poison.values[:, :, [0, 1, 3, 4]] = 1e30  # would show in any weight above 0
    out, slots = routed_memory_scan(q, k, v, w, gamma, start=poison)
    assert out.abs().max() < 100
    assert (slots.mass[..., [0, 1, 3, 4]] == 0).all()


def test_who_finds_nothing_reads_zeros() -> None:
    q, k, v, w, _ = inputs(3)
    out, _ = routed_memory_scan(q, k, v, w, torch.zeros(2, 1, 3, dtype=torch.float64))
    assert (out == 0).all()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: [d[0], d[1], d[2][:, :, :2], d[3], d[4]], "v is"),
        (lambda d: [d[0], d[1], d[2], d[3], d[4][..., None]], "gamma 3"),
        (lambda d: [d[0][:, :, :, :2], *d[1:]], "q is"),
        (lambda d: [each[:, :, :0] for each in d], "an empty sequence"),
        (lambda d: [*d[:3], d[3][:, :, :1], d[4]], "w is"),
    ],
)
def test_shapes_that_do_not_fit(change: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        routed_memory_scan(*change(inputs(4)))
    with pytest.raises(ValueError, match="chunk is 0"):
        routed_memory_scan(*inputs(4), chunk=0)
