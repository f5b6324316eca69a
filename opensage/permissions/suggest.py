"""The rule that a person is offered to say "always" to: about this call and those like it, and never hard to read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from opensage.permissions.commands import RUNNERS, SHELLS, base
from opensage.permissions.globs import HOLE, escape
from opensage.permissions.places import Workspace
from opensage.permissions.rule import Rule, Subject
from opensage.tools.base import Tool

_MOST = 160
_SUBCOMMANDS = frozenset(
    [
        "git",
        "npm",
        "npx",
        "pnpm",
        "yarn",
        "pip",
        "uv",
        "poetry",
        "cargo",
        "go",
        "make",
        "docker",
        "kubectl",
        "apt",
        "gh",
    ]
)
_INTERPRETERS = re.compile(r"(python|node|deno|bun|perl|ruby|php|lua|awk|gawk|sed|find|fd)[\d.]*")
_PLAIN = re.compile(r"[A-Za-z][\w.-]*")


def suggest(tool: Tool, arguments: Mapping[str, Any], place: Workspace) -> Rule | None:
    """The rule, or None when none can be shown whole."""
    subject = Subject.of(tool, arguments, place)
    if not tool.target:
        return Rule(tool.name)
    if len(subject.targets) != 1:
        return None
    rule = Rule(tool.name, _command(subject) if subject.kind == "command" else escape(subject.whole()[0]))
    shown = rule.pattern
    return rule if shown and len(shown) <= _MOST and shown.isprintable() and not _misread(shown) else None


def _command(subject: Subject) -> str:
    exact = escape(subject.targets[0].strip())
    commands = subject.script.commands
    if len(commands) != 1 or HOLE in subject.script.hidden or subject.inner:
        return exact
    name, *rest = commands[0].split(" ")
    if not _PLAIN.fullmatch(name) or base(name) in RUNNERS or name in SHELLS or _INTERPRETERS.fullmatch(name):
        return exact
    if name not in _SUBCOMMANDS:
        return f"{name} *"
    return f"{name} {rest[0]} *" if rest and _PLAIN.fullmatch(rest[0]) else exact


def _misread(pattern: str) -> bool:
    """Whether the pattern would be read as something else than it is meant to be: JSON, or everything."""
    return pattern.startswith("{") or pattern.strip() == "*"
