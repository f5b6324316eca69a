"""Sees when an agent goes round in circles."""

from __future__ import annotations

import hashlib
from collections import deque
from typing import Literal

NUDGE_AT = 3
STOP_AT = 6
STOP_SAME_CALL_AT = 12
_POLLING = frozenset({"task_wait", "task_output", "tasks"})

Alarm = Literal["", "nudge", "stop"]


class LoopGuard:
    """Watches the calls of each turn with their results, for repeats with a period of one to three turns.

    The same calls with the same results: a nudge at 3 rounds, a stop at 6. The same single calls with other results
    (a growing log, a clock): a nudge at 6, a stop at 12, unless the tool is one that waits.
    """

    def __init__(self) -> None:
        self._turns: deque[bytes] = deque(maxlen=STOP_AT * 3)
        self._last_calls = b""
        self._same_calls = 0

    def see(self, calls: list[tuple[str, str]], results: list[str]) -> Alarm:
        """Take one turn into account; calls are (name, arguments)."""
        asked = repr(calls)
        key = _digest([asked, *results])
        self._turns.append(key)
        often = self._turns.count(key) >= NUDGE_AT  # else no need to look for a pattern
        rounds = max(self._rounds(period) for period in (1, 2, 3)) if often else 0
        alarm = _alarm(rounds, NUDGE_AT, STOP_AT)
        return alarm or _alarm(self._repeats(calls, _digest([asked])), STOP_AT, STOP_SAME_CALL_AT)

    def _rounds(self, period: int) -> int:
        """How many times the last `period` turns were repeated in a row."""
        turns = list(self._turns)
        tail, count = turns[-period:], 0
        if period > 1 and len(set(tail)) == 1:
            return 0
        while turns[-period:] == tail and len(turns) >= period:
            count, turns = count + 1, turns[:-period]
        return count

    def _repeats(self, calls: list[tuple[str, str]], key: bytes) -> int:
        if key == self._last_calls and not any(name in _POLLING for name, _ in calls):
            self._same_calls += 1
        else:
            self._last_calls, self._same_calls = key, 1
        return self._same_calls


def _alarm(count: int, nudge: int, stop: int) -> Alarm:
    if count >= stop:
        return "stop"
    return "nudge" if count == nudge else ""


def _digest(parts: list[str]) -> bytes:
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "replace"), digest_size=16).digest()
