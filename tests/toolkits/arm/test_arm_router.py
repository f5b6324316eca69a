"""The tree, the choice of a leaf, and the load-balance loss."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from scipy.stats import chisquare

from opensage_toolkits.arm.config import ARMConfig
from opensage_toolkits.arm.router import Choice, Router, balance_loss, choose, entropy, used

CONFIG = ARMConfig(d_model=10, n_heads=2, n_kv_heads=2, head_dim=5, branching=3, depth=3)


@pytest.mark.parametrize("nodes", ["own", "shared"])
def test_leaves_are_a_distribution(nodes: str) -> None:
    torch.manual_seed(0)
    log_p = Router(10, replace(CONFIG, nodes=nodes))(torch.randn(4, 6, 10))
    assert log_p.shape == (4, 2, 6, 27)
    assert (log_p.exp().sum(-1) - 1).abs().max() <= 1e-6


def test_a_leaf_is_the_product_of_its_branches() -> None:
    torch.manual_seed(0)
    router, x = Router(10, CONFIG).double(), torch.randn(1, 1, 10, dtype=torch.float64)
    log_p = router(x)[0, 1, 0]
    for leaf in range(27):
        way = (leaf // 9, leaf // 3 % 3, leaf % 3)
        node, total = 0, 0.0
        for level, branch in enumerate(way):
            logits = router.weights[level][1, node] @ x[0, 0] + router.biases[level][1, node]
            total += float(logits.log_softmax(-1)[branch].detach())
            node = node * 3 + branch
        assert abs(total - float(log_p[leaf].detach())) < 1e-12


def test_evaluation_takes_the_most_probable_leaf_and_not_the_greedy_way() -> None:
    p = torch.tensor([[0.30, 0.30, 0.39, 0.01]])  # greedily: the first half (0.6), then 0.30
    assert int(choose(p.log()[None, None], None).w.argmax()) == 2


def test_samples_follow_the_probabilities() -> None:
    p = torch.tensor([0.05, 0.1, 0.15, 0.2, 0.5])
    drawn = choose(p.log().expand(1, 1, 100_000, 5), 0.7, torch.Generator().manual_seed(0)).w.detach()
    counts = drawn.round().sum((0, 1, 2))
    assert float(counts.sum()) == 100_000
    assert (
        chisquare(
            counts.numpy(), (p * 100_000).numpy().astype(float) * float(counts.sum() / (p * 100_000).sum())
        ).pvalue
        > 0.01
    )


def test_the_hard_choice_has_the_soft_one_s_gradient() -> None:
    logits = torch.randn(1, 1, 3, 4, requires_grad=True)
    w = choose(logits.log_softmax(-1), 0.5, torch.Generator().manual_seed(1)).w
    assert ((w.detach() - w.detach().round()).abs() < 1e-6).all()
    (w * torch.arange(4.0)).sum().backward()
    assert logits.grad is not None
    assert (logits.grad.abs().sum(-1) > 0).all()
    soft = choose(logits.detach().log_softmax(-1), 0.5, torch.Generator().manual_seed(1), hard=False).w
    assert torch.equal(soft.argmax(-1), w.detach().argmax(-1))


@pytest.mark.parametrize("tau", [0.0, -1.0, float("nan")])
def test_a_temperature_is_over_zero(tau: float) -> None:
    with pytest.raises(ValueError, match="tau is"):
        choose(torch.zeros(1, 1, 1, 3), tau)


def test_balance_is_one_when_all_are_used_alike_and_more_when_not() -> None:
    real = torch.ones(1, 8, dtype=torch.bool)
    even = torch.eye(4).repeat(2, 1)[None, None]
    assert float(balance_loss(Choice(even, torch.full((1, 1, 8, 4), 0.25).log()), real)) == pytest.approx(1.0)
    one = torch.zeros(1, 1, 8, 4)
    one[..., 0] = 1
    assert float(balance_loss(Choice(one, (one * 0.96 + 0.01).log()), real)) > 3
    padded = torch.cat([even, one], 2)
    mask = torch.cat([real, torch.zeros(1, 8, dtype=torch.bool)], 1)
    log_p = torch.full((1, 1, 16, 4), 0.25).log()
    assert float(balance_loss(Choice(padded * mask[:, None, :, None], log_p), mask)) == pytest.approx(1.0)


def test_how_much_is_used() -> None:
    assert float(used(torch.tensor([5.0, 5, 5, 5]))) == pytest.approx(1.0)
    assert float(used(torch.tensor([20.0, 0, 0, 0]))) == pytest.approx(0.25)
    assert float(entropy(torch.full((1, 1, 1, 4), 0.25).log())) == pytest.approx(1.3863, abs=1e-3)
