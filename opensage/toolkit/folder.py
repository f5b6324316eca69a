"""The files of a toolkit's folder, read within bounds, and the hash of what they hold."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from opensage.tools.instructions import read_within

MOST_FILES = 2000
MOST_BYTES = 5 << 20
"""Of one file; a larger one is left out."""
MOST_TOTAL = 32 << 20
PROVENANCE = "provenance.json"
"""What the kit writes beside the files of a toolkit that an agent made; no part of it."""


@dataclass(frozen=True, slots=True)
class Contents:
    """Path → bytes of each file, and a line for each that was left out."""

    files: Mapping[str, bytes]
    notes: tuple[str, ...] = ()


def content_hash(files: Mapping[str, bytes]) -> str:
    """SHA-256 over the sorted paths and what is in them, hexadecimal."""
    total = hashlib.sha256()
    for path in sorted(files):
        name = path.encode("utf-8", "surrogateescape")
        total.update(b"%d %d\n" % (len(name), len(files[path])) + name + files[path])
    return total.hexdigest()


def read_folder(folder: Path) -> Contents:
    """All files but hidden ones; links that lead out, what is too large and what cannot be read are left out, and said.

    Never raises for what the folder holds; a folder that is not there has no files.
    """
    files: dict[str, bytes] = {}
    notes: list[str] = []
    left = MOST_TOTAL
    for path, name in _paths(folder, notes):
        if len(files) >= MOST_FILES:
            notes.append(f"only the first {MOST_FILES} files are used")
            break
        data = read_within(path, folder, min(MOST_BYTES, left) + 1)
        if isinstance(data, str):
            notes.append(f"{name} was left out: {data}")
        elif len(data) > min(MOST_BYTES, left):
            notes.append(f"{name} was left out: more than {min(MOST_BYTES, left)} bytes")
        else:
            files[name] = data
            left -= len(data)
    return Contents(files, tuple(notes))


def _paths(folder: Path, notes: list[str]) -> Iterator[tuple[Path, str]]:
    for place, folders, names in os.walk(folder):
        relative = Path(place).relative_to(folder)
        for name in list(folders):
            if os.path.islink(os.path.join(place, name)):
                notes.append(f"{(relative / name).as_posix()} was left out: it is a link to a folder")
        folders[:] = sorted(name for name in folders if not _hidden(name) and name != "__pycache__")
        for name in sorted(names):
            if not _hidden(name) and (relative / name).as_posix() != PROVENANCE:
                yield Path(place) / name, (relative / name).as_posix()


def _hidden(name: str) -> bool:
    return name.startswith(".") or name.endswith(".pyc")
