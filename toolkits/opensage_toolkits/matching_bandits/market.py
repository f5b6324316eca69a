"""The market: who likes whom how much, and who is there when."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Noise = Literal["bernoulli", "gaussian"]

NEVER = np.iinfo(np.int64).max // 2


class TieError(ValueError):
    """Two entries of one row are equal, so the order of preference is not strict."""


class UnsupportedSetting(ValueError):
    """The algorithm does not handle this kind of market, such as departures in a one-sided method."""


@dataclass(frozen=True, eq=False)
class Market:
    """N players who propose to K arms, N <= K; all arrays are checked and copied.

    Attributes:
        u: mean utility of arm j to player i, (N, K) in [0, 1].
        v: mean utility of player i to arm j, (K, N) in [0, 1]; integers are ranks (smallest is liked best).
        arrivals: first step of each player, (N,) >= 1; a single number stands for all.
        departures: last step of each player, (N,); None: nobody leaves.
        returns: step at which a player who left is back for good, (N,), 0 for never; None: nobody returns.
        returns_as_new: a returning player has forgotten everything, starts its clock again, and arms are told so.
        noise: law of a payoff around its mean.
        sigma: standard deviation of gaussian noise.
        seed: of everything random in a run, policies included.

    Raises:
        TieError: a row of u or v has equal entries.
        ValueError: shapes, ranges or times are wrong; the message says where.
    """

    u: Floats
    v: Floats
    arrivals: Ints = field(default_factory=lambda: np.array(1))
    departures: Ints | None = None
    returns: Ints | None = None
    returns_as_new: bool = False
    noise: Noise = "bernoulli"
    sigma: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        u = utilities("u", self.u)
        v = ranks_to_utilities(self.v) if np.asarray(self.v).dtype.kind in "iu" else utilities("v", self.v)
        players, arms = u.shape
        if players > arms:
            raise ValueError(f"need N <= K, got N={players} players and K={arms} arms")
        if v.shape != (arms, players):
            raise ValueError(f"v must have shape (K, N) = ({arms}, {players}), got {v.shape}")
        if self.noise not in ("bernoulli", "gaussian"):
            raise ValueError(f"noise must be 'bernoulli' or 'gaussian', got {self.noise!r}")
        if not 0 <= self.sigma < np.inf:
            raise ValueError(f"sigma must be finite and >= 0, got {self.sigma}")
        self._set(u=u, v=v, arrivals=self._arrivals(players))
        self._set(departures=self._departures(players))
        self._set(returns=self._returns(players))

    def _set(self, **values: Any) -> None:
        """A frozen dataclass that checks its fields has to write them back this way."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _arrivals(self, players: int) -> Ints:
        arrivals = times("arrivals", self.arrivals, players)
        if (early := np.flatnonzero(arrivals < 1)).size:
            raise ValueError(f"arrivals[{early[0]}] = {arrivals[early[0]]} must be >= 1")
        return arrivals

    def _departures(self, players: int) -> Ints | None:
        if self.departures is None:
            return None
        departures = times("departures", self.departures, players)
        if (bad := np.flatnonzero(departures < self.arrivals)).size:
            i = bad[0]
            raise ValueError(f"departures[{i}] = {departures[i]} is before arrivals[{i}] = {self.arrivals[i]}")
        return departures

    def _returns(self, players: int) -> Ints | None:
        if self.returns is None:
            return None
        if self.departures is None:
            raise ValueError("returns are given but nobody departs; give departures as well")
        returns = times("returns", self.returns, players)
        returns = np.where(returns == 0, NEVER, returns)
        if (bad := np.flatnonzero(returns <= self.departures + 1)).size:
            raise ValueError(f"returns[{bad[0]}] must be 0 (never) or later than departures[{bad[0]}] + 1")
        return returns

    @property
    def players(self) -> int:
        """N."""
        return int(self.u.shape[0])

    @property
    def arms(self) -> int:
        """K."""
        return int(self.u.shape[1])

    @property
    def gone(self) -> Ints:
        """First step at which each player is away, (N,)."""
        return np.full(self.players, NEVER) if self.departures is None else self.departures + 1

    @property
    def back(self) -> Ints:
        """Step at which each player is back, (N,)."""
        return np.full(self.players, NEVER) if self.returns is None else self.returns

    def present(self, step: int) -> Bools:
        """Who is there at a step, (N,)."""
        return ((self.arrivals <= step) & (step < self.gone)) | (step >= self.back)

    def gap(self, two_sided: bool = True) -> float:
        """Delta_min: the smallest gap between two entries of one row of u, and of v if two-sided."""
        rows = [*self.u, *self.v] if two_sided else [*self.u]
        return float(min((np.diff(np.sort(row)).min() for row in rows if row.size > 1), default=np.inf))


