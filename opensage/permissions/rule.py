"""One rule, and what a call is about as far as rules can speak of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from opensage.errors import ConfigError
from opensage.permissions.commands import Script, analyse
from opensage.permissions.globs import HOLE, covers, fold, literal, may_match
from opensage.permissions.places import Workspace
from opensage.tools.base import Tool

Kind = Literal["text", "path", "command"]
Match = Literal["no", "maybe", "yes"]
MOST = 40_000
"""Characters of an argument that are compared with patterns."""
_KINDS: dict[str, Kind] = {
    "command": "command",
    **dict.fromkeys(("path", "paths", "file", "files", "filename", "folder", "directory"), "path"),
}


def kind_of(tool: Tool) -> Kind:
    """How the main argument of a tool is compared: by the name of the argument."""
    return _KINDS.get(tool.target or "", "text")


@dataclass(slots=True)
class Subject:
    """What a call is about.

    Attributes:
        json: all arguments as JSON, keys sorted.
        targets: the values of the main argument, as written.
        script: what a command runs, for tools that run one.
        inner: files that a command sends output to, as if `write` were called, or takes input from, as `read`.
    """

    tool: str
    kind: Kind
    json: str
    targets: list[str]
    place: Workspace
    script: Script = field(default_factory=Script)
    inner: list[Subject] = field(default_factory=list)

    @classmethod
    def of(cls, tool: Tool, arguments: Mapping[str, Any], place: Workspace) -> Subject:
        """The subject of a call with these arguments."""
        text = json.dumps(arguments, sort_keys=True, ensure_ascii=False, default=str)
        subject = cls(tool.name, kind_of(tool), _bounded(text), _targets(tool, arguments), place)
        if subject.kind == "command":
            subject._read_commands()
        return subject

    def _read_commands(self) -> None:
        for text in self.targets:
            found = analyse(text)
            self.script.commands += found.commands
            self.script.hidden += found.hidden
            for name, paths in (("write", found.writes), ("read", found.reads)):
                self.inner += [Subject(name, "path", "", [path], self.place) for path in paths]

    def spellings(self) -> Iterable[str]:
        """Every text that a deny or ask rule may name the call by."""
        yield from self.targets or [self.json]
        for target in self.targets if self.kind == "path" else ():
            yield from self.place.spellings(target)
        yield from self.script.commands
        yield from self.script.hidden

    def whole(self) -> list[str]:
        """The texts that allow rules must cover, each of them."""
        if self.kind == "path":
            return [self.place.resolve(target) for target in self.targets]
        return self.script.commands if self.kind == "command" else self.targets


def _targets(tool: Tool, arguments: Mapping[str, Any]) -> list[str]:
    if not tool.target:
        return []
    missing = tool.parameters.get("properties", {}).get(tool.target, {}).get("default")
    value = arguments.get(tool.target, missing)
    values = [value] if not isinstance(value, list) else value
    texts = [
        v if isinstance(v, str) else json.dumps(v, ensure_ascii=False, default=str) for v in values if v is not None
    ]
    if len(texts) == 1 and texts[0].lstrip().startswith("[") and not isinstance(value, list):
        texts += _listed(texts[0])
    return [_bounded(text) for text in texts]


def _bounded(text: str) -> str:
    """The text itself; the middle of a huge one becomes a hole, which takes no time to compare."""
    text = text.replace(HOLE, "")
    return text if len(text) <= MOST else f"{text[: MOST // 2]}{HOLE}{text[-MOST // 2 :]}"


def _listed(text: str) -> list[str]:
    """The items of a JSON list that a model wrote as a string: the tool will read it as a list."""
    try:
        items = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return []
    return [item if isinstance(item, str) else json.dumps(item) for item in items]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule, written `tool` or `tool(pattern)`; both are shell globs, e.g. `shell(git *)`, `mcp_*`.

    The pattern is compared with the tool's main argument; one that begins with `{` with all arguments as JSON.
    A pattern that ends in " *" matches without arguments too: `shell(git *)` matches `git`.
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
        return cls(tool.strip(), "" if pattern.strip() == "*" else pattern)

    def __str__(self) -> str:
        return f"{self.tool}({self.pattern})" if self.pattern else self.tool

    def touches(self, subject: Subject) -> Match:
        """Whether the rule speaks of any part of a call: "maybe" when that cannot be seen before it runs.

        Case and Unicode form make no difference.
        """
        found: Match = "no"
        if covers(fold(self.tool), fold(subject.tool)):
            found = self._touches(subject)
        for inner in subject.inner if found != "yes" else ():
            if self.touches(inner) == "yes":
                return "yes"
        return found

    def _touches(self, subject: Subject) -> Match:
        if not self.pattern:
            return "yes"
        if subject.kind == "path" and any(subject.place.same(self.pattern, target) for target in subject.targets):
            return "yes"
        patterns = [fold(p) for p in self._patterns(subject)]
        maybe = False
        texts = [subject.json] if self.pattern.startswith("{") else subject.spellings()
        for text in map(fold, texts):
            for pattern in patterns:
                if pattern == text or covers(pattern, text) or covers(pattern, text + " "):
                    return "yes"
                maybe = maybe or (HOLE in text and may_match(pattern, text))
        return "maybe" if maybe else "no"

    def grants(self, subject: Subject, text: str) -> bool:
        """Whether the rule allows one of the texts of `Subject.whole`."""
        return covers(self.tool, subject.tool) and any(
            pattern == text or covers(pattern, text) or covers(pattern, text + " ")
            for pattern in self._patterns(subject)
        )

    def grants_all(self, subject: Subject) -> bool:
        """Whether the rule alone allows the call: it has no pattern, names it exactly, or is about its JSON."""
        if not covers(self.tool, subject.tool):
            return False
        if not self.pattern:
            return True
        if self.pattern.startswith("{") or not subject.targets:
            return covers(self.pattern, subject.json)
        exact = literal(self.pattern)
        return (
            subject.kind == "command" and exact is not None and [exact.strip()] == [t.strip() for t in subject.targets]
        )

    def _patterns(self, subject: Subject) -> list[str]:
        return [self.pattern] if subject.kind != "path" else [self.pattern, *subject.place.pattern(self.pattern)]


def allowed(rules: list[Rule], subject: Subject) -> Rule | None:
    """A rule that allows the call, or one of those that do together; None when some part is not allowed."""
    for rule in rules:
        if rule.grants_all(subject):
            return rule
    texts = subject.whole()
    used = [next((rule for rule in rules if rule.grants(subject, text)), None) for text in texts]
    written = [inner for inner in subject.inner if inner.tool == "write"]
    if not texts or None in used or any(allowed(rules, inner) is None for inner in written):
        return None
    return used[0]
