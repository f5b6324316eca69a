"""The loader of the `swebench` package reads what is written here: tasks, and predictions in each of its containers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from opensage_benchmarks.swe.predictions import Prediction, export, gold
from opensage_benchmarks.swe.sources.swebench import SweBench, write_tasks

TASKS = Path(os.environ.get("OPENSAGE_DATA") or "../shared/data") / "quixbugs_swe.jsonl"

# In a process of its own: it imports `datasets`, which warns.
LOADER = """
import json, sys
from swebench.harness.utils import get_predictions_from_file, load_swebench_dataset
tasks, *predictions = sys.argv[1:]
read = {path: get_predictions_from_file(path, tasks, "test") for path in predictions}
print(json.dumps({"tasks": load_swebench_dataset(tasks), "predictions": read}))
"""


def official(tasks, *predictions):
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", LOADER, str(tasks), *map(str, predictions)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.skipif(not TASKS.is_file(), reason="the data is not at hand: name its folder in OPENSAGE_DATA")
def test_the_official_loader_reads_tasks_and_three_exports(tmp_path):
    tasks = list(SweBench(TASKS).tasks())
    written = tmp_path / "tasks.jsonl"
    write_tasks(written, tasks)
    references = [Prediction(made.id, made.patch, "org/gold") for made in gold(tasks).values()]
    exports = {"lines.jsonl": "swebench", "list.json": "swebench", "dict.json": "swebench-dict"}
    for name, format in exports.items():
        export(tmp_path / name, references, format)
    read = official(written, *(tmp_path / name for name in exports))
    assert read["tasks"] == [json.loads(line) for line in TASKS.read_text().splitlines()]
    assert all(json.loads(each["FAIL_TO_PASS"]) for each in read["tasks"])
    expected = [{"model_name_or_path": "org/gold", "instance_id": task.id, "model_patch": task.patch} for task in tasks]
    assert len(expected) == 40
    assert {name: read["predictions"][str(tmp_path / name)] for name in exports} == dict.fromkeys(exports, expected)
