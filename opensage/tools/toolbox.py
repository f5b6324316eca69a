"""The tools of one agent: one ordered mapping from name to tool, looked up at each model call and never copied."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from typing import Any

from opensage.errors import ConfigError
from opensage.tools.base import Tool

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Toolbox:
    """An ordered mapping name → tool in which no name can be taken twice and no built-in removed.

    A tool may be there without being shown to the model: it can be called, but costs no prompt.
    `version` grows with every change, so that whatever is derived from the tools can be cached by it.
    """

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self._hidden: set[str] = set()
        self.version = 0
        self._schemas: list[dict[str, Any]] = []
        self._schemas_version = -1
        for tool in tools:
            self.add(tool)

    def __len__(self) -> int:
        return len(self._tools)

    def __iter__(self) -> Iterator[Tool]:
        return iter(list(self._tools.values()))

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __repr__(self) -> str:
        return f"Toolbox({', '.join(self._tools)})"

    @property
    def names(self) -> list[str]:
        """The names, in the order in which the tools were added."""
        return list(self._tools)

    @property
    def shown(self) -> list[str]:
        """The names of those that the model is shown."""
        return [name for name in self._tools if name not in self._hidden]

    def get(self, name: str) -> Tool | None:
        """The tool of that name, or None."""
        return self._tools.get(name)

    def add(self, tool: Tool, *, shown: bool = True) -> None:
        """Add a tool; it is usable on the very next model call, and in its prompt if it is `shown`.

        Raises:
            ConfigError: the name is not one that providers accept, or another tool has it.
        """
        if not isinstance(tool.name, str) or not NAME.fullmatch(tool.name):
            raise ConfigError(
                f"tool name {tool.name!r} (from {tool.source}) is not valid: use 1 to 64 letters, digits, '_' or '-'"
            )
        present = self._tools.get(tool.name)
        if present is not None:
            raise ConfigError(
                f"tool '{tool.name}' from {tool.source} would hide the one from {present.source}: give it another name"
            )
        self._tools[tool.name] = tool
        if not shown:
            self._hidden.add(tool.name)
        self.version += 1

    def show(self, names: Iterable[str]) -> None:
        """Put tools that are there into the prompt of the next model call; at its end, so that the rest is the same."""
        for name in [name for name in names if name in self._hidden]:
            self._tools[name] = self._tools.pop(name)
            self._hidden.remove(name)
            self.version += 1

    def remove(self, name: str) -> None:
        """Take a tool out.

        Raises:
            ConfigError: there is no such tool, or it is a built-in.
        """
        tool = self._tools.get(name)
        if tool is None:
            raise ConfigError(f"there is no tool '{name}'{self._hint(name)}")
        if tool.source == "builtin":
            raise ConfigError(f"tool '{name}' is built in and cannot be removed; deny it by a permission rule instead")
        del self._tools[name]
        self._hidden.discard(name)
        self.version += 1

    def schemas(self) -> list[dict[str, Any]]:
        """The OpenAI function schemas of what is shown, in order. The same list object until a tool comes or goes."""
        if self._schemas_version != self.version:
            self._schemas = [self._tools[name].schema() for name in self.shown]
            self._schemas_version = self.version
        return self._schemas

    def nearest(self, name: str) -> str | None:
        """The name most like a mistaken one, or None when nothing is near."""
        lowered = {known.lower(): known for known in self._tools}
        found = difflib.get_close_matches(name.lower()[:64], lowered, n=1, cutoff=0.5)
        return lowered[found[0]] if found else None

    def _hint(self, name: str) -> str:
        near = self.nearest(name)
        return f": did you mean '{near}'?" if near else f"; there are: {', '.join(self._tools) or 'none'}"
