"""Detectors: what they tell apart, how they are calibrated, saved and refused."""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opensage_agents.selfplay import BadValue, IncompatibleDetector, NotEnoughHistory, NotFittedError, SeenDetector
from opensage_agents.selfplay.kinds import KINDS

RNG = np.random.default_rng(3)
CENTRES = RNG.normal(size=(7, 24))


def rows(number: int, places: list[int], seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    found = CENTRES[rng.choice(places, number)] + 0.3 * rng.normal(size=(number, 24))
    return found / np.linalg.norm(found, axis=1, keepdims=True)


SEEN, FRESH, NEW = rows(400, [0, 1, 2], 1), rows(300, [0, 1, 2], 2), rows(300, [3, 4, 5, 6], 3)


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_not_seen_stands_out(kind: Any, tmp_path: Path) -> None:
    detector = SeenDetector(kind).fit_history(SEEN)
    high, low = detector.outlyingness(NEW), detector.outlyingness(FRESH)
    assert (high[:, None] > low).mean() >= 0.95
    assert abs(detector.novelty(FRESH).mean() - 0.5) < 0.1
    assert detector.is_seen(FRESH).mean() > 0.85
    assert detector.novelty(NEW).mean() > 0.95
    detector.save(tmp_path / "d.npz")
    again = SeenDetector.load(tmp_path / "d.npz")
    assert np.array_equal(again.novelty(NEW), detector.novelty(NEW))
    assert np.array_equal(again.outlyingness(FRESH), low)
    assert np.array_equal(SeenDetector(kind).fit_history(SEEN).novelty(NEW), detector.novelty(NEW))


def test_scores_are_those_of_scikit_learn() -> None:
    from sklearn.ensemble import IsolationForest
    from sklearn.neighbors import LocalOutlierFactor
    from sklearn.svm import OneClassSVM

    def ours(kind: str) -> np.ndarray:
        rng = np.random.default_rng(5)
        return KINDS[kind](SEEN, rng, 0.05)(NEW)

    seed = int(np.random.default_rng(5).integers(2**31))
    forest = IsolationForest(n_estimators=100, random_state=seed).fit(SEEN.astype(np.float32))
    assert np.allclose(ours("iforest"), -forest.score_samples(NEW.astype(np.float32)))
    assert np.allclose(ours("lof"), -LocalOutlierFactor(n_neighbors=20, novelty=True).fit(SEEN).score_samples(NEW))
    assert np.allclose(ours("ocsvm"), -OneClassSVM(nu=0.05, gamma="scale").fit(SEEN).decision_function(NEW))


@pytest.mark.parametrize("kind", KINDS)
def test_a_buffer_of_one_problem_divides_by_nothing(kind: Any) -> None:
    same = np.tile(SEEN[:1], (60, 1))
    detector = SeenDetector(kind).fit_history(same)
    assert np.isfinite(detector.outlyingness(NEW)).all()
    assert detector.novelty(SEEN[:1])[0] == pytest.approx(1 / 31)
    if kind != "iforest":  # no tree of it can split
        assert (detector.novelty(NEW) == 1).all()


def test_calibration_is_on_rows_that_were_not_fitted() -> None:
    """The number of rows aside: a fifth, at least 50, at most half."""
    for number, aside in ((30, 15), (100, 50), (120, 50), (1000, 200)):
        detector = SeenDetector("knn").fit_history(rows(number, [0, 1], number))
        calibrated = detector._calibration
        assert calibrated is not None
        assert (len(calibrated), len(detector._fitted)) == (aside, number - aside)
        assert calibrated.min() > 0  # a fitted row would be at no distance from itself


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=30), st.integers(0, 30))
def test_novelty_is_the_share_of_less_outlying_rows(values: list[float], place: int) -> None:
    line = np.c_[np.linspace(0, 1, 20), np.zeros(20)]
    detector = SeenDetector("knn").fit(line)
    points = np.c_[np.array(values), np.ones(len(values))]
    detector.calibrate(points)
    query = points[place % len(points)][None]
    own, others = detector.outlyingness(query)[0], detector.outlyingness(points)
    found = detector.novelty(query)[0]
    assert found == (1 + (others < own).sum()) / (len(values) + 1)
    assert 0 < found <= 1


def test_a_long_history_is_fitted_in_part() -> None:
    detector = SeenDetector("knn", max_fit=100).fit(rows(1000, [0, 1], 9))
    assert len(detector._fitted) == 100


def test_what_is_missing_is_said() -> None:
    with pytest.raises(NotEnoughHistory, match=r"19 used problems are too few.*20"):
        SeenDetector().fit(SEEN[:19])
    with pytest.raises(NotEnoughHistory, match="20 are needed"):
        SeenDetector().fit_history(SEEN[:19])
    with pytest.raises(NotFittedError, match="call fit"):
        SeenDetector().outlyingness(SEEN)
    detector = SeenDetector().fit(SEEN)
    with pytest.raises(NotFittedError, match="call calibrate"):
        detector.novelty(SEEN)
    with pytest.raises(NotFittedError, match="call calibrate"):
        detector.is_seen(SEEN)
    with pytest.raises(NotFittedError, match="nothing to save"):
        SeenDetector().save(Path("nowhere"))
    assert "not calibrated" in repr(detector)
    detector.calibrate(FRESH)
    assert detector.fit(SEEN)._calibration is None


