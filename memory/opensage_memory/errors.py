"""What can go wrong with a memory; each message names the fix."""

from __future__ import annotations


class GraphMemoryError(Exception):
    """Base of all of them."""


class BadInput(GraphMemoryError, ValueError):
    """A scope, text, kind, time or query that cannot be used; nothing was stored."""


class Damaged(GraphMemoryError):
    """The store's file is not whole: it can be read at most, and `check --repair` makes a new one of what is intact."""


class ReadOnly(GraphMemoryError):
    """Something was to be written to a memory that can only be read."""


class CannotUndo(GraphMemoryError):
    """The operation is not there, too old, or what it changed was changed again."""


class StoreUnavailable(GraphMemoryError):
    """The store cannot be opened or reached: driver missing, server away, file busy for too long."""
