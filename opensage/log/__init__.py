"""The session: an append-only event log, and the folds over it."""

from __future__ import annotations

from opensage.log.events import Event
from opensage.log.session import Session
from opensage.log.store import SessionStore

__all__ = ["Event", "Session", "SessionStore"]
