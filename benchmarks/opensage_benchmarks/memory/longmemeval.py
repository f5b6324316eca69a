"""LongMemEval (Wu et al. 2025, "LongMemEval: Benchmarking Chat Assistants on Long-Term Interactive Memory", ICLR)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from opensage_benchmarks.memory.dialogue import Conversation, Question, Turn, read_list, read_time

_TIME = ("%Y/%m/%d (%a) %H:%M", "%Y/%m/%d %H:%M", "%Y-%m-%d %H:%M", "%Y/%m/%d", "%Y-%m-%d")


def load(path: Path) -> Iterator[Conversation]:
    """One conversation with one question for each entry of a file such as `longmemeval_s.json`.

    Evidence is the turns marked `has_answer`; where none is, every turn of the sessions named as answer. A question
    whose answer is in no session (abstention) gives a conversation without questions.

    Raises:
        ValueError: no such file, or not of this form.
    """
    for entry in read_list(path):
        try:
            yield _conversation(entry)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} is not of LongMemEval's form: {error!r}") from error


def _conversation(entry: dict[str, Any]) -> Conversation:
    answers = {str(id) for id in entry.get("answer_session_ids") or []}
    turns, marked, around = [], set(), set()
    for place, (session, said) in enumerate(
        zip(entry["haystack_session_ids"], entry["haystack_sessions"], strict=False)
    ):
        dates = entry.get("haystack_dates") or []
        at = read_time(dates[place], *_TIME) if place < len(dates) else None
        for number, turn in enumerate(said):
            id = f"{session}:{place}:{number}"
            turns.append(Turn(id, str(turn["role"]), str(turn["content"]), f"{session}:{place}", at))
            if turn.get("has_answer"):
                marked.add(id)
            if str(session) in answers:
                around.add(id)
    evidence = frozenset(marked or around)
    asked = Question(
        str(entry["question"]), str(entry["question_type"]), evidence, read_time(entry.get("question_date"), *_TIME)
    )
    there = {turn.session.rpartition(":")[0] for turn in turns}
    return Conversation(str(entry["question_id"]), tuple(turns), (asked,) if evidence else (), tuple(answers - there))
