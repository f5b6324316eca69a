"""From what the user names to tasks: the source of a path, and a choice among its tasks."""

from __future__ import annotations

import difflib
import hashlib
import importlib.metadata
import inspect
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from opensage_benchmarks.swe.errors import TaskError
from opensage_benchmarks.swe.records import first_record
from opensage_benchmarks.swe.task import Task, TaskSource

GROUP = "opensage.task_sources"


class Kind(Protocol):
    """A class of sources: called with a path and its own options, and asked whether a path is of its format."""

    def __call__(self, path: Path, **options: Any) -> TaskSource:
        """Open a source; nothing is read yet."""
        ...

    def recognises(self, path: Path, record: Mapping[str, Any]) -> bool:
        """Whether a path is of this format; `record` is the first of a file, empty for a folder."""
        ...


def kinds() -> dict[str, Kind]:
    """Name → class of each kind of source that an installed distribution offers."""
    points = {point.name: point for point in importlib.metadata.entry_points(group=GROUP)}
    return {name: cast(Kind, points[name].load()) for name in sorted(points)}


def open_source(text: str | Path, *, kind: str | None = None, **options: Any) -> TaskSource:
    """The source that a user means by `PATH` or `KIND:PATH`.

    Args:
        text: a file or folder, or a kind, a colon and one.
        kind: of source; without one it is told by what the path holds.
        options: of the source, e.g. `repos`, `hints`, `reverse`, `scripts`, `shown`, `skip_bad`; None and False
            are none.

    Raises:
        TaskError: no such path or kind, or the kind does not have such an option.
    """
    known = kinds()
    path, kind = _parted(str(text), kind, known)
    if not path.exists():
        what = f"; the files of {path} are yours to give: {path}:PATH" if str(path) in known else ""
        raise TaskError(f"no such file or folder of tasks: {path}{what}")
    if kind is None:
        kind = _told(path, known)
    if kind not in known:
        raise TaskError(f"no source {kind!r}; there are {', '.join(known)}")
    given = {name: value for name, value in options.items() if value is not None and value is not False}
    has = inspect.signature(known[kind]).parameters
    if unknown := [name for name in given if name not in has]:
        raise TaskError(f"tasks of kind {kind} have no option {unknown[0]}")
    return known[kind](path, **given)


def _parted(text: str, kind: str | None, known: Iterable[str]) -> tuple[Path, str | None]:
    before, colon, after = text.partition(":")
    if kind is None and colon and before in known:
        return Path(after).expanduser(), before
    return Path(text).expanduser(), kind


def _told(path: Path, known: Mapping[str, Kind]) -> str:
    record = {} if path.is_dir() else first_record(path)
    fitting = [name for name, each in known.items() if each.recognises(path, record)]
    if len(fitting) == 1:
        return fitting[0]
    fields = f", its first record has {', '.join(map(str, record))}"[:200] if record else ""
    raise TaskError(f"{path}: tell what it is as KIND:PATH, KIND one of {', '.join(fitting or known)}{fields}")


def select(
    tasks: Iterable[Task],
    *,
    filter: str | None = None,
    slice: str | None = None,
    shuffle: bool = False,
    seed: int = 42,
    sample: int | None = None,
    ids: Sequence[str] = (),
) -> list[Task]:
    """A choice among tasks: by ids, then by `filter`, then by `sample`, then shuffled, then sliced.

    Args:
        tasks: all there are.
        filter: a regular expression that an id must begin with.
        slice: `A:B`, `A:`, `:B` or `A:B:STEP`, counted as Python does.
        shuffle: whether the order is drawn by `seed`; it does not depend on the order that was.
        seed: of the shuffle.
        sample: the so many tasks whose ids have the least SHA-256: a choice that nobody can bend, the same everywhere.
        ids: the only ones that are taken.

    Raises:
        TaskError: an id that is not there, a bad expression or slice.
    """
    chosen = list(tasks)
    if ids:
        _must_be_there(ids, chosen)
        chosen = [task for task in chosen if task.id in set(ids)]
    if filter is not None:
        begins = _expression(filter)
        chosen = [task for task in chosen if begins.match(task.id)]
    if sample is not None:
        least = set(sorted(hashlib.sha256(task.id.encode()).hexdigest() for task in chosen)[:sample])
        chosen = [task for task in chosen if hashlib.sha256(task.id.encode()).hexdigest() in least]
    if shuffle:
        chosen.sort(key=lambda task: task.id)
        random.Random(seed).shuffle(chosen)
    return chosen[_slice(slice)] if slice is not None else chosen


def _must_be_there(ids: Sequence[str], tasks: Sequence[Task]) -> None:
    there = {task.id for task in tasks}
    for id in ids:
        if id not in there:
            near = difflib.get_close_matches(id, there, 3)
            raise TaskError(f"no task {id}" + (f"; did you mean {', '.join(near)}?" if near else ""))


def _expression(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise TaskError(f"filter {text!r} is no regular expression: {error}") from error


def _slice(text: str) -> slice:
    try:
        parts = [int(part) if part.strip() else None for part in text.split(":")]
        if not 2 <= len(parts) <= 3 or 0 in parts[2:]:
            raise ValueError
    except ValueError as error:
        raise TaskError(f"slice {text!r} is none: write A:B, such as 0:5, 10: or :20") from error
    return slice(*parts)
