"""Opening a sandbox by its name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from opensage.errors import ConfigError, SandboxUnavailable
from opensage.protocols import Sandbox
from opensage.sandbox.bubblewrap import INSTALL, BubblewrapSandbox, working_bwrap
from opensage.sandbox.docker.backend import open_docker
from opensage.sandbox.docker.client import docker_is_ready
from opensage.sandbox.limits import SandboxLimits
from opensage.sandbox.local import LocalSandbox
from opensage.sandbox.paths import check_workdir
from opensage.sandbox.process import Approve

KINDS = ("auto", "docker", "bubblewrap", "local")


def open_sandbox(
    kind: str,
    workdir: Path,
    *,
    network: bool = False,
    limits: SandboxLimits | None = None,
    approve_local: Approve | None = None,
    read_only: Sequence[Path] = (),
    hidden: Sequence[Path] = (),
) -> Sandbox:
    """A sandbox of the workspace. Nothing is started before its first use; `auto` tries bubblewrap once a process.

    Args:
        kind: "docker" or "docker:IMAGE", "bubblewrap", "local" (no isolation), or "auto": the first that isolates here,
            Docker only when its image has been built. Without IMAGE: the one for toolkits if that fits, else the base.
        workdir: the workspace on the host.
        network: whether commands may use the network (`local` cannot keep them from it).
        limits: of memory, processes, time and output.
        approve_local: asked for each command when `auto` finds nothing that isolates; without it that is an error.
        read_only: more folders that may be read inside.
        hidden: folders of the host that may not, though what they lie in may be (`local` cannot keep commands from
            them; Docker shows none but the workspace and `read_only`).

    Raises:
        SandboxError: the workspace cannot be used.
        SandboxUnavailable: nothing of this kind works here; the message names what to install.
        ConfigError: an unknown kind.
    """
    name, _, image = kind.partition(":")
    if name not in KINDS or (image and name != "docker"):
        raise ConfigError(f"unknown sandbox {kind!r}: use one of {', '.join(KINDS)}, or docker:IMAGE")
    real = check_workdir(Path(workdir))
    if name == "docker" or (kind == "auto" and docker_is_ready()):
        return open_docker(real, image, network=network, limits=limits, read_only=read_only)
    if kind == "local":
        return LocalSandbox(real, network=network, limits=limits)
    try:
        working_bwrap()
    except SandboxUnavailable as error:
        if kind == "bubblewrap":
            raise
        if approve_local is None:
            raise SandboxUnavailable(
                f"{error}; or start Docker (`apt install docker.io`) and run `opensage sandbox build`; "
                "or choose `--sandbox local`, which isolates nothing"
            ) from error
        return LocalSandbox(real, network=network, limits=limits, approve=approve_local)
    return BubblewrapSandbox(real, network=network, limits=limits, read_only=read_only, hidden=hidden)


__all__ = ["INSTALL", "KINDS", "open_sandbox"]
