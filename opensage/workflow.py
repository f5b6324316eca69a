"""Workflows: agents whose steps are driven by code instead of by the model, on the same log, budget, tools and sandbox.

A workflow is an async function that gets the run's `Steps` and returns the answer (or an `Outcome`). It is found by
name through the entry point group `opensage.workflows`, and named in an agent's front matter: `workflow: NAME`.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from opensage.dispatch import Dispatcher
from opensage.errors import ConfigError, LimitReached, OpenSageError, SandboxLost
from opensage.log.events import Event, ModelReply, Progress, SideReply, ToolResult
from opensage.loop import loop
from opensage.messages import Message, Request, ToolCall
from opensage.side import answer_beside

if TYPE_CHECKING:
    from opensage.runtime import Run

GROUP = "opensage.workflows"
_TIME = "max_seconds: the time is used up"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a workflow ended: a status of a run, the reason when it is not "done", and the answer."""

    status: str = "done"
    reason: str = ""
    text: str = ""


Workflow = Callable[["Steps"], Awaitable[str | Outcome]]


class Steps:
    """What a workflow can do in its run.

    Attributes:
        run: the run, for what is not offered here.
        task: what was asked for.
        resumed: whether an earlier start of this workflow was interrupted; the workspace is as it was then.
    """

    def __init__(self, run: Run, *, resumed: bool = False) -> None:
        self.run, self.resumed = run, resumed
        self.task = _last_task(run)
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()

    @property
    def small(self) -> bool:
        """Whether the model is one that should be led by the hand."""
        return self.run.coach is not None

    async def ask(
        self,
        prompt: str,
        *,
        system: str = "You are a careful programmer.",
        purpose: str = "workflow",
        max_tokens: int | None = None,
        temperature: float | None = None,
    ) -> str:
        """Ask the model beside the conversation, with nothing before the question; returns its text.

        Raises:
            LimitReached: the budget or the time of the run is used up.
            ModelError: the model cannot answer.
        """
        said = await self.answer(prompt, system=system, purpose=purpose, max_tokens=max_tokens, temperature=temperature)
        return said.text.strip()

    async def answer(
        self, prompt: str, *, system: str, purpose: str, max_tokens: int | None, temperature: float | None
    ) -> SideReply:
        """The same, with the tokens and the cost."""
        messages: list[Message] = [{"role": "system", "content": system}, {"role": "user", "content": prompt}]
        request = Request(messages, tool_choice="none", max_tokens=max_tokens, temperature=temperature, agent=purpose)
        try:
            async with asyncio.timeout(self.run.budget.remaining_seconds()):
                answer = await answer_beside(self.run.session, self.run.model, request, prompt=prompt)
        except TimeoutError:
            raise LimitReached(self.run.budget.exhausted() or _TIME) from None
        self._show(answer)
        return answer

    async def call(self, name: str, arguments: Mapping[str, Any], *, say: str = "") -> ToolResult:
        """Call a tool of this agent, as the model would: approved, logged and answered in the same way.

        Args:
            name: of the tool.
            arguments: JSON values.
            say: words to put before the call.

        Raises:
            SandboxLost: for the second time in this run.
        """
        call = ToolCall(self.run.session.conversation.unique_id("", 0), name, json.dumps(dict(arguments)))
        step = {"id": call.id, "name": call.name, "arguments": call.arguments}
        self._show(
            self.run.session.record(ModelReply(text=say, calls=[step], finish_reason="tool_calls", by="workflow"))
        )
        result = await self._answer(call)
        if self.run.lost is not None:
            raise SandboxLost(str(self.run.lost)) from self.run.lost
        return result

    async def leave(self, path: str, text: str, *, say: str = "") -> None:
        """Write a file that is to stay, by the tool; past it when the budget for calls is used up."""
        try:
            await self.call("write", {"path": path, "content": text}, say=say)
        except LimitReached:
            await self.run.sandbox.write_bytes(path, text.encode())

    async def close_open(self) -> None:
        """Answer calls that an interrupted run left open and that may still be made."""
        for call in list(self.run.session.conversation.open.values()):
            await self._answer(call)

    async def _answer(self, call: ToolCall) -> ToolResult:
        found: ToolResult | None = None
        async with aclosing(Dispatcher(self.run, [call]).events()) as events:
            async for event in events:
                found = event if isinstance(event, ToolResult) else found
                self._show(event)
        if found is None:  # the time was used up before it began
            raise LimitReached(self.run.budget.exhausted() or _TIME)
        return found

    async def loop(self) -> Outcome:
        """Let the model drive from here on, to the end of the run."""
        async with aclosing(loop(self.run)) as events:
            async for event in events:
                if event is not self.run.finished:
                    self._show(event)
        ended = self.run.finished
        return Outcome() if ended is None else Outcome(ended.status, ended.reason, ended.text)

    def say(self, text: str) -> None:
        """Tell whoever reads along; the model does not see it."""
        self._show(Progress(text=text))

    def _show(self, event: Event) -> None:
        self._events.put_nowait(event)

    async def events(self, work: Awaitable[object]) -> AsyncGenerator[Event, None]:
        """What happens while `work` is done. Closing this ends it."""
        task = asyncio.ensure_future(work)
        task.add_done_callback(lambda _done: self._events.put_nowait(None))
        try:
            while (event := await self._events.get()) is not None:
                yield event
        finally:
            task.cancel()
            await asyncio.wait([task])


async def drive(run: Run, name: str, *, resumed: bool = False) -> AsyncGenerator[Event, None]:
    """Run the workflow of that name, or the loop when there is no name, until a `RunFinished` event, the last one."""
    if not name:
        async with aclosing(loop(run)) as events:
            async for event in events:
                yield event
        return
    steps = Steps(run, resumed=resumed)
    ending = asyncio.ensure_future(_work(steps, find(name)))
    async with aclosing(steps.events(ending)) as events:
        async for event in events:
            yield event
    try:
        outcome = ending.result()
    except OpenSageError:
        raise
    except Exception as error:
        said = f"workflow {name} broke off ({type(error).__name__}: {error}); this is a defect of it, please report it"
        raise OpenSageError(said) from error
    yield run.finished or await run.end(outcome.status, outcome.reason, outcome.text)


async def _work(steps: Steps, workflow: Workflow) -> Outcome:
    await steps.close_open()
    try:
        answer = await workflow(steps)
    except LimitReached as error:
        return Outcome("limit", error.reason, steps.run.session.conversation.last_text)
    return Outcome(text=answer) if isinstance(answer, str) else answer


def find(name: str) -> Workflow:
    """The workflow that an installed package offers under this name.

    Raises:
        ConfigError: there is none, or its module cannot be imported.
    """
    points = {point.name: point for point in importlib.metadata.entry_points(group=GROUP)}
    if name not in points:
        known = ", ".join(sorted(points)) or "none are installed"
        raise ConfigError(f"no workflow {name!r}; there are: {known}")
    try:
        found: Workflow = points[name].load()
    except ImportError as error:
        raise ConfigError(f"workflow {name!r} cannot be imported ({error}); install what it needs") from error
    return found


def _last_task(run: Run) -> str:
    """What the person said last; what the kit put beside it is left out."""
    return run.session.summary.asked or run.session.conversation.task