def test_bad_rows_are_told_by_their_number() -> None:
    detector = SeenDetector().fit_history(SEEN)
    holed = FRESH.copy()
    holed[7, 3] = np.nan
    for call in (detector.novelty, detector.fit, detector.calibrate, detector.fit_history):
        with pytest.raises(ValueError, match="row 7"):
            call(holed)
    holed[7, 3] = np.inf
    with pytest.raises(BadValue, match="row 7"):
        detector.novelty(holed)
    with pytest.raises(ValueError, match="row 0 has 5 numbers, the detector was fitted on 24"):
        detector.novelty(np.ones((2, 5)))
    with pytest.raises(ValueError, match="shape"):
        detector.novelty(np.ones(24))
    with pytest.raises(ValueError, match="no array of numbers"):
        detector.novelty([["a"]])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no rows"):
        SeenDetector().fit(SEEN).calibrate(np.zeros((0, 24)))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kind": "cnn"}, "knn, ocsvm"),
        ({"contamination": 0.0}, "contamination"),
        ({"contamination": 1.0}, "contamination"),
        ({"contamination": float("nan")}, "contamination"),
        ({"h_min": 1}, "h_min"),
        ({"max_fit": 0}, "max_fit"),
        ({"max_fit": 10**9}, "at most 20000"),
    ],
)
def test_bad_settings_are_told(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        SeenDetector(**options)
    with pytest.raises(ValueError, match="alpha is 1"):
        SeenDetector().fit_history(SEEN).is_seen(SEEN, alpha=1.5)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    SeenDetector(embedder="one").fit_history(SEEN).save(path)
    with pytest.raises(IncompatibleDetector, match="'one', not 'two': fit it again"):
        SeenDetector.load(path, "two")
    assert SeenDetector.load(path, "one").embedder == "one"
    whole = path.read_bytes()
    arrays = dict(np.load(path))
    meta = json.loads(str(arrays["meta"]))
    for name, data in {
        "pickle": pickle.dumps({"a": 1}),
        "empty": b"",
        "half": whole[: len(whole) // 2],
        "text": b"detector",
        "version": _npz({**arrays, "meta": np.asarray(json.dumps({"format": "opensage-seen-detector-1"}))}),
        "no meta": _npz({"a": np.ones(3)}),
        "objects": _npz({**arrays, "rows": np.array([{}], dtype=object)}),
        "narrow": _npz({**arrays, "rows": arrays["rows"][:, :5]}),
        "other rows": _npz({**arrays, "rows": arrays["rows"] * 0.9}),
        "holes": _npz({**arrays, "rows": arrays["rows"] * np.nan}),
        "a vector": _npz({**arrays, "rows": arrays["rows"][0]}),
        "no rows": _npz({**arrays, "rows": arrays["rows"][:0]}),
        "parts": _npz({name: value for name, value in arrays.items() if name != "rows"}),
        "holes aside": _npz({**arrays, "calibration": arrays["calibration"] * np.nan}),
        "odd aside": _npz({**arrays, "calibration": np.asarray(1.0)}),
        "another fit": _npz({**arrays, "meta": np.asarray(json.dumps({**meta, "kind": "maha"}))}),
        "too many rows": _npz({**arrays, "meta": np.asarray(json.dumps({**meta, "max_fit": 100}))}),
        "without bound": _npz({**arrays, "meta": np.asarray(json.dumps({**meta, "max_fit": 10**9}))}),
    }.items():
        path.write_bytes(data)
        with pytest.raises(IncompatibleDetector, match="fit it again"):
            SeenDetector.load(path)
            pytest.fail(name)


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_history_comes_back_to_the_last_bit(kind: Any, tmp_path: Path) -> None:
    """Fitted on rows drawn from it: the file holds these, and the draw is not made again."""
    detector = SeenDetector(kind, seed=4, max_fit=150).fit_history(rows(500, [0, 1, 2], 8))
    detector.save(tmp_path / "d.npz")
    again = SeenDetector.load(tmp_path / "d.npz")
    assert np.array_equal(again.outlyingness(NEW), detector.outlyingness(NEW))
    assert np.array_equal(again.novelty(FRESH), detector.novelty(FRESH))
    assert set(np.load(tmp_path / "d.npz").files) == {"meta", "rows", "calibration"}


def _npz(arrays: dict[str, np.ndarray]) -> bytes:
    whole = io.BytesIO()
    np.savez(whole, **arrays)
    return whole.getvalue()
