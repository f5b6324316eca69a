"""What the contract's tests share."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from opensage_memory import Hit


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.time = datetime(2025, 3, 1, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.time += timedelta(milliseconds=1)
        return self.time

    def forward(self, by: timedelta) -> None:
        """Let time pass."""
        self.time += by


def texts(hits: Iterable[Hit]) -> list[str]:
    """What was found."""
    return [hit.item.text for hit in hits]
