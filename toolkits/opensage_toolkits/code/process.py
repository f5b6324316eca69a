"""Programs in the workspace: run with a time limit, their output bounded, their whole process group ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

KEPT = 64 << 10
"""Bytes of output that are kept: half from the beginning, half from the end."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended. `code` is negative for a signal; `output` is both streams together."""

    code: int
    output: str
    late: bool = False


def run(
    argv: Sequence[str] | str, root: Path | str = ".", seconds: float = 120.0, env: Mapping[str, str] | None = None
) -> Ended:
    """Run a program (a list) or a shell command (a str).

    Raises:
        ValueError: there is no such program.
    """
    words = ["/bin/sh", "-c", argv] if isinstance(argv, str) else list(argv)
    with tempfile.TemporaryFile() as output:
        try:
            child = subprocess.Popen(
                words,
                cwd=root,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise ValueError(f"{words[0]} cannot be started: {error}") from None
        late = False
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            late = True
        finally:
            with contextlib.suppress(OSError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        return Ended(child.returncode, _kept(output.fileno()), late)


def _kept(handle: int) -> str:
    size = os.fstat(handle).st_size
    if size <= KEPT:
        return os.pread(handle, KEPT, 0).decode("utf-8", "replace")
    head, tail = os.pread(handle, KEPT // 2, 0), os.pread(handle, KEPT // 2, size - KEPT // 2)
    left = size - len(head) - len(tail)
    return f"{head.decode('utf-8', 'replace')}\n[{left} bytes left out]\n{tail.decode('utf-8', 'replace')}"
