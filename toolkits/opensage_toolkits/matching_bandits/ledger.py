"""The stepper's books: who is present, what the benchmark pays, and what each player lost against it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .market import NEVER, Bools, Floats, Ints, Market
from .stability import NOBODY, at_arm, blocks, stable_matchings


@dataclass(frozen=True, eq=False)
class Result:
    """One run, at C checkpoints.

    Attributes:
        checkpoints: steps, (C,).
        regret: expected loss of each player against the player-optimal stable matching of those present, (C, N).
        regret_pos: the same without the steps at which a player was better off than that, (C, N).
        unstable_steps: steps so far at which some pair present would have blocked the matching, (C,).
        off_steps: steps so far at which the matching was not the benchmark, (C,).
        last_unstable: last step with a blocking pair, 0 if none.
        collisions: proposals rejected.
        final: the matching at the last step, (N,), -1 for unmatched.
        benchmark: the player-optimal stable matching at the last step, (N,).
        explored: steps each player spent exploring, (N,).
        matched: all matchings, (T, N), when asked for.
    """

    checkpoints: Ints
    regret: Floats
    regret_pos: Floats
    unstable_steps: Ints
    off_steps: Ints
    last_unstable: int
    collisions: int
    final: Ints
    benchmark: Ints
    explored: Ints
    matched: NDArray[np.int16] | None = None

    @property
    def worst(self) -> Floats:
        """The largest regret of a player, (C,)."""
        worst: Floats = self.regret.max(axis=1)
        return worst

    def index(self, step: int) -> int:
        """Which checkpoint this step is."""
        return int(self.checkpoints.tolist().index(step))

    def at(self, step: int) -> tuple[Floats, Floats]:
        """Regret and its losses alone at a checkpoint, (N,) each."""
        return self.regret[self.index(step)], self.regret_pos[self.index(step)]


class Field:
    """S markets of the same shape and noise, stacked; player sides have shape (S, N), pairs (S, N, K)."""

    def __init__(self, markets: Sequence[Market]) -> None:
        if len({(m.players, m.arms, m.noise, m.sigma) for m in markets}) != 1:
            raise ValueError("need at least one market, all with the same N, K, noise and sigma")
        self.markets = list(markets)
        self.shape = (len(markets), markets[0].players, markets[0].arms)
        self.u = np.stack([m.u for m in markets])
        self.liked = np.stack([np.ascontiguousarray(m.v.T) for m in markets])
        self.arrivals = np.stack([m.arrivals for m in markets])
        self.gone = np.stack([m.gone for m in markets])
        self.back = np.stack([m.back for m in markets])
        self.fresh = np.array([[m.returns_as_new] for m in markets])
        times = np.concatenate([self.arrivals.ravel(), self.gone.ravel(), self.back.ravel(), [1]])
        self.changes = frozenset(times[times < NEVER].tolist())

    def present(self, step: int) -> Bools:
        """Who is there, (S, N)."""
        return ((self.arrivals <= step) & (step < self.gone)) | (step >= self.back)

    def first_step(self, step: int) -> Ints:
        """The step from which each player counts its age, (S, N)."""
        return np.where(self.fresh & (step >= self.back), self.back, self.arrivals)

    def reborn(self, step: int) -> Bools:
        """Who is back just now and has forgotten everything, (S, N)."""
        now: Bools = self.fresh & (self.back == step)
        return now


def check_steps(T: int, checkpoints: Sequence[int] | None) -> Ints:
    """The checkpoints in order, T alone if None; ValueError if T < 1 or one lies outside 1..T."""
    if T < 1:
        raise ValueError(f"T must be >= 1, got {T}")
    steps = np.unique(np.asarray([T] if checkpoints is None else checkpoints, dtype=np.int64))
    if not steps.size or steps[0] < 1 or steps[-1] > T:
        raise ValueError(f"checkpoints must lie in 1..T={T}, got {steps.tolist()}")
    return steps


class Ledger:
    """Adds up what happens, for S runs at once."""

    def __init__(self, field: Field, T: int, checkpoints: Sequence[int] | None, keep_matched: bool) -> None:
        self.field, self.steps = field, check_steps(T, checkpoints)
        runs, players, _ = field.shape
        self.regret, self.regret_pos = np.zeros((runs, players)), np.zeros((runs, players))
        self.unstable, self.off, self.last_unstable, self.collisions = np.zeros((4, runs), dtype=np.int64)
        self.matched = np.full((T, runs, players), NOBODY, dtype=np.int16) if keep_matched else None
        self.pages: list[tuple[Floats, Floats, Ints, Ints]] = []
        self.ends = frozenset(self.steps.tolist())

    def seat(self, present: Bools) -> None:
        """Others are present from now on."""
        self.present = present
        self.star = stable_matchings(self.field.u, self.field.liked, present)
        self.due = self._pay(self.star)

    def _pay(self, matching: Ints) -> Floats:
        return np.where(matching >= 0, at_arm(self.field.u, matching), 0.0)

    def record(self, step: int, proposal: Ints, accepted: Bools) -> None:
        """One step: proposals of those present, (S, N), and which were accepted."""
        matching = np.where(accepted, proposal, NOBODY)
        self.collisions += ((proposal >= 0) & ~accepted).sum(axis=1)
        off = (matching != self.star).any(axis=1)
        if off.any():
            self._lose(step, matching, off)
        if self.matched is not None:
            self.matched[step - 1] = matching
        if step in self.ends:
            self.pages.append((self.regret.copy(), self.regret_pos.copy(), self.unstable.copy(), self.off.copy()))
        self.final = matching

    def _lose(self, step: int, matching: Ints, off: Bools) -> None:
        loss = self.due - self._pay(matching)
        self.regret += loss
        self.regret_pos += np.maximum(loss, 0.0)
        self.off += off
        blocked = blocks(self.field.u, self.field.liked, matching, self.present).any(axis=(1, 2))
        self.unstable += blocked
        self.last_unstable[blocked] = step

    def results(self, explored: Ints) -> list[Result]:
        """One result a run."""
        regret, positive, unstable, off = (np.stack(column) for column in zip(*self.pages, strict=True))
        return [
            Result(
                self.steps, regret[:, s], positive[:, s], unstable[:, s], off[:, s],
                int(self.last_unstable[s]), int(self.collisions[s]), self.final[s], self.star[s], explored[s],
                None if self.matched is None else self.matched[:, s],
            )
            for s in range(self.field.shape[0])
        ]  # fmt: skip
