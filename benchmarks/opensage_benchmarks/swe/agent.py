"""What an agent under test is given and gives back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from opensage.spec import Limits


@dataclass(frozen=True, slots=True)
class Assignment:
    """One task for one agent.

    Attributes:
        task_id: for names and logs; the agent is not told it.
        problem: what the agent is told.
        workdir: the workspace, a git repository at the base commit.
        log: an existing folder outside the workspace for whatever the agent wants kept.
        model: a model string, or nothing for an agent that has none.
        sandbox: a kind of the kit's sandboxes.
        limits: of this task.
        command_timeout: seconds for a command of the agent, None for its default.
        seed: of this run.
        options: what the user passed to this agent alone.
    """

    task_id: str
    problem: str
    workdir: Path
    log: Path
    model: str = ""
    sandbox: str = "auto"
    limits: Limits = field(default_factory=Limits)
    command_timeout: float | None = None
    seed: int = 0
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Attempt:
    """What came of it. The patch is taken from the workspace by the runner, never from the agent's words.

    Attributes:
        status: a status of a kit run ("done", "limit", "stuck", "failed", "cancelled", "empty"), or "model_error".
        reason: why it stopped, when it is not done.
        cost: US dollars, None when the price is unknown.
        sandbox: the kind that was really used, or nothing when that is not known.
        messages: the conversation in OpenAI form, for the trajectory.
    """

    status: str
    reason: str = ""
    model_calls: int = 0
    tool_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    sandbox: str = ""
    messages: Sequence[Mapping[str, Any]] = field(default=(), repr=False)


class Gate(Protocol):
    """The budget that all tasks of a run share. Asked before each model call, told after it."""

    async def ask(self) -> None:
        """Wait for leave to make one model call.

        Raises:
            BudgetSpent: a cap of the task or of the run is reached; the agent ends with status "limit".
        """
        ...

    async def tell(self, *, cost: float | None, input_tokens: int, output_tokens: int) -> None:
        """Account for one call."""
        ...


@runtime_checkable
class BenchAgent(Protocol):
    """An agent under test."""

    @property
    def name(self) -> str:
        """What reports call it."""
        ...

    async def solve(self, work: Assignment, gate: Gate) -> Attempt:
        """Work in `work.workdir` until done or out of budget."""
        ...
