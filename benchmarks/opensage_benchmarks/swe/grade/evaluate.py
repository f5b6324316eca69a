"""Grading many predictions: in parallel, resumed where a run stopped, reported as swebench does."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opensage_benchmarks.swe.errors import BenchError
from opensage_benchmarks.swe.grade import reports
from opensage_benchmarks.swe.grade.grader import Grader, Log
from opensage_benchmarks.swe.grade.reports import Place, folder_name, logs_folder
from opensage_benchmarks.swe.grade.verdict import Verdict, judge
from opensage_benchmarks.swe.predictions import Prediction
from opensage_benchmarks.swe.task import Task

Progress = Callable[[Verdict, int, int], None]
"""Called with each verdict, how many there are, and how many there will be."""


@dataclass(frozen=True, slots=True)
class Summary:
    """An evaluation.

    Attributes:
        verdicts: by task, in the order of the tasks.
        record: what the summary file holds.
        path: of that file.
        unknown: ids of predictions for no task.
        resumed: how many verdicts were there already.
        seconds: wall time.
    """

    verdicts: Mapping[str, Verdict]
    record: Mapping[str, Any] = field(repr=False)
    path: Path
    unknown: Sequence[str] = ()
    resumed: int = 0
    seconds: float = 0.0

    @property
    def resolved(self) -> int:
        """How many tasks are resolved."""
        return sum(verdict.resolved for verdict in self.verdicts.values())


async def evaluate(
    grader: Grader,
    predictions: Mapping[str, Prediction],
    out: Path,
    *,
    run_id: str = "local",
    workers: int = 1,
    only: Sequence[str] | None = None,
    redo: bool = False,
    progress: Progress | None = None,
) -> Summary:
    """Grade predictions and write the reports below `out`.

    A task whose result is there, for the same patch, is not run again, unless `redo`, or it failed for a reason outside
    the candidate ("infra_error").

    Args:
        grader: of a source.
        predictions: by task id; ids of no task are listed, and graded nowhere.
        out: gets `MODEL.RUN.json` and `logs/`.
        run_id: names the run.
        workers: tasks at a time.
        only: ids of the tasks to grade; None for all.
        redo: whether finished tasks are graded again.
        progress: told after each task.

    Raises:
        BenchError: predictions of more than one model, or a name that no folder can have.
        OpenSageError: an unknown kind of sandbox.
    """
    started = time.monotonic()
    model = _model(predictions)
    logs = logs_folder(out, run_id, model)
    tasks = {task.id: task for task in grader.source.tasks()}
    wanted = [task for task in tasks.values() if task.id in predictions and (only is None or task.id in only)]
    found = {} if redo else _finished(logs, wanted, predictions)
    _write_run(out / "logs" / "run_evaluation" / folder_name(run_id) / "run.json", grader)
    todo = {task.id: predictions[task.id].patch for task in wanted if task.id not in found}

    def keep(verdict: Verdict, log: Log) -> None:
        place = Place(logs / tasks[verdict.task_id].folder_name)
        texts = ("\n".join([*log.lines, ""]), log.output, log.script)
        reports.write_instance(place, verdict, todo[verdict.task_id], *texts)

    verdicts = found | await grade_all(grader, tasks, todo, workers, progress, keep)
    ordered = {task.id: verdicts[task.id] for task in wanted}
    selected = [id for id in tasks if only is None or id in only]
    record = reports.summary(ordered.values(), selected, [id for id in predictions if only is None or id in only])
    path = out / f"{folder_name(model)}.{folder_name(run_id)}.json"
    reports.write_json(path, record)
    unknown = tuple(id for id in predictions if id not in tasks)
    return Summary(ordered, record, path, unknown, len(found), round(time.monotonic() - started, 3))


def _model(predictions: Mapping[str, Prediction]) -> str:
    models = sorted({made.model or "None" for made in predictions.values()})
    if len(models) > 1:
        raise BenchError(f"predictions of {len(models)} models ({', '.join(models[:3])}): evaluate one at a time")
    return models[0] if models else "None"


def _finished(logs: Path, tasks: Sequence[Task], predictions: Mapping[str, Prediction]) -> dict[str, Verdict]:
    found = {}
    for task in tasks:
        place = Place(logs / task.folder_name)
        verdict = reports.read_verdict(place)
        if verdict is None or verdict.status == "infra_error":
            continue
        try:
            same = place.patch.read_bytes() == predictions[task.id].patch.encode("utf-8", "surrogateescape")
        except OSError:
            same = False
        if same:
            found[task.id] = verdict
    return found


async def grade_all(
    grader: Grader,
    tasks: Mapping[str, Task],
    patches: Mapping[str, str],
    workers: int = 1,
    progress: Progress | None = None,
    keep: Callable[[Verdict, Log], None] | None = None,
) -> dict[str, Verdict]:
    """Grade patches by task id, so many at a time; `keep` is called in a thread with each verdict."""
    verdicts: dict[str, Verdict] = {}
    room = asyncio.Semaphore(max(1, workers))

    async def one(id: str, patch: str) -> None:
        async with room:
            log = Log()
            verdict = await grader.grade(tasks[id], patch, log)
            if keep is not None:
                await asyncio.to_thread(keep, verdict, log)
        verdicts[id] = verdict
        if progress is not None:
            progress(verdict, len(verdicts), len(patches))

    try:
        async with asyncio.TaskGroup() as group:
            for id, patch in patches.items():
                group.create_task(one(id, patch))
    except BaseExceptionGroup as errors:  # the first says what is wrong; the others were ended by it
        raise errors.exceptions[0] from errors
    return verdicts


def _write_run(path: Path, grader: Grader) -> None:
    settings = {
        "dataset": grader.source.name,
        "sandbox": grader.sandbox,
        "test_timeout": grader.test_timeout,
        "command_timeout": grader.command_timeout,
        "reruns": grader.reruns,
        "created_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    reports.write_json(path, settings)


def regrade(tasks: Mapping[str, Task], out: Path, *, run_id: str, model: str) -> Summary:
    """Make the verdicts and reports again from saved results: nothing is run.

    Raises:
        BenchError: there are no results of this run.
    """
    logs = logs_folder(out, run_id, model)
    verdicts = {}
    for id, task in tasks.items():
        place = Place(logs / task.folder_name)
        verdict = reports.read_verdict(place)
        if verdict is None:
            continue
        if verdict.runs:
            verdict = judge(
                task, verdict.runs, applied_by=verdict.applied_by, put_back=verdict.put_back, seconds=verdict.seconds
            )
        reports.write_verdict(place, verdict)
        verdicts[id] = verdict
    if not verdicts:
        raise BenchError(f"no results in {logs}: evaluate first, or name another run or model")
    record = reports.summary(verdicts.values(), tasks, verdicts)
    path = out / f"{folder_name(model)}.{folder_name(run_id)}.json"
    reports.write_json(path, record)
    return Summary(verdicts, record, path, resumed=len(verdicts))


def load_run(out: Path, run_id: str) -> dict[str, Any]:
    """How a run was made: its source, sandbox and limits."""
    path = out / "logs" / "run_evaluation" / folder_name(run_id) / "run.json"
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError) as error:
        raise BenchError(f"{path}: {error}") from error
