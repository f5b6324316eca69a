"""What is judged: questions with answers, from a file or the set that ships with the package."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from opensage.files import read_text
from opensage_agents.judge_irt.scores import ScoreError

SHIPPED = "builtin"
MOST_BYTES = 1 << 26


@dataclass(frozen=True, slots=True)
class Item:
    """One sample: a question, an answer to be judged, and the grade that its author meant, if any."""

    id: str
    question: str
    answer: str
    grade: int | None = None


def read_items(source: str | Path = SHIPPED) -> list[Item]:
    """Items of JSON lines `{"id", "question", "answer", "grade"}`; "builtin" is the set of 40 that is shipped.

    Raises:
        ScoreError: the file cannot be read, or a line is no item.
    """
    path = Path(__file__).with_name("items.jsonl") if str(source) == SHIPPED else Path(source)
    lines = enumerate(read_text(path, MOST_BYTES).splitlines(), 1)
    items = [_item(line, path, number) for number, line in lines if line.strip()]
    ids = [item.id for item in items]
    double = next((name for name in ids if ids.count(name) > 1), None) if len(set(ids)) < len(ids) else None
    if double is not None or not items:
        raise ScoreError(f"{path}: " + (f"two items have the id {double!r}" if double else "there are no items"))
    return items


def _item(line: str, path: Path, number: int) -> Item:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ScoreError(f"{path}, line {number} is no JSON: {error}") from error
    sound = isinstance(row, dict) and all(isinstance(row.get(k), str) and row[k] for k in ("id", "question", "answer"))
    if not sound or not isinstance(row.get("grade"), int | None):
        raise ScoreError(f"{path}, line {number}: an object with the texts id, question and answer is wanted")
    return Item(row["id"], row["question"], row["answer"], row.get("grade"))
