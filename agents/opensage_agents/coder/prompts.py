"""What the model is asked, short."""

from __future__ import annotations

from opensage_agents.coder.checks import Score
from opensage_agents.coder.functions import source_of
from opensage_agents.coder.target import Target

_MOST = 3000


def first(target: Target, task: str, before: Score) -> str:
    """A fresh question: the function, what it should do, and what goes wrong.

    Asked for the function alone: with an explanation before it, or asked for the wrong line, this model was right less
    often on the tasks it was tuned on.
    """
    how = "Write the corrected function, whole, in one ```python block, and nothing else."
    return f"{_case(target, target.text, task)}\n{before.complaint()}\n{how}"


def again(target: Target, task: str, text: str, score: Score) -> str:
    """The best candidate so far, and how it fails."""
    return (
        f"{_case(target, text, task)}\n{score.complaint()}\n"
        "Write the corrected function, whole, in one ```python block, and nothing else."
    )


def _case(target: Target, text: str, task: str) -> str:
    place = target.found_in(text) or target.place
    source = source_of(text, place)
    return f"Task:\n{task[:_MOST]}\n\nThis function in {target.path} has a bug:\n```python\n{source}\n```\n"
