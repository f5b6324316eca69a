"""The session: an append-only event log, and the folds over it."""

from __future__ import annotations

from opensage.log.events import Event
from opensage.log.session import Session
from opensage.log.store import SessionStore
from opensage.log.toolkit_events import ToolkitMade, ToolkitRetired  # so that they can be decoded

__all__ = ["Event", "Session", "SessionStore", "ToolkitMade", "ToolkitRetired"]
