"""Conversations with questions whose evidence is named turn by turn."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Turn:
    """What someone said: `session` names its session, `at` is when that began, None when the file does not tell."""

    id: str
    author: str
    text: str
    session: str
    at: datetime | None


@dataclass(frozen=True, slots=True)
class Question:
    """A question with the ids of the turns that answer it."""

    text: str
    category: str
    evidence: frozenset[str]
    asked_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """Turns in order, the questions about them, and what the file names as evidence that is no turn of it."""

    name: str
    turns: tuple[Turn, ...]
    questions: tuple[Question, ...]
    unknown: tuple[str, ...] = field(default=())


def read_list(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSON file that is a list of them.

    Raises:
        ValueError: no such file, no JSON, another shape.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{path} is not JSON in UTF-8: {error}") from error
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise ValueError(f"{path} is not a list of objects: is it the published file?")
    return found


def read_time(text: object, *forms: str) -> datetime | None:
    """A time in one of these forms, None for anything else."""
    for form in forms:
        try:
            return datetime.strptime(str(text).strip(), form)
        except ValueError:
            continue
    return None
