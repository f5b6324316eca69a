"""The measurement of the claim: the tasks, the records, the table. A script stands in for the model."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from opensage.errors import ConfigError
from opensage.models import ScriptedModel
from opensage_benchmarks.pgs import data
from opensage_benchmarks.pgs.cases import cases
from opensage_benchmarks.pgs.claim import Claim, measure, table
from opensage_benchmarks.pgs.ledger import Ledger

DATA = Path(os.environ.get("OPENSAGE_DATA") or "../shared/data")
pytestmark = pytest.mark.skipif(
    not (DATA / "quixbugs").is_dir(), reason="the data is not at hand: name its folder in OPENSAGE_DATA"
)


def block(code: str) -> dict[str, Any]:
    return {"text": f"```python\n{code}\n```"}


def claim(out: Path, generator: list[dict[str, Any]], tokens: int = 5000) -> Claim:
    model = ScriptedModel({"agents": {"generator": generator, "tester": []}})
    return Claim(model, out, tokens=tokens, rounds=2, seconds=300, sandbox="bubblewrap")


def test_tasks_have_public_tests_and_are_of_one_half() -> None:
    found = cases(DATA)
    by = {each.id: each for each in found}
    assert len({each.id for each in found}) == len(found) == 144
    assert {each.tuned for each in found} == {True, False}
    assert all(each.tuned == by[each.id.removesuffix("+write")].tuned for each in found)
    written = by["quixbugs__gcd+write"].task
    assert "pass" in (written.code or "")
    assert "a % b" not in (written.code or "")
    assert written.head == by["quixbugs__gcd"].task.head
    assert all(each.reference != each.task.code for each in found)
    quixbugs = [each for each in found if each.id.startswith("quixbugs")]
    assert all(len(each.task.public_tests) >= 3 for each in quixbugs)


@pytest.mark.slow
def test_a_program_that_is_wrong_at_first_is_repaired_and_asked_for_once(tmp_path: Path) -> None:
    case = next(each for each in cases(DATA) if each.id == "quixbugs__gcd")
    wrong, right = (data.program(DATA, where, "gcd") for where in (data.BUGGY, data.CORRECTED))
    run = claim(tmp_path, [block(wrong), block(right), block(right)])
    asyncio.run(measure(run, [case], ["io", "hand"], 1))
    again = claim(tmp_path, [])
    asyncio.run(measure(again, [case], ["io", "hand"], 1))
    assert [again.ledger.records[arm, case.id]["right"] for arm in ("first", "io", "hand")] == [False, True, True]
    found = table(again.ledger, {case.id})
    assert (found["io"]["fixed"], found["io"]["tasks"]) == (1, 1)
    assert (found["hand"]["only_hand"], found["hand"]["only_io"]) == (0, 0)
    assert table(again.ledger, set()) == {}
    with pytest.raises(ConfigError, match="tokens: 5000, now 9"):
        claim(tmp_path, [], tokens=9)


def test_the_page_says_what_the_records_say(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    kept = (root / "benchmarks/records/pgs_claim/claim.jsonl").read_text()
    (tmp_path / "claim.jsonl").write_text(kept)
    ledger = Ledger(tmp_path / "claim.jsonl", json.loads(kept.split("\n", 1)[0]))
    found = table(ledger, {each.id for each in cases(DATA) if not each.tuned})
    page = (root / "docs/pgs.md").read_text()
    said = {
        "none": "none", "io": "public test, the first", "minimal_io": "public test, the least",
        "property": "the model's own properties", "hand": "properties by hand",
    }  # fmt: skip
    for arm, name in said.items():
        row = found[arm]
        interval = f"{100 * row['low']:.0f}–{100 * row['high']:.0f} %"
        assert f"| {name} | {row['fixed']} of {row['tasks']} | {interval} | {row['tokens']:,.0f} |" in page
