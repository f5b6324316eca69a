"""What the memory does in a session."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from opensage.log.events import Event


@dataclass(slots=True, kw_only=True)
class Recalled(Event):
    """What was known about a task, shown to the agent as a user message before it; `ids` are those of the items."""

    type: ClassVar[str] = "memory.recalled"
    text: str = ""
    ids: list[str] = field(default_factory=list)
