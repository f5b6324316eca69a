"""Sandboxes: where commands run and files live."""

from __future__ import annotations

from opensage.sandbox.bubblewrap import BubblewrapSandbox
from opensage.sandbox.docker import DockerSandbox
from opensage.sandbox.inventory import all_sandboxes, prune_all
from opensage.sandbox.limits import SandboxLimits
from opensage.sandbox.local import LocalSandbox
from opensage.sandbox.opening import KINDS, open_sandbox
from opensage.sandbox.probe import ProbeRow, probe
from opensage.sandbox.scripted import ScriptedSandbox
from opensage.sandbox.state import SandboxRecord, list_sandboxes, prune_sandboxes

__all__ = [
    "KINDS",
    "BubblewrapSandbox",
    "DockerSandbox",
    "LocalSandbox",
    "ProbeRow",
    "SandboxLimits",
    "SandboxRecord",
    "ScriptedSandbox",
    "all_sandboxes",
    "list_sandboxes",
    "open_sandbox",
    "probe",
    "prune_all",
    "prune_sandboxes",
]
