"""Tasks, peers, a short training, the policy, and what the tools refuse."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from opensage_toolkits.arm import tasks
from opensage_toolkits.arm.config import ARMConfig
from opensage_toolkits.arm.model import TinyModel, Training, train
from opensage_toolkits.arm.peers import delta, evicting, full, linear, of_budget, sinks, window
from opensage_toolkits.arm.policy import train_policy
from opensage_toolkits.arm.prices import priced
from opensage_toolkits.arm.tools import recall, size
from opensage_toolkits.arm.trials import Trial, tried


def qkv(steps: int = 12, seed: int = 0) -> list[Tensor]:
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(2, 2, steps, 4, generator=g, dtype=torch.float64) for _ in range(3)]


def test_pairs_can_be_answered_and_stand_before_any_window() -> None:
    batch = tasks.mqar(50, 8, 16, 64, seed=1)
    words = tasks.Vocabulary(16, 16)
    for row, wanted in zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True):
        held = {row[i]: row[i + 1] for i in range(0, 16, 2)}
        assert len(held) == 8
        assert [held[key] for key in row[-8:]] == wanted[-8:]
        assert set(wanted[:-8]) == {tasks.IGNORED}
        assert all(token >= words.first_noise for token in row[16:56])
    assert torch.equal(tasks.mqar(3, 2, 4, 9, seed=5).tokens, tasks.mqar(3, 2, 4, 9, seed=5).tokens)


@pytest.mark.parametrize("depth", [0.0, 0.5, 1.0])
def test_a_needle_lies_at_its_depth(depth: float) -> None:
    batch = tasks.needle(20, 50, depth)
    at = round(depth * 47)
    assert torch.equal(batch.tokens[:, at], batch.tokens[:, -1])
    assert torch.equal(batch.tokens[:, at + 1], batch.targets[:, -1])


def test_copies_hold_what_is_asked_for() -> None:
    plain, mixed = tasks.copy(9, 40, 6), tasks.selective_copy(9, 40, 6)
    assert torch.equal(plain.tokens[:, :6], plain.targets[:, -6:])
    words = tasks.Vocabulary(6, 16)
    for row, wanted in zip(mixed.tokens.tolist(), mixed.targets.tolist(), strict=True):
        values = [token for token in row[:34] if words.first_value <= token < words.first_noise]
        assert values == wanted[-6:]


@pytest.mark.parametrize(
    "make",
    [
        lambda: tasks.mqar(1, 5, 4, 64), lambda: tasks.mqar(1, 8, 8, 20), lambda: tasks.mqar(1, 2, 4, 20, queries=3),
        lambda: tasks.needle(1, 3, 0.5), lambda: tasks.needle(1, 9, 1.5), lambda: tasks.copy(1, 9, 5),
        lambda: tasks.copy(1, 9, 0), lambda: tasks.selective_copy(1, 9, 5),
    ],
)  # fmt: skip
def test_tasks_that_do_not_fit(make: Any) -> None:
    with pytest.raises(ValueError, match=r"wanted|need"):
        make()


def test_caches_that_hold_everything_are_full_attention() -> None:
    data = qkv()
    for peer in (window(12), sinks(12), *(evicting(12, kind) for kind in ("h2o", "tova", "random", "merge"))):
        assert (peer(*data) - full(*data)).abs().max() < 1e-12


def test_a_window_forgets_and_sinks_keep_the_first() -> None:
    q, k, v = qkv()
    changed = v.clone()
    changed[:, :, 0] = 100
    assert torch.equal(window(4)(q, k, v)[:, :, 4:], window(4)(q, k, changed)[:, :, 4:])
    assert (sinks(4, 2)(q, k, v)[:, :, 4:] != sinks(4, 2)(q, k, changed)[:, :, 4:]).any()


def test_recurrences_in_one_step_are_the_loops() -> None:
    q, k, v = qkv()
    unit = torch.nn.functional.normalize(k, dim=-1)
    state, out, z = torch.zeros(2, 2, 4, 4, dtype=torch.float64), [], torch.zeros(2, 2, 4, dtype=torch.float64)
    plain, lin = torch.zeros_like(state), []
    for t in range(12):
        error = v[:, :, t] - torch.einsum("bhvk,bhk->bhv", state, unit[:, :, t])
        state = state + torch.einsum("bhv,bhk->bhvk", error, unit[:, :, t])
        out.append(torch.einsum("bhvk,bhk->bhv", state, q[:, :, t]))
        fk, fq = (torch.nn.functional.elu(each[:, :, t]) + 1 for each in (k, q))
        plain, z = plain + torch.einsum("bhv,bhk->bhvk", v[:, :, t], fk), z + fk
        lin.append(torch.einsum("bhvk,bhk->bhv", plain, fq) / (z * fq).sum(-1, keepdim=True))
    assert (delta(q, k, v) - torch.stack(out, 2)).abs().max() < 1e-12
    assert (linear(q, k, v) - torch.stack(lin, 2)).abs().max() < 1e-12


@pytest.mark.parametrize("kind", ["h2o", "tova", "random", "merge"])
def test_evicting_caches_never_hold_more(kind: str) -> None:
    seen = []

    def watch(*data: Tensor) -> None:
        out = evicting(5, kind)(*data)
        seen.append(out.shape)
        assert torch.isfinite(out).all()

    watch(*qkv(30))
    assert seen == [torch.Size([2, 2, 30, 4])]
    with pytest.raises(ValueError, match="worth is"):
        evicting(5, "best")


def test_budgets_are_kept() -> None:
    for name in ("window", "fifo", "sinks", "h2o", "tova", "random", "merge"):
        assert 0 < of_budget(name, 100, 4)[1] <= 100
    with pytest.raises(ValueError, match="less than one token"):
        of_budget("window", 7, 4)


SMALL = ARMConfig(d_model=16, n_heads=1, n_kv_heads=1, head_dim=16, branching=2, depth=3)


def easy(batch: int, seed: int) -> tasks.Batch:
    return tasks.mqar(batch, 2, 4, 12, values=4, seed=seed)


@pytest.mark.slow
def test_a_memory_learns_what_a_window_cannot() -> None:
    results = {}
    for name, peer in (("arm", None), ("window", window(6))):
        torch.manual_seed(0)
        model = TinyModel(tasks.Vocabulary(4, 4).size, SMALL, peer)
        losses = train(model, easy, Training(400, 64, 1e-2))
        assert losses[-1] < losses[0]
        results[name] = model.accuracy(easy(512, 10**9))
    assert results["arm"] > 0.8
    assert results["window"] < 0.45  # chance is 0.25, and one pair leaves fewer values


def test_a_price_lowers_what_is_read() -> None:
    means = []
    for price in (0.0, 5.0):
        torch.manual_seed(0)
        model = TinyModel(tasks.Vocabulary(4, 4).size, replace(SMALL, read="policy")).train()
        (memory,) = model.memories
        memory.generator = torch.Generator().manual_seed(0)
        assert memory.policy is not None

        def forward(model: TinyModel = model) -> tuple[Tensor, Tensor]:
            loss, _, told = model.loss(easy(16, 3))
            return loss, told[0].M / 8

        before = [each.detach().clone() for each in memory.to_q.parameters()]
        steps = train_policy(memory.policy.parameters(), forward, steps=60, price=price, rate=2e-2)
        assert all(torch.equal(*pair) for pair in zip(before, memory.to_q.parameters(), strict=True))
        means.append(sum(each.read for each in steps[-10:]) / 10)
    assert means[1] < 0.5 * means[0]
    with pytest.raises(ValueError, match="price is"):
        train_policy(memory.policy.parameters(), forward, steps=1, price=-1.0)


def test_prices_are_laid_on_one_memory() -> None:
    rows = priced(Trial("arm", "mqar", steps=2), (0.0, 5.0), steps=40)
    assert [row["price"] for row in rows] == [None, 0.0, 5.0]
    assert rows[0]["easy_M"] == rows[0]["hard_M"] == 16
    assert rows[2]["hard_M_all_tokens"] < rows[1]["hard_M_all_tokens"]
    assert all(1 <= row["easy_M"] <= 16 for row in rows)


def test_a_trial_says_what_it_did() -> None:
    row = json.loads(json.dumps(tried(Trial("arm", "mqar", steps=2))))
    assert (row["method"], row["numbers"], row["posthoc"]) == ("arm", 16 * 99, False)
    assert 0 <= row["accuracy"] <= 1
    assert row["used"] > 0
    assert tried(Trial("h2o", "copy", steps=1))["posthoc"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: recall(steps=0), "steps"), (lambda: recall(steps=10**9), "steps"), (lambda: recall(slots=5), "slots is 5"),
        (lambda: recall(length=10**6), "length"), (lambda: recall(length=10), "need"), (lambda: recall(pairs=True), "pairs"),
        (lambda: recall(method="best"), "less|best|unknown"), (lambda: recall(task="x"), "task is 'x'"),  # type: ignore[arg-type]
        (lambda: size(0, 1, 1), "head_dim"), (lambda: size(1, 1, 1, tokens=[0]), "tokens"), (lambda: size(1, 1, 1, window=-1), "window"),
    ],
)  # fmt: skip
def test_what_the_tools_refuse(call: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        call()


def test_a_picture_of_the_benchmark(tmp_path: Path) -> None:
    from opensage_toolkits.arm.bench import plotted

    rows = [{"task": "mqar", "method": "arm", "accuracy": 0.9}, {"task": "mqar", "method": "window", "accuracy": 0.1}]
    plotted(rows, tmp_path / "a.svg")
    assert "mqar" in (tmp_path / "a.svg").read_text()
