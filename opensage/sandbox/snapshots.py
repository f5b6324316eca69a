"""Copies of a workspace, named by their content."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Collection
from pathlib import Path

from opensage.errors import SandboxError
from opensage.sandbox import tree


class Snapshots:
    """The snapshots of one workspace, in a folder outside it.

    Blocks are shared where the file system can; hard links become separate files; devices, pipes and
    sockets are left out. `skip` names paths, relative to the workspace, that are neither saved nor touched.
    """

    def __init__(self, workdir: Path, folder: Path, skip: Collection[str]) -> None:
        self.workdir, self.folder, self.skip = workdir, folder, skip

    def save(self) -> str:
        """Copy the workspace; returns its content's id."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        half = Path(tempfile.mkdtemp(prefix="half-", dir=self.folder))
        try:
            with _opened(self.workdir) as source, _opened(half) as target:
                tree.copy_contents(source.fd, target.fd, self.skip)
                name = tree.digest(target.fd)[:16]
            if not (self.folder / name).exists():
                half.rename(self.folder / name)
            return name
        finally:
            if half.exists():
                shutil.rmtree(half)

    def load(self, name: str) -> None:
        """Make the workspace what it was: nothing more, nothing less."""
        saved = self.folder / name
        if not re.fullmatch(r"[0-9a-f]{16}", name) or not saved.is_dir():
            raise SandboxError(f"no snapshot {name[:40]!r} in this sandbox; `snapshot` returns the ids there are")
        with _opened(saved) as source, _opened(self.workdir) as target:
            tree.mirror(source.fd, target.fd, self.skip)


class _opened:
    """A folder's descriptor for the length of a `with`."""

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, tree.FOLDER)

    def __enter__(self) -> _opened:
        return self

    def __exit__(self, *_error: object) -> None:
        os.close(self.fd)
