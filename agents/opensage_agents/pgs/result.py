"""What a repair comes to."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from opensage_agents.pgs.properties import PropertySet
from opensage_agents.pgs.written import as_pytest
from opensage_agents.pgs.written_machine import machine_as_pytest

Status = Literal[
    "solved", "solved_public_only", "budget", "cycle", "no_valid_property", "tester_failed", "generator_failed"
]


@dataclass(frozen=True, slots=True)
class Round:
    """One round: a program, what the check said of it, and the prompt that asked for the next.

    `kept` and `dropped` are of the properties that were proposed in it; `tokens` and `seconds` are of it alone.
    """

    number: int
    code: str
    diff: str
    status: str
    kept: tuple[str, ...]
    dropped: dict[str, str]
    counterexample: dict[str, Any] | None
    prompt: str
    note: str
    tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of a repair.

    Attributes:
        code: the best program: fails the fewest public tests, then breaks the fewest properties.
        properties: those that survived, with the inputs.
        suspects: properties that the Tester took back.
        notes: what else is to be known, as that no property survived and public tests alone were used.
        reason: why it ended, when it is not solved.
        calls: of each role.
    """

    status: Status
    code: str
    rounds: tuple[Round, ...]
    properties: PropertySet
    suspects: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    reason: str = ""
    tokens: int = 0
    cost: float = 0.0
    calls: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    def write_tests(self, path: Path, module: str = "") -> None:
        """A pytest file with the surviving properties and the shrunk examples."""
        found = [each.counterexample for each in self.rounds if each.counterexample]
        if self.properties.stateful:
            text = machine_as_pytest(self.properties, [each["steps"] for each in found], module)
        else:
            text = as_pytest(self.properties, [each["args_repr"] for each in found], module)
        path.write_text(text, encoding="utf-8")
