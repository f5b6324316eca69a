"""Files of records: JSON lists, JSON lines, CSV and Parquet, gzipped or not, each record with its place in the file."""

from __future__ import annotations

import ast
import contextlib
import csv
import datetime
import gzip
import io
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from opensage_benchmarks.swe.errors import TaskError

MOST_BYTES = 64 << 20
"""Of one line; a task is some kilobytes, so a longer line is no file of tasks."""

_MALFORMED = (ValueError, RecursionError, TypeError)


@dataclass(frozen=True, slots=True)
class Record:
    """What was read, and where: `file:line`, or `file: record N` where a line says nothing."""

    place: str
    data: Mapping[str, Any] = field(repr=False)

    def text(self, *names: str) -> str:
        """The first of these fields that is not null, else nothing.

        Raises:
            TaskError: it is no text.
        """
        for name in names:
            value = self.data.get(name)
            if isinstance(value, str):
                return value
            if value is not None:
                raise TaskError(f"{self.place}: {name} must be text, not {type(value).__name__}")
        return ""

    def wanted(self, *names: str) -> str:
        """The same for a field that a task cannot do without.

        Raises:
            TaskError: it is missing, null, blank or no text.
        """
        if value := self.text(*names):
            return value
        raise TaskError(f"{self.place}: {names[0]} is missing")


def read_records(path: Path, bad: list[str] | None = None) -> Iterator[Record]:
    """The objects of a `.json` (list), `.jsonl`, `.csv` or `.parquet` file; `.gz` may follow the first three.

    Args:
        path: the file.
        bad: takes the message of each record that cannot be read; without it the first one ends the reading.

    Raises:
        TaskError: no such file, no such form, or a bad record; the message names file and line.
    """
    try:
        for place, value in _values(path):
            if isinstance(value, Mapping):
                yield Record(place, value)
                continue
            problem = value if isinstance(value, str) and value.startswith(place) else f"{place}: is no JSON object"
            if bad is None:
                raise TaskError(f"{problem}; mend it, or leave bad records out with --skip-bad")
            bad.append(problem)
    except (OSError, EOFError) as error:
        raise TaskError(f"{path}: cannot be read: {error}") from error


def first_record(path: Path) -> Mapping[str, Any]:
    """The first object of a file, to tell its format; empty when there is none."""
    with contextlib.suppress(StopIteration):
        return next(read_records(path, [])).data
    return {}


def _values(path: Path) -> Iterator[tuple[str, Any]]:
    """Place and value of each record; one that cannot be parsed is its message, which begins with its place."""
    kind = path.name.lower().removesuffix(".gz")
    if kind.endswith(".parquet"):
        yield from ((f"{path}: record {n}", row) for n, row in enumerate(_parquet(path), 1))
    elif kind.endswith(".csv"):
        yield from _csv(path)
    elif kind.endswith((".jsonl", ".ndjson")):
        yield from _lines(path)
    elif kind.endswith(".json"):
        yield from _list(path)
    else:
        raise TaskError(f"{path}: a file of tasks ends in .json, .jsonl, .csv or .parquet")


def _opened(path: Path) -> IO[bytes]:
    return gzip.open(path, "rb") if path.name.lower().endswith(".gz") else path.open("rb")  # type: ignore[return-value]


def _lines(path: Path) -> Iterator[tuple[str, Any]]:
    """Split at line feeds alone: U+2028 and its like may stand in a JSON string."""
    with _opened(path) as file:
        number = 0
        while line := file.readline(MOST_BYTES + 1):
            number += 1
            place = f"{path}:{number}"
            if len(line) > MOST_BYTES:
                raise TaskError(f"{place}: longer than {MOST_BYTES >> 20} MiB; this is no file of tasks")
            if line.strip():
                yield place, _parsed(line, place)


def _parsed(line: bytes, place: str) -> Any:
    try:
        return json.loads(line.decode("utf-8-sig"))
    except _MALFORMED as error:
        return f"{place}: is no JSON: {str(error)[:200]}"


