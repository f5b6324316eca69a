"""What a run may spend: caps of each task and of all together, asked before every model call."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

_CENT = 1e-9


@dataclass(frozen=True, slots=True)
class Caps:
    """Limits of a task or of a run. 0 means no limit.

    Attributes:
        cost: US dollars.
        tokens: input plus output.
        steps: model calls.
        seconds: wall clock.
    """

    cost: float = 0.0
    tokens: int = 0
    steps: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Account:
    """What one task, or the whole run, has spent.

    Attributes:
        open: calls that were allowed and have not been told yet.
        last_cost, last_tokens: of the last call told: what the next one is taken to cost.
        unknown: calls whose price is unknown; their tokens count, their cost does not.
    """

    prefix: str
    caps: Caps
    clock: Callable[[], float] = time.monotonic
    steps: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    unknown: int = 0
    open: int = 0
    last_cost: float = 0.0
    last_tokens: int = 0
    started: float = field(init=False)

    def __post_init__(self) -> None:
        self.started = self.clock()

    @property
    def tokens(self) -> int:
        """Input plus output."""
        return self.input_tokens + self.output_tokens

    def refusal(self) -> str:
        """Why no further call is allowed, or "".

        A call is refused when a cap is reached, or would be passed if this call and those in flight cost what the last
        one did: $0.35 allow three calls of $0.10. With calls in flight that cost more than the last, or before any
        price is known, what is spent can pass the cap by those calls and no more.
        """
        coming = self.open + 1
        asked = (
            ("cost_limit", self.cost, self.last_cost * coming, self.caps.cost, "US dollars"),
            ("token_limit", self.tokens, self.last_tokens * coming, self.caps.tokens, "tokens"),
            ("step_limit", self.steps, 1, self.caps.steps, "model calls"),
            ("time_limit", self.clock() - self.started, 0, self.caps.seconds, "seconds"),
        )
        for name, used, next_ones, cap, unit in asked:
            if cap > 0 and (used >= cap - _CENT or used + next_ones > cap + _CENT):
                return f"{self.prefix}{name}: {used:.6g} of {cap:g} {unit} used"
        return ""

    def begin(self) -> None:
        """Count a call that was allowed."""
        self.steps += 1
        self.open += 1

    def end(self, cost: float | None, input_tokens: int, output_tokens: int) -> None:
        """Count what a call used. One that failed without usage says nothing about the next."""
        self.open = max(0, self.open - 1)
        self.input_tokens += max(0, input_tokens)
        self.output_tokens += max(0, output_tokens)
        self.last_tokens = max(0, input_tokens) + max(0, output_tokens) or self.last_tokens
        if cost is None:
            self.unknown += 1
        elif cost > 0:  # NaN and refunds count as nothing
            self.cost += cost
            self.last_cost = cost

    def money(self) -> float | None:
        """US dollars, None when a price was unknown."""
        return None if self.unknown else round(self.cost, 9)


class Accounts:
    """All accounts of a run, under one lock: what is asked here is allowed or refused once and for all."""

    def __init__(self, each: Caps, total: Caps, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._each, self._clock = each, clock
        self._lock = threading.Lock()
        self.total = Account("total_", total, clock)
        self._tasks: dict[str, Account] = {}

    def start(self, task: str) -> None:
        """Open the account of a task; what an earlier try of it left open is closed, and what it spent stays spent."""
        with self._lock:
            self._close(task)
            self._tasks[task] = Account("", self._each, self._clock)

    def ask(self, task: str) -> str:
        """Allow one model call and count it, or say why not."""
        with self._lock:
            account = self._tasks[task]
            if not account.steps:  # getting ready is not the agent's time
                account.started = self._clock()
            if reason := account.refusal() or self.total.refusal():
                return reason
            account.begin()
            self.total.begin()
            return ""

    def tell(self, task: str, cost: float | None, input_tokens: int, output_tokens: int) -> None:
        """Count what a call used."""
        with self._lock:
            for account in (self._tasks[task], self.total):
                account.end(cost, input_tokens, output_tokens)

    def close(self, task: str) -> Account:
        """What a task spent, at its end; calls it left in flight are no longer waited for."""
        with self._lock:
            self._close(task)
            return self._tasks.get(task) or Account("", self._each, self._clock)

    def _close(self, task: str) -> None:
        if (account := self._tasks.get(task)) is not None:
            self.total.open = max(0, self.total.open - account.open)
            account.open = 0

    def spent(self) -> str:
        """Why no further task is started, or "". Calls in flight are not counted: they may cost less."""
        with self._lock:
            in_flight, self.total.open = self.total.open, 0
            try:
                return self.total.refusal()
            finally:
                self.total.open = in_flight

    def charge(self, cost: float | None, input_tokens: int, output_tokens: int, steps: int) -> None:
        """Add what an earlier run on the same folder spent."""
        with self._lock:
            self.total.steps += steps
            self.total.input_tokens += input_tokens
            self.total.output_tokens += output_tokens
            self.total.cost += cost or 0.0
            if self.total.steps:
                self.total.last_cost = self.total.cost / self.total.steps
                self.total.last_tokens = self.total.tokens // self.total.steps
