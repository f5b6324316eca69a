"""One budget for a run and all its sub-agents."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

from opensage.errors import LimitReached
from opensage.messages import Delta, Request, Usage
from opensage.models.retry import Wrapper, closable
from opensage.protocols import Model
from opensage.spec import Limits


class Budget:
    """Counts what a run spends and refuses what is beyond its limits.

    `start_call` is called before every attempt of a model call, retries included; `spend` when its usage is known.
    The first exhausted limit wins and stays in `reason`. Thread-safe.
    """

    def __init__(
        self, limits: Limits | None = None, *, clock: Callable[[], float] = time.monotonic, spent: Usage | None = None
    ) -> None:
        self.limits = limits or Limits()
        caps = ((name, getattr(self.limits, name), used, unit) for name, used, unit in _COUNTED)
        self._caps = [(name, cap, used, unit) for name, cap, used, unit in caps if cap is not None]
        self._clock = clock
        self._lock = threading.Lock()
        self._started = clock()
        self.usage = spent or Usage()
        self.known_cost = self.usage.cost or 0.0
        self.unknown_price = self.usage.cost is None
        self.turns = 0
        self.tool_calls = 0

    def start_call(self) -> None:
        """Count one attempt of a model call.

        Raises:
            LimitReached: a limit is exhausted; nothing was counted.
        """
        with self._lock:
            reason = self._exhausted()
            if reason:
                raise LimitReached(reason)
            self.turns += 1

    def spend(self, usage: Usage) -> None:
        """Add what a call used. A cost that is unknown or no number counts as unknown, never as a refund."""
        cost = usage.cost
        with self._lock:
            self.usage += usage
            if cost is None or not math.isfinite(cost):
                self.unknown_price = True
            else:
                self.known_cost += max(cost, 0.0)

    def start_tool(self) -> str:
        """Count one tool call; returns the reason when no more is allowed, else ""."""
        with self._lock:
            cap = self.limits.max_tool_calls
            if cap is not None and self.tool_calls >= cap:
                return f"max_tool_calls: {self.tool_calls} of {cap} tool calls used"
            self.tool_calls += 1
            return ""

    def exhausted(self) -> str:
        """Why no further model call is allowed, or "" when one is."""
        with self._lock:
            return self._exhausted()

    def is_last_turn(self) -> bool:
        """Whether the next model call is the last one allowed, and earlier ones were made."""
        cap = self.limits.max_turns
        return cap is not None and cap > 1 and self.turns == cap - 1

    @property
    def deadline(self) -> float | None:
        """When the wall clock runs out, on the budget's clock, or None."""
        return None if self.limits.max_seconds is None else self._started + self.limits.max_seconds

    def remaining_seconds(self) -> float | None:
        """Seconds left, never below zero, or None without a limit."""
        return None if self.deadline is None else max(0.0, self.deadline - self._clock())

    @property
    def seconds(self) -> float:
        """Seconds since the run began."""
        return self._clock() - self._started

    def _exhausted(self) -> str:
        for name, cap, used_so_far, unit in self._caps:
            used = used_so_far(self)
            if used >= cap:
                return f"{name}: {used:g} of {cap:g} {unit} used"
        return ""


_COUNTED: tuple[tuple[str, Callable[[Budget], float], str], ...] = (
    ("max_turns", lambda budget: budget.turns, "model calls"),
    ("max_cost", lambda budget: round(budget.known_cost, 6), "US dollars"),
    ("max_tokens", lambda budget: budget.usage.tokens, "tokens"),
    ("max_tool_calls", lambda budget: budget.tool_calls, "tool calls"),
    ("max_seconds", lambda budget: round(budget.seconds, 1), "seconds"),
)


class Budgeted(Wrapper):
    """A model whose every call is checked against and counted on a budget."""

    def __init__(self, model: Model, budget: Budget) -> None:
        super().__init__(model)
        self._budget = budget

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        """Stream one call; what it used is counted even when it breaks off.

        Raises:
            LimitReached: before the call, when a limit is exhausted.
        """
        self._budget.start_call()
        usage: Usage | None = None
        try:
            async with aclosing(closable(self._model, request)) as deltas:
                async for delta in deltas:
                    usage = delta.usage or usage
                    yield delta
        finally:
            if usage is not None:
                self._budget.spend(usage)
