"""Keeps an agent from loosening its own next run by writing an `opensage.toml` where there was none.

A sandbox binds an existing file read-only, but cannot cover one that does not exist. So a run that began without the
file leaves a marker beside its log; while a marker is there, a file that appeared meanwhile is refused until a person
has looked at it.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from opensage.errors import ConfigError

SETTINGS = "opensage.toml"
_SUFFIX = ".no-settings"


class SettingsWatch:
    """The marker of one run, held from start to end."""

    def __init__(self, workdir: Path, session: str) -> None:
        self._settings = workdir / SETTINGS
        self._path = _folder(workdir) / f"{session}{_SUFFIX}"
        self._fd: int | None = None
        if not os.path.lexists(self._settings):
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._fd, fcntl.LOCK_EX)

    def close(self) -> str:
        """End the watch; returns what to tell the person, "" when nothing appeared."""
        if self._fd is None:
            return ""
        appeared = os.path.lexists(self._settings)
        if not appeared:
            self._path.unlink(missing_ok=True)
        os.close(self._fd)
        self._fd = None
        return f"{SETTINGS} appeared during the run and is not trusted; look at it" if appeared else ""


def check_settings(workdir: Path) -> None:
    """Refuse a settings file that appeared while a run was at work.

    Raises:
        ConfigError: it names the marker to delete when the file is right.
    """
    markers = sorted(_folder(workdir).glob(f"*{_SUFFIX}")) if _folder(workdir).is_dir() else []
    if not markers:
        return
    if os.path.lexists(workdir / SETTINGS):
        raise ConfigError(
            f"{workdir / SETTINGS} appeared while an agent was at work, so it may be the agent's. Read it; delete it, "
            f"or, if it is yours, trust it with: rm {' '.join(map(str, markers))}"
        )
    for marker in markers:
        _remove_stale(marker)


def _remove_stale(marker: Path) -> None:
    """Delete the marker of a run that died; a living run holds a lock on its own."""
    try:
        fd = os.open(marker, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        marker.unlink(missing_ok=True)
    except BlockingIOError:
        return
    finally:
        os.close(fd)


def _folder(workdir: Path) -> Path:
    return workdir / ".opensage" / "sessions"
