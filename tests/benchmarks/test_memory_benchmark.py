"""The memory's benchmark as a command, and the targets on LoCoMo where its file is at hand."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from opensage_benchmarks.memory import earlier
from opensage_benchmarks.memory.__main__ import main

LOCOMO = Path(os.environ.get("OPENSAGE_DATA") or "../shared/data") / "locomo" / "locomo5.json"
TARGETS = {"recall@5": 0.66, "recall@10": 0.75, "recall@20": 0.81, "mrr": 0.54}


def small(path: Path) -> Path:
    turns = [
        ("Ada", "Where did you spend the summer, Ben?"),
        ("Ben", "In Lisbon, mostly by the river."),
        ("Ada", "I stayed at home and painted the kitchen."),
        ("Ben", "My new job at the bakery begins on Monday."),
    ]
    session = [{"dia_id": f"D1:{n}", "speaker": who, "text": text} for n, (who, text) in enumerate(turns, 1)]
    questions = [
        {"question": "Where was Ben in the summer?", "evidence": ["D1:2"], "category": 4},
        {"question": "What did Ada paint?", "evidence": ["D1:3"], "category": 1},
    ]
    talk = {
        "speaker_a": "Ada",
        "speaker_b": "Ben",
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": session,
    }
    file = path / "locomo.json"
    file.write_text(json.dumps([{"sample_id": "conv-26", "conversation": talk, "qa": questions}]))
    return file


def test_the_command_prints_one_json_object(tmp_path, capsys):
    assert main(["--locomo", str(small(tmp_path)), "--embedder", "none", "--embedder", "hashed", "--nodes", "300"]) == 0
    out, err = capsys.readouterr()
    result = json.loads(out)
    ways = result["retrieval"]["ways"]
    assert ways["opensage, no model"]["all"]["all"]["recall@5"] == 1
    assert ways["opensage, no model"]["all"]["all"]["mrr"] == 1
    assert ways["opensage, hashed"]["tuned on"]["1"]["n"] == 1
    assert result["engine"][0]["store"]["check"] == []
    assert "Evidence retrieval" in err


def test_many_at_once_and_killed(capsys, monkeypatch):
    monkeypatch.setenv("OPENSAGE_DATA", "/nowhere")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    assert main(["--kills", "3", "--seconds", "1"]) == 0
    result = json.loads(capsys.readouterr().out)["crash"]
    assert result["together"]["errors"] == 0
    assert result["together"]["writes"] > 0
    for each in result.values():
        assert (each["lost"], each["drift"], each["check"]) == (0, 0, [])
        assert each["acknowledged"] > 0


def test_a_file_that_is_none(tmp_path, capsys):
    (tmp_path / "x.json").write_text("{")
    assert main(["--locomo", str(tmp_path / "x.json")]) == 2
    assert "not JSON" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(not LOCOMO.is_file(), reason="LoCoMo's file is not at hand: name its folder in OPENSAGE_DATA")
def test_locomo_without_a_model(capsys):
    assert main(["--locomo", str(LOCOMO), "--embedder", "none"]) == 0
    way = json.loads(capsys.readouterr().out)["retrieval"]["ways"]["opensage, no model"]
    for split in ("all", "untouched"):
        least = TARGETS if split == "all" else {name: value - 0.03 for name, value in TARGETS.items()}
        assert {name: way[split]["all"][name] >= value for name, value in least.items()} == dict.fromkeys(TARGETS, True)
    assert [way["all"][category]["n"] for category in "12345"] == [142, 156, 44, 418, 237]


def test_the_earlier_session_is_asked_about(tmp_path):
    """With a scripted model that can only repeat what it is shown, memory is what makes answers right."""
    script = tmp_path / "echo.py"
    script.write_text(
        "def reply(request):\n    return {'text': ' '.join(str(m['content']) for m in request['messages'][1:])[:4000]}\n"
    )
    workdir = tmp_path / "work"
    workdir.mkdir()
    earlier.tell(workdir)
    for number in (0, 2, 19):
        told = earlier.ask(workdir, f"script:{script}", True, number)
        assert (told["right"], told["recalled"]) == (True, True)
        assert earlier.ask(workdir, f"script:{script}", False, number)["recalled"] is False
