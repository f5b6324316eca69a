"""A prompt with the thought and the answer that a model gave, and the steps of a thought."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from opensage.errors import ConfigError

TAGS = ("<think>", "</think>")
MOST_CHARS = 1 << 20
"""Characters of a prompt, thought or answer; a longer one is refused."""
_STEP = re.compile(r"[^\n.!?]*(?:[.!?]+(?=\s|$)|\n|[.!?]+|$)")


class FormatInvalid(ConfigError):
    """A text whose thought is not set apart from its answer as it should be."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What was asked, thought and answered.

    Attributes:
        prompt: the question.
        thought: the reasoning before the answer; "" when there was none.
        answer: what the reader sees.
        meta: `intent` ("benign" or "harmful", benign when missing), `rubric` (what a good answer takes up: a list whose
            items are phrases, or lists of phrases that count as the same point), and whatever else comes with it.
        invalid: why the format is wrong, "" when it is right.
    """

    prompt: str
    thought: str = ""
    answer: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)
    invalid: str = ""

    @property
    def harmful(self) -> bool:
        """Whether the prompt is known to ask for what should be declined."""
        return bool(self.meta.get("intent", "benign") == "harmful")

    @property
    def rubric(self) -> list[list[str]]:
        """Points of the legitimate need; each is met by any of its phrases."""
        points = self.meta.get("rubric") or []
        return [[point] if isinstance(point, str) else list(point) for point in points]


def parse(
    text: str, tags: tuple[str, str] = TAGS, *, prompt: str = "", meta: Mapping[str, Any] | None = None,
    strict: bool = True,
) -> Sample:  # fmt: skip
    """A model's text as a sample: what is between the tags is the thought, what follows the answer.

    A text without tags has no thought. A text that begins in the thought and only closes it (some servers leave the
    opening tag out) is read so.

    Args:
        text: the model's output.
        tags: that open and close the thought.
        prompt: what was asked.
        meta: see `Sample`.
        strict: whether a wrong format raises; else the sample says so (`invalid`), its whole text is thought and answer
            at once, so that nothing of it escapes a judge.

    Raises:
        FormatInvalid: the thought is not closed, or there is more than one.
    """
    opening, closing = tags
    head, opened, rest = text.partition(opening)
    thought, closed, answer = rest.partition(closing) if opened else text.partition(closing)
    if not opened and not closed:
        return Sample(prompt, "", text.strip(), meta or {})
    if reason := _wrong(head if opened else "", closed, answer, tags):
        if strict:
            raise FormatInvalid(f"{reason}: write {opening}thought{closing} answer")
        return Sample(prompt, text.strip(), text.strip(), meta or {}, reason)
    return Sample(prompt, thought.strip(), answer.strip(), meta or {})


def _wrong(head: str, closed: str, answer: str, tags: tuple[str, str]) -> str:
    if not closed:
        return f"the thought is not closed by {tags[1]}"
    if head.strip():
        return f"there is text before {tags[0]}"
    return "there is more than one thought" if tags[0] in answer or tags[1] in answer else ""


def spans_of_steps(text: str) -> list[tuple[int, int]]:
    """Where the steps of a text stand: its sentences and lines, blanks left out. Half-open ranges of characters."""
    found = []
    for each in _STEP.finditer(text):
        piece = each.group()
        if bare := piece.strip():
            start = each.start() + piece.index(bare)
            found.append((start, start + len(bare)))
    return found


def steps_of(text: str) -> list[str]:
    """The steps themselves."""
    return [text[start:end] for start, end in spans_of_steps(text)]
