"""The benchmark of checking as a command: what it measures, bad data, a run that goes on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from opensage.errors import ConfigError
from opensage_benchmarks.pgs import __main__ as command
from opensage_benchmarks.pgs import data, jobs
from opensage_benchmarks.pgs.ledger import Ledger
from opensage_benchmarks.pgs.reference import property_file
from opensage_benchmarks.pgs.rows import rows

SETTINGS = {"sandbox": "bubblewrap", "python": "3"}
GCD = "def gcd(a, b):\n    if b == 0:\n        return a\n    else:\n        return gcd({})\n"
BITCOUNT = "def bitcount(n):\n    count = 0\n    while n:\n        n {}= n - 1\n        count += 1\n    return count\n"
FIX = {
    "task_id": "Python/0",
    "entry_point": "double",
    "declaration": "def double(n: int):\n",
    "canonical_solution": "    return 2 * n\n",
    "buggy_solution": "    return n * n\n",
    "docstring": ">>> double(4)\n8\n>>> double(",
    "test": "def check(double):\n    assert double(1) == 2\n    assert double(3) == 6\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two programs and one task in the form of the originals."""
    found = tmp_path / "data"
    for name, text, wrong, right in (("gcd", GCD, "a % b, b", "b, a % b"), ("bitcount", BITCOUNT, "^", "&")):
        for where, part in ((data.BUGGY, wrong), (data.CORRECTED, right)):
            place = found / "quixbugs" / where
            place.mkdir(parents=True, exist_ok=True)
            (place / f"{name}.py").write_text(text.format(part) + f'\n\n"""\nThe {name} of what is given\n"""\n')
    tests = found / "quixbugs" / "json_testcases"
    tests.mkdir()
    (tests / "gcd.json").write_text("[[17, 0], 17]\n[[13, 13], 13]\n[[37, 600], 1]\n")
    (tests / "bitcount.json").write_text("[[127], 7]\n[[128], 1]\n")
    (found / data.FIXES).write_text(json.dumps(FIX) + "\n")
    return found


