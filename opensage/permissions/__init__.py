"""Permission rules: what they say about a call, every spelling of it."""

from __future__ import annotations

from opensage.permissions.places import Workspace
from opensage.permissions.rule import Rule, Subject, allowed
from opensage.permissions.suggest import suggest

__all__ = ["Rule", "Subject", "Workspace", "allowed", "suggest"]
