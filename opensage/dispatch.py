"""Answers the calls of one reply: each exactly once, in call order, whatever happens."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from typing import TYPE_CHECKING, Any

from opensage.arguments import is_complete, parse_arguments
from opensage.errors import OpenSageError, SandboxLost, SessionError, ToolError
from opensage.log.events import Event, Progress, ToolResult, ToolStarted
from opensage.messages import ToolCall
from opensage.permit import permit
from opensage.shape import Allowance, shape
from opensage.tools.base import Tool, ToolOutput
from opensage.tools.result import result_text

if TYPE_CHECKING:
    from opensage.runtime import Run

CANCEL_GRACE = 10.0
"""Seconds a cancelled tool has to end."""
EDIT_SHOWN = 500
"""Characters of edited arguments that the model is told."""


class Dispatcher:
    """Runs calls. Neighbouring calls of parallel tools overlap; any other call runs alone, in its place."""

    def __init__(self, run: Run, calls: Sequence[ToolCall], *, cut: bool = False) -> None:
        self._run = run
        self._calls = calls
        self._cut = calls[-1].id if cut and calls and not is_complete(calls[-1].arguments) else ""
        self._allowance = Allowance(len(calls), run.model.context_window)
        self._events: deque[Event] = deque()
        self._changed = asyncio.Event()
        self._running = 0
        self._escaped: BaseException | None = None

    async def events(self) -> AsyncGenerator[Event, None]:
        """Run every call, yielding events as they happen; on the way out no call is left without an answer."""
        try:
            for batch in self._batches():
                async with aclosing(self._run_batch(batch)) as done:
                    async for event in done:
                        yield event
                if self._escaped is not None:
                    raise self._escaped
        finally:
            self._close_open("cancelled", "[cancelled before it ran]")

    async def refuse(self, why: str) -> AsyncGenerator[Event, None]:
        """Answer every call without running it."""
        for call in self._calls:
            yield self._answer(call, why, ok=False, synthetic="limit")

    def _batches(self) -> list[list[ToolCall]]:
        batches: list[list[ToolCall]] = []
        overlapping = False
        for call in self._calls:
            tool = self._run.toolbox.get(call.name)
            parallel = tool is None or tool.parallel
            if batches and parallel and overlapping:
                batches[-1].append(call)
            else:
                batches.append([call])
            overlapping = parallel
        return batches

    async def _run_batch(self, batch: list[ToolCall]) -> AsyncGenerator[Event, None]:
        if self._run.budget.remaining_seconds() == 0:
            return
        tasks = [asyncio.create_task(self._guarded(call)) for call in batch]
        self._running = len(tasks)
        try:
            while self._running:
                async with time_limit(self._run.budget.remaining_seconds()):
                    await self._changed.wait()
                self._changed.clear()
                while self._events:
                    yield self._events.popleft()
        except TimeoutError:
            pass  # the loop sees the exhausted budget; what is unanswered is answered below
        finally:
            await _end(tasks)
        while self._events:
            yield self._events.popleft()

    async def _guarded(self, call: ToolCall) -> None:
        began = time.perf_counter()
        try:
            await self._run_call(call, began)
        except asyncio.CancelledError:
            began_it = call.id in self._run.session.conversation.started
            text = "[cancelled while it was running]" if began_it else "[cancelled before it ran]"
            self._post(self._answer(call, text, ok=False, synthetic="cancelled"))
            raise
        except KeyboardInterrupt as error:
            self._escaped = error
            self._post(self._answer(call, "[interrupted by the user]", ok=False, synthetic="cancelled"))
        except BaseException as error:  # noqa: BLE001 a broken log or approve function: it leaves the run, see `events`
            self._escaped = error
        finally:
            self._running -= 1
            self._changed.set()

    async def _run_call(self, call: ToolCall, began: float) -> None:
        try:
            tool = self._tool(call)
            arguments = parse_arguments(call.arguments)
            if self._run.coach is not None:
                await self._run.coach.check(self._run, tool.name, arguments)
            decision = await permit(self._run, tool, call, arguments, self._post)
            if decision.arguments is not None:  # a log that was read again has placeholders in a person's words
                self._keep_secrets(tool, json.dumps(decision.arguments, default=str))
        except ToolError as error:
            self._post(self._answer(call, str(error), ok=False, synthetic="invalid"))
            return
        except SandboxLost as error:  # the coach looked into a file
            self._run.sandbox_lost(error)
            self._post(self._answer(call, f"The sandbox was lost: {error}", ok=False))
            return
        if not decision.allowed:
            text = f"Not permitted: {decision.reason}. Do not try to get around it; go on without it or finish."
            self._post(self._answer(call, text, ok=False, synthetic="denied"))
            return
        if refusal := self._run.budget.start_tool():
            self._post(self._answer(call, f"[not run: {refusal}]", ok=False, synthetic="limit"))
            return
        self._post(self._run.session.record(ToolStarted(id=call.id, name=call.name, source=_foreign(tool))))
        edited = decision.arguments
        value, ok = await self._invoke(tool, call, dict(arguments if edited is None else edited))
        diff = value.diff if isinstance(value, ToolOutput) else ""
        text = value.text if isinstance(value, ToolOutput) else result_text(value)
        text = (
            text
            if edited is None
            else f"[the user changed the call before it ran: {_short(self._run.mask.data(edited))}]\n{text}"
        )
        self._post(self._answer(call, text, ok=ok, duration=time.perf_counter() - began, diff=diff))

    async def _invoke(self, tool: Tool, call: ToolCall, arguments: dict[str, Any]) -> tuple[object, bool]:
        context = await self._run.context(call)
        context.progress = lambda text: self._post(Progress(text=text, id=call.id))
        try:
            return await tool.invoke(arguments, context), True
        except (ToolError, OSError) as error:
            return str(error) or type(error).__name__, False
        except SandboxLost as error:
            self._run.sandbox_lost(error)
            return f"The sandbox was lost: {error}", False
        except (SessionError, asyncio.CancelledError, KeyboardInterrupt):
            raise
        except OpenSageError as error:
            return str(error), False
        except BaseException as error:  # noqa: BLE001 a tool is foreign code: whatever it raises is an answer
            return f"{type(error).__name__}: {error}", False

    def _tool(self, call: ToolCall) -> Tool:
        if call.id == self._cut:
            limit = self._run.max_tokens
            raise ToolError(
                "Your reply was cut off at the output limit"
                + (f" of {limit} tokens" if limit else "")
                + ", in the middle of this call, so it was not run. Make it smaller: e.g. write the file in parts."
            )
        tool = self._run.toolbox.get(call.name)
        if tool is None:
            raise ToolError(self._run.unknown_tool(call.name))
        self._keep_secrets(tool, call.arguments)
        return tool

    def _keep_secrets(self, tool: Tool, arguments: str) -> None:
        """Refuse to write a placeholder where a secret stands."""
        if tool.changes and (place := self._run.mask.placeholder(arguments)):
            raise ToolError(
                f"Not run: {place} stands for a secret that is hidden from you, and it would be written in its place. "
                "Change only what is around it: leave that text out of the arguments, e.g. edit another line."
            )

    def _answer(self, call: ToolCall, text: str, *, ok: bool, synthetic: str = "", **more: Any) -> ToolResult:
        text = self._run.mask.text(text)  # before it is cut: half a secret could not be found
        shaped = shape(text, self._allowance, self._run.session.blobs)
        duration = round(more.pop("duration", 0.0), 4)
        return self._run.session.record(
            ToolResult(
                id=call.id,
                name=call.name,
                text=shaped.text or "(no output)",
                ok=ok,
                synthetic=synthetic,
                blob=shaped.blob,
                size=shaped.size,
                duration=duration,
                **more,
            )
        )

    def _post(self, event: Event) -> None:
        self._events.append(event)
        self._changed.set()

    def _close_open(self, synthetic: str, text: str) -> None:
        ours = {call.id for call in self._calls}
        for call in list(self._run.session.conversation.open.values()):
            if call.id in ours:
                self._answer(call, text, ok=False, synthetic=synthetic)


def _foreign(tool: Tool) -> str:
    return tool.source if tool.source.startswith(("mcp:", "toolkit:")) else ""


def _short(arguments: Mapping[str, Any]) -> str:
    text = json.dumps(arguments, ensure_ascii=False, default=str)
    return text if len(text) <= EDIT_SHOWN else f"{text[:EDIT_SHOWN]}..."


def time_limit(seconds: float | None) -> AbstractAsyncContextManager[object]:
    """`asyncio.timeout`, and nothing at all, which is cheaper, when there is no limit."""
    return nullcontext() if seconds is None else asyncio.timeout(seconds)


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel what still runs and wait for it, so that nothing of a turn outlives the turn."""
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running, timeout=CANCEL_GRACE)
