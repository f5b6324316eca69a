"""Scores as a matrix of samples by prompt variants, and what may be wrong with one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from opensage.errors import ConfigError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
FEW_SAMPLES = 30
MOST_LEVELS = 100


class ScoreError(ConfigError, ValueError):
    """Scores cannot be used; the message names the row, column or variant and what to do."""


@dataclass(frozen=True, slots=True)
class Coded:
    """Scores that have been checked.

    Attributes:
        levels: (J, P), 1..K, 0 where a score is missing.
        k: number of levels K of the scale.
        variants: names of the P columns.
        ids: names of the J samples.
        dropped: samples without any score, left out.
        left_out: variants that gave one score everywhere and were dropped because that was asked for.
    """

    levels: Ints
    k: int
    variants: tuple[str, ...]
    ids: tuple[str, ...]
    dropped: int = 0
    left_out: tuple[str, ...] = ()

    @property
    def warnings(self) -> list[str]:
        """What a reader of the results must know about the data."""
        found = [f"variant {name} gives the same score everywhere and was dropped" for name in self.left_out]
        if len(self.levels) < FEW_SAMPLES:
            found.append(f"too few samples: {len(self.levels)}, at least {FEW_SAMPLES} are wanted")
        if self.dropped:
            found.append(f"{self.dropped} samples have no score at all and were dropped")
        for name, unused in zip(self.variants, self.unused(), strict=True):
            if unused:
                said = ", ".join(map(str, unused))
                found.append(f"variant {name} never gives {said}: thresholds there are merged or set by the prior")
        return found + [f"variants {one} and {other} are the same in every sample" for one, other in self._same()]

    def unused(self) -> list[list[int]]:
        """The levels that each variant never gives."""
        return [[k for k in range(1, self.k + 1) if not (column == k).any()] for column in self.levels.T]

    def _same(self) -> list[tuple[str, str]]:
        pairs = [(p, q) for p in range(len(self.variants)) for q in range(p)]
        return [
            (self.variants[q], self.variants[p])
            for p, q in pairs
            if np.array_equal(self.levels[:, p], self.levels[:, q])
        ]

    def matrix(self) -> Floats:
        """(J, P), NaN where a score is missing."""
        return np.where(self.levels > 0, self.levels, np.nan).astype(float)


def coded(
    scores: ArrayLike,
    n_categories: int | None = None,
    *,
    variants: Sequence[str] = (),
    ids: Sequence[str] = (),
    drop_constant: bool = False,
    least: int = 1,
) -> Coded:
    """Check a matrix of scores.

    Args:
        scores: (J, P), whole numbers 1..K, NaN where missing.
        n_categories: K; without it the largest score, and then the least must be 1.
        variants: names of the columns; "1", "2", ... without.
        ids: names of the rows.
        drop_constant: leave out variants that give one score everywhere, instead of refusing them.
        least: variants there must be.

    Raises:
        ScoreError: the matrix cannot be used.
    """
    matrix = _matrix(scores)
    names = tuple(variants) or tuple(str(p + 1) for p in range(matrix.shape[1]))
    rows = tuple(ids) or tuple(str(j + 1) for j in range(len(matrix)))
    if len(names) != matrix.shape[1] or len(rows) != len(matrix):
        raise ScoreError(f"{matrix.shape} scores have {len(rows)} sample ids and {len(names)} variants: name each once")
    k = _checked_levels(matrix, n_categories, names, rows)
    there = ~np.isnan(matrix).all(axis=1)
    levels = np.where(np.isnan(matrix), 0, matrix).astype(np.int64)[there]
    if not len(levels):
        raise ScoreError("there is no score at all: give at least one sample with scores")
    kept = Coded(levels, k, names, tuple(np.array(rows, dtype=object)[there]), int((~there).sum()))
    return _several(_varied(kept, drop_constant), least)


def rechecked(found: Coded, drop_constant: bool, least: int) -> Coded:
    """Scores that were checked before, of which some may be gone since; what was dropped earlier stays told.

    Raises:
        ScoreError: what is left cannot be used.
    """
    return _several(_varied(found, drop_constant), least)


def _matrix(scores: ArrayLike) -> Floats:
    try:
        matrix = np.asarray(scores, dtype=float)
    except (TypeError, ValueError) as error:
        raise ScoreError(f"scores must be numbers, NaN where missing: {error}") from error
    if matrix.ndim != 2 or not matrix.size:
        raise ScoreError(f"scores have shape {matrix.shape}: a matrix of samples by variants is wanted")
    return matrix


def _checked_levels(matrix: Floats, wanted: int | None, names: Sequence[str], rows: Sequence[str]) -> int:
    if wanted is not None and not 2 <= wanted <= MOST_LEVELS:
        raise ScoreError(f"n_categories is {wanted}: a scale has 2 to {MOST_LEVELS} levels")
    with np.errstate(invalid="ignore"):
        bad = ~np.isnan(matrix) & ((matrix != np.floor(matrix)) | np.isinf(matrix))
    _refuse(matrix, bad, names, rows, "is not a whole number")
    given = matrix[~np.isnan(matrix)]
    if not given.size:
        raise ScoreError("there is no score at all: give at least one sample with scores")
    k = wanted or int(min(given.max(), MOST_LEVELS))
    with np.errstate(invalid="ignore"):
        outside = (matrix < 1) | (matrix > k)
    _refuse(matrix, outside, names, rows, f"is outside 1..{k}")
    if wanted is None and given.min() > 1:
        raise ScoreError(
            f"the lowest score is {given.min():g}, levels are 1..K: recode them, or give the number of levels "
            "(n_categories, --levels) if the scale begins at 1"
        )
    if k < 2:
        raise ScoreError("every score is 1: give the number of levels (n_categories, --levels)")
    return k


def _refuse(matrix: Floats, bad: NDArray[np.bool_], names: Sequence[str], rows: Sequence[str], why: str) -> None:
    if bad.any():
        j, p = np.argwhere(bad)[0]
        raise ScoreError(
            f"row {j + 1} (sample {rows[j]}), variant {names[p]}: score {matrix[j, p]:g} {why}; correct it"
        )


def _varied(found: Coded, drop: bool) -> Coded:
    empty = [name for name, column in zip(found.variants, found.levels.T, strict=True) if not column.any()]
    if empty:
        raise ScoreError(f"variant {empty[0]} has no score at all: leave it out")
    flat = [p for p, column in enumerate(found.levels.T) if len(set(column[column > 0].tolist())) < 2]
    if flat and not drop:
        name = found.variants[flat[0]]
        raise ScoreError(
            f"variant {name} gives the same score everywhere: leave it out (drop_constant, --drop-constant)"
        )
    keep = [p for p in range(len(found.variants)) if p not in flat]
    levels = found.levels[:, keep]
    there = np.count_nonzero(levels, axis=1) > 0
    return replace(
        found,
        levels=levels[there],
        variants=tuple(found.variants[p] for p in keep),
        ids=tuple(name for name, ok in zip(found.ids, there.tolist(), strict=True) if ok),
        dropped=found.dropped + int((~there).sum()) if keep else found.dropped,
        left_out=(*found.left_out, *(found.variants[p] for p in flat)),
    )


def _several(found: Coded, least: int) -> Coded:
    if len(found.variants) < least:
        dropped = f" ({', '.join(found.left_out)} dropped)" if found.left_out else ""
        raise ScoreError(
            f"{len(found.variants)} variant{dropped}, at least {least} are needed: "
            "C_V compares variants of one prompt, so score the samples with another wording too"
        )
    return found
