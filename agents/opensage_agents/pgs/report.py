"""What a check found."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Status = Literal[
    "ok", "violated", "crashed", "recursion", "timeout", "hung", "invalid_code", "invalid_property", "inconclusive"
]
Select = Literal["sure", "shrink", "min_tokens", "first"]
FAILED = ("violated", "crashed", "recursion", "timeout", "hung")
"""Statuses that come with a counterexample."""


@dataclass(frozen=True, slots=True)
class Counterexample:
    """One input that shows a fault.

    Attributes:
        args: the arguments; objects that cannot be carried between processes come as their repr. Of a machine, its
            name and its steps, `("Machine", (("push", {"value": 0}), ...))`; `args_repr` is the calls as Python text,
            and `result_repr` what the last returned.
        outcome: "violated", "wrong_answer" (of a public example), "crashed", "recursion", "timeout" or "hung".
        property: the violated property, or "".
        message: what the property said, or the error.
        tokens: an estimate of the input's length in tokens.
        shrunk_from: repr of the first input that failed in the same way.
        shrunk: whether Hypothesis could shrink it.
        wanted_repr: of a public example, the right result; "" for other inputs.
    """

    args: tuple[Any, ...]
    args_repr: str
    result_repr: str
    property: str
    message: str
    tokens: int
    outcome: str
    shrunk_from: str
    shrunk: bool
    seed: int
    stateful: bool = False
    wanted_repr: str = ""

    def written(self, entry: str) -> str:
        """The call of this function, or the calls of a machine, as Python text."""
        return self.args_repr if self.stateful else f"{entry}({self.args_repr})"


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts.

    `calls` are all calls of the candidate, `shrink_calls` those of them that shrank, `seconds` is wall clock.
    """

    examples: int = 0
    invalid: int = 0
    calls: int = 0
    shrink_calls: int = 0
    seconds: float = 0.0
    evaluations: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of `check`.

    Attributes:
        invalid: properties that cannot be used, with the reason; they are the Tester's fault, never the candidate's.
        unused: properties that no input reached.
        notes: what else was seen, as that the candidate changes its arguments.
        broken: names of all properties that some input broke.
        wrong: how many of the public examples it fails.
    """

    status: Status
    counterexample: Counterexample | None = None
    message: str = ""
    line: int | None = None
    invalid: dict[str, str] = field(default_factory=dict)
    unused: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    stats: Stats = field(default_factory=Stats)
    broken: tuple[str, ...] = ()
    wrong: int = 0

    def to_dict(self, *, times: bool = True) -> dict[str, Any]:
        """Plain data, arguments by their repr; without times, the same in each run with the same seed."""
        data = asdict(self)
        if data["counterexample"]:
            del data["counterexample"]["args"]
        if not times:
            del data["stats"]["seconds"]
        return data


@dataclass(frozen=True, slots=True)
class FilterReport:
    """Which properties accept the public tests. `dropped` says why; `undecided` never applied to one."""

    kept: tuple[str, ...] = ()
    dropped: dict[str, str] = field(default_factory=dict)
    undecided: tuple[str, ...] = ()
