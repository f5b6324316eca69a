"""Writes the execution graph from the logs of all sessions of a workspace."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from opensage.errors import SessionError
from opensage.log.store import SessionStore
from opensage.memory.follow import Follower
from opensage.memory.graph import TreeFold
from opensage.memory.place import MemoryPlace, explained
from opensage.memory.write import GraphWriter


@dataclass(slots=True)
class Rebuilt:
    """What it came to: root sessions, items they tell of, logs that could not be read."""

    sessions: int = 0
    items: int = 0
    unreadable: list[str] = field(default_factory=list)


def rebuild(place: MemoryPlace, sessions: SessionStore, progress: Callable[[int], None] | None = None) -> Rebuilt:
    """Write all sessions, oldest first; what is there stays as it is.

    Raises:
        MemoryUnavailable: the memory cannot be written.
    """
    done = Rebuilt()
    writer = GraphWriter(place)
    for root in sessions.ids():
        try:
            sessions.load(root)
        except SessionError as error:
            done.unreadable.append(str(error))
            continue
        fold = TreeFold()
        news = Follower(sessions.folder, root, sessions.mask).news(math.inf)
        with explained():
            done.items += writer.write([piece for told in news for piece in fold.apply(*told)])
        done.sessions += 1
        if progress is not None:
            progress(done.sessions)
    done.unreadable += writer.refused
    return done
