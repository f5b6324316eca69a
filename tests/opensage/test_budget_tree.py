"""One budget for a tree of agents: shares are set aside, spent upwards, and given back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opensage.budget import Budget
from opensage.errors import LimitReached
from opensage.messages import Usage
from opensage.spec import Limits


def test_a_share_is_set_aside_and_what_is_left_of_it_comes_back() -> None:
    root = Budget(Limits(max_turns=20))
    root.start_call()
    share = root.share(portion=0.5)
    assert share.limits.max_turns == 9  # of 19 one is kept for the answer
    for _ in range(10):
        root.start_call()
    with pytest.raises(LimitReached, match="set aside for agents at work"):
        root.start_call()
    share.start_call()
    assert root.turns == 12
    share.close()
    share.close()
    for _ in range(8):
        root.start_call()
    with pytest.raises(LimitReached, match="20 of 20 model calls used"):
        root.start_call()


def test_a_wish_beyond_what_is_there_gets_what_is_there() -> None:
    root = Budget(Limits(max_turns=10, max_tokens=1000, max_cost=1.0, max_tool_calls=4))
    share = root.share(Limits(max_turns=50, max_tokens=100, max_cost=0.5, max_tool_calls=9))
    given = share.limits
    assert (given.max_turns, given.max_tokens, given.max_cost, given.max_tool_calls) == (9, 100, 0.5, 4)
    with pytest.raises(LimitReached, match=r"4 of 4|4 set aside"):
        root.share()
    tight = Budget(Limits(max_turns=1))
    with pytest.raises(LimitReached, match="1 of 1 left, too little to give any away"):
        tight.share()


def test_unlimited_stays_unlimited_and_the_clock_is_shared() -> None:
    now = [0.0]
    root = Budget(Limits.none(), clock=lambda: now[0])
    assert root.share().limits.max_turns is None
    root = Budget(Limits(max_seconds=10), clock=lambda: now[0])
    now[0] = 4.0
    share = root.share(Limits(max_seconds=60))
    assert 0 < (share.limits.max_seconds or 0) <= 6
    now[0] = 10.0
    with pytest.raises(LimitReached):
        share.start_call()


def test_what_was_spent_before_a_restart_counts_once() -> None:
    root = Budget(Limits(max_turns=10))
    root.charge(Usage(5, 5), 3, 2)
    share = root.share()
    share.charge(Usage(4, 4), 2, 1, above=False)
    assert (root.turns, share.turns, root.usage.tokens) == (3, 2, 10)


NODE: Any = st.recursive(st.just([]), lambda inner: st.lists(inner, min_size=1, max_size=3), max_leaves=12)


@settings(max_examples=150, deadline=None)
@given(
    shape=NODE,
    turns=st.integers(1, 40),
    tokens=st.integers(50, 4000),
    cost=st.floats(0.01, 2.0),
    sizes=st.lists(st.integers(1, 400), min_size=1, max_size=8),
    greedy=st.lists(st.integers(1, 100), min_size=1, max_size=6),
    together=st.booleans(),
)
def test_no_tree_spends_more_than_the_root_has_but_for_the_calls_in_flight(
    shape: Any, turns: int, tokens: int, cost: float, sizes: list[int], greedy: list[int], together: bool
) -> None:
    """Agents of any tree, each calling until it is stopped, one after the other or all in turns."""
    root = Budget(Limits(max_turns=turns, max_tokens=tokens, max_cost=cost))
    largest = max(sizes)
    made: list[Budget] = []

    def grow(budget: Budget, children: Any) -> None:
        made.append(budget)
        for number, inner in enumerate(children):
            try:
                wish = Limits(max_turns=greedy[number % len(greedy)], max_tokens=10**6, max_cost=100.0)
                share = budget.share(wish if number % 2 else None)
            except LimitReached:
                continue
            grow(share, inner)

    grow(root, shape)
    calls = 0

    def call(budget: Budget) -> bool:
        nonlocal calls
        try:
            budget.start_call()
        except LimitReached:
            return False
        size = sizes[calls % len(sizes)]
        calls += 1
        budget.spend(Usage(size, 0, 0, size / 1000))
        return True

    if together:
        alive = list(made)
        while alive:
            alive = [budget for budget in alive if call(budget)]
    else:
        for budget in reversed(made):
            while call(budget):
                pass
            budget.close()
    assert calls <= turns
    assert root.turns == calls
    assert root.usage.tokens < tokens + largest  # one call at a time was in flight
    assert root.known_cost < cost + largest / 1000 + 1e-6
    for budget in made:
        assert budget.turns <= (budget.limits.max_turns or 0)
