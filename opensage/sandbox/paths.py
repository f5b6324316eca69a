"""Which folders a sandbox may be given, and where the interpreter lives."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from opensage.errors import SandboxError

EXACT = ("/", "/home", "/root", "/opt", "/srv", "/mnt", "/media", "/var", "/tmp", "/run", "/var/tmp")
BELOW = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/proc", "/sys", "/dev", "/boot")


def check_workdir(workdir: Path) -> Path:
    """The workspace's real path.

    Raises:
        SandboxError: it is no folder we may read, or one that must not be given away whole.
    """
    try:
        real = workdir.expanduser().resolve(strict=True)
    except FileNotFoundError as error:
        raise SandboxError(f"workdir {workdir} does not exist: make it with `mkdir -p {workdir}`") from error
    except (OSError, RuntimeError, ValueError) as error:
        raise SandboxError(f"workdir {str(workdir)!r} cannot be used ({error}): name a folder you may read") from error
    if not real.is_dir():
        raise SandboxError(f"workdir {workdir} is not a folder: name one")
    if not os.access(real, os.R_OK | os.X_OK):
        raise SandboxError(f"workdir {workdir} cannot be read: `chmod u+rx` it or name another folder")
    if is_dangerous(real):
        raise SandboxError(f"workdir {real} would hand over the system or your whole home: name a folder inside it")
    state = real / ".opensage"
    if state.is_symlink() or (state.exists() and not state.is_dir()):
        raise SandboxError(f"{state} must be a folder, not a link or a file: move it away")
    return real


def is_dangerous(path: Path) -> bool:
    """Whether a folder holds the system, the home folder as a whole, or more."""
    home = Path(os.path.realpath(os.path.expanduser("~")))
    if path in (home, *home.parents) or str(path) in EXACT:
        return True
    return any(path == Path(root) or path.is_relative_to(root) for root in BELOW)


def interpreter_folders() -> list[Path]:
    """Real folders that the running interpreter lives in, the outermost only, system folders left out."""
    program = Path(os.path.realpath(sys.executable)) if sys.executable else None
    named = [sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix]
    folders = {Path(os.path.realpath(name)) for name in named}
    if program is not None:
        folders.add(program.parent.parent)
    safe = [folder for folder in folders if folder.is_dir() and not is_dangerous(folder)]
    return sorted(
        folder for folder in safe if not any(folder != other and folder.is_relative_to(other) for other in safe)
    )


def own_code(workdir: Path) -> list[str]:
    """What runs outside and lies in the workspace, relative to it: interpreter, and kit when that is worked on."""
    return inside(workdir, [*interpreter_folders(), Path(__file__).resolve().parents[1]])


def inside(workdir: Path, folders: Iterable[Path]) -> list[str]:
    """Those of the folders that lie in the workspace, relative to it."""
    return [
        str(folder.relative_to(workdir)) for folder in folders if folder != workdir and folder.is_relative_to(workdir)
    ]
