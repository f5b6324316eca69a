"""The runner on real processes: outcomes, agents that misbehave, kills, resumes, caps."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import toy_bench

from opensage.errors import ConfigError
from opensage_benchmarks.swe.errors import BenchError, OutputLocked, TaskError
from opensage_benchmarks.swe.run.caps import Caps
from opensage_benchmarks.swe.run.config import RunConfig
from opensage_benchmarks.swe.run.progress import LineProgress
from opensage_benchmarks.swe.run.runner import RunOptions, run
from opensage_benchmarks.swe.run.summary import summarise

HERE = Path(__file__).parent


def go(out, count=3, agent="Agent", again="resume", workers=2, total=None, grade=None, progress=None, **config):
    options = {name: str(value) for name, value in config.pop("options", {}).items()}
    name = agent if ":" in agent or agent in ("gold", "empty") else f"toy_bench:{agent}"
    settings = RunConfig("toy_bench:Toy", str(count), agent=name, options=options, **config)
    more = {"progress": progress} if progress else {}
    choices = RunOptions(workers=workers, again=again, total=total or Caps(), grade=grade, **more)
    return run(list(toy_bench.Toy(count).tasks()), settings, out, choices)


def records(out):
    return [json.loads(line) for line in (out / "status.jsonl").read_text().splitlines()]


def by_id(out):
    return {record["id"]: record for record in records(out)}


def preds(out):
    return json.loads((out / "preds.json").read_text())


def processes_of(place):
    """Processes that have this path in their command line, working folder or environment."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            texts = [Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ")]
            texts.append(os.fsencode(os.readlink(f"/proc/{pid}/cwd")))
            if int(pid) != os.getpid() and any(os.fsencode(place) in text for text in texts):
                found.append(int(pid))
    return found


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path, monkeypatch):
    """No process and no workspace outlives a run. Workers inherit a mark in their environment."""
    monkeypatch.setenv("BENCH_TEST", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "tmp").mkdir()
    yield
    assert processes_of(str(tmp_path)) == []
    assert list((tmp_path / "tmp").glob("opensage-bench-*")) == []


# --- what comes of a run ------------------------------------------------------------------------------------------


def test_gold_and_what_a_folder_holds(tmp_path):
    out = tmp_path / "out"
    summary = go(out, agent="gold")
    assert (summary.exit_code, summary.statuses, summary.patches) == (0, {"done": 3}, 3)
    assert sorted(preds(out)) == ["toy__t-00", "toy__t-01", "toy__t-02"]
    one = preds(out)["toy__t-01"]
    assert one["instance_id"] == "toy__t-01"
    assert one["model_name_or_path"] == "gold"
    assert one["model_patch"].endswith("-x = 1\n+x = 2\n")
    assert (out / "toy__t-01" / "patch.diff").read_text() == one["model_patch"]
    trajectory = json.loads((out / "toy__t-01" / "toy__t-01.traj.json").read_text())
    assert trajectory["instance_id"] == "toy__t-01"
    assert trajectory["info"]["submission"] == one["model_patch"]
    assert {"exit_status", "submission", "model_stats", "config", "version"} <= trajectory["info"].keys()
    assert json.loads((out / "summary.json").read_text())["tasks"] == 3
    assert summarise(out) == summary
    assert (out / "toy__t-01" / "log.txt").exists()
    assert not (out / ".work").exists()


def test_all_that_is_needed_to_do_it_again_is_in_the_folder(tmp_path):
    out = tmp_path / "out"
    go(out, options={"tokens": 3}, limits=Caps(cost=1.5, steps=7), seed=9, total=Caps(cost=20))
    kept = json.loads((out / "run.json").read_text())
    assert kept["config"]["agent"] == "toy_bench:Agent"
    assert kept["config"]["options"] == {"tokens": "3"}
    assert kept["config"]["limits"] == {"cost": 1.5, "tokens": 0, "steps": 7, "seconds": 0.0}
    assert kept["config"]["seed"] == 9
    (this,) = kept["runs"]
    assert this["total"]["cost"] == 20
    assert this["tasks"] == ["toy__t-00", "toy__t-01", "toy__t-02"]
    assert {"opensage", "python", "litellm"} <= this["versions"].keys()
    assert (this["exit_code"], this["prices_known"], this["sandboxes"]) == (0, True, [])
    assert all(record["task"] for record in records(out))


def test_the_reference_is_shown_to_gold_alone(tmp_path):
    out = tmp_path / "out"
    go(out, agent="Spy", count=1, options={"ledger": tmp_path / "seen"})
    assert json.loads((tmp_path / "seen").read_text()) == {"ledger": str(tmp_path / "seen")}


