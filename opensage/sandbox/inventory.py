"""Every sandbox there is: those on record on this machine, and those of the Docker engine when one answers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from opensage.errors import SandboxUnavailable
from opensage.sandbox.docker import reaper
from opensage.sandbox.docker.client import connect, may_answer, said
from opensage.sandbox.state import SandboxRecord, list_sandboxes, prune_sandboxes


def all_sandboxes() -> list[SandboxRecord]:
    """All of them, live and dead, oldest first."""
    found = [*list_sandboxes(), *_of_engine(reaper.containers)]
    return sorted(found, key=lambda record: record.started)


def prune_all() -> list[SandboxRecord]:
    """Remove what dead owners left, everywhere; returns what was removed."""
    return [*prune_sandboxes(), *_of_engine(reaper.prune)]


def _of_engine(ask: Callable[[Any], list[SandboxRecord]]) -> list[SandboxRecord]:
    if not may_answer():
        return []
    try:
        client = connect()
    except SandboxUnavailable:  # no engine, no containers
        return []
    with contextlib.closing(client), said("looking for containers"):
        return ask(client)
