"""Hypothesis draws inputs and shrinks the one failure that is to be shown."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import HealthCheck, Phase, Verbosity, given, reject, settings
from hypothesis import seed as seeded
from hypothesis.errors import HypothesisException, Unsatisfiable

from opensage_agents.pgs.inside import codec
from opensage_agents.pgs.inside.evaluation import Enough, Evaluation
from opensage_agents.pgs.inside.failures import SLOW, Failure
from opensage_agents.pgs.inside.space import BadProperty, said

DRAW_SECONDS = 0.5
"""CPU time that drawing one input may take on average."""
MOST_STEPS = 3000
RERUNS = 3
PATIENT = 4.0
"""How many times the CPU time a call that was too slow gets, to tell the slow from the endless."""
QUIET = settings(
    database=None,
    deadline=None,
    derandomize=False,
    report_multiple_bugs=False,
    print_blob=False,
    verbosity=Verbosity.quiet,
    # Its clock is the wall's, which lies on a busy machine; `_Clock` counts CPU time instead.
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors],
)


class _Found(Exception):
    """The failure that is being shrunk."""


@dataclass(slots=True)
class Search:
    """The inputs of one check."""

    strategy: Any
    preconditions: list[Callable[[Any], Any]]
    evaluate: Evaluation
    seed: int
    max_examples: int
    check_args: Callable[[Any], None]
    examples: int = 0
    invalid: int = 0
    shrink_calls: int = 0
    failed_examples: int = 0
    """Public examples on which it fails, but for wrong answers."""

    def explore(self) -> None:
        """Run every drawn input.

        Raises:
            BadProperty: the strategy or a precondition cannot be used.
        """
        drawing = _Clock()

        def body(args: Any) -> None:
            drawing.stop(self.examples)
            args = self._valid(args)
            self.examples += 1
            self.evaluate(args)
            drawing.start()

        drawing.start()
        try:
            self._run(body, self.max_examples, (Phase.generate,))
        except Enough:
            return
        except Unsatisfiable as error:
            raise BadProperty(f"no input passes the preconditions: {said(error)}") from error
        except HypothesisException as error:
            raise BadProperty(f"the strategy is refused: {said(error)}") from error

    def shrink(self, start: Failure, most_calls: int, seconds: float) -> bool:
        """Shrink a drawn failure, keeping its outcome and property; false when the strategy does not draw it again."""
        evaluate, begun, before, steps = self.evaluate, False, self.evaluate.calls, 0
        bound = Bound(seconds)

        def body(args: Any) -> None:
            nonlocal begun, steps
            steps += begun
            if evaluate.calls - before >= most_calls or steps > MOST_STEPS or (begun and bound.over()):
                raise Enough
            fails = evaluate(self._valid(args))
            hit = next((each for each in fails if each.kind == start.kind), None)
            begun = begun or (hit is not None and hit.text == start.text)
            if hit and begun:
                raise _Found

        evaluate.most_slow = evaluate.slow + 6 if start.outcome in SLOW else evaluate.slow + 3
        try:
            self._run(body, self.max_examples, (Phase.generate, Phase.shrink))
        except (Enough, _Found):
            pass
        except HypothesisException as error:
            evaluate.notes.append(f"shrinking ended early: {said(error)}")
        self.shrink_calls = evaluate.calls - before
        return begun

    def confirmed(self, found: Failure) -> Failure | None:
        """The failure, if it comes each time. A call that was too slow gets more time once, to see whether it ends."""
        evaluate = self.evaluate
        evaluate.deadline = max(evaluate.deadline, time.monotonic() + 1)
        if found.outcome == "timeout":
            limit = evaluate.call_seconds * PATIENT
            answer = evaluate.run(codec.encode(found.args), PATIENT)
            if answer["outcome"] in SLOW:
                return replace(found, outcome="hung", message=f"does not end within {limit:g} s of CPU time")
            return replace(found, message=f"takes more than {evaluate.call_seconds:g} s of CPU time")
        if found.outcome == "hung":
            return found
        for _ in range(RERUNS):
            if not any(each.kind == found.kind for each in evaluate(found.args, again=True)):
                return None
        return found

    def sample(self, number: int) -> list[Any]:
        """Inputs without running them."""
        found: list[Any] = []
        self._run(lambda args: found.append(self._valid(args)), number, (Phase.generate,))
        return found

    def _run(self, body: Callable[[Any], None], examples: int, phases: tuple[Phase, ...]) -> None:
        def test(args: Any) -> None:
            body(args)

        quiet: Any = settings(QUIET, max_examples=examples, phases=phases)
        drawn: Any = given(self.strategy)
        with_seed: Any = seeded(self.seed)
        quiet(with_seed(drawn(test)))()

    def _valid(self, args: Any) -> Any:
        if not isinstance(args, tuple):
            raise BadProperty(f"the strategy must draw tuples of arguments, not {type(args).__name__}")
        self.check_args(args)
        try:
            fine = all(precondition(args) for precondition in self.preconditions)
        except Exception as error:
            raise BadProperty(f"a precondition raises {said(error)}, given {args!r:.200}") from error
        if not fine:
            self.invalid += 1
            reject()
        return args


class Bound:
    """Seconds of this process's own time since the first question; of the wall clock, which others slow, four times."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._start: tuple[float, float] | None = None

    def over(self) -> bool:
        """Whether they have passed."""
        own, wall = time.process_time(), time.monotonic()
        self._start = self._start or (own, wall)
        return own - self._start[0] > self._seconds or wall - self._start[1] > 4 * self._seconds


class _Clock:
    """CPU time of drawing."""

    def __init__(self) -> None:
        self._begun = time.process_time()
        self._spent = 0.0

    def start(self) -> None:
        self._begun = time.process_time()

    def stop(self, drawn: int) -> None:
        self._spent += time.process_time() - self._begun
        if drawn >= 5 and self._spent > DRAW_SECONDS * drawn:
            raise BadProperty(f"drawing an input takes {self._spent / drawn:.1f} s of CPU time: use smaller ones")
