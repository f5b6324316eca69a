"""Whose an item is, and what a reader may see."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from opensage_memory.errors import BadInput

MAX_SCOPE = 512
EVERYTHING = "*"
"""The view of an administrator: all scopes, never a default."""
Scopes = str | Iterable[str]


def check_scope(scope: object) -> str:
    """A scope to write to: a path of one to sixteen names, `user/project/agent`, normalised (NFC).

    Raises:
        BadInput: not such a path.
    """
    if not isinstance(scope, str) or not scope or len(scope) > MAX_SCOPE:
        raise BadInput(f"a scope is a path as user/project of 1 to {MAX_SCOPE} characters, not {_shown(scope)}")
    scope = unicodedata.normalize("NFC", scope)
    names = scope.split("/")
    if len(names) > 16 or any(_bad(name) for name in names):
        raise BadInput(f"{_shown(scope)} is not a scope: at most sixteen names joined by /, none empty, '.', '..', '*'")
    return scope


def check_scopes(scopes: Scopes) -> tuple[str, ...]:
    """Scopes to read: each exact (`a/b`), with all below it (`a/b/*`), or everything (`*`).

    Raises:
        BadInput: one is malformed, or there is none.
    """
    given = (scopes,) if isinstance(scopes, str) or not isinstance(scopes, Iterable) else tuple(scopes)
    if not given:
        raise BadInput("name a scope to read, as user/project")
    return tuple(dict.fromkeys(scope if scope == EVERYTHING else _pattern(scope) for scope in given))


def lineage(scope: str) -> tuple[str, ...]:
    """A scope and the wider ones around it: what was published to them is for it too."""
    names = check_scope(scope).split("/")
    return tuple("/".join(names[:count]) for count in range(len(names), 0, -1))


def covers(scopes: Iterable[str], scope: str) -> bool:
    """Whether one of these read scopes shows what is in `scope`."""
    return any(
        wanted in (EVERYTHING, scope) or (wanted.endswith("/*") and f"{scope}/".startswith(wanted[:-1]))
        for wanted in scopes
    )


def _pattern(scope: object) -> str:
    if isinstance(scope, str) and scope.endswith("/*"):
        return check_scope(scope[:-2]) + "/*"
    return check_scope(scope)


def _bad(name: str) -> bool:
    odd = any(ord(char) < 32 or 0xD800 <= ord(char) <= 0xDFFF for char in name)
    return odd or not name.strip() or name in (".", "..", "*")


def _shown(value: object) -> str:
    return repr(value)[:80]


@dataclass(frozen=True, slots=True)
class View:
    """What a read may show; every store filters by it before it takes the best.

    Attributes:
        scopes: as `check_scopes` gives them.
        now: the instant at which something counts as over.
        kinds: only these; None for all.
        as_of: what was true in the world at this instant, instead of what is true now.
        retired: also what was taken back.
        ended: also what was true once and is not any more.
        archived: also what was put away.
        trusts: only of these trusts; None for all.
    """

    scopes: tuple[str, ...]
    now: datetime
    kinds: tuple[str, ...] | None = None
    as_of: datetime | None = None
    retired: bool = False
    ended: bool = False
    archived: bool = False
    trusts: tuple[str, ...] | None = None

    def but(self, **changes: object) -> View:
        """A copy with some fields changed."""
        return replace(self, **changes)  # type: ignore[arg-type]

    def everything(self) -> View:
        """The same scopes, with what is over, retired and archived."""
        return replace(self, kinds=None, as_of=None, trusts=None, retired=True, ended=True, archived=True)
