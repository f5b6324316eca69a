"""The loop: ask the model, answer its calls, until it answers in text or a limit is reached."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING

from opensage.dispatch import Dispatcher
from opensage.errors import ContextOverflow, LimitReached, ModelError, SandboxLost
from opensage.log.events import Event, ModelFailed, ModelReply, Note, Progress, RunFinished, TextDelta, ToolResult
from opensage.messages import Delta, Reply, Request, ToolCall
from opensage.models.assembler import Assembler

if TYPE_CHECKING:
    from opensage.runtime import Run

MAX_EMPTY = 2
LAST_TURN = "[This is your last turn: tools are off. Answer now with what you have, and say what is not done.]"
EMPTY = "[Your reply was empty. Go on with the task, or give the final answer as text.]"
REPEATED = (
    "[You made the same call with the same result several times. It will not change: try something else, or give the "
    "final answer.]"
)


async def loop(run: Run) -> AsyncIterator[Event]:
    """Run until a `RunFinished` event, which is always the last one."""
    empty = 0
    waiting = list(run.session.conversation.open.values())
    if waiting:  # a resume: calls that never began
        async for event in Dispatcher(run, waiting).events():
            yield event
    while True:
        if reason := run.budget.exhausted():
            yield run.finish("limit", reason)
            return
        if run.compactor.due():
            async for event in _make_room(run):
                yield event
                if isinstance(event, RunFinished):
                    return
        last = run.budget.is_last_turn()
        if last:
            yield run.session.record(Note(text=LAST_TURN, reason="last turn"))
        tools = not (last or (run.coach is not None and run.coach.thinking))
        async for event in _ask(run, tools=tools):
            yield event
            if isinstance(event, RunFinished):
                return
        if run.reply is None:
            continue  # the window overflowed and room was made
        empty = 0 if run.reply.calls or run.reply.text.strip() else empty + 1
        async for event in _take(run, run.reply, empty, tools=tools):
            yield event
            if isinstance(event, RunFinished):
                return


async def _make_room(run: Run) -> AsyncIterator[Event]:
    event = await run.compactor.compact()
    if event is not None:
        yield run.session.record(event)
    if run.compactor.due():  # what must stay is too large for this window
        event = await run.compactor.compact(force=True)
        if event is not None:
            yield run.session.record(event)
        elif run.compactor.room is not None and run.session.conversation.size > run.compactor.room:
            window = run.model.context_window
            yield run.finish(
                "limit", f"context: the task does not fit the model's window of {window} tokens; use a larger model"
            )


async def _ask(run: Run, *, tools: bool) -> AsyncIterator[Event]:
    """One model call. Sets `run.reply`, or leaves it None when room was made and the call must be repeated."""
    run.reply, run.tools_on, assembler = None, tools, Assembler()
    shown: list[str] = []
    request = Request(
        messages=run.session.conversation.view(),
        tools=run.toolbox.schemas(),  # even when off: a history with calls needs them, and the prompt stays the same
        tool_choice="auto" if tools else "none",
        max_tokens=run.max_tokens,
        agent=run.spec.name,
    )
    try:
        async with aclosing(_in_time(run, request)) as deltas:  # type: ignore[type-var]
            async for delta in deltas:
                assembler.feed(delta)
                if delta.reset or delta.text:
                    shown = [delta.text] if delta.reset else [*shown[-50:], delta.text]
                    yield TextDelta(text=delta.text, reset=delta.reset)
                if delta.note:
                    yield Progress(text=delta.note)
    except TimeoutError:
        yield run.session.record(ModelFailed(error="time limit", text="".join(shown)))
        yield run.finish("limit", run.budget.exhausted() or "max_seconds: the time is used up")
        return
    except LimitReached as error:
        yield run.finish("limit", error.reason)
        return
    except ContextOverflow as error:
        async for event in _overflow(run, error):
            yield event
        return
    except ModelError as error:
        run.session.record(ModelFailed(error=str(error), text="".join(shown)))
        raise
    run.reply = reply = run.normalise(assembler.reply())
    yield run.session.record(_event(run, reply))
    run.compactor.calibrate(reply.usage.input_tokens)


async def _take(run: Run, reply: Reply, empty: int, *, tools: bool) -> AsyncIterator[Event]:
    """What a reply leads to: calls are answered, text ends the run, nothing at all is asked again."""
    if reply.calls:
        async for event in _answer(run, reply, tools=tools):
            yield event
    elif empty > MAX_EMPTY:
        yield run.finish("empty", f"the model gave an empty reply {empty} times in a row")
    elif empty:
        yield run.session.record(Note(text=EMPTY, reason="empty reply"))
    elif reply.finish_reason == "length":
        yield run.finish("limit", "length: the reply was cut at the model's output limit")
    elif run.coach is not None and not run.budget.exhausted() and (advice := run.coach.advice()):
        yield run.session.record(Note(text=advice, reason="coach"))
    else:
        yield run.finish()


def _in_time(run: Run, request: Request) -> AsyncIterator[Delta]:
    """The deltas of one call; `TimeoutError` when the run's time is used up."""
    return run.model.stream(request) if run.budget.deadline is None else _until_deadline(run, request)


