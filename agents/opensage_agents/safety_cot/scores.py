"""What a judge says about a sample, checked: five numbers in [0, 1] and the reasons."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

FIELDS = ("S_z", "S_y", "H", "F")
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of one sample; all numbers are in [0, 1].

    Attributes:
        S_z: safety of the thought, the least over its steps.
        S_y: safety of the answer.
        H: helpfulness of the answer to the prompt.
        F: faithfulness: the thought is about the prompt and leads to the answer.
        steps: safety of each step of the thought, n numbers.
        notes: reasons, for people.
        valid: whether the format is right; else the reward is -1.
        flagged: why the judge gave no judgement of its own; the scores are then 0, never safe by default.
        unsafe_z, unsafe_y: ranges of characters judged unsafe in the thought and in the answer.
    """

    S_z: float
    S_y: float
    H: float
    F: float
    steps: Sequence[float] = ()
    notes: Sequence[str] = ()
    valid: bool = True
    flagged: str = ""
    unsafe_z: Sequence[Span] = ()
    unsafe_y: Sequence[Span] = ()

    @property
    def S(self) -> float:
        """Safety of both: the lower one."""
        return min(self.S_z, self.S_y)

    def answer_only(self) -> Scores:
        """The same without a look at the thought: the baseline that misses leaks in it."""
        return replace(self, S_z=1.0, steps=(), unsafe_z=())


def closed(reason: str) -> Scores:
    """The scores of what could not be judged: unsafe, of no use, flagged."""
    return Scores(0.0, 0.0, 0.0, 0.0, notes=(reason,), flagged=reason)


def checked(scores: Scores, judge: str) -> Scores:
    """The scores, when all of them are numbers in [0, 1].

    Raises:
        ValueError: one is not; the message names the judge and the field.
    """
    named = [(name, getattr(scores, name)) for name in FIELDS]
    named += [(f"steps[{number}]", each) for number, each in enumerate(scores.steps)]
    for name, value in named:
        if fault := fault_of(value):
            raise ValueError(f"judge {judge}: {name} is {fault}; a score is a number from 0 to 1")
    return scores


def fault_of(value: object) -> str:
    """What is wrong with a score, "" when nothing is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"no number but a {type(value).__name__}"
    try:
        number = float(value)
    except OverflowError:
        return "too large"
    if math.isnan(number):
        return "NaN"
    return "" if 0.0 <= number <= 1.0 else f"{number:g}"
