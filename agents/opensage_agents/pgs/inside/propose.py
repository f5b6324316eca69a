"""CrossHair looks for inputs, with candidate and properties in one process. What it says is never a verdict."""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from crosshair.core import deep_realize
from crosshair.tracers import NoTracing
from hypothesis import HealthCheck, Phase, given, reject, settings
from hypothesis import seed as seeded
from hypothesis.errors import Flaky, HypothesisException, UnsatisfiedAssumption

from opensage_agents.pgs.inside import codec
from opensage_agents.pgs.inside.driver import Channel
from opensage_agents.pgs.inside.search import QUIET
from opensage_agents.pgs.inside.space import BadProperty, load, said
from opensage_agents.pgs.inside.worker import adapted, loaded

MOST_FAILING = 3
"""Inputs that fail, of one property; the judge takes the least."""
MOST_PATHS = 150


class _Over(Exception):
    """Enough inputs, or no more time. For Hypothesis it is a failure, which ends the drawing."""


def main(folder: str) -> None:
    """Send an input for each path that is found, then how it went."""
    channel = Channel(folder)
    job = channel.receive()
    try:
        import z3

        z3.set_param("memory_max_size", job["solver_mb"])
        _propose(job, channel.send)
        channel.send({"done": ""})
    except (Exception, SystemExit) as error:  # noqa: BLE001 candidates and Testers raise anything
        channel.send({"done": str(error) if isinstance(error, BadProperty) else said(error)})


def _propose(job: dict[str, Any], send: Callable[[dict[str, Any]], None]) -> None:
    space = load(job["text"])
    function = adapted(loaded(job), job["adapter"])
    for name in job["names"]:
        paths = _Paths(space[name], function, space.get("PRECONDITIONS", []), send, time.monotonic() + job["seconds"])
        _follow(paths, space["STRATEGY"], job["seed"])


def _follow(paths: _Paths, strategy: Any, seed: int) -> None:
    def test(args: Any) -> None:
        paths(args)

    every: Any = list(HealthCheck)
    quiet: Any = settings(
        QUIET, backend="crosshair", max_examples=MOST_PATHS, phases=(Phase.generate,), suppress_health_check=every
    )
    drawn: Any = given(strategy)
    with_seed: Any = seeded(seed)
    with contextlib.suppress(_Over, Flaky):
        quiet(with_seed(drawn(test)))()


@dataclass(slots=True)
class _Paths:
    check: Callable[..., Any]
    function: Callable[..., Any]
    preconditions: list[Callable[[Any], Any]]
    send: Callable[[dict[str, Any]], None]
    deadline: float
    failing: int = 0

    def __call__(self, args: Any) -> None:
        """Follow one path and send an input that takes it."""
        with NoTracing():  # else the clock is a symbol too
            over = self.failing >= MOST_FAILING or time.monotonic() > self.deadline
        if over:
            raise _Over
        if not all(holds(args) for holds in self.preconditions):
            reject()
        fails = True if self._fails(args) else False  # noqa: SIM210 `bool` of a symbol is a symbol
        concrete = deep_realize(args)
        with NoTracing():
            self.failing += fails
            self.send({"args": codec.encode(tuple(concrete)), "fails": fails})

    def _fails(self, args: Any) -> bool:
        when = getattr(self.check, "when", None)
        after = copy.deepcopy(args)
        try:
            if when is not None and not when(args):
                return False
            result = self.function(*after)
            wanted = self.check.__code__.co_argcount
            verdict = self.check(args, result, after) if wanted == 3 else self.check(args, result)
        except UnsatisfiedAssumption:
            return False
        except HypothesisException:
            raise
        except Exception:  # noqa: BLE001 any error is worth a trial
            return True
        return not (verdict is None or verdict)
