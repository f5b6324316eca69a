"""The protocols everything else composes by wrapping: `Model` and `Sandbox` (`Store` lives in `opensage_memory`)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypedDict, runtime_checkable

from opensage.messages import Delta, Request


@runtime_checkable
class Model(Protocol):
    """A source of replies. Wrappers (retry, fallback, cassette, budget) are models too."""

    @property
    def name(self) -> str:
        """The model string, as the user would write it."""
        ...

    @property
    def context_window(self) -> int | None:
        """Tokens that fit, or None when unknown."""
        ...

    def stream(self, request: Request) -> AsyncIterator[Delta]:
        """Stream one reply.

        Raises:
            ModelError: with `retryable` and `retry_after` set by the adapter.
        """
        ...

    async def close(self) -> None:
        """Free what the model holds."""
        ...


@dataclass(frozen=True, slots=True)
class ExecResult:
    """The outcome of one command. A non-zero exit code is data, not failure.

    `stdout` and `stderr` are decoded with replacement and bounded (head and tail kept, `truncated` set).
    `exit_code` is -N for a process ended by signal N; `duration` is in seconds.
    """

    exit_code: int
    stdout: str
    stderr: str
    timed_out: bool = False
    truncated: bool = False
    duration: float = 0.0


OutputHook = Callable[[str, bytes], None]
"""Called with ("stdout"|"stderr", chunk) as output arrives; must not block."""


class ExecOptions(TypedDict, total=False):
    """The options of `Sandbox.exec`, for wrappers that pass them on."""

    timeout: float | None
    stdin: bytes | None
    env: Mapping[str, str] | None
    cwd: str | None
    on_output: OutputHook | None


@runtime_checkable
class Sandbox(Protocol):
    """Where commands run and files live. Started lazily by the first call; every method may raise `SandboxLost`."""

    @property
    def kind(self) -> str:
        """`docker`, `bubblewrap`, `local` or `scripted`."""
        ...

    @property
    def isolated(self) -> bool:
        """Whether what runs inside is kept from the machine."""
        ...

    @property
    def workdir(self) -> str:
        """Absolute path of the workspace as seen inside."""
        ...

    @property
    def python(self) -> str | None:
        """Path of a Python 3 interpreter inside, or None."""
        ...

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        timeout: float | None = None,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        on_output: OutputHook | None = None,
    ) -> ExecResult:
        """Run a shell script (str) or an argv (sequence). Cancelling the awaiting task kills the whole process tree.

        Args:
            command: a script for the sandbox's shell, or the argv of one program.
            timeout: seconds; None means the default, and values outside (0, ceiling] are clamped.
            stdin: bytes fed to the program; without it the program reads end of file.
            env: variables added to the sandbox's own clean environment.
            cwd: directory inside, relative to the workspace or absolute.
            on_output: hook for streaming.
        """
        ...

    async def read_bytes(self, path: str, offset: int = 0, limit: int | None = None) -> bytes:
        """Read a regular file of the workspace.

        Raises:
            PathRefused: the path leaves the workspace.
            FileNotFoundError, IsADirectoryError, PermissionError, OSError: as usual.
        """
        ...

    async def write_bytes(self, path: str, data: bytes) -> None:
        """Write a file of the workspace atomically, making its folders; mode bits of an existing file are kept."""
        ...

    async def copy_in(self, source: Path, path: str) -> None:
        """Copy a file or folder of the host into the workspace."""
        ...

    async def copy_out(self, path: str, target: Path) -> None:
        """Copy a file or folder of the workspace to the host. Links are copied as links, never followed."""
        ...

    async def snapshot(self) -> str:
        """Save the workspace; returns an id for `restore`."""
        ...

    async def restore(self, snapshot: str) -> None:
        """Put the workspace back to a snapshot."""
        ...

    async def close(self) -> None:
        """End everything that runs inside and remove what was made outside. Safe to call twice."""
        ...
