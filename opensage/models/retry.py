"""Wrappers that make a model dependable: `Retrying`, `Fallback`, `IdleTimeout`, and the gate that agents share."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Any

from opensage.errors import ContextOverflow, ModelError
from opensage.messages import Delta, Request
from opensage.models.providers import provider_of
from opensage.protocols import Model

IDLE_S = 120.0
"""Seconds of silence after which a stream counts as stalled. Reasoning models may think for a minute unseen."""


class Gate:
    """One back-off for all agents of the process that use a provider.

    A failure closes the gate for everybody; it opens after `base * 2**failures` seconds, or after what the provider
    asked for. Those who waited leave spread over a further `spread` of that time, so that the burst is not repeated.

    Args:
        base: seconds of the first back-off.
        ceiling: longest back-off in seconds, where the provider asked for none.
        spread: jitter as a share of the back-off.
    """

    def __init__(self, base: float = 1.0, ceiling: float = 60.0, spread: float = 0.5) -> None:
        self._base, self._ceiling, self._spread = base, ceiling, spread
        self._lock = threading.Lock()
        self._failures = 0
        self._closed_at = 0.0
        self._opens_at = 0.0
        self._delay = 0.0

    def failed(self, started: float, retry_after: float | None) -> float:
        """Close the gate after a failure; returns the seconds until it opens.

        Args:
            started: `time.monotonic()` when the failed attempt began. An attempt older than the last closing belongs
                to the same burst and does not double the back-off.
            retry_after: seconds the provider asked for.
        """
        now = time.monotonic()
        with self._lock:
            if started >= self._closed_at:
                self._delay = min(self._ceiling, self._base * 2**self._failures)
                self._failures += 1
                self._closed_at = now
            if retry_after is not None:
                self._delay = retry_after
            self._opens_at = max(self._opens_at, now + self._delay)
            return self._opens_at - now

    def succeeded(self) -> None:
        """Forget earlier failures."""
        with self._lock:
            self._failures = 0

    def wait_s(self) -> float:
        """Seconds to wait now, jitter included; 0 when open."""
        with self._lock:
            left = self._opens_at - time.monotonic()
            return left + random.uniform(0, self._spread * max(self._delay, 0.1)) if left > 0 else 0.0


_gates: dict[str, Gate] = {}
_gates_lock = threading.Lock()


def gate_for(provider: str) -> Gate:
    """The process's one gate for a provider."""
    with _gates_lock:
        return _gates.setdefault(provider, Gate())


class Wrapper:
    """A model around a model."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        # What a wrapper does not know (requests, prepare, ...) is the inner model's.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._model, name)

    @property
    def name(self) -> str:
        """The inner model's name."""
        return self._model.name

    @property
    def context_window(self) -> int | None:
        """The inner model's window."""
        return self._model.context_window

    async def close(self) -> None:
        """Close the inner model."""
        await self._model.close()


class Retrying(Wrapper):
    """Tries a call again when the provider says that it may work later.

    A try that had begun to stream is followed by `Delta(reset=True)`, so nothing of it is kept.

    Args:
        model: the model to call.
        gate: shared by all callers of a provider; by default the process's gate for this model's provider.
        before_attempt: called before every attempt, retries included; raises to stop (the budget does).
        tries: attempts at most.
        max_wait_s: seconds of waiting at most, over all attempts.
    """

    def __init__(
        self,
        model: Model,
        gate: Gate | None = None,
        *,
        before_attempt: Callable[[], None] | None = None,
        tries: int = 5,
        max_wait_s: float = 180.0,
    ) -> None:
        super().__init__(model)
        self._gate = gate or gate_for(provider_of(model.name) or model.name)
        self._before = before_attempt
        self._tries, self._max_wait = tries, max_wait_s

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        """Stream one reply, trying again on retryable errors."""
        waited = 0.0
        for attempt in range(1, self._tries + 1):
            pause = self._gate.wait_s()
            if pause:
                waited += pause
                await asyncio.sleep(pause)
            if self._before is not None:
                self._before()
            started, said = time.monotonic(), False
            try:
                async with aclosing(closable(self._model, request)) as deltas:
                    async for delta in deltas:
                        said = True
                        yield delta
                self._gate.succeeded()
                return
            except ModelError as error:
                failure = error
            wait = self._wait_after(failure, attempt, waited, started)
            yield Delta(reset=said, note=f"{failure}; trying again in {wait:.0f} s ({attempt + 1} of {self._tries})")

    def _wait_after(self, failure: ModelError, attempt: int, waited: float, started: float) -> float:
        """Seconds until the next try. Raises the failure when there is to be none."""
        if not failure.retryable:
            raise failure
        wait = self._gate.failed(started, failure.retry_after)
        if attempt >= self._tries or waited + wait > self._max_wait:
            asked = f"; it asks to wait {failure.retry_after:.0f} s" if failure.retry_after else ""
            raise ModelError(
                f"{failure} (given up after {attempt} tries{asked}); try later, or name another model",
                status=failure.status,
                retryable=True,
                retry_after=failure.retry_after,
            ) from failure
        return wait


