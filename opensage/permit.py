"""Decides whether a call may run: the rules first, then, where they say so, a person, one question at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from opensage.approval import Decision, Ruling, decide
from opensage.log.events import ApprovalAsked, ApprovalDecided, Event
from opensage.messages import ToolCall
from opensage.tools.base import Tool

if TYPE_CHECKING:
    from opensage.runtime import Run


async def permit(
    run: Run, tool: Tool, call: ToolCall, arguments: dict[str, Any], post: Callable[[Event], None]
) -> Decision:
    """The decision about a call; a deny rule holds against every earlier, remembered or edited answer.

    Raises:
        ConfigError: the approve function answered what it may not.
    """
    earlier = run.session.conversation.decided.get(call.id)
    if earlier is not None:  # decided before the process ended
        return _within_rules(run, tool, arguments, Decision(earlier.allowed, earlier.reason, earlier.arguments))
    ruling = _ruling(run, tool, arguments)
    if tool.asks is not None and ruling.by_default and (why := await tool.asks(arguments)):
        async with run.asking:
            return await _ask(run, tool, call, arguments, Ruling("ask", why), post)
    if ruling.verdict == "ask":
        async with run.asking:  # in call order: the lock is fair
            ruling = _ruling(run, tool, arguments)  # an answer to another call may be remembered for this one too
            if ruling.verdict == "ask":
                return await _ask(run, tool, call, arguments, ruling, post)
    return Decision(ruling.verdict == "allow", ruling.why)


async def _ask(
    run: Run, tool: Tool, call: ToolCall, arguments: dict[str, Any], ruling: Ruling, post: Callable[[Event], None]
) -> Decision:
    post(run.session.record(ApprovalAsked(id=call.id, name=call.name, arguments=arguments)))
    asking = replace(call, agent=run.spec.name) if run.member is not None and run.member.above is not None else call
    answer = await decide("deny" if ruling.person and run.approve == "allow" else run.approve, asking)
    answer = _within_rules(run, tool, arguments, answer)
    if not answer.allowed:
        answer = replace(answer, reason=f"{ruling.why}, and {answer.reason or 'it was refused'}")
    decided = ApprovalDecided(
        id=call.id,
        allowed=answer.allowed,
        reason=answer.reason,
        arguments=None if answer.arguments is None else dict(answer.arguments),
        remember=answer.remember,
    )
    post(run.session.record(decided))
    run.remember(decided)
    return answer  # with the arguments as the person wrote them: the log hides secrets


def _within_rules(run: Run, tool: Tool, arguments: dict[str, Any], answer: Decision) -> Decision:
    """The answer, unless a deny rule speaks of the call as it would now run."""
    if not answer.allowed:
        return answer
    ruling = _ruling(run, tool, arguments if answer.arguments is None else answer.arguments)
    return Decision(False, ruling.why) if ruling.verdict == "deny" else answer


def _ruling(run: Run, tool: Tool, arguments: Mapping[str, Any]) -> Ruling:
    return run.policy.ruling(tool, arguments, isolated=run.sandbox.isolated, place=run.place)