def test_empty_is_a_patch_of_nothing(tmp_path):
    out = tmp_path / "out"
    summary = go(out, agent="empty")
    assert (summary.exit_code, summary.statuses, summary.classes) == (0, {"empty_patch": 3}, {"agent": 3})
    assert [one["model_patch"] for one in preds(out).values()] == ["", "", ""]


def test_same_results_with_one_worker_and_with_four(tmp_path):
    go(tmp_path / "one", count=6, workers=1)
    go(tmp_path / "four", count=6, workers=4)
    assert preds(tmp_path / "one") == preds(tmp_path / "four")


def test_one_missing_repository_and_the_others_go_on(tmp_path):
    out = tmp_path / "out"
    summary = go(out, count=4, source_options={"missing": True})
    assert summary.exit_code == 1
    assert summary.statuses == {"done": 2, "missing_repo": 2}
    assert list(summary.infra_ids) == ["toy__t-01", "toy__t-03"]
    assert sorted(preds(out)) == ["toy__t-00", "toy__t-02"]
    assert "no clone for toy__t-01" in by_id(out)["toy__t-01"]["reason"]


def test_a_grader_s_word_is_kept_and_counted(tmp_path):
    out = tmp_path / "out"
    said = []

    def grade(task, folder):
        assert b"x = 2" in (folder / "patch.diff").read_bytes()
        said.append(task.id)
        return task.id.endswith("1")

    summary = go(out, grade=grade)
    assert sorted(said) == ["toy__t-00", "toy__t-01", "toy__t-02"]
    assert (summary.graded, summary.resolved) == (3, 1)
    assert by_id(out)["toy__t-01"]["resolved"] is True


def test_progress_without_a_terminal(tmp_path):
    log = (tmp_path / "log").open("w")
    with log:
        go(tmp_path / "out", progress=LineProgress(log), options={"cost": "unknown", "calls": 2})
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines[0] == "3 tasks"
    assert sum("price" in line for line in lines) == 1
    assert lines[-1].startswith("[3/3] toy__t-0")
    assert lines[-1].endswith("3 done, cost unknown")


def test_events_as_json(tmp_path):
    from opensage_benchmarks.swe.run.progress import JsonProgress

    with (tmp_path / "log").open("w") as log:
        go(tmp_path / "out", progress=JsonProgress(log), count=1)
    events = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [event["type"] for event in events] == ["bench.started", "task.started", "task.finished"]
    assert events[-1]["status"] == "done"


# --- agents that misbehave ----------------------------------------------------------------------------------------


def misbehave(tmp_path, agent, **more):
    """The agent in one task of three; the others must be as always."""
    out = tmp_path / "out"
    options = {"only": "toy__t-01", **more.pop("options", {})}
    summary = go(out, agent=agent, options=options, **more)
    found = by_id(out)
    assert [found[f"toy__t-0{n}"]["status"] for n in (0, 2)] == ["done", "done"]
    return found["toy__t-01"], summary


@pytest.mark.parametrize("agent", ["HangsSync", "HangsAsync", "Deaf"])
def test_an_agent_that_hangs_is_ended(tmp_path, agent):
    started = time.monotonic()
    record, summary = misbehave(tmp_path, agent, task_timeout=3.0)
    assert (record["status"], record["class"]) == ("hung", "agent")
    assert "task_timeout: 3 seconds" in record["reason"]
    assert summary.exit_code == 0
    assert time.monotonic() - started < 60
    # What it did until then is not lost.
    saved = agent == "HangsAsync"
    assert (record["patch_bytes"] > 0) == saved
    assert preds(tmp_path / "out")["toy__t-01"]["model_patch"].endswith("-x = 1\n+x = 2\n") == saved


def test_a_daemon_does_not_outlive_its_task(tmp_path):
    record, _ = misbehave(tmp_path, "Daemon")
    pid = int((tmp_path / "out" / "toy__t-01" / "daemon" / "daemon.pid").read_text())
    assert record["status"] == "done"
    assert not Path(f"/proc/{pid}").exists()


def test_an_agent_that_fills_the_disk_is_ended(tmp_path):
    record, _ = misbehave(tmp_path, "Fills", disk_limit=24 << 20)
    assert (record["status"], record["class"]) == ("error", "agent")
    assert record["reason"].startswith("disk_limit: ")


