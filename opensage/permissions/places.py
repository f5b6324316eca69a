"""Paths in rules: every spelling of a file is the same file."""

from __future__ import annotations

import os
import posixpath
from dataclasses import dataclass
from pathlib import Path

from opensage.permissions.globs import literal


@dataclass(frozen=True, slots=True)
class Workspace:
    """The folder that paths are relative to: its real path on the host, and its name inside the sandbox."""

    host: Path
    inside: str = ""

    def resolve(self, path: str) -> str:
        """The path with `..` and links followed, relative to the workspace when it lies in it ("." is itself)."""
        root = os.path.realpath(self.host)
        try:
            real = os.path.realpath(os.path.join(root, self._on_host(path)))
            real = os.path.realpath(self._on_host(real))  # a link may hold the sandbox's name of the workspace
        except (OSError, ValueError):
            real = posixpath.normpath(posixpath.join(root, path))
        return _relative(real, root)

    def spellings(self, path: str) -> list[str]:
        """What a rule may call the file: its resolved path, and the path as written but without `.` and `..`."""
        resolved = self.resolve(path)
        written = _relative(posixpath.normpath(self._on_host(path)), str(self.host)) if path else path
        absolute = posixpath.join(os.path.realpath(self.host), resolved)
        return list(dict.fromkeys([resolved, written, absolute, path]))

    def pattern(self, pattern: str) -> list[str]:
        """A rule's pattern in the form of `resolve`; `**/` at its beginning may stand for nothing."""
        if not pattern or pattern.startswith("{"):
            return [pattern]
        found = _relative(posixpath.normpath(self._on_host(pattern)), str(self.host))
        return [found, found[3:]] if found.startswith("**/") else [found]

    def same(self, pattern: str, path: str) -> bool:
        """Whether a pattern without wildcards names the file that `path` is (a hard link, another case)."""
        name = literal(pattern)
        if name is None:
            return False
        try:
            return os.path.samefile(self.host / self._on_host(name), self.host / self._on_host(path))
        except (OSError, ValueError):
            return False

    def _on_host(self, path: str) -> str:
        if self.inside and self.inside != str(self.host) and (path + "/").startswith(self.inside.rstrip("/") + "/"):
            return str(self.host) + path[len(self.inside.rstrip("/")) :]
        return path


def _relative(path: str, root: str) -> str:
    if path == root:
        return "."
    prefix = root.rstrip("/") + "/"
    return path[len(prefix) :] if path.startswith(prefix) else path
