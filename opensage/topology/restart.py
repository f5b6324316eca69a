"""What agents spent before a restart, of which the logs of their callers do not know yet."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from opensage.errors import SessionError
from opensage.log.delegations import Delegation, Delegations
from opensage.log.folds import Summary
from opensage.log.journal import load
from opensage.messages import Usage


class Spent(NamedTuple):
    """Tokens and US dollars, model calls, tool calls: what `Budget.charge` takes."""

    usage: Usage = Usage()
    turns: int = 0
    tool_calls: int = 0


def of_children(folder: Path, session: str, delegations: Delegations) -> Spent:
    """Of all children of a session whose end its log does not tell, with those below them."""
    total = Spent()
    for child in delegations:
        more = of_child(folder, session, child)
        total = Spent(total.usage + more.usage, total.turns + more.turns, total.tool_calls + more.tool_calls)
    return total


def of_child(folder: Path, session: str, child: Delegation) -> Spent:
    """Of one; nothing when its end is known, or its log cannot be read."""
    name = f"{session}.{child.number}"
    if child.status != "running":
        return Spent()
    try:
        events = load(folder / f"{name}.jsonl").events
    except SessionError:
        return Spent()
    summary, below = Summary(), Delegations()
    for event in events:
        summary.apply(event)
        below.apply(event)
    if not unseen(summary, child):
        return Spent()
    more = of_children(folder, name, below)
    turns, tool_calls = summary.run_turns + more.turns, summary.run_tool_calls + more.tool_calls
    return Spent(summary.run_usage + more.usage, turns, tool_calls)


def unseen(summary: Summary, child: Delegation) -> bool:
    """Whether a child's log tells of a run whose end its caller has not seen."""
    return summary.status == "running" or summary.ended > child.ended
