"""Images: those that are saved from a container, and the base image."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from opensage.errors import SandboxError, SandboxUnavailable
from opensage.sandbox.docker.client import BASE_IMAGE, said
from opensage.sandbox.docker.reaper import labels, remove_image
from opensage.sandbox.state import state_root

SAVED = "opensage/snapshot"
PACKAGES = ("ca-certificates", "git", "procps", "python3", "ripgrep")
_OPTIONS = (
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    "--dpkgopt=path-exclude=/usr/share/man/*",
    '--customize-hook=rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/*',
)


class Commits:
    """Snapshots of a container as images. Tags are derived from the layers' content; `remove` takes all away again."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._tags: set[str] = set()

    def save(self, container: str) -> str:
        """Commit; returns the tag, the same one as long as nothing was changed.

        Raises:
            SandboxError: the engine refuses.
        """
        with said("saving the container"):
            changes = [f"LABEL {key}={json.dumps(value)}" for key, value in labels("").items()]
            image = self._client.commit(container, changes=changes)["Id"]
            layers = self._client.inspect_image(image)["RootFS"]["Layers"]
            tag = hashlib.sha256("\n".join(layers).encode()).hexdigest()[:16]
            if tag in self._tags:
                remove_image(self._client, image)
            else:
                self._client.tag(image, SAVED, tag)
                self._tags.add(tag)
        return tag

    def image(self, tag: str) -> str:
        """The image of a snapshot.

        Raises:
            SandboxError: there is none.
        """
        if not re.fullmatch("[0-9a-f]{16}", tag) or tag not in self._tags:
            raise SandboxError(f"no snapshot {tag[:40]!r} in this sandbox; `snapshot` returns the ids there are")
        return f"{SAVED}:{tag}"

    def remove(self) -> None:
        """Remove every image that was saved."""
        for tag in self._tags:
            remove_image(self._client, f"{SAVED}:{tag}")
        self._tags.clear()


def build_base(
    client: Any, *, folder: Path | None = None, tell: Callable[[str], None] = print, fresh: bool = False
) -> str:
    """Make the base image without any registry: from Debian's packages, by way of a tar that is kept.

    Args:
        client: the engine's client.
        folder: where the tar is kept; `images` in the user's OpenSage folder when not given.
        tell: gets a line for each step.
        fresh: build anew although the tar is there.

    Returns:
        The image's name.

    Raises:
        SandboxUnavailable: neither the tar nor `mmdebstrap` is there.
        SandboxError: the build failed; nothing half is left.
    """
    tar = (folder or state_root().parent / "images") / _tar_name()
    if fresh or not tar.exists():
        _debootstrap(tar, tell)
    tell(f"importing {tar} ({tar.stat().st_size >> 20} MiB)")
    name, _, tag = BASE_IMAGE.partition(":")
    with said("importing the image"):
        client.import_image_from_file(str(tar), repository=name, tag=tag, changes=["ENV LANG=C.UTF-8"])
    return BASE_IMAGE


def build_from(client: Any, dockerfile: Path, name: str, tell: Callable[[str], None] = print) -> str:
    """Build an image from a Dockerfile; its folder is the context.

    Raises:
        SandboxError: the file is not there, or the build failed.
    """
    if not dockerfile.is_file():
        raise SandboxError(f"no Dockerfile {dockerfile}: name one with --file")
    with said(f"building {name}"):
        context, file = str(dockerfile.resolve().parent), dockerfile.name
        for line in client.build(path=context, dockerfile=file, tag=name, rm=True, forcerm=True, decode=True):
            if "error" in line:
                raise SandboxError(f"Docker: building {name} failed: {str(line['error']).strip()[:400]}")
            if text := str(line.get("stream", "")).strip():
                tell(text)
    return name


def _tar_name() -> str:
    """The tar is named after its recipe, so that another recipe is another file."""
    recipe = hashlib.sha256(" ".join([suite(), *PACKAGES, *_OPTIONS]).encode()).hexdigest()[:12]
    return f"base-{suite()}-{recipe}.tar"


def suite() -> str:
    """The Debian release: this machine's own when it is one, else the stable one."""
    with contextlib.suppress(OSError):
        words = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
        if words.get("ID") == "debian" and words.get("VERSION_CODENAME"):
            return words["VERSION_CODENAME"].strip('"')
    return "stable"


def _debootstrap(tar: Path, tell: Callable[[str], None]) -> None:
    program = shutil.which("mmdebstrap")
    if program is None:
        raise SandboxUnavailable(
            "the base image is built from Debian's packages by mmdebstrap: `apt install mmdebstrap`; "
            "or build from a Dockerfile: `opensage sandbox build --file Dockerfile`"
        )
    tar.parent.mkdir(parents=True, exist_ok=True)
    half = tar.with_name(f".{tar.name}.{os.getpid()}.tmp")
    command = [program, "--variant=minbase", f"--include={','.join(PACKAGES)}", *_OPTIONS, "--format=tar"]
    try:
        lines = _told([*command, suite(), str(half)], tell)
        if not half.exists() or half.stat().st_size == 0:
            raise SandboxError(f"mmdebstrap made no image: {lines[-1] if lines else 'it said nothing'}")
        half.replace(tar)
    finally:
        half.unlink(missing_ok=True)


def _told(command: Sequence[str], tell: Callable[[str], None]) -> list[str]:
    """Run a program that tells its steps; returns its last lines.

    Raises:
        SandboxError: it failed.
    """
    last: list[str] = []
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as run:
        assert run.stdout is not None
        for line in run.stdout:
            text = line.decode(errors="replace").strip()
            last = [*last[-4:], text]
            if text.startswith("I: "):
                tell(text[3:])
    if run.returncode:
        raise SandboxError(f"{Path(command[0]).name} failed with {run.returncode}: {' / '.join(last)[-400:]}")
    return last
