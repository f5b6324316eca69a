"""From what a run is told about its memory to the keeper of it; nothing is opened, nor imported, yet."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import ValidationError

from opensage.errors import ConfigError
from opensage.memory.keeper import Keeper
from opensage.memory.place import MemoryPlace
from opensage.memory.settings import MemorySettings
from opensage.secrets import Mask


def memory_of(
    wished: bool | str | os.PathLike[str] | MemorySettings | None, workdir: Path, mask: Mask
) -> Keeper | None:
    """The keeper of a run's memory, or None when nothing is to be remembered.

    Raises:
        ConfigError: what was given is no memory.
    """
    settings = _settings(wished)
    return Keeper(MemoryPlace(settings, workdir), mask) if settings.enabled else None


def _settings(wished: bool | str | os.PathLike[str] | MemorySettings | None) -> MemorySettings:
    if isinstance(wished, MemorySettings):
        return wished
    if wished is None or isinstance(wished, bool):
        return MemorySettings(enabled=wished is not False)
    try:
        return MemorySettings(store=os.fspath(wished))
    except (ValidationError, TypeError) as error:
        said = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise ConfigError(f"memory: {said}") from None
