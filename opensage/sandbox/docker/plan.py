"""What a container is made of: mounts, rights, limits and labels."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opensage.sandbox.docker.warden import SCRIPT
from opensage.sandbox.limits import SandboxLimits
from opensage.sandbox.paths import own_code
from opensage.sandbox.process import HIDDEN

HOME = "/home/opensage"
PIDS_ROOM = 64
"""Above twice the limit: threads count here too, and so do the container's own processes."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A container to be.

    Attributes:
        image: name or id.
        workdir: the workspace's path inside.
        host: the workspace on the host, or None when it is the image's own.
        shared: whether the folder itself is mounted; else a volume that is filled and read back.
        user: "uid:gid" of every command, or "" for the image's user.
        network: whether there is one.
        read_only: more folders of the host that may be read inside, at their own paths.
    """

    image: str
    workdir: str
    host: Path | None = None
    shared: bool = True
    user: str = ""
    network: bool = False
    limits: SandboxLimits = field(default_factory=SandboxLimits)
    read_only: tuple[Path, ...] = ()

    def create(self, client: Any, name: str, labels: Mapping[str, str]) -> str:
        """Make the container; returns its id."""
        made = client.create_container_from_config(self._config(client, labels), name)
        return str(made["Id"])

    def environment(self) -> dict[str, str]:
        """Variables of every command, besides the image's own: none is the caller's."""
        own = {"LANG": "C.UTF-8", "TERM": "dumb"}
        # The workspace may belong to another user: git would refuse it.
        own |= {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
        if self.host is not None:
            own |= {"HOME": HOME, "TMPDIR": "/tmp", "USER": "opensage", "LOGNAME": "opensage"}
        return own

    def roots(self) -> list[str]:
        """Folders inside that files may be read from and written to."""
        return [self.workdir, "/tmp", *([HOME] if self.host is not None else [])]

    def _config(self, client: Any, labels: Mapping[str, str]) -> Any:
        return client.create_container_config(
            self.image,
            ["-c", SCRIPT, "warden", "1", self.workdir],
            entrypoint=["/bin/sh"],
            hostname="opensage",
            user="0:0" if self.host is not None else None,
            stdin_open=True,
            environment=self.environment(),
            labels=dict(labels),
            working_dir="/",
            host_config=client.create_host_config(**self._host(client)),
        )

    def _host(self, client: Any) -> dict[str, Any]:
        from docker.types import Ulimit

        limits = self.limits
        options: dict[str, Any] = {
            "init": True,
            "auto_remove": True,
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges"],
            "network_mode": "bridge" if self.network else "none",
            "mem_limit": limits.memory,
            "memswap_limit": limits.memory,
            "pids_limit": limits.processes * 2 + PIDS_ROOM,
            "cpu_shares": 512,
            "shm_size": limits.scratch,
            "ulimits": [
                Ulimit(name="nofile", soft=limits.open_files, hard=limits.open_files),
                Ulimit(name="fsize", soft=limits.file_size, hard=limits.file_size),
                Ulimit(name="data", soft=limits.memory, hard=limits.memory),
                Ulimit(name="core", soft=0, hard=0),
            ],
            "mounts": self._mounts(),
        }
        if self.user and not self.user.startswith("0:"):
            # The container's first command is root, out of the others' reach, and ends them. They have no rights.
            options["cap_add"] = ["KILL"] if self.shared else ["KILL", "CHOWN"]
        if limits.cpus is not None:
            options["nano_cpus"] = int(min(limits.cpus, client.info()["NCPU"]) * 1e9)
        if self.host is not None:
            options |= {"read_only": True, "tmpfs": self._tmpfs()}
        return options

    def _tmpfs(self) -> dict[str, str]:
        uid, _, gid = self.user.partition(":")
        size = self.limits.scratch
        places = {"/tmp": f"exec,mode=1777,size={size}", "/var/tmp": f"exec,mode=1777,size={size}"}
        places[HOME] = f"exec,mode=0700,uid={uid or 0},gid={gid or 0},size={size}"
        places[posixpath.join(self.workdir, HIDDEN)] = "ro,mode=0555,size=4k"
        return places

    def _mounts(self) -> list[Any]:
        from docker.types import Mount

        if self.host is None:
            return []
        if not self.shared:
            return [Mount(self.workdir, None, type="volume")]
        mounts = [Mount(self.workdir, str(self.host), type="bind", propagation="rprivate")]
        settings = self.host / "opensage.toml"
        locked = [settings] if settings.is_file() and not settings.is_symlink() else []
        locked += [self.host / path for path in own_code(self.host)]
        return mounts + [
            Mount(str(path), str(path), type="bind", read_only=True) for path in (*locked, *self.read_only)
        ]


def user_of(workdir: Path, engine: Mapping[str, Any]) -> str:
    """Who commands run as, so that the files they make belong to the caller.

    The caller; for root, the workspace's owner; root, without any capability, only for what root alone owns. An engine
    that runs without root maps its own root to the caller.
    """
    if any("rootless" in str(option) for option in engine.get("SecurityOptions") or []):
        return "0:0"
    if os.geteuid() != 0:
        return f"{os.geteuid()}:{os.getegid()}"
    status = workdir.stat()
    return f"{status.st_uid}:{status.st_gid}"