@pytest.mark.parametrize(
    ("agent", "status", "reason"),
    [
        ("Raises", "error", "ZeroDivisionError: an agent's own mistake"),
        ("Leaves", "error", "SystemExit: enough"),
        ("Exits", "error", "code 7"),
        ("Nothing", "empty_patch", ""),
        ("Outside", "empty_patch", ""),
        ("Huge", "invalid_patch", "MiB"),
        ("EditsTests", "done", ""),
        ("Talks", "done", ""),
    ],
)
def test_what_becomes_of_it(tmp_path, agent, status, reason):
    record, summary = misbehave(tmp_path, agent)
    assert (record["status"], record["class"]) == (status, "agent")
    assert reason in record["reason"]
    assert summary.exit_code == 0
    patch = preds(tmp_path / "out")["toy__t-01"]["model_patch"]
    assert ("x = 2" in patch) == (status == "done")
    assert "test_a.py" not in patch


def test_a_traceback_is_in_the_log(tmp_path):
    misbehave(tmp_path, "Raises")
    assert "ZeroDivisionError" in (tmp_path / "out" / "toy__t-01" / "log.txt").read_text()


def test_what_is_left_out_is_listed(tmp_path):
    record, _ = misbehave(tmp_path, "EditsTests")
    assert any("test_a.py" in line for line in record["left_out"])
    assert "test_a.py" in (tmp_path / "out" / "toy__t-01" / "left_out.diff").read_text()


def test_a_model_that_cannot_be_reached_is_no_agent_s_failure(tmp_path):
    record, summary = misbehave(tmp_path, "Unreachable")
    assert (record["status"], record["class"], summary.exit_code) == ("model_error", "infra", 1)
    assert "toy__t-01" not in preds(tmp_path / "out")
    again = go(tmp_path / "out", agent="Unreachable", options={"only": "toy__t-01"})
    assert again.exit_code == 1
    assert len(records(tmp_path / "out")) == 3
    go(tmp_path / "out", agent="Unreachable", options={"only": "toy__t-01"}, again="retry-errors")
    assert [record["id"] for record in records(tmp_path / "out")].count("toy__t-01") == 2


@pytest.mark.parametrize("agent", ["Killed", "KillsItsWorker"])
def test_a_worker_that_dies_gets_one_more_try(tmp_path, agent):
    record, summary = misbehave(tmp_path, agent, options={"ledger": tmp_path / "ledger", "calls": 1, "cost": "0.1"})
    assert (record["status"], record["tries"], record["model_calls"], record["cost"]) == ("done", 2, 1, 0.1)
    assert (summary.exit_code, summary.model_calls) == (0, 3)


def test_a_worker_that_dies_twice_is_an_error_of_the_machine(tmp_path):
    record, summary = misbehave(tmp_path, "AlwaysKilled")
    assert (record["status"], record["class"], record["tries"]) == ("infra_error", "infra", 2)
    assert "signal 9" in record["reason"]
    assert summary.exit_code == 1


def test_a_worker_that_does_not_answer_is_the_runner_s_to_end(tmp_path, monkeypatch):
    monkeypatch.setattr("opensage_benchmarks.swe.run.executor.GRACE", 4.0)
    record, summary = misbehave(tmp_path, "StopsItsWorker", task_timeout=8.0)
    assert (record["status"], record["class"]) == ("hung", "infra")
    assert "did not answer for 12 seconds" in record["reason"]
    assert summary.exit_code == 1


def test_a_line_that_is_no_outcome_is_passed_over(tmp_path):
    out = tmp_path / "out"
    go(out)
    with (out / "status.jsonl").open("a") as file:
        file.write('{"id": "toy__t-01", "status": "done", "class": "agent"}\nno JSON\n[]\n')
    assert go(out).finished == 3
    assert len(preds(out)) == 3


# --- going on -----------------------------------------------------------------------------------------------------


def test_a_second_run_does_nothing_again_and_may_be_wider(tmp_path):
    out, ledger = tmp_path / "out", tmp_path / "ledger"
    config = RunConfig("toy_bench:Toy", "5", agent="toy_bench:Agent", options={"ledger": str(ledger)})
    tasks = list(toy_bench.Toy(5).tasks())
    run(tasks[:3], config, out)
    summary = run(tasks, config, out, RunOptions(workers=3))
    assert summary.finished == 5
    assert sorted(line.split()[0] for line in ledger.read_text().splitlines()) == [task.id for task in tasks]
    assert len(json.loads((out / "run.json").read_text())["runs"]) == 2
    assert run(tasks[:2], config, out).finished == 2
    assert len(preds(out)) == 5


