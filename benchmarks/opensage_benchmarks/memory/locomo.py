"""LoCoMo (Maharana et al. 2024, "Evaluating Very Long-Term Conversational Memory of LLM Agents", ACL; CC BY-NC 4.0)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from opensage_benchmarks.memory.dialogue import Conversation, Question, Turn, read_list, read_time

CATEGORIES = {"1": "multi-hop", "2": "temporal", "3": "open-domain", "4": "single-hop", "5": "adversarial"}
TUNED_ON = ("conv-26", "conv-30", "conv-41")
"""Conversations on which the weights of the search were chosen; the others were only measured."""

_SESSION = re.compile(r"session_(\d+)")
# "D8:6; D9:17" names two turns; "D:11:26" and "D30:05" are slips for D11:26 and D30:5.
_EVIDENCE = re.compile(r"D:?(\d+):(\d+)")


def load(path: Path) -> list[Conversation]:
    """The conversations of a file such as `locomo10.json`; an image's caption is part of its turn's text.

    Evidence is read as leniently as it is written; a question is kept if at least one turn of its evidence is there.

    Raises:
        ValueError: no such file, or not of this form.
    """
    try:
        return [_conversation(entry) for entry in read_list(path)]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not of LoCoMo's form: {error!r}") from error


def _conversation(entry: dict[str, Any]) -> Conversation:
    turns = tuple(_turns(entry["conversation"]))
    known = {turn.id for turn in turns}
    questions, unknown = [], []
    for asked in entry["qa"]:
        named = [id for text in asked.get("evidence") or [] for id in _ids(str(text))]
        there = frozenset(id for id in named if id in known)
        unknown += [id for id in named if id not in known]
        if there:
            questions.append(Question(str(asked["question"]), str(asked["category"]), there))
    return Conversation(str(entry["sample_id"]), turns, tuple(questions), tuple(unknown))


def _ids(evidence: str) -> list[str]:
    found = [f"D{int(session)}:{int(turn)}" for session, turn in _EVIDENCE.findall(evidence)]
    return found or [evidence]


def _turns(conversation: dict[str, Any]) -> Iterator[Turn]:
    numbers = sorted(int(match[1]) for name in conversation if (match := _SESSION.fullmatch(name)))
    for number in numbers:
        at = read_time(conversation.get(f"session_{number}_date_time"), "%I:%M %p on %d %B, %Y")
        for turn in conversation[f"session_{number}"] or []:
            text = "\n".join(part for part in (turn["text"], turn.get("blip_caption")) if part)
            yield Turn(turn["dia_id"], turn["speaker"], text, str(number), at)
