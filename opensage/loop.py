"""The loop: ask the model, answer its calls, until it answers in text or a limit is reached.

Each generator inside another is closed with it: left to the garbage collector, its tools would go on running after
whoever read the events has turned away.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

from opensage.ask import ask, make_room
from opensage.dispatch import Dispatcher
from opensage.errors import SandboxLost
from opensage.log.events import Event, Note, ToolResult
from opensage.messages import Reply, ToolCall

if TYPE_CHECKING:
    from opensage.runtime import Run

MAX_EMPTY = 2
LAST_TURN = "[This is your last turn: tools are off. Answer now with what you have, and say what is not done.]"
EMPTY = "[Your reply was empty. Go on with the task, or give the final answer as text.]"
REPEATED = (
    "[You made the same call with the same result several times. It will not change: try something else, or give the "
    "final answer.]"
)


async def loop(run: Run) -> AsyncGenerator[Event, None]:
    """Run until a `RunFinished` event, which is always the last one."""
    empty = 0
    waiting = list(run.session.conversation.open.values())
    if waiting:  # a resume: calls that never began
        async with aclosing(Dispatcher(run, waiting).events()) as answers:
            async for event in answers:
                yield event
    while True:
        if (reason := run.budget.exhausted()) and not await run.relieved():
            yield await run.end("limit", reason)
            return
        if run.compactor.due():
            async with aclosing(make_room(run)) as made:
                async for event in made:
                    yield event
            if run.finished is not None:
                return
        last = run.budget.is_last_turn()
        if last:
            yield run.session.record(Note(text=LAST_TURN, reason="last turn"))
        async with aclosing(ask(run, tools=not last)) as asked:
            async for event in asked:
                yield event
        if run.finished is not None:
            return
        if run.reply is None:
            continue  # the window overflowed and room was made
        empty = 0 if run.reply.calls or run.reply.text.strip() else empty + 1
        async with aclosing(_take(run, run.reply, empty, tools=not last)) as taken:
            async for event in taken:
                yield event
        if run.finished is not None:
            return


async def _take(run: Run, reply: Reply, empty: int, *, tools: bool) -> AsyncGenerator[Event, None]:
    """What a reply leads to: calls are answered, text ends the run, nothing at all is asked again."""
    if reply.calls:
        async with aclosing(_answer(run, reply, tools=tools)) as answered:
            async for event in answered:
                yield event
    elif empty > MAX_EMPTY:
        yield await run.end("empty", f"the model gave an empty reply {empty} times in a row")
    elif empty:
        yield run.session.record(Note(text=EMPTY, reason="empty reply"))
    elif reply.finish_reason == "length":
        yield await run.end("limit", "length: the reply was cut at the model's output limit")
    elif tools and (advice := await run.advice()):
        yield run.session.record(Note(text=advice, reason="not yet"))
    else:
        yield await run.end()


async def _answer(run: Run, reply: Reply, *, tools: bool) -> AsyncGenerator[Event, None]:
    dispatcher = Dispatcher(run, reply.calls, cut=reply.finish_reason == "length")
    events = dispatcher.events() if tools else dispatcher.refuse("[not run: this was the last turn]")
    results: dict[str, ToolResult] = {}
    async with aclosing(events):
        async for event in events:
            if isinstance(event, ToolResult):
                results[event.id] = event
            yield event
    if run.coach is not None:
        for call in reply.calls:
            if call.id in results:
                run.coach.see(call, results[call.id])
    if run.member is not None and (news := run.member.news()) is not None:
        yield run.session.record(news)
    if run.coach is not None and run.coach.worried and (advice := await run.coach.advice(run)):
        yield run.session.record(Note(text=advice, reason="coach"))
    if run.lost is not None:
        raise SandboxLost(str(run.lost)) from run.lost
    finished = [c for c in reply.calls if c.name == "finish" and c.id in results and results[c.id].ok]
    if finished and run.member is not None and (advice := run.member.advice()):
        yield run.session.record(Note(text=advice, reason="not yet"))
        return
    if finished:
        yield await run.end("done", "", results[finished[0].id].text)
        return
    alarm = run.guard.see([(c.name, c.arguments) for c in reply.calls], _texts(reply.calls, results))
    if alarm == "stop":
        yield await run.end("stuck", f"stuck: the same calls were repeated ({reply.calls[0].name})")
    elif alarm == "nudge":
        yield run.session.record(Note(text=REPEATED, reason="repeated calls"))


def _texts(calls: tuple[ToolCall, ...], results: dict[str, ToolResult]) -> list[str]:
    return [results[c.id].text if c.id in results else "" for c in calls]
