"""Stable matchings (Gale and Shapley 1962): the benchmark that regret is measured against."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .market import Bools, Floats, Ints, check_ties

NOBODY = -1


def stable_matching(u: ArrayLike, v: ArrayLike, present: ArrayLike | None = None) -> Ints:
    """The player-optimal stable matching of the players present, by deferred acceptance.

    Args:
        u: utility of arms to players, (N, K), strict rows; any scale.
        v: utility of players to arms, (K, N), strict rows; larger is better.
        present: who is there, (N,) bool; None: all.

    Returns:
        The arm of each player, (N,), -1 for unmatched.
    """
    u, v, there = _checked(u, v, present)
    found: Ints = stable_matchings(u[None], v.T[None], there[None])[0]
    return found


def stable_matchings(u: Floats, liked: Floats, present: Bools) -> Ints:
    """Deferred acceptance in many markets at once: u and liked (v transposed) are (S, N, K), present (S, N)."""
    runs, players, arms = u.shape
    order = np.argsort(-u, axis=2)
    asked = np.zeros((runs, players), dtype=np.int64)  # how far down its list each player is
    while True:
        able = present & (asked < arms)
        proposal = np.where(able, at_arm(order, np.minimum(asked, arms - 1)), NOBODY)
        accepted = winners_of(proposal, liked)[1].any(axis=2)
        if not (able & ~accepted).any():
            return proposal
        asked += able & ~accepted


def winners_of(proposal: Ints, score: Floats) -> tuple[Ints, Bools]:
    """Each arm takes its best proposer: winners (S, K), -1 for none, and the pairs that this makes (S, N, K).

    Args:
        proposal: the arm that each player proposes to, (S, N), -1 for none.
        score: how much arms like players, (S, N, K); the first of equals wins.
    """
    to = proposal[:, :, None] == np.arange(score.shape[2])
    best = np.where(to, score, -np.inf).argmax(axis=1)
    won = to & (best[:, None, :] == np.arange(score.shape[1])[:, None])
    return np.where(to.any(axis=1), best, NOBODY), won


def blocking_pairs(
    u: ArrayLike, v: ArrayLike, matching: ArrayLike, present: ArrayLike | None = None
) -> list[tuple[int, int]]:
    """Pairs (player, arm) who would both rather have each other than whom they have; empty if stable.

    Raises:
        ValueError: the matching gives an arm twice, an arm that does not exist, or an arm to an absent player.
    """
    u, v, there = _checked(u, v, present)
    given = np.asarray(matching)
    players, arms = u.shape
    if given.shape != (players,) or given.dtype.kind not in "iu":
        raise ValueError(f"matching must be {players} whole numbers, the arm of each player or -1")
    if (bad := np.flatnonzero((given < NOBODY) | (given >= arms) | ((given >= 0) & ~there))).size:
        raise ValueError(f"matching[{bad[0]}] = {given[bad[0]]} is no arm (0..{arms - 1}), or its player is absent")
    taken = given[given >= 0]
    if np.unique(taken).size < taken.size:
        raise ValueError("matching gives one arm to two players")
    return [(int(i), int(j)) for _, i, j in np.argwhere(blocks(u[None], v.T[None], given[None], there[None]))]


@lru_cache(maxsize=32)
def _rows(shape: tuple[int, int, int]) -> Ints:
    """Where the row of each player starts in a flat array of pairs, (S, N)."""
    runs, players, arms = shape
    return np.arange(runs * players, dtype=np.int64).reshape(runs, players) * arms


def at_arm(values: NDArray[Any], arm: Ints) -> NDArray[Any]:
    """Values (S, N, K) at one arm a player, (S, N); those at -1 mean nothing. Much faster than `take_along_axis`."""
    return np.ascontiguousarray(values).reshape(-1)[_rows(values.shape) + np.maximum(arm, 0)]


def blocks(u: Floats, liked: Floats, matching: Ints, present: Bools) -> Bools:
    """Which pairs block, (S, N, K); matching is (S, N)."""
    held = matching[:, :, None] == np.arange(u.shape[2])
    mine = np.where(matching >= 0, at_arm(u, matching), -np.inf)[:, :, None]
    its = np.where(held, liked, -np.inf).max(axis=1, keepdims=True)
    better: Bools = (u > mine) & (liked > its) & present[:, :, None]
    return better


def _checked(u: ArrayLike, v: ArrayLike, present: ArrayLike | None) -> tuple[Floats, Floats, Bools]:
    left, right = np.asarray(u, dtype=np.float64), np.asarray(v, dtype=np.float64)
    if left.ndim != 2 or right.shape != left.shape[::-1]:
        raise ValueError(f"u must be (N, K) and v (K, N), got {left.shape} and {right.shape}")
    if not (np.isfinite(left).all() and np.isfinite(right).all()):
        raise ValueError("u and v must be finite")
    check_ties("u", left)
    check_ties("v", right)
    there = np.ones(len(left), dtype=np.bool_) if present is None else np.asarray(present, dtype=np.bool_)
    if there.shape != (len(left),):
        raise ValueError(f"present must have shape ({len(left)},), got {there.shape}")
    return left, right, there