def _list(path: Path) -> Iterator[tuple[str, Any]]:
    value = read_json(path)
    if isinstance(value, Mapping) and all(isinstance(each, Mapping) for each in value.values()):
        value = list(value.values())
    if not isinstance(value, list):
        raise TaskError(f"{path}: is no list of tasks; a .json file holds a list, a .jsonl file an object a line")
    for number, each in enumerate(value, 1):
        yield f"{path}: record {number}", each


def read_json(path: Path) -> Any:
    """A whole JSON file; the same key twice in an object is an error, since one of the two would be lost.

    Raises:
        TaskError: it cannot be read, or is no JSON; the message names file and line.
    """
    try:
        with _opened(path) as file:
            text = file.read().decode("utf-8-sig")
        return json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise TaskError(f"{path}:{error.lineno}: is no JSON: {error.msg}") from error
    except (*_MALFORMED, OSError, EOFError) as error:
        raise TaskError(f"{path}: cannot be read: {str(error)[:200]}") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"key {next(name for name in names if names.count(name) > 1)!r} is there twice")
    return found


def _csv(path: Path) -> Iterator[tuple[str, Any]]:
    with _opened(path) as raw, io.TextIOWrapper(raw, "utf-8-sig", newline="") as file:
        before = csv.field_size_limit(MOST_BYTES)
        rows = csv.DictReader(file, strict=True)
        try:
            for row in rows:
                place = f"{path}:{rows.line_num}"
                uneven = None in row or None in row.values()
                yield place, f"{place}: has not as many fields as the first line" if uneven else row
        except (csv.Error, UnicodeDecodeError) as error:
            raise TaskError(f"{path}:{rows.line_num}: is no CSV: {error}") from error
        finally:
            csv.field_size_limit(before)


def _parquet(path: Path) -> Iterator[dict[str, Any]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise TaskError(f"{path}: reading Parquet takes pyarrow: pip install pyarrow, or opensage[bench]") from error
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=64):
                yield from batch.to_pylist()
    except (pyarrow.ArrowException, ValueError) as error:
        raise TaskError(f"{path}: is no Parquet file: {error}") from error


def names_of_tests(value: Any, place: str) -> tuple[str, ...]:
    """Ids of tests: a list, text that holds one in JSON or Python, or nothing. Ids may have blanks in them.

    Raises:
        TaskError: it is none of these.
    """
    if isinstance(value, str):
        value = _literal(value, place) if value.strip() else ()
    if value is None:
        return ()
    if not isinstance(value, Sequence) or isinstance(value, str) or not all(isinstance(each, str) for each in value):
        raise TaskError(f"{place}: test ids must be a list of texts, or text that holds one")
    return tuple(value)


def _literal(value: str, place: str) -> Any:
    readers: tuple[Callable[[str], Any], ...] = (json.loads, ast.literal_eval)
    for read in readers:
        with contextlib.suppress(*_MALFORMED, SyntaxError, MemoryError):
            return read(value.strip())
    raise TaskError(f"{place}: test ids are neither a JSON list nor a Python list: {value[:60]!r}")


def write_records(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """A `.json` list or `.jsonl`, whole or not at all. Other readers may split lines anywhere: ASCII alone."""
    lines = [json.dumps(each, default=_plain) for each in records]
    write_whole(path, "".join(f"{line}\n" for line in lines) if path.suffix == ".jsonl" else _indented(lines))


def _indented(lines: list[str]) -> str:
    return "[\n" + ",\n".join(lines) + "\n]\n"


def _plain(value: Any) -> Any:
    if isinstance(value, datetime.date):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} is no JSON")


def write_whole(path: Path, content: str) -> None:
    """Replace a file in one step: whoever reads it meanwhile sees the old one or the new one."""
    number, half = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(number, "w", encoding="utf-8", newline="") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(half).chmod(0o644)
        Path(half).replace(path)
    except BaseException:
        Path(half).unlink(missing_ok=True)
        raise
