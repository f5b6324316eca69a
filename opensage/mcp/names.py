"""Names of MCP tools as models may say them."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterable

LONGEST = 64
"""Characters of a tool's name, by the providers' rule."""


class Names:
    """Gives every tool of every server one name, `<server>__<tool>`, for good.

    A name that was given once is never another tool's, so a permission that a person gave for it cannot pass on.
    """

    def __init__(self) -> None:
        self._given: dict[tuple[str, str], str] = {}

    def assign(self, server: str, tools: Iterable[str], taken: Callable[[str], bool]) -> dict[str, str]:
        """The name of each tool. Those that need no change come first, so that order makes no difference.

        Args:
            server: the server's name.
            tools: its own names of its tools.
            taken: whether another kind of tool has a name already.
        """
        order = sorted(tools, key=lambda tool: (plain(server, tool) != f"{server}__{tool}", tool))
        return {tool: self._name(server, tool, taken) for tool in order}

    def _name(self, server: str, tool: str, taken: Callable[[str], bool]) -> str:
        known = self._given.get((server, tool))
        if known is not None:
            return known
        used = set(self._given.values())
        name, salt = plain(server, tool), 0
        while name in used or taken(name):
            name, salt = _shortened(plain(server, tool), server, tool, salt), salt + 1
        self._given[server, tool] = name
        return name


def plain(server: str, tool: str) -> str:
    """A name of letters, digits, `_` and `-`, at most 64 long; a longer one ends in a hash of the whole."""
    name = f"{_letters(server)}__{_letters(tool) or 'tool'}"
    return name if len(name) <= LONGEST else _shortened(name, server, tool, 0)


def _letters(text: str) -> str:
    ascii_only = unicodedata.normalize("NFKD", text[:1000]).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9_-]+", "_", ascii_only)


def _shortened(name: str, server: str, tool: str, salt: int) -> str:
    whole = "\0".join((server, tool, *[str(salt)] * (salt > 0)))
    mark = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{name[: LONGEST - 9]}_{mark}"
