"""The `local` sandbox: none. Commands run as the user, with limits and a clean environment, and see everything."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import ClassVar

from opensage.sandbox.bubblewrap import environment
from opensage.sandbox.process import ProcessSandbox

WARNING = "no sandbox: commands run as you, on this machine, with your network and your files"


class LocalSandbox(ProcessSandbox):
    """Commands run on the machine itself. Only paths given to the file operations are kept to the workspace.

    The time-outs, output bounds, tree kills and limits are those of the other backends; the isolation is not there.
    """

    kind: ClassVar[str] = "local"
    isolated: ClassVar[bool] = False
    warning: ClassVar[str] = WARNING

    @property
    def needs_approval(self) -> bool:
        """Whether each command is asked for, because nobody chose this backend by name."""
        return self._approve is not None

    def _command(self, socket_fd: int, scratch: Path) -> tuple[list[str], list[int]]:
        supervisor = str(Path(__file__).with_name("supervisor.py").resolve())
        program = os.path.realpath(sys.executable)
        return [program, "-I", "-S", supervisor, str(socket_fd), self._config(scratch)], []

    def _rlimits(self) -> dict[str, int]:
        limits = super()._rlimits()
        if os.geteuid() != 0:  # counts all of the user's, so there is room above what runs now: a last resort
            limits["RLIMIT_NPROC"] = _tasks_of_user() + self.limits.processes * 2 + 1024
        return limits

    def _roots(self, scratch: Path) -> list[str]:
        return [self.workdir, os.path.realpath(scratch)]

    def _environment(self, scratch: Path) -> dict[str, str]:
        return environment(str(scratch), str(scratch))


def _tasks_of_user() -> int:
    """Threads that the current user runs on this machine."""
    count = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_uid == os.geteuid():
                count += len(os.listdir(folder / "task"))
    return count
