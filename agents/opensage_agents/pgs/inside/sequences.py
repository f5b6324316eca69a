"""Hypothesis draws sequences of calls and shrinks the one that is to be shown."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import Phase, settings
from hypothesis import seed as seeded
from hypothesis.errors import HypothesisException, UnsatisfiedAssumption
from hypothesis.stateful import get_state_machine_test

from opensage_agents.pgs.inside.evaluation import Enough, Evaluation
from opensage_agents.pgs.inside.failures import SLOW, Failure
from opensage_agents.pgs.inside.machine import Remote, StatefulMachine, Stop
from opensage_agents.pgs.inside.search import MOST_STEPS, PATIENT, QUIET, RERUNS, Bound
from opensage_agents.pgs.inside.space import BadProperty, said


class _Found(Exception):
    """The failure that is being shrunk."""


@dataclass(slots=True)
class Sequences:
    """The runs of the machines of one check."""

    machines: dict[str, type[StatefulMachine]]
    remote: Remote
    evaluate: Evaluation
    seed: int
    max_examples: int
    steps: int
    examples: int = 0
    invalid: int = 0
    shrink_calls: int = 0
    failed_examples: int = 0

    def explore(self) -> None:
        """Run every drawn sequence."""
        for name in self.machines:
            if self._whole(name) and not self.evaluate.all_failures():
                rules = {f"{name}.{each}" for each in _having(self.machines[name], "rule", "invariant")}
                missed = sorted(rules - self.remote.reached)
                self.evaluate.notes.extend(f"no run reached {each}" for each in missed)

    def _whole(self, name: str) -> bool:
        def keep() -> None:
            self.examples += 1
            self.evaluate.counts[name] += bool(self.remote.calls)
            self._keep(self.remote.failure)

        try:
            self._run(name, keep, (Phase.generate,))
        except Enough:
            return False
        except Exception as error:  # noqa: BLE001 a Tester's machine raises anything
            self.evaluate.bad.setdefault(name, str(error) if isinstance(error, BadProperty) else said(error))
            return False
        return True

    def shrink(self, start: Failure, most_calls: int, seconds: float) -> bool:
        """Shrink a drawn failure, keeping its outcome and rule; false when it is not drawn again.

        `most_calls` bounds the sequences that reach the candidate.
        """
        evaluate, begun, before, steps, asked = self.evaluate, False, self.evaluate.calls, 0, set[int]()
        bound = Bound(seconds)

        def body() -> None:
            nonlocal begun, steps
            steps += begun
            asked.add(evaluate.calls)
            failure = self.remote.failure
            self._keep(failure)
            hit = failure is not None and failure.kind == start.kind
            begun = begun or (hit and failure is not None and failure.text == start.text)
            if len(asked) > most_calls or steps > MOST_STEPS or (begun and bound.over()):
                raise Enough
            if hit and begun:
                raise _Found

        evaluate.most_slow = evaluate.slow + (6 if start.outcome in SLOW else 3)
        try:
            self._run(_machine(start), body, (Phase.generate, Phase.shrink))
        except (Enough, _Found):
            pass
        except HypothesisException as error:
            evaluate.notes.append(f"shrinking ended early: {said(error)}")
        self.shrink_calls = evaluate.calls - before
        return begun

    def confirmed(self, found: Failure) -> Failure | None:
        """The failure, if it comes each time with every call made anew."""
        evaluate = self.evaluate
        evaluate.deadline = time.monotonic() + 60  # whoever asked has a clock of its own, and a failure to tell
        if found.outcome == "timeout":
            again, seconds = self._again(found, PATIENT), evaluate.call_seconds
            if again is not None and again.outcome in SLOW:
                text = f"does not end within {seconds * PATIENT:g} s of CPU time"
                return replace(found, outcome="hung", message=text)
            return replace(found, message=f"takes more than {seconds:g} s of CPU time")
        if found.outcome == "hung":
            return found
        for _ in range(RERUNS):
            again = self._again(found)
            if again is None or again.kind != found.kind:
                return None
        text = self.remote.retold()
        evaluate.ask({"restart": True})
        again = self._again(found)
        if again is None or again.kind != found.kind:
            evaluate.notes.append("it fails only after other objects were used: objects share state")
        return replace(found, text=text)

    def first(self, earlier: list[Any]) -> None:
        """Run earlier counterexamples."""
        for args in earlier:
            try:
                self._keep(self.replay(args))
            except Enough:
                break

    def replay(self, args: Any, *, memory: bool = True, factor: float = 1.0) -> Failure | None:
        """Run one sequence `(machine, ((rule, values), ...))`; as far as its rules apply.

        Raises:
            BadProperty: it has another form.
        """
        try:
            name, steps = args
            steps = [(str(rule), dict(values)) for rule, values in steps]
        except (TypeError, ValueError) as error:
            raise BadProperty(f"{args!r:.200} is no sequence of calls (machine, ((rule, values), ...))") from error
        if name not in self.machines:
            return None
        self.remote.begin(name, memory=memory, factor=factor)
        try:
            _repeat(self.machines[name](), steps)
        except Stop:
            return self.remote.failure
        except UnsatisfiedAssumption:
            pass
        return None

    def _again(self, found: Failure, factor: float = 1.0) -> Failure | None:
        return self.replay(found.args, memory=False, factor=factor)

    def _keep(self, failure: Failure | None) -> None:
        if failure is not None:
            self.evaluate.failures.setdefault(f"{failure.step}: {failure.text}", [failure])

    def _run(self, name: str, after: Callable[[], None], phases: tuple[Phase, ...]) -> None:
        def machine() -> StatefulMachine:
            self.remote.begin(name)
            return self.machines[name]()

        quiet = settings(QUIET, max_examples=self.max_examples, phases=phases, stateful_step_count=self.steps)
        with_seed: Any = seeded(self.seed)
        test: Any = get_state_machine_test(with_seed(machine), settings=quiet)
        inner = test.hypothesis.inner_test

        @functools.wraps(inner)
        def whole(*args: Any, **kwargs: Any) -> None:
            try:
                inner(*args, **kwargs)
            except Stop:
                pass
            except UnsatisfiedAssumption:
                self.invalid += 1
                raise
            after()

        test.hypothesis.inner_test = whole
        test()


def _machine(failure: Failure) -> str:
    return failure.step.partition(".")[0]


def _having(machine: type[StatefulMachine], *roles: str) -> list[str]:
    return [name for name in dir(machine) if getattr(getattr(machine, name, None), "role", "") in roles]


def _repeat(machine: StatefulMachine, steps: list[tuple[str, dict[str, Any]]]) -> None:
    """Execute steps and check the invariants between them, as Hypothesis does."""
    kind = type(machine)
    first = set(_having(kind, "initialize"))
    for name, values in [("", {}), *steps]:
        rule = getattr(kind, name, None) if name else None
        if rule is not None:
            if getattr(rule, "role", "") not in ("rule", "initialize") or rule.draws != set(values):
                return
            if not all(holds(machine) for holds in getattr(rule, "conditions", ())):
                return
            first.discard(name)
            rule(machine, **values)
        elif name:
            return
        for check in (getattr(kind, each) for each in _having(kind, "invariant")):
            due = not first or "early" in check.draws
            if due and all(holds(machine) for holds in getattr(check, "conditions", ())):
                check(machine)
