"""One budget for a run and all its sub-agents: a tree in which every share is set aside before it is given."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

from opensage.errors import LimitReached
from opensage.messages import Delta, Request, Usage
from opensage.models.retry import Wrapper, closable
from opensage.protocols import Model
from opensage.spec import Limits

_SHARED = ("max_turns", "max_cost", "max_tokens", "max_tool_calls")
_KEPT = 0.1
"""Share of what is left of money and tokens that an agent keeps when it delegates: it has to read the result."""


class Budget:
    """Counts what a run spends and refuses what is beyond its limits.

    `start_call` is called before every attempt of a model call, retries included; `spend` when its usage is known.
    What a share spends counts for every budget above it; what a share may still spend is set aside above it, and comes
    back when the share is closed. The first exhausted limit wins. Thread-safe.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        spent: Usage | None = None,
        above: Budget | None = None,
    ) -> None:
        self.limits = limits or Limits()
        caps = ((name, getattr(self.limits, name), used, unit) for name, used, unit in _COUNTED)
        self._caps = [(name, cap, used, unit) for name, cap, used, unit in caps if cap is not None]
        self._clock = clock
        self._above = above
        self._shares: list[Budget] = []
        self._lock: threading.Lock = threading.Lock() if above is None else above._lock
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
            for budget in self._line():
                budget.turns += 1

    def spend(self, usage: Usage) -> None:
        """Add what a call used. A cost that is unknown or no number counts as unknown, never as a refund."""
        cost = usage.cost
        with self._lock:
            for budget in self._line():
                budget.usage += usage
                if cost is None or not math.isfinite(cost):
                    budget.unknown_price = True
                else:
                    budget.known_cost += max(cost, 0.0)

    def charge(self, usage: Usage, turns: int, tool_calls: int, *, above: bool = True) -> None:
        """Add what was spent before a restart; `above` says whether the budgets above do not know of it yet."""
        with self._lock:
            for budget in self._line() if above else [self]:
                budget.usage += usage
                budget.known_cost += usage.cost or 0.0
                budget.unknown_price = budget.unknown_price or usage.cost is None
                budget.turns += turns
                budget.tool_calls += tool_calls

    def start_tool(self) -> str:
        """Count one tool call; returns the reason when no more is allowed, else ""."""
        with self._lock:
            for budget in self._line():
                cap, aside = budget.limits.max_tool_calls, budget._set_aside("max_tool_calls") if budget is self else 0
                if cap is not None and budget.tool_calls + aside >= cap:
                    return f"max_tool_calls: {budget.tool_calls} of {cap} tool calls used"
            for budget in self._line():
                budget.tool_calls += 1
            return ""

    def exhausted(self) -> str:
        """Why no further model call is allowed, or "" when one is."""
        with self._lock:
            return self._exhausted()

    def is_last_turn(self) -> bool:
        """Whether the next model call is the last one allowed, and earlier ones were made."""
        cap = self.limits.max_turns
        return cap is not None and cap > 1 and self.turns + self._set_aside("max_turns") == cap - 1

    def share(
        self, wished: Limits | None = None, *, portion: float = 0.5, spent: tuple[Usage, int, int] = (Usage(), 0, 0)
    ) -> Budget:
        """A part of what is left, set aside for a sub-agent until `close`.

        Args:
            wished: limits of the sub-agent; where they say nothing it gets `portion` of what can be given.
            portion: in (0, 1].
            spent: what the sub-agent is about to `charge` from before a restart; what it gets comes on top of that.

        Raises:
            LimitReached: there is nothing left to give.
        """
        limits, before = wished or Limits.none(), Budget()
        limits = Limits.none().model_copy(update={name: getattr(limits, name) for name in limits.model_fields_set})
        before.charge(*spent)
        with self._lock:
            if reason := self._exhausted():
                raise LimitReached(reason)
            given: dict[str, Any] = {
                name: self._given(name, getattr(limits, name), portion, _USED[name](before)) for name in _SHARED
            }
            if (left := self.remaining_seconds()) is not None:
                given["max_seconds"] = max(0.001, min(left, limits.max_seconds or left))
            for name in ("max_agents", "max_live_agents", "max_depth"):
                mine, theirs = getattr(self.limits, name), getattr(limits, name)
                given[name] = mine if theirs is None or (mine is not None and mine < theirs) else theirs
            share = Budget(limits.model_copy(update=given), clock=self._clock, above=self)
            self._shares.append(share)
            return share

    def close(self) -> None:
        """Give back what a share did not use. Safe to call twice."""
        if self._above is None:
            return
        with self._lock:
            if self in self._above._shares:
                self._above._shares.remove(self)

    def report(self) -> dict[str, Any]:
        """What was spent, as it stands in the log: calls, tokens, US dollars (None when a price is unknown)."""
        usage = self.usage
        return {
            "model_calls": self.turns,
            "tool_calls": self.tool_calls,
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cached_tokens": usage.cached_tokens,
            "cost": usage.cost,
        }

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

    def _line(self) -> list[Budget]:
        """This budget and all above it."""
        line, budget = [self], self._above
        while budget is not None:
            line.append(budget)
            budget = budget._above
        return line

    def _exhausted(self) -> str:
        for name, cap, used_so_far, unit in self._caps:
            used, aside = used_so_far(self), self._set_aside(name)
            if used + aside >= cap:
                kept = f", {aside:g} set aside for agents at work" if aside else ""
                return f"{name}: {used:g} of {cap:g} {unit} used{kept}"
        return "" if self._above is None else self._above._overspent()

    def _overspent(self) -> str:
        """Why nobody below may go on: the last calls of several shares together took more than there was."""
        for name, cap, used_so_far, unit in self._caps:
            used = used_so_far(self)
            if used >= cap:
                return f"{name}: {used:g} of {cap:g} {unit} used by all agents together"
        return "" if self._above is None else self._above._overspent()

    def _set_aside(self, name: str) -> float:
        """What the open shares may still spend."""
        if not self._shares or name not in _SHARED:
            return 0
        return sum(share._left(name) for share in self._shares)

    def _left(self, name: str) -> float:
        cap = getattr(self.limits, name)
        return 0 if cap is None else max(0, cap - _USED[name](self))

    def _given(self, name: str, wish: float | None, portion: float, before: float) -> float | None:
        cap: float | None = getattr(self.limits, name)
        if cap is None:
            return wish
        free = cap - _USED[name](self) - self._set_aside(name)
        whole = name != "max_cost"
        can = free - 1 if name == "max_turns" else free if name == "max_tool_calls" else free * (1 - _KEPT)
        grant = can * portion if wish is None else min(max(wish - before, 0), can)
        grant = math.floor(grant) if whole else grant
        if grant < (1 if whole else 1e-9) and (wish is None or wish > before):
            raise LimitReached(f"{name}: {max(free, 0):g} of {cap:g} left, too little to give any away")
        return before + grant


_COUNTED: tuple[tuple[str, Callable[[Budget], float], str], ...] = (
    ("max_turns", lambda budget: budget.turns, "model calls"),
    ("max_cost", lambda budget: round(budget.known_cost, 6), "US dollars"),
    ("max_tokens", lambda budget: budget.usage.tokens, "tokens"),
    ("max_tool_calls", lambda budget: budget.tool_calls, "tool calls"),
    ("max_seconds", lambda budget: round(budget.seconds, 1), "seconds"),
)
_USED = {name: used for name, used, _ in _COUNTED}


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