@pytest.fixture
def two_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The property files of those two alone."""
    whole = data.shipped
    names = ("gcd", "bitcount")
    monkeypatch.setattr(data, "shipped", lambda *where: {name: whole(*where)[name] for name in names})
    monkeypatch.setattr(jobs, "_vacuity", lambda *_where: iter(()))
    monkeypatch.setattr(jobs, "_isolation", lambda *_where: iter(()))
    monkeypatch.setattr(jobs, "_outcomes", lambda *_where: iter(()))


def ended_after(work: Any, number: int) -> Any:
    """`work` that is interrupted when so many jobs are done."""

    async def some(planned: list[jobs.Job], ledger: Ledger, workers: int) -> None:
        await work(planned[:number], ledger, workers)
        raise KeyboardInterrupt

    return some


@pytest.mark.slow
def test_two_programs_and_a_run_that_goes_on(
    folder: Path,
    two_programs: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--data", str(folder), "--seeds", "0", "--out", str(tmp_path / "out"), "--json", str(tmp_path / "result")]
    records = tmp_path / "out" / "records.jsonl"
    with monkeypatch.context() as patch:
        patch.setattr(command, "work", ended_after(command.work, 3))
        assert command.main(words) == 130
    assert "the same command goes on" in capsys.readouterr().err
    earlier = records.read_text()
    assert len(earlier.splitlines()) == 4  # the settings and three records
    first, second, *others = earlier.splitlines()
    late = json.dumps({**json.loads(second), "late": True})
    records.write_text(f'{first}\n{late}\n{"".join(line + chr(10) for line in others)}{{"group": "torn')
    code = command.main(words)
    out, err = capsys.readouterr()
    assert code in (0, 1), err
    left = [line for line in records.read_text().splitlines() if line != late]
    assert left[: len(others) + 1] == [first, *others]
    assert json.loads(second)["name"] in [json.loads(line)["name"] for line in left[len(others) + 1 :]]
    result = json.loads(out)
    assert result == json.loads((tmp_path / "result").read_text())
    found = {row["check"]: row for row in result["rows"]}
    assert found["repaired in 2 calls by a scripted model"]["measured"] == "2 of 2"
    assert found["checks that ran out of time"]["measured"] == "none"
    assert found["bugs exposed, seed 0, 100 inputs"]["measured"] == "2 of 2"
    assert found["the same report with the same seed"]["measured"] == "2 of 2"
    assert found["filter: wrong properties dropped"]["measured"] == "2 of 2"
    assert found["filter: right ones dropped"]["measured"] == "0 of 4"
    assert found["HumanEvalFix: bugs exposed"]["measured"] == "1 of 1"
    assert found["HumanEvalFix: alarms on the canonical"]["measured"] == "0 of 1"
    assert code == (0 if all(row["holds"] is not False for row in found.values()) else 1)
    assert "bugs exposed" in err
    assert "all programs and tasks" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--data", "/nowhere"], "OPENSAGE_DATA"),
        (["--workers", "0"], "1 or more"),
        (["--seeds", "x"], "invalid int"),
    ],
)
def test_bad_words(words: list[str], said: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["--data", str(folder), *words])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_bad_data(folder: Path, two_programs: None, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / data.FIXES).write_text('{"task_id": 3}\n')
    assert command.main(["--data", str(folder)]) == 2
    assert "line 1 is no task of HumanEvalFix" in capsys.readouterr().err
    (folder / "quixbugs" / "json_testcases" / "gcd.json").write_text("17\n")
    assert command.main(["--data", str(folder)]) == 2
    assert "gcd.json, line 1" in capsys.readouterr().err
    shutil.rmtree(folder / "quixbugs" / data.CORRECTED)
    assert command.main(["--data", str(folder)]) == 2
    assert "--data" in capsys.readouterr().err


def test_an_unknown_sandbox_is_said_in_one_line(
    folder: Path, two_programs: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--data", str(folder), "--sandbox", "paper"]) == 2
    err = capsys.readouterr().err
    assert "unknown sandbox 'paper'" in err
    assert "Traceback" not in err


def test_records_of_other_settings_are_not_mixed(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "records.jsonl"
    Ledger(path, SETTINGS).add("a", "b", {"x": 1})
    again = Ledger(path, SETTINGS)
    assert again.group("a")["b"]["x"] == 1
    assert again.group("a")["b"]["wall"] >= 0
    with pytest.raises(ConfigError, match="sandbox: bubblewrap, now docker"):
        Ledger(path, {**SETTINGS, "sandbox": "docker"})


def record(status: str, first: str = "", shown: str = "") -> dict[str, Any]:
    found = {"args_repr": shown, "shrunk_from": first} if first else None
    return {"wall": 1.0, "cpu": 1.0, "report": {"status": status, "counterexample": found, "stats": {"calls": 9}}}


def verdicts(groups: dict[str, dict[str, Any]], **options: Any) -> dict[str, bool | None]:
    return {row.check: row.holds for row in rows(lambda name: groups.get(name, {}), [0], **options)}


def test_what_is_required_is_seen_to_fail() -> None:
    buggy = {f"p{n}": record("violated", "x" * 60, "x" * (10 if n else 70)) for n in range(37)}
    buggy |= {f"q{n}": record("ok") for n in range(3)}
    corrected = {"wrap": record("hung", "a", "a"), "p0": record("ok"), "p1": record("inconclusive")}
    again = {**buggy, "p0": record("violated", "x" * 60, "x" * 71)}
    isolation = {"busy": {"held": False, "status": "ok"}}
    found = verdicts({"buggy, seed 0": buggy, "corrected, seed 0": corrected, "again": again, "isolation": isolation})
    assert found["bugs exposed, seed 0, 100 inputs"] is False
    assert found["alarms on 3 corrected, seed 0"] is False
    assert found["characters of the input, first -> shown, seed 0"] is False
    assert found["mean reduction, seed 0"] is True
    assert found["the same report with the same seed"] is False
    assert found["hostile candidates that die alone"] is False
    assert found["time for 40 buggy, seed 0"] is True


def test_a_busy_machine_is_not_too_slow() -> None:
    slow = {"p": {**record("violated", "a", "a"), "wall": 99.0}}
    assert verdicts({"buggy, seed 0": slow})["time for 1 buggy, seed 0"] is False
    assert verdicts({"buggy, seed 0": slow}, busy=True)["time for 1 buggy, seed 0"] is None


def test_the_planted_properties_are_ten_and_twenty() -> None:
    names = [name for each in data.shipped("opensage_benchmarks.pgs", "planted").values() for name in each.names]
    assert sum(name.startswith("wrong_") for name in names) == 10
    assert len(names) == 30


def test_calls_are_read_from_test_and_text(folder: Path) -> None:
    (task,) = data.fixes(folder)
    assert task.calls == ((1,), (3,), (4,))
    assert property_file(task).properties[0].kind == "model"


def _failing(first: int, shown: int, tokens: int) -> dict[str, Any]:
    found = {
        "shrunk_from": "x" * first,
        "args_repr": "x" * shown,
        "outcome": "violated",
        "property": "",
        "tokens": tokens,
    }
    report = {"status": "violated", "counterexample": found, "stats": {"calls": 1}}
    return {"report": report, "wall": 1.0, "cpu": 1.0}


def test_large_inputs_and_the_least_drawn() -> None:
    groups = {
        "buggy, seed 0": {"a": _failing(60, 12, 5), "b": _failing(10, 9, 3)},
        "buggy, seed 1": {"a": _failing(100, 50, 5)},
        "buggy, seed 2": {"a": _failing(100, 40, 5)},
        "least drawn": {"a": _failing(60, 40, 9), "b": _failing(10, 9, 3)},
    }
    found = {row.check: row for row in rows(lambda name: groups.get(name, {}), [0, 1, 2])}
    large = found["cut of first inputs of more than 50 characters, all seeds"]
    assert (large.measured, large.holds) == ("mean 63.3%, least 50.0% (3 inputs)", True)
    least = found["tokens of the shown input, against the least drawn"]
    assert (least.measured, least.holds) == ("less in 1, as many in 1, more in 0 of 2", True)
    groups["least drawn"]["b"] = _failing(10, 9, 2)
    found = {row.check: row for row in rows(lambda name: groups.get(name, {}), [0])}
    assert found["tokens of the shown input, against the least drawn"].holds is False
    assert found["cut of first inputs of more than 50 characters, all seeds"].holds is None
