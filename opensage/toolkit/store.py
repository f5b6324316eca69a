"""Toolkits that agents made, kept in `.opensage/toolkits/<name>/v<N>/` of a project, each version whole or not at all.

A project may be a cloned repository with toolkits planted in it. So the hashes of those that the person's own sessions
made are kept in the person's home, and only what is known there is loaded.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opensage.errors import ToolError
from opensage.files import read_regular, why
from opensage.toolkit.folder import PROVENANCE
from opensage.toolkit.spec import ToolkitSpec, key_of, load_toolkit

_VERSION = re.compile(r"v([1-9][0-9]{0,8})")
_RETIRED = "retired.json"
_MOST = 1 << 20


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a version came from. `made` is seconds since the epoch, `report` the result of its tests."""

    session: str = ""
    agent: str = ""
    version: int = 0
    hash: str = ""
    made: float = 0.0
    report: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Kept:
    """The newest version of a toolkit in a project.

    Attributes:
        spec: None when it cannot be read; then `problem` says why.
        trusted: whether a session of this person made it, as it is.
        retired: whether it was put away.
    """

    name: str
    spec: ToolkitSpec | None
    provenance: Provenance
    trusted: bool
    retired: bool
    problem: str = ""


class ToolkitStore:
    """The toolkits of one project, and the hashes in the person's home."""

    def __init__(self, project: Path, home: Path) -> None:
        self.folder = project / "toolkits"
        self._known = home / "toolkits-made"

    def all(self, *, trusted_only: bool = False) -> Iterator[Kept]:
        """The newest version of each, by name; with `trusted_only` nothing is read of what is not trusted."""
        for place in sorted(self.folder.iterdir()) if self.folder.is_dir() else ():
            if place.is_dir() and not place.is_symlink() and not place.name.startswith("."):
                versions = self._versions(place)
                known = versions and self._is_known(_provenance(place / f"v{versions[-1]}" / PROVENANCE).hash)
                if versions and (known or not trusted_only):
                    yield self._kept(place, versions[-1])

    def newest(self, name: str) -> int:
        """The number of the newest version, 0 when there is none."""
        return max(self._versions(self._place(name)), default=0)

    def add(self, spec: ToolkitSpec, provenance: Provenance) -> Path:
        """Write a version: its whole folder appears at once.

        Raises:
            ToolError: another session has written that version already, or it cannot be written.
        """
        place = self._place(spec.name)
        half = None
        if self.folder.is_symlink() or place.is_symlink():
            raise ToolError(f"toolkit {spec.name} cannot be kept: {place} is a link, or in one")
        try:
            place.mkdir(parents=True, exist_ok=True)
            half = Path(tempfile.mkdtemp(prefix=".half-", dir=self.folder))
            _write(half, spec, provenance)
            self._remember(spec, provenance)
            half.chmod(0o755)
            half.rename(place / f"v{spec.version}")
        except OSError as error:
            if half is not None:
                shutil.rmtree(half, ignore_errors=True)
            if (place / f"v{spec.version}").exists():
                raise ToolError(
                    f"another session has just made version {spec.version} of '{spec.name}': inspect it, "
                    "and update it or choose another name"
                ) from None
            raise ToolError(f"toolkit {spec.name} cannot be kept in {place}: {why(error)}") from None
        return place / f"v{spec.version}"

    def retire(self, name: str, session: str, agent: str) -> None:
        """Put all versions so far away; they stay on the disk. Raises `ToolError` when that cannot be written."""
        place = self._place(name)
        mark = {"up_to": self.newest(name), "session": session, "agent": agent, "time": time.time()}
        try:
            half = place / f".{_RETIRED}.{os.getpid()}"
            half.write_text(json.dumps(mark) + "\n", encoding="utf-8")
            half.replace(place / _RETIRED)
        except OSError as error:
            raise ToolError(f"toolkit {name} cannot be retired in {place}: {why(error)}") from None

    def _place(self, name: str) -> Path:
        return self.folder / key_of(name)

    def _versions(self, place: Path) -> list[int]:
        found = [_VERSION.fullmatch(each.name) for each in place.iterdir()] if place.is_dir() else []
        return sorted(int(match[1]) for match in found if match)

    def _kept(self, place: Path, version: int) -> Kept:
        folder = place / f"v{version}"
        provenance = _provenance(folder / PROVENANCE)
        up_to = _json(place / _RETIRED).get("up_to", 0)
        retired = isinstance(up_to, int) and up_to >= version
        try:
            spec = load_toolkit(folder, "project", version)
            if spec.key != key_of(place.name):
                raise ToolError(f"it is in the folder of {place.name}, but says its name is {spec.name}")
        except ToolError as error:
            return Kept(place.name, None, provenance, False, retired, str(error))
        trusted = spec.hash == provenance.hash and self._is_known(spec.hash)
        return Kept(spec.name, spec, provenance, trusted, retired)

    def _is_known(self, digest: str) -> bool:
        return re.fullmatch("[0-9a-f]{64}", digest) is not None and bool(_json(self._known / f"{digest}.json"))

    def _remember(self, spec: ToolkitSpec, provenance: Provenance) -> None:
        """One file a hash: sessions that write at the same time do not meet."""
        self._known.mkdir(parents=True, exist_ok=True, mode=0o700)
        record = {"name": spec.name, "session": provenance.session, "made": provenance.made}
        fd, half = tempfile.mkstemp(dir=self._known)
        try:
            with open(fd, "w", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
            os.replace(half, self._known / f"{spec.hash}.json")
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(half)
            raise


def _write(folder: Path, spec: ToolkitSpec, provenance: Provenance) -> None:
    for path, data in spec.files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    fields = {name: getattr(provenance, name) for name in Provenance.__slots__}
    (folder / PROVENANCE).write_text(json.dumps(fields, indent=1) + "\n", encoding="utf-8")


def _json(path: Path) -> dict[str, Any]:
    """The object in a file; nothing for what cannot be read."""
    try:
        found = json.loads(read_regular(path, _MOST, links=False))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _provenance(path: Path) -> Provenance:
    found, default = _json(path), Provenance()
    kept = {
        name: found[name]
        for name in Provenance.__slots__
        if isinstance(found.get(name), type(getattr(default, name))) and not isinstance(found[name], bool)
    }
    return Provenance(**kept)
