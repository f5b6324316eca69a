"""Predictions: what agents made of tasks, in the forms that SWE-bench and SWE-bench Pro read and write."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opensage_benchmarks.swe.errors import TaskError
from opensage_benchmarks.swe.records import Record, read_json, read_records, write_records, write_whole
from opensage_benchmarks.swe.sources.base import checked_id
from opensage_benchmarks.swe.task import Task


@dataclass(frozen=True, slots=True)
class Prediction:
    """One patch for one task.

    Attributes:
        patch: a unified diff with its final newline; empty when there is none. Bytes that are not UTF-8 are in it as
            `surrogateescape` writes them.
        model: who made it.
    """

    id: str
    patch: str = field(default="", repr=False)
    model: str = ""


@dataclass(frozen=True, slots=True)
class Predictions:
    """Those of a file that belong to the tasks at hand, in its order, and the ids of those that do not."""

    by_id: Mapping[str, Prediction]
    unknown: tuple[str, ...] = ()


def read_predictions(where: str | Path, tasks: Iterable[Task] | None) -> Predictions:
    """Predictions for `tasks`: a `.jsonl`, a `.json` list or dict by id, or `gold` for the references.

    Without tasks, all that there are.

    Raises:
        TaskError: the file cannot be read, a record has no `instance_id`, or an id is there twice; the message names
            the place.
    """
    if str(where) == "gold":
        return Predictions(gold(tasks or ()))
    known = None if tasks is None else {task.id for task in tasks}
    found: dict[str, tuple[str, Prediction]] = {}
    for record in _records(Path(where)):
        made = _prediction(record)
        if made.id in found:
            raise TaskError(
                f"{record.place}: a prediction for {made.id} is at {found[made.id][0]} too; keep one of them"
            )
        found[made.id] = (record.place, made)
    by_id = {id: made for id, (_, made) in found.items() if known is None or id in known}
    return Predictions(by_id, tuple(id for id in found if id not in by_id))


def gold(tasks: Iterable[Task]) -> dict[str, Prediction]:
    """The references as predictions."""
    return {task.id: Prediction(task.id, finished(task.patch), "gold") for task in tasks}


def _records(path: Path) -> Iterator[Record]:
    if not path.name.endswith(".json"):
        if not path.name.endswith((".jsonl", ".jsonl.gz")):
            raise TaskError(f"{path}: predictions are in a .json or .jsonl file, or `gold`")
        yield from read_records(path)
        return
    value = read_json(path)
    if not isinstance(value, list | dict):
        raise TaskError(f"{path}: predictions are a list, or an object by instance_id")
    named = value.items() if isinstance(value, dict) else ((None, each) for each in value)
    for number, (name, data) in enumerate(named, 1):
        place = f"{path}: record {number}" if name is None else f"{path}: {name}"
        if not isinstance(data, dict):
            raise TaskError(f"{place}: is no JSON object; each prediction is one, with instance_id and model_patch")
        if name is not None and data.get("instance_id", name) != name:
            raise TaskError(f"{place}: instance_id is {data['instance_id']!r}; key and instance_id must be the same")
        yield Record(place, data)


def _prediction(record: Record) -> Prediction:
    id = checked_id(record.wanted("instance_id"), record.place)
    return Prediction(id, finished(record.text("model_patch", "patch")), record.text("model_name_or_path", "prefix"))


def finished(patch: str) -> str:
    """A patch with its final newline, without which no tool applies it; a blank one is none."""
    if not patch.strip():
        return ""
    return patch if patch.endswith("\n") else patch + "\n"


def write_predictions(path: Path, predictions: Iterable[Prediction]) -> None:
    """Write `preds.json`, a dict by id, in one step."""
    write_whole(path, _dict([*predictions]))


def _dict(predictions: Sequence[Prediction]) -> str:
    return json.dumps({each.id: _swebench(each) for each in predictions}, indent=2) + "\n"


def _swebench(made: Prediction) -> dict[str, Any]:
    return {"model_name_or_path": made.model, "instance_id": made.id, "model_patch": finished(made.patch)}


def _pro(made: Prediction) -> dict[str, Any]:
    return {"instance_id": made.id, "patch": finished(made.patch), "prefix": made.model}


def export(path: Path, predictions: Iterable[Prediction], format: str = "swebench") -> None:
    """Write predictions for another grader.

    Args:
        path: `.jsonl`, or `.json` for the other forms.
        predictions: what to write.
        format: `swebench` (lines, or a list, by the suffix), `swebench-dict` or `swebench-pro` (a list).

    Raises:
        TaskError: no such format, or the file cannot be written.
    """
    writers: dict[str, Callable[[Path, list[Prediction]], None]] = {
        "swebench": lambda path, made: write_records(path, list(map(_swebench, made))),
        "swebench-dict": write_predictions,
        "swebench-pro": lambda path, made: write_records(path, list(map(_pro, made))),
    }
    if format not in writers:
        raise TaskError(f"no format {format!r} of predictions; there are {', '.join(writers)}")
    allowed = (".json", ".jsonl") if format == "swebench" else (".json",)
    if path.suffix not in allowed:
        raise TaskError(f"{path}: predictions of format {format} go into a file {' or '.join(allowed)}")
    try:
        writers[format](path, list(predictions))
    except OSError as error:
        raise TaskError(f"{path}: cannot be written: {error}") from error
