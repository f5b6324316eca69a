"""A short day in one session: every kind of failure, memory, loading, and resuming a log that was cut anywhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from opensage_benchmarks.day.__main__ import holds, main
from opensage_benchmarks.day.measure import check, measure, results
from opensage_benchmarks.day.turns import KINDS, DayModel

MEGABYTE = 1 << 20


def test_a_short_day(tmp_path: Path) -> None:
    day = measure(500, resumes=8, folder=tmp_path)
    assert day["problems"] == []
    assert day["resumed"] == 8
    assert {name for name, _, _ in KINDS} - set(day["kinds"]) <= {
        "finish",
        "stuck",
        "fatal provider error",
        "overflow error",
    }
    assert {"ok", "failed", "invalid", "denied", "sandbox lost", "cancelled"} <= set(day["results"])
    assert {"done", "interrupted"} <= set(day["runs_ended"])
    assert day["compactions"] > 5
    assert day["tenths"][-1]["rss_bytes"] - day["tenths"][1]["rss_bytes"] < 16 * MEGABYTE
    assert day["load_cpu_s"] < 2
    files = {path.name for path in (tmp_path / "src").iterdir()}
    assert files  # the work was real
    assert not (tmp_path / ".env").exists()


def test_the_check_sees_calls_without_a_result_and_doubled_results(tmp_path: Path) -> None:
    lines = [
        {"seq": 0, "time": 1.0, "type": "session.started"},
        {
            "seq": 1,
            "time": 1.0,
            "type": "model.reply",
            "calls": [{"id": c, "name": "x", "arguments": "{}"} for c in "ab"],
        },
        *[{"seq": n, "time": 1.0, "type": "tool.result", "id": "a", "ok": True} for n in (2, 3)],
        {"seq": 4, "time": 1.0, "type": "model.reply", "text": "end"},
    ]
    log = tmp_path / "s.jsonl"
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert check(log) == ["a second result for a", "no result for b"]
    assert results(log) == {"ok": 2, "cut": 0}


def test_a_day_is_the_same_for_the_same_seed() -> None:
    def kinds(seed: int) -> list[str]:
        model = DayModel(seed, 50)
        from opensage.messages import Request

        return [repr(model._turn(Request(messages=[]))) for _ in range(50)]

    assert kinds(3) == kinds(3) != kinds(4)


@pytest.mark.slow
def test_the_benchmark_prints_what_holds(capsys: pytest.CaptureFixture[str]) -> None:
    main(["100", "--resumes", "2"])
    printed = json.loads(capsys.readouterr().out)
    assert printed["holds"] == holds(printed)
    assert printed["resumed"] == 2
