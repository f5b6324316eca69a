"""One-class models: fitted on positives alone.

Each kind is a function `fit(X, rng, contamination)` that gives a function from rows to their outlyingness (larger is
less seen). X is (n, d) float64 with unit rows. The same rows and the same rng give the same scores: so a detector is
saved as its rows, and nothing of a model is. scikit-learn has the one-class SVM, the isolation forest, the shrinkage.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opensage.errors import ConfigError

Array = NDArray[np.float64]
Score = Callable[[Array], Array]
Kind = Callable[[Array, np.random.Generator, float], Score]
_TINY = 1e-12
_CHUNK = 256
"""Rows scored at once: bounds what a large history costs in memory."""


def distances(rows: Array, others: Array) -> Array:
    """Euclidean distances, (n, m)."""
    squares = (rows**2).sum(axis=1)[:, None] + (others**2).sum(axis=1) - 2 * rows @ others.T
    found: Array = np.sqrt(np.maximum(squares, 0))
    return found


def _chunked(call: Score) -> Score:
    def score(rows: Array) -> Array:
        parts = [call(rows[start : start + _CHUNK]) for start in range(0, len(rows), _CHUNK)]
        return np.concatenate(parts) if parts else np.zeros(0)

    return score


def _sklearn(part: str) -> Any:
    try:
        return importlib.import_module(f"sklearn.{part}")
    except ImportError as error:
        raise ConfigError("this kind of detector needs scikit-learn: pip install 'opensage[selfplay]'") from error


def _ocsvm(rows: Array, _rng: np.random.Generator, contamination: float) -> Score:
    spread = float(rows.var())
    gamma = 1 / (rows.shape[1] * spread) if spread > _TINY else 1.0  # identical rows have no spread
    model = _sklearn("svm").OneClassSVM(kernel="rbf", nu=contamination, gamma=gamma).fit(rows)
    return _chunked(lambda part: -model.decision_function(part))


def _knn(rows: Array, _rng: np.random.Generator, _contamination: float) -> Score:
    k = min(5, len(rows))
    return _chunked(lambda part: np.partition(distances(part, rows), k - 1)[:, :k].mean(axis=1))


def _nearest(found: Array, k: int) -> tuple[Array, NDArray[np.intp]]:
    places = np.argpartition(found, k - 1)[:, :k]
    return np.take_along_axis(found, places, axis=1), places


_FLOOR = 1e-4
"""Least reach: without it many equal problems have an infinite density, and anything beside them an infinite factor."""


def _lof(rows: Array, _rng: np.random.Generator, _contamination: float) -> Score:
    """The local outlier factor of new rows (Breunig et al. 2000); scikit-learn's has no least reach."""
    k = min(20, len(rows) - 1)
    parts = []
    for start in range(0, len(rows), _CHUNK):
        found = distances(rows[start : start + _CHUNK], rows)
        found[np.arange(len(found)), start + np.arange(len(found))] = np.inf
        parts.append(_nearest(found, k))
    near, places = (np.concatenate(each) for each in zip(*parts, strict=True))
    reach = near.max(axis=1)

    def density(near: Array, places: NDArray[np.intp]) -> Array:
        return np.asarray(1 / np.maximum(np.maximum(near, reach[places]), _FLOOR).mean(axis=1))

    known = density(near, places)

    def score(part: Array) -> Array:
        near, places = _nearest(distances(part, rows), k)
        return np.asarray(known[places].mean(axis=1) / density(near, places))

    return _chunked(score)


def _iforest(rows: Array, rng: np.random.Generator, _contamination: float) -> Score:
    forest = _sklearn("ensemble").IsolationForest(n_estimators=100, random_state=int(rng.integers(2**31)))
    model = forest.fit(rows.astype(np.float32))  # it sees float32, and so do its thresholds
    return lambda part: -model.score_samples(part.astype(np.float32)) if len(part) else np.zeros(0)


def _maha(rows: Array, _rng: np.random.Generator, _contamination: float) -> Score:
    centre = rows.mean(axis=0)
    if float(rows.var(axis=0).sum()) > _TINY:
        spread, _ = _sklearn("covariance").ledoit_wolf(rows - centre, assume_centered=True)
    else:
        spread = np.zeros((rows.shape[1], rows.shape[1]))
    root = np.linalg.inv(np.linalg.cholesky(spread + 1e-6 * np.eye(rows.shape[1])))
    return lambda part: np.linalg.norm((part - centre) @ root.T, axis=1)


def _dense(rng: np.random.Generator, inside: int, outside: int) -> Array:
    return rng.normal(0, inside**-0.5, (inside, outside))


def _rnd(rows: Array, rng: np.random.Generator, _contamination: float) -> Score:
    """A fixed random net, and a ridge regression on other random features that predicts it on these rows alone."""
    width = rows.shape[1]
    inner, outer, mixed = _dense(rng, width, 128) * 3, _dense(rng, 128, 32), _dense(rng, width, 128) * 3

    def features(part: Array) -> Array:
        return np.hstack([np.tanh(part @ mixed), np.ones((len(part), 1))])

    def target(part: Array) -> Array:
        return np.asarray(np.tanh(part @ inner) @ outer)

    known = features(rows)
    weights = np.linalg.solve(known.T @ known + 1e-2 * np.eye(known.shape[1]), known.T @ target(rows))
    return lambda part: np.asarray(((features(part) @ weights - target(part)) ** 2).sum(axis=1))


def _svdd(rows: Array, rng: np.random.Generator, _contamination: float) -> Score:
    """A small net without bias, drawn to the mean of its first outputs by some steps of Adam (Ruff et al. 2018).

    Without bias, and with a centre that is fixed and not zero, it cannot map everything to one point.
    """
    nets = [_dense(rng, rows.shape[1], 64), _dense(rng, 64, 16)]
    centre = _embed(nets[0], nets[1], rows).mean(axis=0)
    centre = np.where(np.abs(centre) < 0.1, np.where(centre < 0, -0.1, 0.1), centre)
    first, second = [np.zeros_like(net) for net in nets], [np.zeros_like(net) for net in nets]
    for step in range(1, 61):
        part = rows if len(rows) <= 512 else rows[rng.choice(len(rows), 512, replace=False)]
        for place, slope in enumerate(_slopes(nets, part, centre)):
            first[place] = 0.9 * first[place] + 0.1 * slope
            second[place] = 0.999 * second[place] + 0.001 * slope**2
            moved = first[place] / (1 - 0.9**step) / (np.sqrt(second[place] / (1 - 0.999**step)) + 1e-8)
            nets[place] = nets[place] - 1e-3 * moved
    return lambda part: np.asarray(((_embed(nets[0], nets[1], part) - centre) ** 2).sum(axis=1))


def _leaky(values: Array) -> Array:
    return np.where(values > 0, values, 0.1 * values)


def _embed(first: Array, second: Array, rows: Array) -> Array:
    return np.asarray(_leaky(rows @ first) @ second)


def _slopes(nets: list[Array], rows: Array, centre: Array) -> list[Array]:
    inner = rows @ nets[0]
    off = 2 * (_leaky(inner) @ nets[1] - centre) / len(rows)
    back = (off @ nets[1].T) * np.where(inner > 0, 1.0, 0.1)
    return [rows.T @ back + 1e-4 * nets[0], _leaky(inner).T @ off + 1e-4 * nets[1]]


KINDS: dict[str, Kind] = {
    "knn": _knn, "ocsvm": _ocsvm, "lof": _lof, "iforest": _iforest, "maha": _maha, "svdd": _svdd, "rnd": _rnd,
}  # fmt: skip
