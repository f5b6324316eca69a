"""What sandboxes leave on the host while they live, so that a later process can list it and clean up after a crash."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from opensage.sandbox.cgroup import remove_group


@dataclass(frozen=True, slots=True)
class SandboxRecord:
    """A sandbox that was started and not closed.

    `started` is seconds since the epoch, `owner` the process that started it, `owner_start` that process's own start
    (clock ticks since boot, so that a reused process number is not taken for it), `groups` its control groups.
    """

    name: str
    kind: str
    workdir: str
    owner: int
    owner_start: int
    host: str
    started: float
    groups: tuple[str, ...] = ()

    @property
    def alive(self) -> bool:
        """Whether its owner still runs; on another machine or in another container nobody can tell: assume it does."""
        return self.host != here() or process_start(self.owner) == self.owner_start


def process_start(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None when there is no such process (or it is a zombie)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return None if fields[0] in "ZX" else int(fields[19])
    except (OSError, IndexError, ValueError):
        return None


def here() -> str:
    """This machine and process namespace."""
    try:
        return f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def state_root() -> Path:
    """The folder of all records: below the user's OpenSage folder, else below the machine's temporary folder."""
    home = os.environ.get("OPENSAGE_HOME")
    root = (Path(home) if home else Path.home() / ".opensage") / "sandboxes"
    try:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        if os.access(root, os.W_OK | os.X_OK):
            return root
    except OSError:
        pass
    spare = Path(tempfile.gettempdir()) / f"opensage-{os.geteuid()}"
    spare.mkdir(mode=0o700, exist_ok=True)
    if spare.is_symlink() or spare.stat().st_uid != os.geteuid():
        return Path(tempfile.mkdtemp(prefix="opensage-"))
    return spare


class StateFolder:
    """The folder of one sandbox on the host: its record, its snapshots, and for `local` its scratch space."""

    def __init__(self, kind: str, workdir: str) -> None:
        self.name = f"{os.getpid()}-{secrets.token_hex(4)}"
        self.path = state_root() / self.name
        self.path.mkdir(mode=0o700)
        self.record = SandboxRecord(
            self.name, kind, workdir, os.getpid(), process_start(os.getpid()) or 0, here(), time.time()
        )
        self.write(())

    def write(self, groups: Sequence[str]) -> None:
        """Write the record, whole or not at all."""
        fields = {**asdict(self.record), "groups": list(groups)}
        half = self.path / "owner.json.tmp"
        half.write_text(json.dumps(fields))
        half.replace(self.path / "owner.json")

    def remove(self) -> None:
        """Remove the folder and what is in it."""
        shutil.rmtree(self.path, ignore_errors=True)


def _load(folder: Path) -> SandboxRecord | None:
    try:
        data = json.loads((folder / "owner.json").read_text())
        return SandboxRecord(
            folder.name,
            str(data["kind"]),
            str(data["workdir"]),
            int(data["owner"]),
            int(data["owner_start"]),
            str(data["host"]),
            float(data["started"]),
            tuple(map(str, data["groups"])),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def list_sandboxes() -> list[SandboxRecord]:
    """The sandboxes on record, oldest first, live and dead."""
    found = [record for folder in state_root().iterdir() if (record := _load(folder)) is not None]
    return sorted(found, key=lambda record: record.started)


def prune_sandboxes() -> list[SandboxRecord]:
    """Remove what dead owners left: folders, snapshots and control groups. Returns what was removed."""
    dead = [record for record in list_sandboxes() if not record.alive]
    for record in dead:
        for group in record.groups:
            remove_group(group)
        with contextlib.suppress(OSError):
            shutil.rmtree(state_root() / record.name)
    return dead
