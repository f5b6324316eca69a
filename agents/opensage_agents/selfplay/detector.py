"""The Seen Detector: a one-class model of what has been used, calibrated to a share between 0 and 1."""

from __future__ import annotations

import io
import json
import math
import zipfile
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from opensage.errors import ConfigError
from opensage.files import read_regular, write_whole
from opensage_agents.selfplay.errors import BadValue, IncompatibleDetector, NotEnoughHistory, NotFittedError
from opensage_agents.selfplay.kinds import KINDS, Array, Score

KindName = Literal["knn", "ocsvm", "lof", "iforest", "maha", "svdd", "rnd"]
FORMAT = "opensage-seen-detector-2"
MOST_BYTES = 1 << 30
MOST_FITTED = 20_000
"""Rows that a model may be fitted on: a file is fitted again where it is loaded."""
LEAST_HISTORY = 20
"""Used problems from which a detector is fitted."""
CALIBRATION = 50
"""Problems kept aside for calibration, where the history has twice as many."""


class SeenDetector:
    """How unlike everything that was used a question is.

    `fit` a one-class model on embeddings of one part of the history, `calibrate` it on another part; `novelty` is then
    the share of those that are less outlying: about uniform on [0, 1] for seen-like questions (split conformal).

    Args:
        kind: "knn" (mean distance to the 5 nearest), "ocsvm" (one-class SVM, RBF), "lof", "iforest", "maha"
            (Mahalanobis with Ledoit-Wolf shrinkage), "svdd" (small deep net), "rnd" (random network distillation).
        contamination: nu of the one-class SVM, in (0, 1).
        seed: of what is random, the split included.
        h_min: least rows that `fit` takes.
        max_fit: rows that the model is fitted on at most, drawn at random: bounds the cost of a long history. Up to
            20,000.
        embedder: id of the embedder; a saved detector is refused by another one.

    Raises:
        BadValue: an argument is out of bounds.
    """

    def __init__(
        self, kind: KindName = "knn", contamination: float = 0.05, seed: int = 0, *, h_min: int = LEAST_HISTORY,
        max_fit: int = 5_000, embedder: str = "",
    ) -> None:  # fmt: skip
        if kind not in KINDS:
            raise BadValue(f"kind is {kind!r}: it is one of {', '.join(KINDS)}")
        if not 0 < contamination < 1:
            raise BadValue(f"contamination is {contamination}: it is between 0 and 1")
        if h_min < 2 or not 2 <= max_fit <= MOST_FITTED:
            raise BadValue(f"h_min is {h_min}, max_fit {max_fit}: both are at least 2, max_fit at most {MOST_FITTED}")
        self.kind, self.contamination, self.seed = kind, contamination, seed
        self.h_min, self.max_fit, self.embedder = h_min, max_fit, embedder
        self._score: Score | None = None
        self._fitted, self._scale = np.zeros((0, 0)), 1.0
        self._calibration: Array | None = None

    def __repr__(self) -> str:
        known = "not fitted" if self._score is None else "not calibrated" if self._calibration is None else "ready"
        return f"SeenDetector({self.kind!r}, {known})"

    def fit(self, embeddings: NDArray[Any]) -> SeenDetector:
        """Fit on rows of the history. What was calibrated before is forgotten.

        Raises:
            NotEnoughHistory: fewer than `h_min` rows.
            BadValue: NaN or infinity in a row.
        """
        rows = _rows(embeddings, None)
        if len(rows) < self.h_min:
            raise NotEnoughHistory(f"{len(rows)} used problems are too few for a detector: {self.h_min} are needed")
        if len(rows) > self.max_fit:
            rng = np.random.default_rng([self.seed, 2])
            rows = rows[np.sort(rng.choice(len(rows), self.max_fit, replace=False))]
        self._fit(rows)
        return self

    def _fit(self, rows: Array) -> None:
        """What depends on the rows, the kind and the seed alone: `load` does it again."""
        self._score = KINDS[self.kind](rows, np.random.default_rng([self.seed, 1]), self.contamination)
        spread = float(np.std(self._score(rows[:500])))
        self._fitted, self._scale, self._calibration = rows, spread if spread > 1e-9 else 1.0, None

    def outlyingness(self, embeddings: NDArray[Any]) -> Array:
        """One number a row, larger for less seen, in standard deviations of the fitted rows' own.

        Raises:
            NotFittedError: before `fit`.
            BadValue: NaN, infinity, or rows of another length.
        """
        if self._score is None:
            raise NotFittedError("the detector is not fitted: call fit, or fit_history")
        rows = _rows(embeddings, self._fitted.shape[1])
        # Equal rows must come out equal, whatever block of a product they were in.
        return np.round(self._score(rows) / self._scale, 6) + 0.0

    def calibrate(self, embeddings: NDArray[Any]) -> SeenDetector:
        """Calibrate on rows of the history that `fit` has not seen: on the same, everything else would look new.

        Raises:
            NotFittedError: before `fit`.
            BadValue: no row, NaN, infinity, or rows of another length.
        """
        found = np.sort(self.outlyingness(embeddings))
        if not len(found):
            raise BadValue("no rows to calibrate on: keep a part of the history aside")
        self._calibration = found
        return self

    def fit_history(self, embeddings: NDArray[Any]) -> SeenDetector:
        """Split the history at random, fit on one part and calibrate on the other.

        The other has a fifth, but at least 50 rows, or half of them when there are fewer than 100.

        Raises:
            NotEnoughHistory: fewer than `h_min` rows in all.
            BadValue: NaN or infinity in a row.
        """
        rows = _rows(embeddings, None)
        if len(rows) < self.h_min:
            raise NotEnoughHistory(f"{len(rows)} used problems are too few for a detector: {self.h_min} are needed")
        aside = min(max(CALIBRATION, len(rows) // 5), len(rows) // 2)
        order = np.random.default_rng([self.seed, 0]).permutation(len(rows))
        least, self.h_min = self.h_min, 2
        try:
            return self.fit(rows[order[aside:]]).calibrate(rows[order[:aside]])
        finally:
            self.h_min = least

    def novelty(self, embeddings: NDArray[Any]) -> Array:
        """(1 + calibration rows less outlying) / (calibration rows + 1), one number in [0, 1] a row.

        Raises:
            NotFittedError: before `calibrate`.
            BadValue: NaN, infinity, or rows of another length.
        """
        if self._calibration is None:
            raise NotFittedError("the detector is not calibrated: call calibrate, or fit_history")
        below = np.searchsorted(self._calibration, self.outlyingness(embeddings), side="left")
        return np.asarray((1 + below) / (len(self._calibration) + 1))

    def is_seen(self, embeddings: NDArray[Any], alpha: float = 0.05) -> NDArray[np.bool_]:
        """Whether a question is like the seen ones; `alpha` is the share of such questions that is called new.

        Raises:
            BadValue: alpha outside (0, 1).
            NotFittedError: before `calibrate`.
        """
        if not 0 < alpha < 1:
            raise BadValue(f"alpha is {alpha}: it is between 0 and 1")
        return np.asarray(self.novelty(embeddings) <= 1 - alpha)

    def save(self, path: Path) -> None:
        """Write the fitted rows, the calibration and the settings as NumPy's npz: no model, and never a pickle.

        Raises:
            NotFittedError: there is nothing to save.
            ConfigError: the file cannot be written.
        """
        if self._score is None:
            raise NotFittedError("the detector is not fitted: there is nothing to save")
        meta = {
            "format": FORMAT, "kind": self.kind, "contamination": self.contamination, "seed": self.seed,
            "h_min": self.h_min, "max_fit": self.max_fit, "embedder": self.embedder, "scale": self._scale,
        }  # fmt: skip
        arrays = {"rows": self._fitted}
        if self._calibration is not None:
            arrays["calibration"] = self._calibration
        whole = io.BytesIO()
        np.savez_compressed(whole, allow_pickle=False, meta=np.asarray(json.dumps(meta)), **arrays)
        write_whole(path, whole.getvalue())

    @classmethod
    def load(cls, path: Path, embedder: str = "") -> SeenDetector:
        """Read a saved detector and fit it again, to the same scores; nothing in the file is executed.

        Args:
            path: of the file.
            embedder: id of the embedder that will be used with it; "" takes any.

        Raises:
            ConfigError: the file cannot be read.
            IncompatibleDetector: it is no detector, of another version, damaged, of another embedder, or it does not
                come out the same here (another version of scikit-learn).
        """
        arrays, meta = _read(path)
        if embedder and meta.get("embedder") != embedder:
            raise IncompatibleDetector(
                f"{path} was fitted on embeddings of {meta.get('embedder')!r}, not {embedder!r}: fit it again"
            )
        try:
            return _rebuilt(cls, arrays, meta)
        except (KeyError, TypeError, ValueError, IndexError, OverflowError, ConfigError) as error:
            raise IncompatibleDetector(f"{path} is damaged ({error}): fit it again") from error


def _rows(embeddings: Any, width: int | None) -> Array:
    """The rows as float64, checked; their length too when one is given."""
    try:
        rows: Array = np.asarray(embeddings, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise BadValue(f"the embeddings are no array of numbers: {error}") from error
    if rows.ndim != 2:
        raise BadValue(f"the embeddings have the shape {rows.shape}: wanted is (n, d)")
    if width is not None and len(rows) and rows.shape[1] != width:
        raise BadValue(f"row 0 has {rows.shape[1]} numbers, the detector was fitted on {width}: use one embedder")
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if len(bad):
        raise BadValue(f"row {bad[0]} of the embeddings has NaN or infinity")
    return rows


def _read(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    refused = f"{path} is no detector of this version ({FORMAT}; pickles are never loaded): fit it again"
    try:
        data = read_regular(path, MOST_BYTES)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as parts:
            if sum(each.file_size for each in parts.infolist()) > MOST_BYTES:
                raise IncompatibleDetector(f"{path} unpacks to more than {MOST_BYTES >> 20} MiB: fit it again")
        with np.load(io.BytesIO(data), allow_pickle=False) as found:
            arrays = {name: found[name] for name in found.files}
        meta = json.loads(str(arrays.pop("meta")))
    except (zipfile.BadZipFile, ValueError, KeyError, EOFError, RecursionError, OSError, NotImplementedError) as error:
        raise IncompatibleDetector(refused) from error
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise IncompatibleDetector(refused)
    return arrays, meta


def _rebuilt(cls: type[SeenDetector], arrays: dict[str, NDArray[Any]], meta: dict[str, Any]) -> SeenDetector:
    settings = {name: meta[name] for name in ("kind", "contamination", "seed", "h_min", "max_fit", "embedder")}
    found, rows = cls(**settings), _rows(arrays["rows"], None)
    if not 2 <= len(rows) <= found.max_fit:
        raise ValueError(f"{len(rows)} rows, at most {found.max_fit} were fitted")
    found._fit(rows)
    if not math.isclose(found._scale, float(meta["scale"]), rel_tol=1e-6):
        raise ValueError("fitted again, it scores otherwise")
    if "calibration" in arrays:
        found._calibration = np.sort(_rows(arrays["calibration"][:, None], 1)[:, 0])
    return found
