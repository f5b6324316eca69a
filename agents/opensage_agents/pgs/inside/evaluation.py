"""Runs the candidate on an input and lets every property judge the result."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from opensage_agents.pgs.inside import codec
from opensage_agents.pgs.inside.failures import SLOW, Failure, text_of
from opensage_agents.pgs.inside.space import BadProperty, NotApplicable, judge

Ask = Callable[[dict[str, Any]], dict[str, Any]]


class Enough(BaseException):
    """A bound is reached. Not an `Exception`, so that Hypothesis lets it through."""


@dataclass(slots=True)
class Evaluation:
    """The candidate behind `ask`, and the properties. Each input is run once, but for reruns."""

    ask: Ask
    properties: dict[str, Callable[..., Any]]
    call_seconds: float
    fresh: bool
    deadline: float
    kinds: frozenset[str] = frozenset()
    """Types of the results that are known to be right; none when no example is."""
    most_slow: int = 4
    calls: int = 0
    slow: int = 0
    bad: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    failures: dict[str, list[Failure]] = field(default_factory=dict)

    def __call__(self, args: Any, *, again: bool = False) -> list[Failure]:
        """What goes wrong with these arguments.

        Raises:
            Enough: the time is over, or too many calls were slow.
        """
        data = codec.encode(args)
        key = json.dumps(data)
        if key in self.failures and not again:
            return self.failures[key]
        if time.monotonic() > self.deadline or (self.slow >= self.most_slow and not again):
            raise Enough
        found = self._judge(args, self.run(data))
        if not again:
            self.failures[key] = found
        return found

    def mark(self, args: Any, wanted: str) -> None:
        """What goes wrong with these arguments goes wrong for sure: the right result is known."""
        key = json.dumps(codec.encode(args))
        self.failures[key] = [replace(each, wanted=wanted) for each in self.failures.get(key, [])]

    def run(self, data: Any, factor: float = 1.0, kind: str = "call") -> dict[str, Any]:
        """One call."""
        self.calls += 1
        answer = _sound(self.ask({kind: data, "cpu": self.call_seconds * factor, "fresh": self.fresh}))
        if answer["outcome"] in SLOW:
            self.slow += 1
        if answer["outcome"] == "hung" and self.slow < self.most_slow:  # each costs its wall clock
            self.slow += 1
        return answer

    def _judge(self, args: Any, answer: dict[str, Any]) -> list[Failure]:
        if answer["outcome"] != "ok":
            line = f" (line {answer['line']})" if answer.get("line") else ""
            message = str(answer.get("message", ""))[:500] + line
            return [Failure(args, text_of(args), answer["outcome"], "", message)]
        if "after" in answer:
            self._note("the candidate changes its arguments")
        return [
            Failure(args, text_of(args), "violated", name, message, repr(codec.decode(answer["value"]))[:500])
            for name, message in self.verdicts(args, answer).items()
        ]

    def verdicts(self, args: Any, answer: dict[str, Any]) -> dict[str, str]:
        """What each property that rejects an answer says."""
        found: dict[str, str] = {}
        for name, function in self.properties.items():
            if name in self.bad:
                continue
            # Each gets its own copies: a property may change them.
            given = codec.decode(codec.encode(args))
            after = codec.decode(answer["after"]) if "after" in answer else codec.decode(codec.encode(args))
            try:
                message = judge(name, function, given, codec.decode(answer["value"]), tuple(after))
            except NotApplicable:
                continue
            except BadProperty as error:
                message = self._of_another_kind(answer)
                if not message:
                    self.bad[name] = str(error)
                    continue
            self.counts[name] += 1
            if message is not None:
                found[name] = message
        return found

    def _of_another_kind(self, answer: dict[str, Any]) -> str:
        """A property may stumble over a result that is of no type that examples have: that is the candidate's fault."""
        kind = kind_of(codec.decode(answer["value"]))
        if not self.kinds or kind in self.kinds:
            return ""
        return f"the result is of type {kind}, not {' or '.join(sorted(self.kinds))}"

    def all_failures(self) -> list[Failure]:
        """Every one that was seen, but for those of properties that turned out to be of no use."""
        return [each for found in self.failures.values() for each in found if each.prop not in self.bad]

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def _sound(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer, or what a candidate gets for one that it wrote itself and that is no value."""
    try:
        if answer["outcome"] == "ok":
            codec.decode(answer["value"])
            tuple(codec.decode(answer.get("after", [])))
    except (KeyError, TypeError, ValueError, RecursionError):
        return {"outcome": "crashed", "message": "it wrote into the pipe that its answers go through"}
    return answer


def kind_of(value: Any) -> str:
    """The name of a result's type; lists and tuples are one, and so are numbers."""
    name = type(value).__name__
    return {"tuple": "list", "int": "number", "float": "number"}.get(name, name)
