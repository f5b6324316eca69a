"""A sandbox whose answers are written down: for tests and documents. Its files live in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from opensage.errors import PathRefused, SandboxError
from opensage.protocols import ExecResult, OutputHook

Reply = ExecResult | str | BaseException
Replies = Mapping[str, Reply] | Iterable[Reply] | Callable[[str | Sequence[str]], Reply]


@dataclass(frozen=True, slots=True)
class Call:
    """One command that was asked for."""

    command: str | Sequence[str]
    timeout: float | None = None
    stdin: bytes | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None


class ScriptedSandbox:
    """Answers commands from a list (in turn), a mapping (by the command) or a function.

    An answer is an `ExecResult`, a text (exit code 0) or an exception to raise. `calls` keeps every command, `files` is
    the workspace: relative path to bytes.
    """

    kind = "scripted"
    isolated = True
    python: str | None = None

    def __init__(self, replies: Replies = (), *, files: Mapping[str, bytes] | None = None) -> None:
        self.workdir = "/workspace"
        self.calls: list[Call] = []
        self.files: dict[str, bytes] = dict(files or {})
        self.closed = False
        self._replies = replies if callable(replies) or isinstance(replies, Mapping) else iter(list(replies))
        self._snapshots: list[dict[str, bytes]] = []

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
        """The next answer."""
        self.calls.append(Call(command, timeout, stdin, dict(env or {}), cwd))
        reply = self._reply(command)
        if isinstance(reply, BaseException):
            raise reply
        result = ExecResult(0, reply, "") if isinstance(reply, str) else reply
        if on_output is not None and result.stdout:
            on_output("stdout", result.stdout.encode())
        if on_output is not None and result.stderr:
            on_output("stderr", result.stderr.encode())
        return result

    async def read_bytes(self, path: str, offset: int = 0, limit: int | None = None) -> bytes:
        """See `Sandbox.read_bytes`."""
        key = self._key(path)
        if key not in self.files:
            raise IsADirectoryError(path) if self._below(key) else FileNotFoundError(path)
        return self.files[key][offset : None if limit is None else offset + limit]

    async def write_bytes(self, path: str, data: bytes) -> None:
        """See `Sandbox.write_bytes`."""
        self.files[self._key(path)] = bytes(data)

    async def copy_in(self, source: Path, path: str) -> None:
        """See `Sandbox.copy_in`."""
        key = self._key(path)
        for name, data in _load(source).items():
            self.files[f"{key}/{name}" if name else key] = data

    async def copy_out(self, path: str, target: Path) -> None:
        """See `Sandbox.copy_out`."""
        key = self._key(path)
        found = (
            {key: target} if key in self.files else {name: target / name[len(key) + 1 :] for name in self._below(key)}
        )
        if not found:
            raise FileNotFoundError(path)
        for name, place in found.items():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(self.files[name])

    async def snapshot(self) -> str:
        """See `Sandbox.snapshot`."""
        self._snapshots.append(dict(self.files))
        return str(len(self._snapshots) - 1)

    async def restore(self, snapshot: str) -> None:
        """See `Sandbox.restore`."""
        if not snapshot.isdigit() or int(snapshot) >= len(self._snapshots):
            raise SandboxError(f"no snapshot {snapshot!r} in this sandbox")
        self.files = dict(self._snapshots[int(snapshot)])

    async def close(self) -> None:
        """See `Sandbox.close`."""
        self.closed = True

    def _reply(self, command: str | Sequence[str]) -> Reply:
        if callable(self._replies):
            return self._replies(command)
        if isinstance(self._replies, Mapping):
            key = command if isinstance(command, str) else " ".join(command)
            return self._replies.get(key, ExecResult(127, "", f"opensage: {key}: not scripted\n"))
        try:
            return next(self._replies)
        except StopIteration:
            raise SandboxError(f"the scripted sandbox has no answer left for {command!r}: add one") from None

    def _below(self, key: str) -> list[str]:
        return [name for name in self.files if key == "." or name.startswith(f"{key}/")]

    def _key(self, path: str) -> str:
        pure = PurePosixPath(path)
        if pure.is_absolute():
            if not pure.is_relative_to(self.workdir):
                raise PathRefused(f"{path} leads outside the workspace {self.workdir}")
            pure = pure.relative_to(self.workdir)
        if ".." in pure.parts:
            raise PathRefused(f"{path} leads outside the workspace {self.workdir}")
        return str(pure)


def _load(source: Path) -> dict[str, bytes]:
    """A file under the name "", or the files of a folder; links are left out."""
    if source.is_file():
        return {"": source.read_bytes()}
    files = [file for file in sorted(source.rglob("*")) if file.is_file() and not file.is_symlink()]
    return {file.relative_to(source).as_posix(): file.read_bytes() for file in files}
