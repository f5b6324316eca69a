"""Follows the logs of a tree of sessions on the disk, from where it was."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from opensage.errors import SessionError
from opensage.files import is_plain
from opensage.log.events import Event, decode
from opensage.topology.team import child_logs

if TYPE_CHECKING:
    from opensage.secrets import Mask


class Follower:
    """The events of a root session and of those below it, in the order of their times.

    Args:
        folder: of the logs.
        root: id of the root session.
        mask: hides what was not known for a secret when it was written.
    """

    def __init__(self, folder: Path, root: str, mask: Mask | None = None) -> None:
        self.folder, self.root, self._mask = folder, root, mask
        self._at: dict[Path, int] = {}
        self._seq: dict[Path, int] = {}
        self._waiting: list[tuple[float, int, str, Event]] = []

    def news(self, until: float) -> list[tuple[str, Event]]:
        """The events since the last call, with their sessions; those after `until` (seconds since 1970) wait.

        While sessions are written, `until` must be a little before the present: a caller's log, read after those of
        its children, may tell of what theirs do not tell yet.
        """
        logs = [self.folder / f"{self.root}.jsonl", *child_logs(self.folder, self.root)]
        for path in reversed(logs):  # what a child tells of was begun by its caller before
            for event in self._read(path):
                self._waiting.append((event.time, path.stem.count("."), path.stem, event))
        self._waiting.sort(key=lambda entry: (entry[0], entry[1], entry[2], entry[3].seq))
        ready = [entry for entry in self._waiting if entry[0] <= until]
        self._waiting = self._waiting[len(ready) :]
        return [(session, event) for _, _, session, event in ready]

    def _read(self, path: Path) -> Iterator[Event]:
        if not is_plain(path):
            return
        start = self._at.get(path, 0)
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb") as file:
            file.seek(start)
            data = file.read()
        end = data.rfind(b"\n") + 1
        self._at[path] = start + end
        for line in data[:end].split(b"\n"):
            event = _decoded(line)
            if event is not None and event.seq > self._seq.get(path, -1):
                self._seq[path] = event.seq
                if self._mask:
                    self._mask.event(event)
                yield event


def _decoded(line: bytes) -> Event | None:
    try:
        return decode(line) if line.strip() else None
    except SessionError:
        return None  # as the session itself does, which says so
