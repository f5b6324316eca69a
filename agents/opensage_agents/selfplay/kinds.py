"""One-class models: fitted on positives alone, as arrays that can be saved, scored with NumPy.

Each kind is a pair of functions: `fit(X, rng, contamination)` gives a dict of arrays, `score(state, X)` the
outlyingness of rows (larger is less seen). X is (n, d) float64 with unit rows. scikit-learn fits what it has; nothing
of it is saved.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opensage.errors import ConfigError

Array = NDArray[np.float64]
State = dict[str, NDArray[Any]]
_TINY = 1e-12
_CHUNK = 256
"""Rows scored at once: bounds what a large history costs in memory."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How one kind is fitted and scored."""

    fit: Callable[[Array, np.random.Generator, float], State]
    score: Callable[[State, Array], Array]


def distances(rows: Array, others: Array) -> Array:
    """Euclidean distances, (n, m)."""
    squares = (rows**2).sum(axis=1)[:, None] + (others**2).sum(axis=1) - 2 * rows @ others.T
    found: Array = np.sqrt(np.maximum(squares, 0))
    return found


def _chunked(rows: Array, call: Callable[[Array], Array]) -> Array:
    parts = [call(rows[start : start + _CHUNK]) for start in range(0, len(rows), _CHUNK)]
    return np.concatenate(parts) if parts else np.zeros(0)


def _sklearn(part: str) -> Any:
    try:
        return importlib.import_module(f"sklearn.{part}")
    except ImportError as error:
        raise ConfigError("this kind of detector needs scikit-learn: pip install 'opensage[selfplay]'") from error


def _fit_ocsvm(rows: Array, _rng: np.random.Generator, contamination: float) -> State:
    one_class_svm = _sklearn("svm").OneClassSVM

    spread = float(rows.var())
    gamma = 1 / (rows.shape[1] * spread) if spread > _TINY else 1.0  # identical rows have no spread
    model = one_class_svm(kernel="rbf", nu=contamination, gamma=gamma).fit(rows)
    return {
        "vectors": model.support_vectors_, "weights": np.asarray(model.dual_coef_[0]),
        "rho": np.asarray(-model.intercept_[0]), "gamma": np.asarray(gamma),
    }  # fmt: skip


def _score_ocsvm(state: State, rows: Array) -> Array:
    def score(part: Array) -> Array:
        kernel = np.exp(-state["gamma"] * distances(part, state["vectors"]) ** 2)
        return np.asarray(state["rho"] - kernel @ state["weights"])

    return _chunked(rows, score)


def _fit_knn(rows: Array, _rng: np.random.Generator, _contamination: float) -> State:
    return {"rows": rows, "k": np.asarray(min(5, len(rows)))}


def _score_knn(state: State, rows: Array) -> Array:
    k = int(state["k"])
    return _chunked(rows, lambda part: np.partition(distances(part, state["rows"]), k - 1)[:, :k].mean(axis=1))


def _nearest(found: Array, k: int) -> tuple[Array, NDArray[np.intp]]:
    places = np.argpartition(found, k - 1)[:, :k]
    return np.take_along_axis(found, places, axis=1), places


_FLOOR = 1e-4
"""Least reach: without it many equal problems have an infinite density, and anything beside them an infinite factor."""


def _fit_lof(rows: Array, _rng: np.random.Generator, _contamination: float) -> State:
    k = min(20, len(rows) - 1)
    found = np.concatenate([distances(rows[start : start + _CHUNK], rows) for start in range(0, len(rows), _CHUNK)])
    np.fill_diagonal(found, np.inf)
    near, places = _nearest(found, k)
    reach = near.max(axis=1)
    density = 1 / np.maximum(np.maximum(near, reach[places]), _FLOOR).mean(axis=1)
    return {"rows": rows, "k": np.asarray(k), "reach": reach, "density": density}


def _score_lof(state: State, rows: Array) -> Array:
    """The local outlier factor of new rows (Breunig et al. 2000)."""
    k, reach, density = int(state["k"]), state["reach"], state["density"]

    def score(part: Array) -> Array:
        near, places = _nearest(distances(part, state["rows"]), k)
        own = 1 / np.maximum(np.maximum(near, reach[places]), _FLOOR).mean(axis=1)
        return np.asarray(density[places].mean(axis=1) / own)

    return _chunked(rows, score)


def _fit_iforest(rows: Array, rng: np.random.Generator, _contamination: float) -> State:
    forest = _sklearn("ensemble").IsolationForest

    # It sees float32, and so do its thresholds.
    model = forest(n_estimators=100, random_state=int(rng.integers(2**31))).fit(rows.astype(np.float32))
    trees = [(each.tree_, columns) for each, columns in zip(model.estimators_, model.estimators_features_, strict=True)]
    starts = np.cumsum([0, *(tree.node_count for tree, _ in trees)])
    children = [
        [np.where(side >= 0, side + start, -1) for side in (tree.children_left, tree.children_right)]
        for (tree, _), start in zip(trees, starts, strict=False)
    ]
    return {
        "roots": starts[:-1], "left": np.concatenate([pair[0] for pair in children]),
        "right": np.concatenate([pair[1] for pair in children]),
        "feature": np.concatenate([columns[np.maximum(tree.feature, 0)] for tree, columns in trees]),
        "threshold": np.concatenate([tree.threshold for tree, _ in trees]),
        "size": np.concatenate([tree.n_node_samples for tree, _ in trees]), "drawn": np.asarray(model.max_samples_),
    }  # fmt: skip


