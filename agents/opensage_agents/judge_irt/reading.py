"""Score files: CSV in long or wide form, JSON lines, from `opensage judge collect` or from anywhere."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from opensage.files import read_regular
from opensage_agents.judge_irt.scores import Coded, ScoreError, coded

MOST_BYTES = 1 << 28
MISSING = {"", "na", "nan", "none", "null", "n/a", "."}


@dataclass(frozen=True, slots=True)
class Columns:
    """Names of the columns of a file in long form; judge and criterion may be absent from it."""

    judge: str = "judge"
    criterion: str = "criterion"
    sample: str = "sample_id"
    variant: str = "variant"
    score: str = "score"


@dataclass(frozen=True, slots=True)
class Cell:
    """One score, None where it is missing, and the line of the file that holds it."""

    judge: str
    criterion: str
    sample: str
    variant: str
    score: float | None
    line: int


@dataclass(frozen=True, slots=True)
class ScoreFile:
    """The scores of a file, and the SHA-256 of its bytes."""

    path: Path
    cells: tuple[Cell, ...]
    sha256: str

    def tables(
        self, n_categories: int | None = None, *, drop_constant: bool = False, least: int = 2, rounded: bool = False
    ) -> dict[tuple[str, str], Coded]:
        """A matrix for each judge and criterion.

        Raises:
            ScoreError: the scores of one cannot be used; the message names it.
        """
        parts: dict[tuple[str, str], list[Cell]] = {}
        for cell in self.cells:
            parts.setdefault((cell.judge, cell.criterion), []).append(cell)
        found = {}
        for (judge, criterion), cells in parts.items():
            try:
                found[judge, criterion] = _table(cells, n_categories, drop_constant, least, rounded)
            except ScoreError as error:
                raise ScoreError(f"{self.path}, judge {judge or '-'}, criterion {criterion or '-'}: {error}") from error
        return found


def read_scores(path: str | Path, columns: Columns | None = None, *, wide: bool = False) -> ScoreFile:
    """Read a file of scores.

    Args:
        path: CSV with a header (comma, semicolon or tab), or JSON lines (`.jsonl`) with the same names.
        columns: of the long form.
        wide: every column but the sample's is a variant, every row a sample.

    Raises:
        ScoreError: it cannot be read, a column is missing, a score is no number, a cell is there twice.
    """
    place, names = Path(path), columns or Columns()
    try:
        data = read_regular(place, MOST_BYTES)
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise ScoreError(f"{place} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ScoreError(f"{place} is not UTF-8 text (byte {error.start}): save it as such") from error
    rows = _json_rows(text, place) if place.suffix == ".jsonl" else _csv_rows(text, place)
    cells = tuple(_wide(rows, names, place) if wide else _long(rows, names, place))
    if not cells:
        raise ScoreError(f"{place} holds no scores")
    _no_doubles(cells, place)
    return ScoreFile(place, cells, hashlib.sha256(data).hexdigest())


Row = tuple[int, Mapping[str, object]]


def _csv_rows(text: str, path: Path) -> Iterator[Row]:
    head = text.split("\n", 1)[0]
    mark = max(",;\t", key=head.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=mark)
    try:
        names = [name.strip() for name in next(reader, [])]
        if len(set(names)) < len(names):
            raise ScoreError(f"{path}: two columns have the same name: {', '.join(names)}")
        for row in reader:
            if not any(row):
                continue
            if len(row) != len(names):
                raise ScoreError(f"{path}, line {reader.line_num}: {len(row)} fields, the header has {len(names)}")
            yield reader.line_num, dict(zip(names, row, strict=True))
    except csv.Error as error:
        raise ScoreError(f"{path}, line {reader.line_num}: {error}; is it a CSV file?") from error


def _json_rows(text: str, path: Path) -> Iterator[Row]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ScoreError(f"{path}, line {number} is no JSON: {error}") from error
        if not isinstance(row, dict):
            raise ScoreError(f"{path}, line {number}: an object is wanted")
        if "settings" not in row:  # the first line of what `collect` writes
            yield number, row


def _long(rows: Iterable[Row], names: Columns, path: Path) -> Iterator[Cell]:
    for line, row in rows:
        absent = [name for name in (names.sample, names.variant, names.score) if name not in row]
        if absent:
            there = ", ".join(map(str, row))
            raise ScoreError(
                f"{path}, line {line}: no column {absent[0]!r} (there are: {there}); name it with --sample-col, "
                "--prompt-col or --score-col, or say --wide when columns are variants"
            )
        judge, criterion, sample, variant = (
            str(row.get(name) or "") for name in (names.judge, names.criterion, names.sample, names.variant)
        )
        score = _number(row[names.score], path, line, names.score)
        yield Cell(judge, criterion, sample, variant, score, line)


def _wide(rows: Iterable[Row], names: Columns, path: Path) -> Iterator[Cell]:
    for count, (line, row) in enumerate(rows, 1):
        sample = str(row.get(names.sample) or count)
        for name, value in row.items():
            if name not in (names.sample, names.judge, names.criterion):
                judge, criterion = (str(row.get(key) or "") for key in (names.judge, names.criterion))
                yield Cell(judge, criterion, sample, name, _number(value, path, line, name), line)


def _number(value: object, path: Path, line: int, column: str) -> float | None:
    if value is None or (isinstance(value, str) and value.strip().lower() in MISSING):
        return None
    try:
        number = float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else math.inf
    except (ValueError, OverflowError):
        number = math.inf
    if math.isnan(number):
        return None
    if math.isinf(number):
        raise ScoreError(f"{path}, line {line}, column {column}: {str(value)[:40]!r} is no number; correct or empty it")
    return number


def _no_doubles(cells: Iterable[Cell], path: Path) -> None:
    seen: dict[tuple[str, str, str, str], int] = {}
    for cell in cells:
        key = (cell.judge, cell.criterion, cell.sample, cell.variant)
        if key in seen:
            raise ScoreError(
                f"{path}, line {cell.line}: sample {cell.sample}, variant {cell.variant} is there twice "
                f"(first in line {seen[key]}): keep one"
            )
        seen[key] = cell.line


def _table(cells: list[Cell], k: int | None, drop: bool, least: int, rounded: bool) -> Coded:
    samples = list(dict.fromkeys(cell.sample for cell in cells))
    variants = list(dict.fromkeys(cell.variant for cell in cells))
    rows, columns = ({name: n for n, name in enumerate(names)} for names in (samples, variants))
    matrix = np.full((len(samples), len(variants)), np.nan)
    for cell in cells:
        score = np.nan if cell.score is None else cell.score
        if rounded and len(variants) == 1:
            score = np.floor(score + 0.5)
        elif score != np.floor(score) and not np.isnan(score):
            raise ScoreError(f"line {cell.line}: score {score:g} is not a whole number; correct or round it")
        matrix[rows[cell.sample], columns[cell.variant]] = score
    return _coded(matrix, cells, samples, variants, k, drop, least)


def _coded(
    matrix: np.ndarray,
    cells: list[Cell],
    samples: list[str],
    variants: list[str],
    k: int | None,
    drop: bool,
    least: int,
) -> Coded:
    low, high = 1, k or math.inf
    outside = [cell for cell in cells if cell.score is not None and not low <= round(cell.score) <= high]
    if outside:
        cell = outside[0]
        raise ScoreError(
            f"line {cell.line}: score {cell.score:g} of sample {cell.sample}, variant {cell.variant} is outside "
            f"1..{k or 'K'}; correct it, or give the number of levels (--levels)"
        )
    return coded(matrix, k, variants=variants, ids=samples, drop_constant=drop, least=least)
