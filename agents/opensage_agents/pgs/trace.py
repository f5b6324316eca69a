"""The trace of a repair: JSON lines, written as things happen, and read when it is resumed."""

from __future__ import annotations

import json
import os
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opensage.files import read_regular
from opensage_agents.pgs.properties import PropertyError

if TYPE_CHECKING:
    from opensage_agents.pgs.asking import Answer


class Trace:
    """Lines `{"type": "call" | "round" | "result", ...}` in a file, or nowhere when there is no path.

    Args:
        path: of the file; its folder is made.
        resume: whether answers that are in it are given again. Otherwise there must be no file yet.

    Raises:
        PropertyError: there is a file, and it is not to be resumed; or it cannot be read or written.
    """

    def __init__(self, path: Path | None = None, *, resume: bool = False) -> None:
        self._path = path
        self._answers: dict[str, deque[tuple[str, Answer]]] = {}
        if path is None:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists() and path.stat().st_size and not resume:
                raise PropertyError(f"{path} holds a repair already: go on with --resume, or name another --out")
            self._read(path)
        except OSError as error:
            raise PropertyError(f"{path} cannot be used: {error.strerror}") from error

    def answer(self, role: str, prompt: str) -> Answer | None:
        """The recorded answer to this question. Once another question is asked, none of that role is given any more."""
        left = self._answers.get(role)
        if not left:
            return None
        asked, known = left.popleft()
        if asked != prompt:
            left.clear()
            return None
        return known

    def add(self, type_: str, **fields: Any) -> None:
        """Write one line; it is on the disk when this returns."""
        if self._path is None:
            return
        line = json.dumps({"type": type_, **fields}, ensure_ascii=False, default=repr) + "\n"
        with self._path.open("ab") as file:
            file.write(line.encode("utf-8", "backslashreplace"))
            file.flush()
            os.fsync(file.fileno())

    def _read(self, path: Path) -> None:
        from opensage_agents.pgs.asking import Answer

        data = read_regular(path) if path.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):  # a line that a kill left half written
            with path.open("r+b") as file:
                file.truncate(len(whole))
        for line in whole.splitlines():
            try:
                said = json.loads(line)
                if said["type"] == "call":
                    known = Answer(said["reply"], said["input_tokens"], said["output_tokens"], said["cost"])
                    self._answers.setdefault(said["role"], deque()).append((said["prompt"], known))
            except (ValueError, KeyError, TypeError) as error:
                raise PropertyError(f"{path} is no trace of a repair: {line[:80]!r}") from error
