"""What a project's `opensage.toml` loosens: shown, asked about, trusted."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from opensage.cli.stream import clean
from opensage.config import SETTINGS, Layers, Settings, read_layers
from opensage.engine import checked_folder
from opensage.errors import SandboxUnavailable
from opensage.trust import is_trusted, trust

_SHOWN = 400


def trusted_settings(layers: Layers, workdir: Path, *, ask: bool) -> Settings:
    """The settings that hold: without what a file loosens that the person does not trust, which is said.

    Args:
        layers: all sources.
        workdir: the workspace.
        ask: whether somebody sits at a terminal who can be asked.
    """
    loosening = layers.loosening(_isolates)
    if loosening and not is_trusted(workdir, layers.digest):
        if not ask or not _agreed(workdir, _all(layers)):
            _warn(workdir, loosening)
            return layers.settings(without=loosening)
        trust(workdir, layers.digest)
    return layers.settings()


def trust_command(workdir: Path) -> str:
    """Trust the workspace's settings file as it is now; returns what it loosens."""
    folder = checked_folder(workdir)
    layers = read_layers(folder, env=os.environ)
    if not layers.digest:
        return f"there is no {SETTINGS} in {folder}: nothing to trust"
    trust(folder, layers.digest)
    said = _lines(_all(layers)) or "  nothing that loosens your own settings"
    return f"{folder / SETTINGS} is trusted as it is now:\n{said}"


def _all(layers: Layers) -> dict[str, Any]:
    """What trust gives, at the worst: without any sandbox that isolates, whatever this start was told."""
    return replace(layers, given={}).loosening(lambda _kind: False)


def _isolates(kind: str) -> bool:
    from opensage.sandbox.bubblewrap import working_bwrap
    from opensage.sandbox.docker.client import docker_is_ready

    if kind in ("auto", "local"):
        try:
            return kind == "auto" and (docker_is_ready() or bool(working_bwrap()))
        except SandboxUnavailable:
            return False
    return True


def _agreed(workdir: Path, loosening: Mapping[str, Any]) -> bool:
    print(f"{clean(str(workdir / SETTINGS))} came with this folder and loosens your own settings:", file=sys.stderr)
    print(f"{_lines(loosening)}\ntrust it, as it is now? [y]es, [n]o: ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _lines(loosening: Mapping[str, Any]) -> str:
    return "\n".join(f"  {key} = {json.dumps(value, default=str)}" for key, value in loosening.items())


def _warn(workdir: Path, loosening: Mapping[str, Any]) -> None:
    said = ", ".join(f"{key} = {json.dumps(value, default=str)}" for key, value in loosening.items())
    said = said if len(said) <= _SHOWN else f"{said[:_SHOWN]}..."
    command = f"opensage trust -w {shlex.quote(str(workdir))}"
    print(
        clean(f"{SETTINGS} is not trusted, so this in it is left out: {said}; read it, then: {command}"),
        file=sys.stderr,
    )
