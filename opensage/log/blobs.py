"""Content-addressed files beside a log, for output too large for an event."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from pathlib import Path

from opensage.errors import SessionError, ToolError
from opensage.files import read_regular, why

_HASH = re.compile(r"[0-9a-f]{64}")


class BlobStore:
    """Blobs of one session in a folder; a name is the SHA-256 of the content (hex)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, data: bytes) -> str:
        """Store and return the hash. Storing twice is free."""
        name = hashlib.sha256(data).hexdigest()
        target = self.folder / name
        if target.exists():
            return name
        temporary = self.folder / f".{name}.{os.getpid()}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(data)
            temporary.replace(target)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise SessionError(f"cannot store output in {self.folder}: {why(error)} and resume.") from None
        return name

    def get(self, name: str) -> bytes:
        """The content of a blob; a unique prefix of eight or more digits is enough.

        Raises:
            ToolError: no such blob, or its content was damaged.
        """
        path = self._find(name)
        try:
            data = read_regular(path, links=False)
        except OSError as error:
            raise ToolError(f"stored output {name} cannot be read: {error.strerror}") from None
        if hashlib.sha256(data).hexdigest() != path.name:
            raise ToolError(f"stored output {name} is damaged")
        return data

    def _find(self, name: str) -> Path:
        if _HASH.fullmatch(name) and (self.folder / name).is_file():
            return self.folder / name
        if re.fullmatch(r"[0-9a-f]{8,63}", name) and self.folder.is_dir():
            found = [p for p in self.folder.iterdir() if p.name.startswith(name)]
            if len(found) == 1:
                return found[0]
        raise ToolError(f"no stored output named {name[:80]!r}; use the blob: path exactly as a result gave it")