def utilities(name: str, values: ArrayLike) -> Floats:
    """A checked copy of a matrix of utilities in [0, 1] whose rows have no ties."""
    try:
        matrix = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a matrix of numbers, rows of equal length") from None
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ValueError(f"{name} must be a matrix with at least one row and column, got shape {matrix.shape}")
    if (bad := np.argwhere(~((matrix >= 0) & (matrix <= 1)))).size:  # written so that NaN is caught
        i, j = bad[0]
        raise ValueError(f"{name}[{i}, {j}] = {matrix[i, j]} must be a number in [0, 1]")
    check_ties(name, matrix)
    return matrix


def check_ties(name: str, matrix: NDArray[Any]) -> None:
    """Raise TieError if two entries of a row are equal."""
    for row, values in enumerate(matrix):
        order = np.argsort(values, kind="stable")
        if (equal := np.flatnonzero(np.diff(values[order]) == 0)).size:
            a, b = sorted((int(order[equal[0]]), int(order[equal[0] + 1])))
            raise TieError(f"tie in row {row} of {name}: columns {a} and {b} are both {values[a]}")


def ranks_to_utilities(ranks: ArrayLike) -> Floats:
    """Ranks of the players at each arm, 0 or 1 the best, as evenly spaced utilities in (0, 1]."""
    matrix = np.array(ranks, dtype=np.int64)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ValueError(f"v must be a matrix with at least one row and column, got shape {matrix.shape}")
    check_ties("v", matrix)
    lowest = matrix.min(axis=1, keepdims=True)
    if ((lowest != 0) & (lowest != 1)).any() or (matrix.max(axis=1, keepdims=True) - lowest >= matrix.shape[1]).any():
        raise ValueError(
            "v holds integers, so each row must be ranks 0..N-1 or 1..N; write utilities with a point (0.5)"
        )
    return np.asarray(1.0 - (matrix - lowest) / matrix.shape[1], dtype=np.float64)


def times(name: str, values: ArrayLike, players: int) -> Ints:
    """A checked copy of one step number a player; a single number stands for all."""
    array = np.array(values)
    if array.dtype.kind not in "iu" and not (array.dtype.kind == "f" and np.all(array == np.floor(array))):
        raise ValueError(f"{name} must be whole step numbers")
    if array.ndim == 0:
        array = np.full(players, array)
    if array.shape != (players,):
        raise ValueError(f"{name} must have shape ({players},), got {array.shape}")
    if (np.abs(array) >= NEVER).any():
        raise ValueError(f"{name} must be below {NEVER}")
    return array.astype(np.int64)


def random_market(
    players: int, arms: int, gap: float, rng: np.random.Generator, even: bool = False, **rest: Any
) -> Market:
    """A market with random orders and utilities in [0.05, 0.95] whose neighbours in a row are at least `gap` apart.

    With `even` they are exactly `gap` apart, around 0.5; `rest` goes to `Market`.
    """
    widest = 0.9 / max(1, players - 1, arms - 1)
    if not 0 < gap <= widest + 1e-9:
        raise ValueError(f"gap must be in (0, {widest:.4g}] for {players} players and {arms} arms, got {gap}")
    u = np.stack([_row(arms, gap, rng, even) for _ in range(players)])
    v = np.stack([_row(players, gap, rng, even) for _ in range(arms)])
    return Market(u, v, **rest)


def _row(size: int, gap: float, rng: np.random.Generator, even: bool) -> Floats:
    slack = max(0.0, 0.9 - gap * (size - 1))
    offsets = np.full(size, slack / 2) if even else np.sort(rng.random(size)) * slack
    return np.asarray(rng.permutation(np.minimum(0.05 + offsets + gap * np.arange(size), 1.0)), dtype=np.float64)


def cyclic_market(size: int, gap: float, rng: np.random.Generator | None = None, **rest: Any) -> Market:
    """A market with `size` stable matchings: player i likes i, i+1, ... and arms like best whom they please least.

    Every player gets its first choice in the player-optimal matching and its last in the arm-optimal one; between them
    lie rotations in which all must move at once. With `rng`, players and arms are relabelled at random.
    """
    if not (size >= 1 and gap > 0 and gap * (size - 1) <= 1):
        raise ValueError(f"need size >= 1 and 0 < gap <= {1 / max(1, size - 1):.4g}, got size {size}, gap {gap}")
    levels = 0.5 + gap * ((size - 1) / 2 - np.arange(size))
    offset = (np.arange(size)[None, :] - np.arange(size)[:, None]) % size
    u, v = levels[offset], levels[size - 1 - offset].T
    if rng is not None:
        rows, columns = rng.permutation(size), rng.permutation(size)
        u, v = u[rows][:, columns], v[columns][:, rows]
    return Market(u, v, **rest)
