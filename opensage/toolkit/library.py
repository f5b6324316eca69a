"""All toolkits that there are: shipped ones, the user's, and those that earlier sessions made in a project."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from opensage.errors import ToolError
from opensage.toolkit.spec import Source, ToolkitSpec, key_of, load_toolkit
from opensage.toolkit.store import Kept, Provenance, ToolkitStore

GROUP = "opensage.toolkits"
_MOST = 1000


@dataclass(frozen=True, slots=True)
class Entry:
    """A toolkit that was found. `state` is "" for one that agents may use; `spec` is None when it cannot be read."""

    name: str
    source: Source
    spec: ToolkitSpec | None
    state: str = ""
    provenance: Provenance | None = None


class Library:
    """Toolkits by name; of two with the same name the shipped comes before the user's, that before the project's."""

    def __init__(self, workdir: Path, home: Path) -> None:
        self._home = home
        self.store = ToolkitStore(workdir / ".opensage", home)

    def entries(self, *, trusted_only: bool = False) -> list[Entry]:
        """Everything that was found, what cannot be used too; `trusted_only` looks into nothing that was planted."""
        found: dict[str, Entry] = {}
        for entry in (*_shipped_entries(), *self._users(), *map(_entry, self.store.all(trusted_only=trusted_only))):
            key = key_of(entry.name)
            if key in found:
                state = f"hidden by the {found[key].source} one of that name"
                entry = Entry(entry.name, entry.source, entry.spec, state, entry.provenance)
                key = f"{key} {len(found)}"
            found[key] = entry
        return list(found.values())

    def usable(self) -> list[Entry]:
        """Those that agents may use."""
        return [entry for entry in self.entries(trusted_only=True) if entry.spec is not None and not entry.state]

    def _users(self) -> Iterator[Entry]:
        folder = self._home / "toolkits"
        for place in sorted(folder.iterdir())[:_MOST] if folder.is_dir() else ():
            if (place / "SKILL.md").exists():
                yield _loaded(place.name, place, "user")


def shipped() -> dict[str, str]:
    """Name → package of each toolkit that an installed distribution offers."""
    return dict(_shipped())


@cache
def _shipped() -> tuple[tuple[str, str], ...]:
    points = importlib.metadata.entry_points(group=GROUP)
    return tuple(sorted({point.name: point.value.partition(":")[0] for point in points}.items()))


@cache
def _shipped_entries() -> tuple[Entry, ...]:
    """Installed code does not change while the process lives."""
    return tuple(_shipped_entry(name, package) for name, package in _shipped())


def _shipped_entry(name: str, package: str) -> Entry:
    """Found by the package above it: nothing of the toolkit is imported."""
    parent, _, last = package.rpartition(".")
    try:
        spec = importlib.util.find_spec(parent) if parent else None
    except (ImportError, ValueError) as error:
        return Entry(name, "shipped", None, f"package {parent} cannot be found: {error}")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        if (Path(place) / last).is_dir():
            return _loaded(name, Path(place) / last, "shipped")
    return Entry(name, "shipped", None, f"package {package} has no folder; install its distribution again")


def _loaded(name: str, folder: Path, source: Source) -> Entry:
    try:
        spec = load_toolkit(folder, source)
    except ToolError as error:
        return Entry(name, source, None, str(error))
    return Entry(spec.name, source, spec)


def _entry(kept: Kept) -> Entry:
    if kept.spec is None:
        state = kept.problem
    elif not kept.trusted:
        state = "untrusted: no session of yours made it as it is"
    else:
        state = "retired" if kept.retired else ""
    return Entry(kept.name, "project", kept.spec, state, kept.provenance)
