"""An agent of this kit under test: one run in the workspace, every model call asked of the run's budget first."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import opensage
from opensage.errors import ConfigError, LimitReached, OpenSageError
from opensage.log.conversation import Conversation
from opensage.log.events import Event, RunFinished, RunStarted, SideReply
from opensage.messages import Delta, Request, Usage
from opensage.models import default_model, open_model
from opensage.models.retry import Wrapper, closable
from opensage.protocols import Model
from opensage.sandbox.bubblewrap import working_bwrap
from opensage.spec import AgentSpec, Limits
from opensage.topology.library import find_agent
from opensage_benchmarks.swe.agent import Assignment, Attempt, Gate
from opensage_benchmarks.swe.errors import BudgetSpent


class KitAgent:
    """The default agent, or one that is saved in a library or shipped.

    Args:
        name: of the agent; "default" for the kit's own.
        api_base: address of an OpenAI-compatible server, for a litellm model.
        context_window: of the model, in tokens.
        library: the folder whose `.opensage/agents` are searched besides the user's; where the runner was started.
    """

    def __init__(self, name: str, *, api_base: str = "", context_window: str = "", library: str = ".") -> None:
        self.name = name
        self._spec = None if name == "default" else find_agent(name, Path(library).expanduser().resolve())
        self._base = api_base or None
        self._window = _number(context_window)

    async def solve(self, work: Assignment, gate: Gate) -> Attempt:
        """Run to the end. What sub-agents spend on models of their own is counted when the run ends."""
        name = work.model or self._own_model()
        opened = open_model(name, api_base=self._base, context_window=self._window)
        model = Gated(opened, gate)
        started: RunStarted | None = None
        told, last = Told(), RunFinished(status="failed", reason="the run ended without a result")
        async with aclosing(self._events(work, model)) as events:  # type: ignore[type-var]
            async for event in events:
                told.apply(event)
                started = event if isinstance(event, RunStarted) else started
                if isinstance(event, RunFinished):
                    last = event
        await model.settle(last.usage)
        seen = last.usage
        return Attempt(
            status="limit" if model.refused else last.status,
            reason=model.refused or last.reason,
            model_calls=seen.get("model_calls", 0),
            tool_calls=seen.get("tool_calls", 0),
            input_tokens=seen.get("input_tokens", 0),
            output_tokens=seen.get("output_tokens", 0),
            cost=seen.get("cost"),
            sandbox=started.sandbox if started else "",
            messages=told.messages(),
        )

    def _own_model(self) -> str:
        own = self._spec.model if self._spec else "inherit"
        return default_model(os.environ) if own == "inherit" else own

    def _events(self, work: Assignment, model: Model) -> AsyncIterator[Event]:
        return opensage.stream(
            work.problem,
            agent=self._spec or AgentSpec(),
            model=model,
            sandbox=work.sandbox,
            workdir=work.workdir,
            limits=_within(work.limits),
            approve="allow",
            memory=False,
        )


def _within(limits: Limits) -> Limits:
    """The limits of the task alone: the kit's own defaults would be one more thing to know of."""
    return Limits.none().model_copy(
        update={
            "max_turns": limits.max_turns,
            "max_tokens": limits.max_tokens,
            "max_seconds": limits.max_seconds,
            "max_agents": 32,
            "max_live_agents": 8,
            "max_depth": 3,
        }
    )


class Told:
    """What was said in a run, in OpenAI form: the conversation, and a workflow's questions where they were asked."""

    def __init__(self) -> None:
        self._conversation = Conversation()
        self._beside: list[tuple[int, SideReply]] = []

    def apply(self, event: Event) -> None:
        """Take one event into account."""
        self._conversation.apply(event)
        if isinstance(event, SideReply) and event.prompt:
            self._beside.append((len(self._conversation.view()), event))

    def messages(self) -> list[dict[str, Any]]:
        """All of it, in order."""
        found = [dict(message) for message in self._conversation.view()]
        for place, event in reversed(self._beside):
            asked = {"role": "user", "name": event.purpose, "content": event.prompt}
            found[place:place] = [asked, {"role": "assistant", "name": event.purpose, "content": event.text}]
        return found


def warm() -> None:
    """Look once for a bubblewrap that works, and not in each task."""
    with contextlib.suppress(OpenSageError):
        working_bwrap()


class Gated(Wrapper):
    """A model that asks the gate before each attempt, retries included, and tells it what was used."""

    def __init__(self, model: Model, gate: Gate) -> None:
        super().__init__(model)
        self._gate = gate
        self.refused = ""
        self._told = Usage()
        self._calls = 0

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        """Stream one reply.

        Raises:
            LimitReached: the gate said no.
        """
        try:
            await self._gate.ask()
        except BudgetSpent as error:
            self.refused = str(error)
            raise LimitReached(str(error)) from error
        self._calls += 1
        usage: Usage | None = None
        try:
            async with aclosing(closable(self._model, request)) as deltas:
                async for delta in deltas:
                    usage = delta.usage or usage
                    yield delta
        finally:
            await self._tell(usage or Usage())

    async def _tell(self, usage: Usage) -> None:
        self._told += usage
        await self._gate.tell(cost=usage.cost, input_tokens=usage.input_tokens, output_tokens=usage.output_tokens)

    async def settle(self, whole: dict[str, Any]) -> None:
        """Tell what the whole run used beyond this model's calls."""
        tokens = [whole.get("input_tokens", 0) - self._told.input_tokens]
        tokens.append(whole.get("output_tokens", 0) - self._told.output_tokens)
        if max(tokens) > 0:
            cost, told = whole.get("cost"), self._told.cost
            rest = None if cost is None or told is None else max(0.0, cost - told)
            await self._gate.tell(cost=rest, input_tokens=max(0, tokens[0]), output_tokens=max(0, tokens[1]))


def _number(text: str) -> int | None:
    if not text:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"context_window must be a number of tokens, not {text!r}")
    return int(text)
