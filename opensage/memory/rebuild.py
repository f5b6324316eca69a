"""Writes the execution graph from the logs of all sessions of a workspace."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from opensage.errors import SessionError
from opensage.log.store import SessionStore
from opensage.memory.follow import Follower
from opensage.memory.graph import Link, Piece, TreeFold
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
    late: list[Piece] = []
    for root in _by_time(sessions, done):
        fold = TreeFold()
        news = Follower(sessions.folder, root, sessions.mask).news(math.inf)
        pieces = [piece for told in news for piece in fold.apply(*told)]
        late += [piece for piece in pieces if isinstance(piece, Link) and piece.before < math.inf]
        with explained():
            done.items += writer.write(pieces)
        done.sessions += 1
        if progress is not None:
            progress(done.sessions)
    with explained():
        writer.write(late)  # of sessions that ran at one time, the later one may have made what the earlier one used
    done.unreadable += writer.refused
    return done


def _by_time(sessions: SessionStore, done: Rebuilt) -> list[str]:
    """The sessions in the order in which they began; their ids tell it to the second only."""
    began: dict[str, float] = {}
    for root in sessions.ids():
        try:
            events = sessions.load(root).events
            began[root] = events[0].time if events else 0.0
        except SessionError as error:
            done.unreadable.append(str(error))
    return sorted(began, key=lambda root: (began[root], root))
