"""What a benchmark's exit code means."""

from __future__ import annotations

import pytest

from opensage_benchmarks.checks import Row, counted, told
from opensage_benchmarks.judge_irt import __main__ as judge
from opensage_benchmarks.judge_irt import rows


def test_what_does_not_hold_is_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert told([Row("7 one", "2", "1", False), Row("8 two", "1", "1", True)], {}, "t", ()) == 1
    assert "NO" in capsys.readouterr().err
    assert told([Row("8 two", "1", "1", True), counted("x", [False] * 3, "1")], {}, "t", ()) == 0


def test_seeds_are_counted_with_an_interval_and_no_verdict() -> None:
    row = counted("x", [True] * 12 + [False] * 8, "<= 1")
    assert row.measured == "12 of 20 seeds (0.39 to 0.78)"
    assert row.holds is None
    low, high = counted("x", [True] * 20, "").data["interval"]
    assert low == pytest.approx(0.8389, abs=1e-4)
    assert high == pytest.approx(1.0)


def test_fresh_seeds_of_judges_are_counted() -> None:
    found = list(rows.fresh(range(100, 102)))
    assert [row.holds for row in found] == [None] * 4
    assert all("of 2 seeds" in row.measured for row in found)


def test_cells_decide_at_the_seeds_they_were_stated_for_and_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(row.holds for row in rows.cells([0]))
    monkeypatch.setitem(rows.CELLS, "consistent", ([2.5, 2.5, 2.5, 0.6], "pass"))
    assert next(rows.cells([0])).holds is False


def test_the_judge_benchmark_wants_its_data(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        judge.main(["--data", str(tmp_path)])
    assert ended.value.code == 2
    assert "set OPENSAGE_DATA or --data" in capsys.readouterr().err