def test_another_configuration_is_refused_by_name_unless_all_is_done_again(tmp_path):
    out = tmp_path / "out"
    go(out, seed=1)
    with pytest.raises(BenchError, match=r"seed: 1 -> 2.*choose another"):
        go(out, seed=2)
    assert go(out, seed=2, again="redo", agent="empty").statuses == {"empty_patch": 3}
    assert len(records(out)) == 7
    assert {record["status"] for record in records(out)[4:]} == {"empty_patch"}
    go(out, seed=2, agent="empty")
    assert len(records(out)) == 7


def test_a_task_that_changed_is_another_configuration(tmp_path):
    config = RunConfig("toy_bench:Toy", "1", agent="toy_bench:Agent")
    (task,) = toy_bench.Toy(1).tasks()
    run([task], config, tmp_path / "out")
    with pytest.raises(BenchError, match="task toy__t-00 is not the same"):
        run([dataclasses.replace(task, problem="Something else")], config, tmp_path / "out")


def test_two_runs_on_one_folder(tmp_path):
    from opensage_benchmarks.swe.run.folder import OutputFolder

    first = OutputFolder(tmp_path / "out")
    try:
        with pytest.raises(OutputLocked, match="another run writes to"):
            go(tmp_path / "out")
    finally:
        first.close()
    assert go(tmp_path / "out").finished == 3


def test_bad_input_is_said_before_anything_runs(tmp_path):
    (task,) = toy_bench.Toy(1).tasks()
    config = RunConfig("toy_bench:Toy", "1", agent="toy_bench:Agent")
    with pytest.raises(TaskError, match="two tasks have the id toy__t-00"):
        run([task, task], config, tmp_path / "out")
    with pytest.raises(TaskError, match="folder"):
        run([dataclasses.replace(task, id="..")], config, tmp_path / "out")
    for agent, text in (
        ("toy_bench:None_", "no agent"),
        ("nowhere:x", "write module:factory"),
        ("toy_bench:no_agent", "BenchAgent"),
        ("no-such-agent", "there are:"),
    ):
        with pytest.raises(ConfigError, match=text):
            run([task], dataclasses.replace(config, agent=agent), tmp_path / "out")
    with pytest.raises(ConfigError, match="does not take these options"):
        run([task], dataclasses.replace(config, options={"colour": "red"}), tmp_path / "out")
    assert not (tmp_path / "out").exists()


SCRIPT = """
import sys, toy_bench
from pathlib import Path
from opensage_benchmarks.swe.run.caps import Caps
from opensage_benchmarks.swe.run.config import RunConfig
from opensage_benchmarks.swe.run.runner import RunOptions, run
out, ledger, count, wait, workers = sys.argv[1:6]
config = RunConfig("toy_bench:Toy", count, agent="toy_bench:Agent", options={"ledger": ledger, "wait": wait})
sys.exit(run(list(toy_bench.Toy(count).tasks()), config, Path(out), RunOptions(workers=int(workers))).exit_code)
"""


def start(out, ledger, count, wait, workers, **more):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    command = [sys.executable, "-W", "error", "-c", SCRIPT, out, ledger, str(count), str(wait), str(workers)]
    return subprocess.Popen([str(word) for word in command], env=env, stderr=subprocess.PIPE, text=True, **more)


def wait_for(out, count, process):
    """Until so many outcomes are there; preds.json must be whole whenever it is looked at."""
    end = time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(FileNotFoundError):
            preds(out)
            if (out / "status.jsonl").read_bytes().count(b"\n") >= count:
                return
        time.sleep(0.05)
    raise AssertionError(f"no {count} outcomes: {process.poll()}")


def wait_until_gone(place):
    end = time.monotonic() + 20
    while processes_of(place) and time.monotonic() < end:
        time.sleep(0.05)
    assert processes_of(place) == []


def test_killed_after_fifteen_of_forty_and_resumed(tmp_path):
    out, ledger = tmp_path / "out", tmp_path / "ledger"
    process = start(out, ledger, 40, 0.05, 4)
    wait_for(out, 15, process)
    process.kill()
    process.communicate()
    wait_until_gone(str(tmp_path))
    finished = set(by_id(out))
    with (out / "status.jsonl").open("a") as file:
        file.write('{"id": "toy__t-39", "sta')  # as torn as a power cut leaves it
    before = len(ledger.read_text().splitlines())
    process = start(out, ledger, 40, 0.05, 4)
    wait_for(out, 35, process)
    assert process.wait(120) == 0, process.stderr.read()
    process.stderr.close()
    ids = [record["id"] for record in records(out)]
    assert len(ids) == len(set(ids)) == len(preds(out)) == 40
    assert len(finished) >= 15
    again = {line.split()[0] for line in ledger.read_text().splitlines()[before:]}
    assert not again & finished
    assert sorted(path.name for path in out.iterdir() if path.is_dir()) == sorted(ids)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_once(tmp_path, number):
    out = tmp_path / "out"
    process = start(out, tmp_path / "ledger", 8, 0.6, 2)
    wait_for(out, 2, process)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, "")
    assert processes_of(str(tmp_path)) == []
    summary = json.loads((out / "summary.json").read_text())
    assert summary["interrupted"] is True
    assert summary["finished"] + len(summary["not_started"]) == 8
    done = {id for id, record in by_id(out).items() if record["status"] == "done"}
    assert set(preds(out)) == done
    process = start(out, tmp_path / "ledger", 8, 0.6, 2)
    assert process.wait(60) == 0
    process.stderr.close()
    assert len(preds(out)) == 8


