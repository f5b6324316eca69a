"""A sandbox around a sandbox."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Unpack

from opensage.protocols import ExecOptions, ExecResult, Sandbox


class SandboxWrapper:
    """Passes everything on; a wrapper overrides what it is about."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def __getattr__(self, name: str) -> Any:
        # What the protocol does not name is the inner sandbox's.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._sandbox, name)

    @property
    def kind(self) -> str:
        """The inner sandbox's kind."""
        return self._sandbox.kind

    @property
    def isolated(self) -> bool:
        """Whether the inner sandbox isolates."""
        return self._sandbox.isolated

    @property
    def workdir(self) -> str:
        """The workspace inside."""
        return self._sandbox.workdir

    @property
    def python(self) -> str | None:
        """A Python interpreter inside, or None."""
        return self._sandbox.python

    async def exec(self, command: str | Sequence[str], **options: Unpack[ExecOptions]) -> ExecResult:
        """See `Sandbox.exec`."""
        return await self._sandbox.exec(command, **options)

    async def read_bytes(self, path: str, offset: int = 0, limit: int | None = None) -> bytes:
        """See `Sandbox.read_bytes`."""
        return await self._sandbox.read_bytes(path, offset, limit)

    async def write_bytes(self, path: str, data: bytes) -> None:
        """See `Sandbox.write_bytes`."""
        await self._sandbox.write_bytes(path, data)

    async def copy_in(self, source: Path, path: str) -> None:
        """See `Sandbox.copy_in`."""
        await self._sandbox.copy_in(source, path)

    async def copy_out(self, path: str, target: Path) -> None:
        """See `Sandbox.copy_out`."""
        await self._sandbox.copy_out(path, target)

    async def snapshot(self) -> str:
        """See `Sandbox.snapshot`."""
        return await self._sandbox.snapshot()

    async def restore(self, snapshot: str) -> None:
        """See `Sandbox.restore`."""
        await self._sandbox.restore(snapshot)

    async def close(self) -> None:
        """Close the inner sandbox."""
        await self._sandbox.close()
