"""Children as their caller's model reads them."""

from __future__ import annotations

from collections.abc import Iterable

from opensage.log.delegations import Delegation
from opensage.log.folds import count_of, usage_of

_TASK, _TEXT = 120, 200


def reported(child: Delegation) -> str:
    """The result of a child: status first, since one that was stopped has not succeeded."""
    head = f"[{child.id} {child.agent}: {child.status}"
    head += f" ({child.reason})" if child.reason else ""
    head += ", NOT finished" if child.status not in ("done", "running") else ""
    parts = [f"{head}; {spent(child)}]", child.text or "(no text)"]
    if child.artefacts:
        parts.append(f"[files it changed: {', '.join(child.artefacts[:20])}]")
    return "\n".join(parts)


def spent(child: Delegation) -> str:
    """Turns, tokens and cost of its last run."""
    usage = usage_of(child.usage)
    cost = "cost unknown" if usage.cost is None else f"${usage.cost:.4f}"
    return f"{count_of(child.usage, 'model_calls')} turns, {usage.tokens} tokens, {cost}"


def listed(children: Iterable[Delegation]) -> str:
    """One line a child."""
    return "\n".join(
        f"- {child.id} {child.agent} [{child.status}]: {_line(child.task, _TASK)}"
        + (f" => {_line(child.text, _TEXT)}" if child.text else "")
        for child in children
    )


def _line(text: str, most: int) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= most else f"{flat[:most]}..."
