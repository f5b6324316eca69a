"""What becomes of stated properties. A script stands in for the model."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from opensage.models import ScriptedModel
from opensage_benchmarks.pgs.cases import cases
from opensage_benchmarks.pgs.ledger import Ledger
from opensage_benchmarks.pgs.tester import measure, table

DATA = Path(os.environ.get("OPENSAGE_DATA") or "../shared/data")
pytestmark = pytest.mark.skipif(
    not (DATA / "quixbugs").is_dir(), reason="the data is not at hand: name its folder in OPENSAGE_DATA"
)
REPLY = """```python
def equals_the_slow_way(arr, result):
    wanted = max([0] + [sum(arr[i:j]) for i in range(len(arr)) for j in range(i, len(arr) + 1)])
    assert result == wanted, f"must be {wanted}"

def is_a_number(arr, result):
    assert isinstance(result, int)

def is_the_first(arr, result):
    assert result == arr[0]

def calls_it(arr, result):
    assert max_sublist_sum(arr) == result

def is_positive_for_short_ones(arr, result):
    assert len(arr) > 2 or result > 0
```"""


def test_each_property_has_its_fate_and_is_asked_for_once(tmp_path: Path) -> None:
    case = next(each for each in cases(DATA) if each.id == "quixbugs__max_sublist_sum")
    ledger = Ledger(tmp_path / "tester.jsonl", {})
    model = ScriptedModel({"agents": {"tester": [{"text": REPLY}]}})
    asyncio.run(measure(model, ledger, [case], "bubblewrap"))
    asyncio.run(measure(model, ledger, [case], "bubblewrap"))
    assert ledger.records["tester", case.id]["fates"] == {
        "calls_it": "unfit",
        "is_the_first": "rejects",
        "is_a_number": "vacuous",
        "is_positive_for_short_ones": "wrong",
        "equals_the_slow_way": "sees the bug",
    }
    found = table(ledger)
    assert found["properties"]["sees the bug"] == found["functions with one"]["wrong"] == 1
    assert (found["functions"], found["without any"]) == (1, 0)
