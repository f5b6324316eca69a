"""What happens to toolkits in a session."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from opensage.log.events import Event


@dataclass(slots=True, kw_only=True)
class ToolkitMade(Event):
    """A version of a toolkit passed the gate. `tools` are name → signature, `report` what its tests came to."""

    type: ClassVar[str] = "toolkit.made"
    durable: ClassVar[bool] = True
    name: str = ""
    version: int = 0
    hash: str = ""
    agent: str = ""
    description: str = ""
    tools: dict[str, Any] = field(default_factory=dict)
    report: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class ToolkitRetired(Event):
    """A toolkit was put away; its versions stay on the disk."""

    type: ClassVar[str] = "toolkit.retired"
    name: str = ""
    version: int = 0
    agent: str = ""