class Fallback(Wrapper):
    """Tries models in order until one answers. Overflow is not passed on: compaction mends it.

    Args:
        models: at least one; the first is the one meant.
    """

    def __init__(self, models: Sequence[Model]) -> None:
        if not models:
            raise ValueError("Fallback needs at least one model")
        super().__init__(models[0])
        self._models = list(models)

    @property
    def context_window(self) -> int | None:
        """The smallest known window, so that a conversation fits all of them."""
        known = [m.context_window for m in self._models if m.context_window]
        return min(known) if known else None

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        """Stream one reply of the first model that gives one."""
        failures: list[ModelError] = []
        for model in self._models:
            if failures:
                yield Delta(reset=True, note=f"{failures[-1]}; trying {model.name}")
            try:
                async with aclosing(closable(model, request)) as deltas:
                    async for delta in deltas:
                        yield delta
                return
            except ContextOverflow:
                raise
            except ModelError as error:
                failures.append(error)
        if len(failures) == 1:
            raise failures[0]
        said = "; ".join(str(failure) for failure in failures)
        last = failures[-1]
        raise ModelError(f"every model failed: {said}", status=last.status, retryable=last.retryable) from last

    async def close(self) -> None:
        """Close all models."""
        for model in self._models:
            await model.close()


class IdleTimeout(Wrapper):
    """Ends a stream that has said nothing for `idle_s` seconds with a retryable error.

    The inner generator is cancelled where it waits, so its connection is closed.
    """

    def __init__(self, model: Model, idle_s: float = IDLE_S) -> None:
        super().__init__(model)
        self._idle = idle_s

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        """Stream one reply."""
        async with aclosing(closable(self._model, request)) as deltas:
            while True:
                scope = asyncio.timeout(self._idle)
                try:
                    async with scope:
                        delta = await anext(deltas)
                except StopAsyncIteration:
                    return
                except TimeoutError as error:
                    if not scope.expired():
                        raise
                    raise ModelError(
                        f"{self.name}: the stream stalled, nothing came for {self._idle:g} s", retryable=True
                    ) from error
                yield delta


def closable(model: Model, request: Request) -> Any:
    """The model's stream with an `aclose`, whatever kind of iterator it is."""
    stream = model.stream(request)
    return stream if hasattr(stream, "aclose") else _adapt(stream)


async def _adapt(stream: AsyncIterator[Delta]) -> AsyncIterator[Delta]:
    async for delta in stream:
        yield delta


def robust(model: Model, before_attempt: Callable[[], None] | None = None) -> Model:
    """Wrap a model as runs use it: stalls end, retryable errors are tried again, the budget is asked each time.

    Args:
        model: any model; its `idle_s` attribute, when it has one, says how long it may be silent (None: for ever).
        before_attempt: called before every attempt; raises to stop.
    """
    idle = getattr(model, "idle_s", IDLE_S)
    return Retrying(IdleTimeout(model, idle) if idle else model, before_attempt=before_attempt)
