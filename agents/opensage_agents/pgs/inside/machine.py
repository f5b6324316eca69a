"""Machines: properties of an object, as rules that call its methods. The object lives in the candidate's process."""

from __future__ import annotations

import functools
import json
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from hypothesis import stateful
from hypothesis.errors import HypothesisException

from opensage_agents.pgs.inside import codec
from opensage_agents.pgs.inside.evaluation import Enough, Evaluation
from opensage_agents.pgs.inside.failures import Failure
from opensage_agents.pgs.inside.space import CHECK_SECONDS, BadProperty, Slow, line_of, said, time_box


class Stop(BaseException):
    """This run of a machine is over: something failed. Not an `Exception`, so that rules let it through."""


@dataclass(slots=True)
class _Call:
    request: dict[str, Any]
    text: str
    at: int
    """Which execution of a rule or invariant made it."""
    shown: bool
    answer: dict[str, Any]


@dataclass(slots=True)
class _Known:
    """What is known after a sequence of requests: the last answer, and what came next."""

    answer: dict[str, Any] | None = None
    after: dict[str, _Known] = field(default_factory=dict)


@dataclass(slots=True)
class Remote:
    """The object under test as a machine sees it, and the record of one run.

    What was asked once in the same order is answered from memory: repeats cost nothing, and a candidate that answers
    differently each time cannot confuse Hypothesis. Without `memory` every request reaches the candidate.
    """

    evaluate: Evaluation
    entry: str
    lines: list[str]
    machine: str = ""
    memory: bool = True
    factor: float = 1.0
    calls: list[_Call] = field(default_factory=list)
    steps: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    failure: Failure | None = None
    reached: set[str] = field(default_factory=set)
    _within: str = ""
    _at: int = 0
    _checks: bool = False
    _sent: int = 0
    _first: _Known = field(default_factory=_Known)
    _known: _Known = field(default_factory=_Known)

    def begin(self, machine: str, *, memory: bool = True, factor: float = 1.0) -> None:
        """A new run; the object is made by its first call."""
        self.machine, self.memory, self.factor = machine, memory, factor
        self.calls, self.steps, self.failure, self._within = [], [], None, ""
        self._sent, self._known = 0, self._first

    def step(self, machine: Any, function: Callable[..., Any], given: dict[str, Any], checks: bool) -> Any:
        """Execute a rule or an invariant.

        Raises:
            Stop: it does not hold, or the candidate failed.
            Enough: the machine cannot be used.
        """
        name = function.__name__
        if self._within:  # a rule calls another
            return function(machine, **given)
        try:
            if not checks:
                self.steps.append((name, codec.decode(_data(given))))
            self._within, self._at, self._checks = name, self._at + 1, checks
            self.reached.add(f"{self.machine}.{name}")
            with time_box(CHECK_SECONDS):
                result = function(machine, **given)
        except AssertionError as error:
            self._fail("violated", f"{name}: {str(error)[:500] or self._source(error)}")
        except HypothesisException:  # `assume`
            raise
        except (Exception, Slow, SystemExit) as error:
            where = f" (line {line})" if (line := line_of(error)) else ""
            text = str(error) if isinstance(error, BadProperty) else f"{said(error)}{where}"
            self.evaluate.bad[self.machine] = f"{name}: {text}"
            raise Enough from error
        finally:
            self._within = ""
        if self.failure is not None:  # the rule has caught `Stop`
            raise Stop
        return result

    def ask(self, kind: str, name: str, args: Any, kwargs: Any) -> dict[str, Any]:
        """Make an object, call a method of it, or read an attribute."""
        if not self._within:
            raise BadProperty("the object can be used in rules and invariants only")
        if self.failure is not None:
            raise Stop
        request = {"object": kind, "name": name, "args": _data(args), "kwargs": _data(kwargs)}
        answer = self._answered(request)
        shown = kind == "make" or not self._checks
        self.calls.append(_Call(request, self._text(kind, name, args, kwargs), self._at, shown, answer))
        return answer

    def value(self, answer: dict[str, Any]) -> Any:
        """What came back; anything but a result ends the run."""
        if answer["outcome"] != "ok":
            line = f" (line {answer['line']})" if answer.get("line") else ""
            self._fail(answer["outcome"], str(answer.get("message", ""))[:500] + line)
        return codec.decode(answer["value"])

    def told(self) -> str:
        """The calls of the rules, and those of what failed, as Python text."""
        return "; ".join(call.text for call in self._told())

    def retold(self) -> str:
        """`told`, if these calls alone get the same answers; otherwise every call that was made."""
        told, every = self._told(), self.calls
        if len(told) == len(every):
            return self.told()
        self._sent = 0
        if all(self._send(call.request) == call.answer for call in told):
            return "; ".join(call.text for call in told)
        return "; ".join(call.text for call in every)

    def _told(self) -> list[_Call]:
        return [call for call in self.calls if call.shown or call.at == self._at]

    def _answered(self, request: dict[str, Any]) -> dict[str, Any]:
        if not self.memory:
            return self._send(request)
        known = self._known = self._known.after.setdefault(json.dumps(request), _Known())
        if known.answer is None:
            known.answer = self._send(request, [call.request for call in self.calls[self._sent :]])
        return known.answer

    def _send(self, request: dict[str, Any], before: list[dict[str, Any]] | None = None) -> dict[str, Any]:
        """One request to the candidate; those before it are known, and go with it."""
        evaluate = self.evaluate
        if time.monotonic() > evaluate.deadline or (self.memory and evaluate.slow >= evaluate.most_slow):
            raise Enough
        left = signal.setitimer(signal.ITIMER_PROF, 0)[0]  # the time box must not break a message in two
        try:
            if evaluate.fresh and not self._sent:
                evaluate.ask({"restart": True})
            self._sent += 1 + len(before or ())
            return evaluate.run({**request, "before": before or []}, self.factor, "object")
        finally:
            signal.setitimer(signal.ITIMER_PROF, left)

    def _fail(self, outcome: str, message: str) -> NoReturn:
        if self.failure is None:
            last = self.calls[-1].answer if self.calls else {}
            result = repr(codec.decode(last["value"]))[:500] if "value" in last else ""
            broken = self.machine if outcome == "violated" else ""
            args, step = (self.machine, tuple(self.steps)), f"{self.machine}.{self._within}"
            self.failure = Failure(args, self.told(), outcome, broken, message, result, step)
        raise Stop

    def _source(self, error: BaseException) -> str:
        line = line_of(error)
        return f"does not hold: {self.lines[line - 1].strip()[:300]}" if line else "does not hold"

    def _text(self, kind: str, name: str, args: Any, kwargs: Any) -> str:
        first = self.entry.rpartition(".")[2][:1].lower()
        variable = first if first.isascii() and first.isalpha() else "x"
        words = ", ".join([*map(repr, args), *(f"{key}={value!r}" for key, value in kwargs.items())])
        if kind == "make":
            return f"{variable} = {self.entry}({words})"
        return f"{variable}.{name}" if kind == "get" else f"{variable}.{name}({words})"