def test_a_full_disk_ends_the_run_and_what_is_finished_stays(tmp_path):
    out, limit = tmp_path / "out", 4096

    def small():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

    process = start(out, tmp_path / "ledger", 40, 0, 2, preexec_fn=small)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "BenchError" in said
    assert "the disk is full. Free space and run again: what is finished is kept" in said
    wait_until_gone(str(tmp_path))
    before = set(by_id(out))
    preds(out)
    assert 0 < len(before) < 40
    process = start(out, tmp_path / "ledger", 40, 0, 2)
    assert process.wait(120) == 0, process.stderr.read()
    process.stderr.close()
    ids = [record["id"] for record in records(out)]
    assert len(ids) == len(set(ids)) == len(preds(out)) == 40


# --- caps ---------------------------------------------------------------------------------------------------------


def test_a_cap_of_35_cents_allows_three_calls_of_ten(tmp_path):
    out = tmp_path / "out"
    summary = go(out, options={"calls": 9, "cost": "0.10"}, limits=Caps(cost=0.35))
    assert {record["model_calls"] for record in records(out)} == {3}
    assert summary.statuses == {"limit": 3}
    assert summary.limits_hit == 3
    assert summary.exit_code == 0
    assert "cost_limit: 0.3 of 0.35 US dollars used" in records(out)[0]["reason"]


def test_a_total_cap_with_four_workers(tmp_path):
    out = tmp_path / "out"
    summary = go(out, count=12, workers=4, options={"calls": 4, "cost": "0.10", "wait": "0.05"}, total=Caps(cost=1.0))
    assert summary.exit_code == 3
    assert 0.9 <= summary.cost <= 1.0 + 4 * 0.10 + 1e-9
    assert summary.budget.startswith("total_cost_limit: ")
    assert summary.finished + len(summary.not_started) == 12
    assert summary.not_started
    wider = go(
        out,
        count=12,
        workers=4,
        options={"calls": 4, "cost": "0.10", "wait": "0.05"},
        total=Caps(),
        again="retry-errors",
    )
    assert (wider.exit_code, wider.statuses) == (0, {"done": 12})


def test_what_was_spent_before_counts_for_the_total(tmp_path):
    out = tmp_path / "out"
    options = {"calls": 2, "cost": "0.10"}
    assert go(out, count=4, workers=1, options=options, total=Caps(cost=0.45)).exit_code == 3
    spent = summarise(out).cost
    assert go(out, count=4, workers=1, options=options, total=Caps(cost=0.45)).exit_code == 3
    assert summarise(out).cost == spent


@pytest.mark.parametrize(
    ("caps", "calls"),
    [
        (Caps(steps=4), 4),
        (Caps(tokens=250), 2),
        (Caps(), 9),
        (Caps(seconds=0.35), None),
    ],
)
def test_the_other_caps(tmp_path, caps, calls):
    out = tmp_path / "out"
    go(out, count=1, options={"calls": 9, "tokens": 100, "wait": "0.1", "cost": "unknown"}, limits=caps)
    (record,) = records(out)
    assert record["status"] == ("done" if calls == 9 else "limit")
    assert record["cost"] is None
    assert record["model_calls"] == calls if calls else 1 <= record["model_calls"] <= 4


# --- speed --------------------------------------------------------------------------------------------------------


def test_what_the_runner_costs_a_task(tmp_path):
    """CPU seconds of everything, a clean workspace, the patch and its check included, beyond the first task's start."""
    before = os.times()
    go(tmp_path / "one", count=1, workers=1, agent="gold")
    middle = os.times()
    go(tmp_path / "many", count=11, workers=1, agent="gold")
    after = os.times()

    def used(a, b):
        return sum(b[:4]) - sum(a[:4])

    assert (used(middle, after) - used(before, middle)) / 10 < 0.3
