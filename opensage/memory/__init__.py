"""The kit's side of the graph memory: what was done is written from the logs, what is known is offered to agents."""

from __future__ import annotations

from opensage.memory.settings import MemorySettings

MEMORY_TOOLS = ("remember", "recall", "forget", "link", "why")
"""Names of the tools in `tools.py`, which is imported when an agent has them."""

__all__ = ["MEMORY_TOOLS", "MemorySettings"]
