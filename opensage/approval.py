"""Permission rules: allow, ask or deny a call, by tool and by a pattern over its arguments."""

from __future__ import annotations

import fnmatch
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from opensage.errors import ConfigError
from opensage.messages import ToolCall
from opensage.tools.base import Tool

Verdict = Literal["allow", "ask", "deny"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule, written `tool` or `tool(pattern)`; both are shell globs, e.g. `shell(git *)`, `mcp_*`.

    The pattern is matched against the tool's main argument (command, path) and against the arguments as JSON.
    """

    tool: str
    pattern: str = ""

    @classmethod
    def parse(cls, text: str) -> Rule:
        """Read `tool` or `tool(pattern)`.

        Raises:
            ConfigError: neither.
        """
        text = text.strip()
        if not text or text.startswith("("):
            raise ConfigError(f"permission rule {text!r} names no tool; write e.g. shell or shell(git *)")
        if "(" not in text:
            return cls(text)
        if not text.endswith(")"):
            raise ConfigError(f"permission rule {text!r} lacks its closing parenthesis; write e.g. shell(git *)")
        tool, _, pattern = text[:-1].partition("(")
        return cls(tool.strip(), pattern)

    def matches(self, tool: Tool, arguments: Mapping[str, Any]) -> bool:
        """Whether the rule speaks of this call."""
        if not fnmatch.fnmatchcase(tool.name, self.tool):
            return False
        if not self.pattern:
            return True
        return any(fnmatch.fnmatchcase(text, self.pattern) for text in _texts(tool, arguments))

    def __str__(self) -> str:
        return f"{self.tool}({self.pattern})" if self.pattern else self.tool


def _texts(tool: Tool, arguments: Mapping[str, Any]) -> list[str]:
    texts = [json.dumps(arguments, sort_keys=True, ensure_ascii=False, default=str)]
    target = arguments.get(tool.target) if tool.target else None
    return [str(target), *texts] if target is not None else texts


@dataclass(slots=True)
class Policy:
    """Rules in order of strength: deny beats ask beats allow; then the tool's own default; then its nature.

    A tool that changes things is allowed inside an isolating sandbox, and asked for outside one.
    """

    allow: list[Rule] = field(default_factory=list)
    ask: list[Rule] = field(default_factory=list)
    deny: list[Rule] = field(default_factory=list)

    @classmethod
    def parse(cls, allow: Sequence[str] = (), ask: Sequence[str] = (), deny: Sequence[str] = ()) -> Policy:
        """Read the three lists of a configuration."""
        return cls(*([Rule.parse(text) for text in texts] for texts in (allow, ask, deny)))

    def verdict(self, tool: Tool, arguments: Mapping[str, Any], *, isolated: bool) -> tuple[Verdict, str]:
        """What to do with a call, and why."""
        named: tuple[tuple[Verdict, list[Rule]], ...] = (("deny", self.deny), ("ask", self.ask), ("allow", self.allow))
        for verdict, rules in named:
            for rule in rules:
                if rule.matches(tool, arguments):
                    return verdict, f"rule {verdict} {rule}"
        if tool.approval is not None:
            return tool.approval, f"default of {tool.name}"
        if tool.changes and not isolated:
            return "ask", "there is no isolation"
        return "allow", "default"


@dataclass(frozen=True, slots=True)
class Decision:
    """A person's answer. `arguments` replaces the call's; `remember` is a rule for the rest of the session."""

    allowed: bool
    reason: str = ""
    arguments: Mapping[str, Any] | None = None
    remember: str = ""


Approver = Callable[[ToolCall], object | Awaitable[object]]
"""Gets the call; answers True, False, a `Decision`, or an edited `ToolCall` (or a dict of edited arguments)."""

NOBODY = "nobody is there to approve it. Run with --yes, or add an allow rule for it to [permissions] in opensage.toml"


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
    return _decision(answer)


def _decision(answer: object) -> Decision:
    if isinstance(answer, Decision):
        return answer
    if isinstance(answer, bool):
        return Decision(answer, "approved" if answer else "the user refused it")
    if isinstance(answer, ToolCall):
        answer = json.loads(answer.arguments)
    if isinstance(answer, Mapping):
        return Decision(True, "approved with changes", dict(answer))
    raise ConfigError(f"the approve function must answer True, False, a Decision or an edited call, not {answer!r}")
