"""The executor `ray` with the real package, on a cluster of this machine."""

from __future__ import annotations

import gc
import json
import os
import sys
import warnings
from pathlib import Path

import pytest
import toy_bench

from opensage_benchmarks.swe.run.caps import Caps
from opensage_benchmarks.swe.run.config import RunConfig
from opensage_benchmarks.swe.run.runner import RunOptions, run

os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
import ray

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def cluster():
    """One for all tests here: starting it takes seconds."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    with warnings.catch_warnings():  # Ray leaves its own processes to the garbage collector
        warnings.simplefilter("ignore", ResourceWarning)
        start()
        gc.collect()
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        ray.shutdown()
        gc.collect()


def start(tries=3):
    """Ray gives a node 30 seconds to come up, which a busy machine may not keep."""
    try:
        ray.init(
            num_cpus=4, include_dashboard=False, log_to_driver=False, configure_logging=False, namespace="opensage"
        )
    except Exception:
        if tries == 1:
            raise
        ray.shutdown()
        start(tries - 1)


def go(out, count, agent="Agent", total=None, **options):
    config = RunConfig("toy_bench:Toy", str(count), agent=f"toy_bench:{agent}", options=options)
    return run(
        list(toy_bench.Toy(count).tasks()), config, out, RunOptions(workers=4, executor="ray", total=total or Caps())
    )


def records(out):
    return [json.loads(line) for line in (out / "status.jsonl").read_text().splitlines()]


def test_a_run_on_a_cluster(tmp_path):
    out = tmp_path / "out"
    summary = go(out, 6, calls="2", cost="0.1")
    assert (summary.exit_code, summary.statuses) == (0, {"done": 6})
    assert summary.cost == pytest.approx(1.2)
    assert "+x = 2" in json.loads((out / "preds.json").read_text())["toy__t-05"]["model_patch"]
    assert (out / "toy__t-03" / "toy__t-03.traj.json").exists()


def test_workers_killed_in_the_middle_lose_nothing_and_count_once(tmp_path):
    """Each task kills Ray's own process the first time, in the middle of its calls."""
    out, ledger = tmp_path / "out", tmp_path / "ledger"
    summary = go(out, 4, "KillsRay", calls="2", cost="0.1", ledger=str(ledger))
    assert (summary.exit_code, summary.statuses) == (0, {"done": 4})
    ids = [record["id"] for record in records(out)]
    assert sorted(ids) == sorted(set(ids)) == [f"toy__t-0{n}" for n in range(4)]
    assert [record["tries"] for record in records(out)] == [2, 2, 2, 2]
    assert [record["cost"] for record in records(out)] == [0.2] * 4
    assert len(ledger.read_text().splitlines()) == 8


def test_one_budget_for_all_machines(tmp_path):
    summary = go(tmp_path / "out", 8, calls="3", cost="0.1", wait="0.05", total=Caps(cost=1.0))
    assert summary.exit_code == 3
    assert summary.cost <= 1.0 + 4 * 0.1 + 1e-9
