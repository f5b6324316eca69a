"""Which `opensage.toml` a person trusts; and a watch over those that appear while an agent is at work.

A file is trusted at its path and with its content, so a changed one is not. An untrusted one only tightens: see
`config.py`.

A sandbox binds an existing file read-only, but cannot cover one that does not exist. So a run that began without the
file leaves a marker beside its log; while a marker is there, a file that appeared meanwhile is refused until a person
has looked at it.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
from pathlib import Path

from opensage.config import SETTINGS
from opensage.errors import ConfigError
from opensage.files import read_regular, replace_file, why
from opensage.models.registry import home_dir

_SUFFIX = ".no-settings"
_MOST_BYTES = 1 << 22


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
        ConfigError: it names the command that trusts the file.
    """
    markers = sorted(_folder(workdir).glob(f"*{_SUFFIX}")) if _folder(workdir).is_dir() else []
    if not markers:
        return
    if os.path.lexists(workdir / SETTINGS):
        raise ConfigError(
            f"{workdir / SETTINGS} appeared while an agent was at work, so it may be the agent's. Read it; delete it, "
            f"or, if it is yours: opensage trust -w {shlex.quote(str(workdir))}"
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


def is_trusted(workdir: Path, digest: str) -> bool:
    """Whether the person trusts the workspace's settings file with this content (SHA-256, hexadecimal)."""
    return bool(digest) and _records().get(_name(workdir)) == digest


def trust(workdir: Path, digest: str) -> None:
    """Record that the person trusts this content, whoever wrote it.

    Raises:
        ConfigError: the record cannot be written.
    """
    path = _record()
    text = json.dumps({**_records(), _name(workdir): digest}, indent=1) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {why(error)}.") from None
    for marker in _folder(workdir).glob(f"*{_SUFFIX}"):
        marker.unlink(missing_ok=True)


def _record() -> Path:
    return home_dir() / "trusted.json"


def _records() -> dict[str, str]:
    """Path of each trusted file to its content's hash; of a damaged record nothing."""
    try:
        found = json.loads(read_regular(_record(), _MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _name(workdir: Path) -> str:
    return os.path.join(os.path.realpath(workdir), SETTINGS)


def _folder(workdir: Path) -> Path:
    return workdir / ".opensage" / "sessions"