def _usual_depth(size: NDArray[Any]) -> Array:
    """Mean depth of an unsuccessful search in a tree of so many rows (Liu, Ting and Zhou 2008)."""
    size = np.asarray(size, dtype=float)
    found = 2 * (np.log(np.maximum(size - 1, 1)) + np.euler_gamma) - 2 * (size - 1) / np.maximum(size, 1)
    return np.where(size > 2, found, np.where(size == 2, 1.0, 0.0))


def check_trees(state: State, width: int) -> None:
    """Raises ValueError where a place or a column of the trees is out of bounds: a file may hold anything."""
    nodes = len(state["threshold"])
    for name, least, most in (("roots", 0, nodes), ("left", -1, nodes), ("right", -1, nodes), ("feature", 0, width)):
        if state[name].dtype.kind not in "iu" or not ((state[name] >= least) & (state[name] < most)).all():
            raise ValueError(f"the trees' {name} are out of bounds")


_DEEPEST = 64
"""Levels of a tree that are followed: those fitted here have 8, a file may hold a circle."""


def _score_iforest(state: State, rows: Array) -> Array:
    rows = rows.astype(np.float32)
    check_trees(state, rows.shape[1])
    places = np.tile(state["roots"], (len(rows), 1))
    depth = np.zeros(places.shape)
    for _ in range(_DEEPEST):
        inner = state["left"][places] >= 0
        if not inner.any():
            break
        values = np.take_along_axis(rows, state["feature"][places], axis=1)
        onward = np.where(values <= state["threshold"][places], state["left"][places], state["right"][places])
        places = np.where(inner, onward, places)
        depth += inner
    depth += _usual_depth(state["size"])[places]
    usual = max(float(_usual_depth(state["drawn"])), _TINY)
    return np.asarray(2.0 ** (-depth.mean(axis=1) / usual))


def _fit_maha(rows: Array, _rng: np.random.Generator, _contamination: float) -> State:
    centre = rows.mean(axis=0)
    if float(rows.var(axis=0).sum()) > _TINY:
        spread, _ = _sklearn("covariance").ledoit_wolf(rows - centre, assume_centered=True)
    else:
        spread = np.zeros((rows.shape[1], rows.shape[1]))
    spread += 1e-6 * np.eye(rows.shape[1])
    return {"centre": centre, "root": np.linalg.inv(np.linalg.cholesky(spread))}


def _score_maha(state: State, rows: Array) -> Array:
    found: Array = np.linalg.norm((rows - state["centre"]) @ state["root"].T, axis=1)
    return found


def _dense(rng: np.random.Generator, inside: int, outside: int) -> Array:
    return rng.normal(0, inside**-0.5, (inside, outside))


def _fit_rnd(rows: Array, rng: np.random.Generator, _contamination: float) -> State:
    """A fixed random net, and a ridge regression on other random features that predicts it on these rows alone."""
    width = rows.shape[1]
    inner, outer, features = _dense(rng, width, 128) * 3, _dense(rng, 128, 32), _dense(rng, width, 128) * 3
    state: State = {"inner": inner, "outer": outer, "features": features}
    known = _features(state, rows)
    gram = known.T @ known + 1e-2 * np.eye(known.shape[1])
    state["weights"] = np.linalg.solve(gram, known.T @ _target(state, rows))
    return state


def _features(state: State, rows: Array) -> Array:
    return np.hstack([np.tanh(rows @ state["features"]), np.ones((len(rows), 1))])


def _target(state: State, rows: Array) -> Array:
    return np.asarray(np.tanh(rows @ state["inner"]) @ state["outer"])


def _score_rnd(state: State, rows: Array) -> Array:
    return np.asarray(((_features(state, rows) @ state["weights"] - _target(state, rows)) ** 2).sum(axis=1))


def _fit_svdd(rows: Array, rng: np.random.Generator, _contamination: float) -> State:
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
    return {"first": nets[0], "second": nets[1], "centre": centre}


def _leaky(values: Array) -> Array:
    return np.where(values > 0, values, 0.1 * values)


def _embed(first: Array, second: Array, rows: Array) -> Array:
    return np.asarray(_leaky(rows @ first) @ second)


def _slopes(nets: list[Array], rows: Array, centre: Array) -> list[Array]:
    inner = rows @ nets[0]
    off = 2 * (_leaky(inner) @ nets[1] - centre) / len(rows)
    back = (off @ nets[1].T) * np.where(inner > 0, 1.0, 0.1)
    return [rows.T @ back + 1e-4 * nets[0], _leaky(inner).T @ off + 1e-4 * nets[1]]


def _score_svdd(state: State, rows: Array) -> Array:
    return np.asarray(((_embed(state["first"], state["second"], rows) - state["centre"]) ** 2).sum(axis=1))


KINDS: dict[str, Kind] = {
    "knn": Kind(_fit_knn, _score_knn),
    "ocsvm": Kind(_fit_ocsvm, _score_ocsvm),
    "lof": Kind(_fit_lof, _score_lof),
    "iforest": Kind(_fit_iforest, _score_iforest),
    "maha": Kind(_fit_maha, _score_maha),
    "svdd": Kind(_fit_svdd, _score_svdd),
    "rnd": Kind(_fit_rnd, _score_rnd),
}