def _data(value: Any) -> Any:
    data = codec.encode(value)
    if '{"o": ' in json.dumps(data):
        raise BadProperty(f"{value!r:.200} holds an object that cannot be sent: use plain data")
    return data


class StatefulMachine(stateful.RuleBasedStateMachine):
    """What a machine of a property file is made of. One object at a time is under test."""

    _remote: Remote
    _made = False

    def make(self, *args: Any, **kwargs: Any) -> None:
        """Make a new object; where no rule does, the first use makes one without arguments."""
        self._made = True
        self._remote.value(self._remote.ask("make", "", args, kwargs))

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method. An exception of it is a failure of the candidate."""
        return self._remote.value(self._asked("method", method, args, kwargs))

    def attribute(self, name: str) -> Any:
        """The value of an attribute."""
        return self._remote.value(self._asked("get", name, (), {}))

    def raises(self, kinds: Any, method: str, *args: Any, **kwargs: Any) -> None:
        """Assert that a method raises such an exception, given as a class, a name, or a tuple of them."""
        answer = self._asked("method", method, args, kwargs)
        wanted = [getattr(each, "__name__", str(each)) for each in (kinds if isinstance(kinds, tuple) else (kinds,))]
        call = self._remote.calls[-1]
        if answer["outcome"] == "ok":
            must = f"{call.text} must raise {' or '.join(wanted)}"
            raise AssertionError(f"{must}, but returns {codec.decode(answer['value'])!r:.200}")
        raised = answer.get("raises")
        if answer["outcome"] != "crashed" or not isinstance(raised, list):
            self._remote.value(answer)
        elif not set(map(str, raised)) & set(wanted):
            must = f"{call.text} must raise {' or '.join(wanted)}"
            raise AssertionError(f"{must}, but raises {answer.get('message', '')}"[:500])
        head, _, words = call.text[:-1].partition("(")
        kind = wanted[0] if len(wanted) == 1 else f"({', '.join(wanted)})"
        call.text = f"raises({', '.join([kind, head, *filter(None, [words])])})"

    def _asked(self, kind: str, name: str, args: Any, kwargs: Any) -> dict[str, Any]:
        if not self._made:
            self.make()
        return self._remote.ask(kind, name, args, kwargs)


# --- decorators ----------------------------------------------------------------------------------------------------


def _recorded(function: Callable[..., Any], role: str, draws: frozenset[str] = frozenset()) -> Callable[..., Any]:
    @functools.wraps(function)
    def run(self: Any, **given: Any) -> Any:
        return self._remote.step(self, function, given, role == "invariant")

    marked: Any = run
    marked.role, marked.draws = role, draws
    return run


def _rule(**options: Any) -> Callable[..., Any]:
    return lambda function: stateful_rule(**options)(_recorded(function, "rule", _draws(options)))


def _initialize(**options: Any) -> Callable[..., Any]:
    return lambda function: stateful_initialize(**options)(_recorded(function, "initialize", _draws(options)))


def _draws(options: dict[str, Any]) -> frozenset[str]:
    return frozenset(options) - {"target", "targets"}


def _invariant(**options: Any) -> Callable[..., Any]:
    early = frozenset(["early"] if options.get("check_during_init") else [])
    return lambda function: stateful_invariant(**options)(_recorded(function, "invariant", early))


def _precondition(holds: Callable[[Any], Any]) -> Callable[..., Any]:
    def mark(function: Any) -> Any:
        marked: Any = stateful_precondition(holds)(function)
        marked.conditions = (*getattr(function, "conditions", ()), holds)
        return marked

    return mark


stateful_rule: Any = stateful.rule
stateful_initialize: Any = stateful.initialize
stateful_invariant: Any = stateful.invariant
stateful_precondition: Any = stateful.precondition


def names() -> dict[str, Any]:
    """What a file of machines sees; the same stand in for those of `hypothesis.stateful`, which files may import."""
    ours = {
        "rule": _rule,
        "initialize": _initialize,
        "invariant": _invariant,
        "precondition": _precondition,
        "RuleBasedStateMachine": StatefulMachine,
    }
    for name, each in ours.items():
        setattr(stateful, name, each)
    plain = {"Bundle": stateful.Bundle, "consumes": stateful.consumes, "multiple": stateful.multiple}
    return {**ours, **plain, "StatefulMachine": StatefulMachine}