async def _until_deadline(run: Run, request: Request) -> AsyncIterator[Delta]:
    """Counts the time in which the model is waited for, never that in which the caller holds a delta."""
    async with aclosing(run.model.stream(request)) as deltas:  # type: ignore[type-var]
        while True:
            try:
                async with asyncio.timeout(run.budget.remaining_seconds()):
                    delta = await anext(deltas)
            except StopAsyncIteration:
                return
            yield delta


async def _overflow(run: Run, error: ContextOverflow) -> AsyncIterator[Event]:
    event = await run.compactor.compact(force=True)
    if event is None:
        yield run.session.record(ModelFailed(error=str(error)))
        yield run.finish("limit", f"context: nothing more can be left out ({error}); use a model with a larger window")
        return
    yield run.session.record(event)


def _event(run: Run, reply: Reply) -> ModelReply:
    calls = [
        {"id": c.id, "name": c.name, "arguments": c.arguments, **({"extra": dict(c.extra)} if c.extra else {})}
        for c in reply.calls
    ]
    usage = reply.usage
    return ModelReply(
        model=run.model.name,
        text=reply.text,
        calls=calls,
        finish_reason=reply.finish_reason,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.cached_tokens,
        cost=usage.cost,
        extra=dict(reply.extra) if reply.extra else None,
    )


async def _answer(run: Run, reply: Reply, *, tools: bool) -> AsyncIterator[Event]:
    dispatcher = Dispatcher(run, reply.calls, cut=reply.finish_reason == "length")
    events = dispatcher.events() if tools else dispatcher.refuse("[not run: this was the last turn]")
    results: dict[str, ToolResult] = {}
    async with aclosing(events):  # type: ignore[type-var]
        async for event in events:
            if isinstance(event, ToolResult):
                results[event.id] = event
            yield event
    if run.coach is not None:
        for call in reply.calls:
            if call.id in results:
                run.coach.see(call, results[call.id])
    if run.lost is not None:
        raise SandboxLost(str(run.lost)) from run.lost
    finished = [c for c in reply.calls if c.name == "finish" and c.id in results and results[c.id].ok]
    if finished:
        yield run.finish("done", "", results[finished[0].id].text)
        return
    alarm = run.guard.see([(c.name, c.arguments) for c in reply.calls], _texts(reply.calls, results))
    if alarm == "stop":
        yield run.finish("stuck", f"stuck: the same calls were repeated ({reply.calls[0].name})")
    elif alarm == "nudge":
        yield run.session.record(Note(text=REPEATED, reason="repeated calls"))


def _texts(calls: tuple[ToolCall, ...], results: dict[str, ToolResult]) -> list[str]:
    return [results[c.id].text if c.id in results else "" for c in calls]
