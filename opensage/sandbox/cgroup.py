"""Control groups: the kernel's own limits on the memory and the processes of a sandbox, where they may be used."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from opensage.sandbox.limits import SandboxLimits

JOIN = (
    'n=$1; shift; while [ "$n" -gt 0 ]; do echo $$ > "$1/cgroup.procs" || exit 97; shift; n=$((n-1)); done; exec "$@"'
)
JOIN_FAILED = 97
PREFIX = "opensage-"


@dataclass(slots=True)
class ControlGroup:
    """One group for each controller (version 1), or one for all (version 2)."""

    memory: Path | None
    processes: Path | None

    @property
    def folders(self) -> tuple[str, ...]:
        """The groups' folders."""
        return tuple(dict.fromkeys(str(path) for path in (self.memory, self.processes) if path is not None))

    def wrap(self, command: list[str]) -> list[str]:
        """A command that joins the groups and then becomes `command`: nothing it starts can be outside them."""
        return ["/bin/sh", "-c", JOIN, "sh", str(len(self.folders)), *self.folders, *command]

    def memory_kills(self) -> int:
        """Processes the kernel has ended for want of memory."""
        if self.memory is None:
            return 0
        for name in ("memory.events", "memory.oom_control"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                for line in (self.memory / name).read_text().splitlines():
                    if line.startswith("oom_kill "):
                        return int(line.split()[1])
        return 0

    def remove(self) -> None:
        """Remove the groups. What is still in them is killed."""
        for folder in self.folders:
            remove_group(folder)


def possible_folders(name: str) -> list[str]:
    """Where `make_group` may make folders for this name: put on record first, so that a crash leaves none unknown."""
    return [str(parent / f"{PREFIX}{name}") for controller in ("memory", "pids") for parent in _parents(controller)]


def make_group(name: str, limits: SandboxLimits) -> ControlGroup | None:
    """A new group below our own with these limits, or None where none can be made."""
    settings = {
        "memory": {
            "memory.max": limits.memory,
            "memory.swap.max": 0,
            "memory.limit_in_bytes": limits.memory,
            "memory.memsw.limit_in_bytes": limits.memory,
        },
        # Above the supervisor's own limit, which ends the whole command with a clear line; this one is the hard stop.
        "pids": {"pids.max": limits.processes * 2 + 64},
    }
    made = {controller: _make(controller, f"{PREFIX}{name}", values) for controller, values in settings.items()}
    group = ControlGroup(made["memory"], made["pids"])
    return group if group.folders else None


def _make(controller: str, name: str, values: dict[str, int]) -> Path | None:
    for parent in _parents(controller):
        folder = parent / name
        try:
            folder.mkdir(exist_ok=True)
            limited = [_set(folder / key, value) for key, value in values.items()]
        except OSError:
            continue
        if any(limited):
            return folder
        remove_group(str(folder))
    return None


def _set(file: Path, value: int) -> bool:
    if not file.exists():
        return False
    with contextlib.suppress(OSError):
        file.write_text(str(value))
        return not file.name.endswith(("swap.max", "memsw.limit_in_bytes"))
    return False


def _parents(controller: str) -> list[Path]:
    """Folders in which a group with this controller may be made: our own group, or for version 2 the one above."""
    own: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _number, names, path = line.split(":", 2)
            own.update(dict.fromkeys(names.split(","), path))
    found = []
    for version, mount, root, options in _mounts():
        relative = own.get(controller if version == 1 else "")
        if relative is None or (version == 1 and controller not in options):
            continue
        here = mount / os.path.relpath(relative, root)
        if version == 1:
            found.append(here)
        else:
            found += [folder for folder in (here, here.parent) if _offers(folder, controller)]
    return [folder for folder in found if os.access(folder, os.W_OK)]


def _offers(folder: Path, controller: str) -> bool:
    try:
        return controller in (folder / "cgroup.subtree_control").read_text().split()
    except OSError:
        return False


def _mounts() -> list[tuple[int, Path, str, list[str]]]:
    """Version, mount point, the mount's root within the hierarchy, and the controllers of each mounted hierarchy."""
    found = []
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            fields, _, tail = line.partition(" - ")
            kind, _source, options = tail.split(" ", 2)
            if kind in ("cgroup", "cgroup2"):
                root, mount = fields.split()[3:5]
                found.append((2 if kind == "cgroup2" else 1, Path(mount), root, options.split(",")))
    return found


def remove_group(folder: str) -> None:
    """Remove one of our groups; what is still in it is killed first. Any other folder is left alone."""
    path = Path(folder)
    if not path.name.startswith(PREFIX):
        return
    for _ in range(50):
        try:
            path.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:
            _kill_members(path)
            time.sleep(0.02)


def _kill_members(path: Path) -> None:
    with contextlib.suppress(OSError, ValueError):
        for pid in (path / "cgroup.procs").read_text().split():
            if int(pid) > 0:
                os.kill(int(pid), signal.SIGKILL)
