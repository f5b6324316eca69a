"""Whether a call may run: rules, and the person who is asked where they say so."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from opensage.arguments import parse_arguments
from opensage.errors import ConfigError
from opensage.messages import ToolCall
from opensage.permissions import Rule, Subject, Workspace, allowed
from opensage.tools.base import Tool

Verdict = Literal["allow", "ask", "deny"]
HIDDEN = (
    "rule deny {rule} may speak of it: what it runs cannot be seen beforehand. Write it as plain commands, without "
    "variables, wildcards or quoted scripts in the place of a command"
)
_DEFAULT = "default"


class Ruling(NamedTuple):
    """What to do with a call. `person`: a deny rule may speak of it, so a person may allow it, not `--yes`."""

    verdict: Verdict
    why: str
    person: bool = False

    @property
    def by_default(self) -> bool:
        """Whether no rule speaks of the call."""
        return self.verdict == "allow" and self.why == _DEFAULT


@dataclass(slots=True)
class Policy:
    """Rules in order of strength: deny beats always beats ask beats allow; then the tool's default; then its nature.

    `always` holds what a person chose for the rest of a session. A tool that changes things is allowed inside an
    isolating sandbox, and asked for outside one.
    """

    allow: list[Rule] = field(default_factory=list)
    ask: list[Rule] = field(default_factory=list)
    deny: list[Rule] = field(default_factory=list)
    always: list[Rule] = field(default_factory=list)

    @classmethod
    def parse(cls, allow: Sequence[str] = (), ask: Sequence[str] = (), deny: Sequence[str] = ()) -> Policy:
        """Read the three lists of a configuration."""
        return cls(*([Rule.parse(text) for text in texts] for texts in (allow, ask, deny)))

    def ruling(
        self, tool: Tool, arguments: Mapping[str, Any], *, isolated: bool, place: Workspace | None = None
    ) -> Ruling:
        """What to do with a call, and why. `place` is the workspace that paths are relative to."""
        ruled = None
        if self.allow or self.ask or self.deny or self.always:
            ruled = self._ruled(Subject.of(tool, arguments, place or Workspace(Path())))
        if ruled is not None:
            return ruled
        if tool.approval is not None:
            return Ruling(tool.approval, f"default of {tool.name}")
        if tool.changes and not isolated:
            return Ruling("ask", "there is no isolation")
        return Ruling("allow", _DEFAULT)

    def _ruled(self, subject: Subject) -> Ruling | None:
        denies = _touching(self.deny, subject)
        if denies["yes"]:
            return Ruling("deny", f"rule deny {denies['yes']}")
        if denies["maybe"]:
            return Ruling("ask", HIDDEN.format(rule=denies["maybe"]), person=True)
        if rule := allowed(self.always, subject):
            return Ruling("allow", f"the user said always {rule}")
        asks = _touching(self.ask, subject)
        if rule := asks["yes"] or asks["maybe"]:
            return Ruling("ask", f"rule ask {rule}")
        if rule := allowed(self.allow, subject):
            return Ruling("allow", f"rule allow {rule}")
        return None


def _touching(rules: list[Rule], subject: Subject) -> dict[str, Rule | None]:
    found: dict[str, Rule | None] = {"yes": None, "maybe": None, "no": None}
    for rule in rules:
        match = rule.touches(subject)
        found[match] = found[match] or rule
        if match == "yes":
            break
    return found


@dataclass(frozen=True, slots=True)
class Decision:
    """A person's answer. `arguments` replaces the call's; `remember` is a rule for the rest of the session."""

    allowed: bool
    reason: str = ""
    arguments: Mapping[str, Any] | None = None
    remember: str = ""


Approver = Callable[[ToolCall], object | Awaitable[object]]
"""Gets the call; answers True, False, a `Decision`, or an edited `ToolCall` (or a dict of edited arguments)."""

NOBODY = (
    "nobody is there to approve it. Run with --yes, or add an allow rule to ~/.opensage/config.toml ([permissions])"
)


async def decide(approve: str | Approver, call: ToolCall) -> Decision:
    """Ask `approve` about a call.

    Raises:
        ConfigError: `approve` is neither "allow", "deny" nor callable, or answers with something else than it may.
    """
    if approve == "allow":
        return Decision(True, "approved by --yes")
    if approve == "deny":
        return Decision(False, NOBODY)
    if not callable(approve):
        raise ConfigError(f"approve must be 'allow', 'deny' or a function, not {approve!r}")
    answer = approve(call)
    if inspect.isawaitable(answer):
        answer = await answer
    return _decision(answer, call)


def _decision(answer: object, call: ToolCall) -> Decision:
    if isinstance(answer, Decision):
        if answer.remember:
            Rule.parse(answer.remember)
        return answer
    if isinstance(answer, bool):
        return Decision(answer, "approved" if answer else "the user refused it")
    if isinstance(answer, ToolCall):
        if answer.name != call.name:
            raise ConfigError(f"the approve function may edit arguments, not turn {call.name} into {answer.name}")
        answer = parse_arguments(answer.arguments)
    if isinstance(answer, Mapping):
        return Decision(True, "approved with changes", dict(answer))
    raise ConfigError(f"the approve function must answer True, False, a Decision or an edited call, not {answer!r}")
