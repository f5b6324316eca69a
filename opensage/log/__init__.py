"""The session: an append-only event log, and the folds over it."""

from __future__ import annotations

from opensage.log.events import Event
from opensage.log.memory_events import Recalled  # so that they can be decoded
from opensage.log.session import Session
from opensage.log.store import SessionStore
from opensage.log.toolkit_events import ToolkitMade, ToolkitRetired

__all__ = ["Event", "Recalled", "Session", "SessionStore", "ToolkitMade", "ToolkitRetired"]
