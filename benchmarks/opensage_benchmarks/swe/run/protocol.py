"""What a worker and the runner say to each other: JSON, one object a line."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

MOST_LINE = 64 << 20


class Channel:
    """The worker's end, on two file descriptors. Nothing is buffered but what came behind a line."""

    def __init__(self, source: int, target: int) -> None:
        self.source, self.target = source, target
        self._rest = b""

    def say(self, event: str, **more: Any) -> None:
        """Send one message. A lone surrogate from a model or a tool is escaped, as JSON does."""
        data = memoryview(json.dumps({"event": event, **more}).encode() + b"\n")
        while data:
            data = data[os.write(self.target, data) :]

    def hear(self) -> dict[str, Any] | None:
        """The next message, None when nobody is there any more."""
        while b"\n" not in self._rest:
            chunk = os.read(self.source, 1 << 20)
            if not chunk:
                return None
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found


def line_of(message: Mapping[str, Any]) -> bytes:
    """A message as it is sent."""
    return json.dumps(message).encode() + b"\n"


def read_line(line: bytes) -> dict[str, Any] | None:
    """A message as it came, None for what a killed process left of one."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("event"), str) else None
