"""One model call of the loop: room is made before it, its deltas are shown, its reply is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING

from opensage.errors import ContextOverflow, LimitReached, ModelError
from opensage.log.events import Event, ModelFailed, ModelReply, Progress, TextDelta
from opensage.messages import Delta, Reply, Request
from opensage.models.assembler import Assembler

if TYPE_CHECKING:
    from opensage.runtime import Run


async def make_room(run: Run) -> AsyncGenerator[Event, None]:
    """Compact the history; ends the run when even that does not make it fit."""
    event = await run.compactor.compact()
    if event is not None:
        yield run.session.record(event)
    if run.compactor.due():  # what must stay is too large for this window
        event = await run.compactor.compact(force=True)
        if event is not None:
            yield run.session.record(event)
        elif run.compactor.room is not None and run.session.conversation.size > run.compactor.room:
            window = run.model.context_window
            yield await run.end(
                "limit", f"context: the task does not fit the model's window of {window} tokens; use a larger model"
            )


async def ask(run: Run, *, tools: bool) -> AsyncGenerator[Event, None]:
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
        yield await run.end("limit", run.budget.exhausted() or "max_seconds: the time is used up")
        return
    except LimitReached as error:
        yield await run.end("limit", error.reason)
        return
    except ContextOverflow as error:
        async with aclosing(_overflow(run, error)) as events:
            async for event in events:
                yield event
        return
    except ModelError as error:
        run.session.record(ModelFailed(error=str(error), text="".join(shown)))
        raise
    run.reply = reply = run.normalise(assembler.reply())
    yield run.session.record(_event(run, reply))
    run.compactor.calibrate(reply.usage.input_tokens)


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


async def _overflow(run: Run, error: ContextOverflow) -> AsyncGenerator[Event, None]:
    event = await run.compactor.compact(force=True)
    if event is None:
        yield run.session.record(ModelFailed(error=str(error)))
        yield await run.end(
            "limit", f"context: nothing more can be left out ({error}); use a model with a larger window"
        )
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
