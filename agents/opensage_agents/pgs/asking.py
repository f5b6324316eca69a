"""Who answers for a role: a model, an agent, or the model of a running workflow. And what it has cost."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Protocol

from opensage.errors import LimitReached, OpenSageError
from opensage.messages import Request
from opensage.models.retry import IdleTimeout, Retrying
from opensage.protocols import Model
from opensage.side import whole_reply
from opensage.spec import AgentSpec
from opensage.workflow import Steps
from opensage_agents.pgs.task import PGSConfig
from opensage_agents.pgs.trace import Trace


class BudgetSpent(OpenSageError):
    """A bound of the repair is reached; the message says which."""


@dataclass(frozen=True, slots=True)
class Question:
    """One question to a role, "tester" or "generator"."""

    role: str
    system: str
    prompt: str
    max_tokens: int
    temperature: float


@dataclass(frozen=True, slots=True)
class Answer:
    """What came. `cost` is in US dollars, None when it is not known."""

    text: str
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = 0.0


class Asker(Protocol):
    """Answers questions."""

    async def ask(self, question: Question) -> Answer:
        """The answer.

        Raises:
            ModelError, LimitReached: there is none.
        """
        ...


class ModelAsker:
    """A model, with the kit's retries."""

    def __init__(self, model: Model) -> None:
        self._model = Retrying(IdleTimeout(model))

    async def ask(self, question: Question) -> Answer:
        """One call, with nothing before it."""
        messages = [{"role": "system", "content": question.system}, {"role": "user", "content": question.prompt}]
        request = Request(
            messages, tool_choice="none", max_tokens=question.max_tokens, temperature=question.temperature,
            agent=question.role,
        )  # fmt: skip
        reply = await whole_reply(self._model, request)
        return Answer(reply.text, reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.cost)


class AgentAsker:
    """An agent of the kit, which may use its tools: each question is a run of it. `options` are those of a run."""

    def __init__(self, agent: AgentSpec, **options: Any) -> None:
        self._agent, self._options = agent, options

    async def ask(self, question: Question) -> Answer:
        """Its answer; a run that does not end well is an answer without text."""
        import opensage

        task = f"{question.system}\n\n{question.prompt}"
        result = await opensage.arun(task, agent=self._agent, **self._options)
        usage = result.usage
        return Answer(
            result.text, int(usage.get("input_tokens", 0)), int(usage.get("output_tokens", 0)), usage.get("cost")
        )


class StepsAsker:
    """The model of a workflow: on its session's log and budget."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    async def ask(self, question: Question) -> Answer:
        """One question beside the conversation."""
        said = await self._steps.answer(
            question.prompt, system=question.system, purpose=question.role, max_tokens=question.max_tokens,
            temperature=question.temperature,
        )  # fmt: skip
        return Answer(said.text, said.input_tokens, said.output_tokens, said.cost)


@dataclass(slots=True)
class Desk:
    """Passes questions on within the bounds, and keeps each answer in the trace before it is used.

    A resumed repair gets the answers that are in the trace, as long as it asks the same questions.
    """

    askers: dict[str, Asker]
    config: PGSConfig
    trace: Trace
    tokens: int = 0
    cost: float = 0.0
    calls: dict[str, int] = field(default_factory=dict)
    _start: float = field(default_factory=time.monotonic)

    async def ask(self, role: str, system: str, prompt: str, max_tokens: int | None = None) -> str:
        """The text of the answer.

        Raises:
            BudgetSpent: a bound is reached, of the repair or of the run around it.
            ModelError: there is no answer.
        """
        self.calls[role] = self.calls.get(role, 0) + 1
        known = self.trace.answer(role, prompt)
        if known is None:
            self._check()
            limit = max_tokens or self.config.reply_tokens
            try:
                known = await self.askers[role].ask(Question(role, system, prompt, limit, self.config.temperature))
            except LimitReached as error:  # of the run that this is a part of
                raise BudgetSpent(error.reason) from error
            self.trace.add(
                "call", role=role, prompt=prompt, reply=known.text, input_tokens=known.input_tokens,
                output_tokens=known.output_tokens, cost=known.cost,
            )  # fmt: skip
        self.tokens += known.input_tokens + known.output_tokens
        self.cost += known.cost or 0.0
        return known.text

    def _check(self) -> None:
        config, spent = self.config, time.monotonic() - self._start
        if config.max_tokens is not None and self.tokens >= config.max_tokens:
            raise BudgetSpent(f"max_tokens: {self.tokens} of {config.max_tokens} are used")
        if config.max_cost is not None and self.cost >= config.max_cost:
            raise BudgetSpent(f"max_cost: {self.cost:.4f} of {config.max_cost:g} US dollars are used")
        if spent >= config.max_seconds:
            raise BudgetSpent(f"max_seconds: {spent:.0f} of {config.max_seconds:g} s are over")
