"""Takes back the file changes of a turn, with a git repository of its own that the user's repository knows nothing of.

A checkpoint holds what the user's ignore rules let through. Its repository, index and objects live in `.opensage/undo`;
only its ignore rules come from the user's. Bytes are stored as they are: no filter, no line-ending conversion, no hook.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from opensage.errors import OpenSageError
from opensage.files import read_regular
from opensage.models.registry import home_dir
from opensage.sandbox import tree
from opensage.sandbox.state import process_start

_SECONDS = 30.0
_SOON = 1.0
"""Seconds after which git is looked at: a pipe in the place of one of its files would be waited for."""
_MOST_BYTES = 500_000_000
_MOST_FILES = 100_000
_MOST_RULES = 1 << 20
_LINK = "120000"
_one_at_a_time = threading.Lock()
_MEND = "list what is data or built in .gitignore"


class UndoError(OpenSageError):
    """A checkpoint cannot be made or used."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The files of the workspace at one moment.

    Attributes:
        tree: id of the git tree.
        outside: paths that were there and are not in the tree (ignored, unreadable, repositories); folders end in "/".
        empty: folders without a file.
    """

    tree: str
    outside: frozenset[str]
    empty: frozenset[str]


@dataclass(frozen=True, slots=True)
class Change:
    """One path that differs between two trees; a mode of "000000" says that it is not there."""

    path: str
    old_mode: str
    old: str
    new_mode: str

    @property
    def added(self) -> bool:
        """Whether the path is new."""
        return self.old_mode == "000000"


@dataclass(slots=True)
class Undone:
    """What an undo did, by path. `left` is what somebody changed since, or what cannot be put back."""

    removed: list[str] = field(default_factory=list)
    restored: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


class Checkpoints:
    """The checkpoints of one chat. Everything on disk goes when it is closed."""

    def __init__(self, workdir: Path) -> None:
        self._workdir = workdir
        self._home = workdir / ".opensage" / "undo"
        self._folder = self._home / f"{os.getpid()}-{process_start(os.getpid()) or 0}"
        self._root = workdir
        self._ready = False

    async def save(self) -> Checkpoint:
        """A checkpoint of the workspace as it is.

        Raises:
            UndoError: there is no git, or the workspace is too large.
        """
        await self._prepare()
        listed = await self._git(
            "ls-files", "-o", "-m", "-d", "--exclude-standard", "-z", "--full-name", "--", *self._place()
        )
        there, gone = self._sorted_out(listed.split(b"\0"))
        await self._git("update-index", "-z", "--index-info", stdin=b"".join(b"0 %040d\t%s\0" % (0, p) for p in gone))
        await self._git("update-index", "--add", "--replace", "-z", "--stdin", stdin=b"".join(p + b"\0" for p in there))
        name = (await self._git("write-tree")).decode().strip()
        return Checkpoint(name, await self._outside(), await self._empty())

    def _sorted_out(self, paths: list[bytes]) -> tuple[list[bytes], list[bytes]]:
        """Which of the changed paths can be stored, and which are not there any more.

        Repositories inside the workspace are left out: git would start what their configuration names.
        """
        if len(paths) > _MOST_FILES:
            raise UndoError(f"the folder has more than {_MOST_FILES} files that are not ignored; {_MEND}")
        there: dict[bytes, None] = {}  # a path is listed once for each thing that is true of it
        gone: dict[bytes, None] = {}
        size = 0
        for path in paths:
            full = os.path.join(os.fsencode(self._root), path)
            if not path or path.endswith(b"/"):
                continue
            try:
                status = os.lstat(full)
            except OSError:
                gone[path] = None
                continue
            if os.path.realpath(os.path.dirname(full)) != os.path.dirname(full):
                gone[path] = None
            elif stat.S_ISLNK(status.st_mode) or (stat.S_ISREG(status.st_mode) and os.access(full, os.R_OK)):
                there[path] = None
                size += status.st_size
        if size > _MOST_BYTES:
            raise UndoError(f"the folder has {size / 1e6:.0f} MB that are not ignored; {_MEND}")
        return list(there), list(gone)

    async def _outside(self) -> frozenset[str]:
        options = ("--porcelain", "-z", "-uall", "--ignored=matching", "--no-renames", "--ignore-submodules=all")
        raw = await self._git("status", *options, "--", *self._place())
        return frozenset(os.fsdecode(entry[3:]) for entry in raw.split(b"\0") if entry[:2] in (b"??", b"!!"))

    async def _empty(self) -> frozenset[str]:
        raw = await self._git("ls-files", "-o", "--directory", "-z", "--full-name", "--", *self._place())
        folders = (os.fsdecode(entry) for entry in raw.split(b"\0") if entry.endswith(b"/"))
        return frozenset(folder for folder in folders if _is_empty(self._root / folder))

    async def changes(self, before: Checkpoint, after: Checkpoint) -> list[Change]:
        """The paths that differ."""
        raw = await self._git("diff-tree", "-r", "-z", "--raw", "--no-renames", before.tree, after.tree)
        fields = [os.fsdecode(part) for part in raw.split(b"\0") if part]
        heads = [head.lstrip(":").split() for head in fields[::2]]
        return [Change(path, head[0], head[2], head[1]) for head, path in zip(heads, fields[1::2], strict=True)]

    async def diff(self, before: Checkpoint, after: Checkpoint) -> str:
        """The difference as a unified diff."""
        raw = await self._git("diff-tree", "-r", "-p", "--no-ext-diff", "--no-textconv", before.tree, after.tree)
        return raw.decode(errors="replace")

    async def undo(self, before: Checkpoint, after: Checkpoint) -> Undone:
        """Put back what changed between two checkpoints, except what was changed again since."""
        now = await self.save()
        since = {change.path for change in await self.changes(after, now)}
        done = Undone()
        changes = await self.changes(before, after)
        for change in sorted(changes, key=lambda change: not change.added):  # a new link may stand where a folder was
            kept = change.added and _within(change.path, before.outside)
            if kept or change.path in since:
                done.left.append(change.path)
                continue
            try:
                await self._put_back(change, before, done)
            except OSError:
                done.left.append(change.path)
        done.left.sort()
        return done

    async def _put_back(self, change: Change, before: Checkpoint, done: Undone) -> None:
        *folders, name = change.path.split("/")
        if change.added:
            with _folder(self._root, folders) as fd:
                os.unlink(name, dir_fd=fd)
            self._remove_emptied(folders, before.empty)
            done.removed.append(change.path)
            return
        data = await self._git("cat-file", "blob", change.old)
        with _folder(self._root, folders, make=True) as fd:
            if change.new_mode == "000000" and name in os.listdir(fd):
                done.left.append(change.path)  # something that no checkpoint holds stands there now
                return
            _write(fd, name, data, change.old_mode)
        done.restored.append(change.path)

    def _remove_emptied(self, folders: list[str], keep: frozenset[str]) -> None:
        for depth in range(len(folders), 0, -1):
            path = "/".join(folders[:depth])
            if f"{path}/" in keep or self._workdir.is_relative_to(self._root / path):
                return
            try:
                with _folder(self._root, folders[: depth - 1]) as fd:
                    os.rmdir(folders[depth - 1], dir_fd=fd)
            except OSError:
                return

    async def _prepare(self) -> None:
        if self._ready:
            return
        if shutil.which("git") is None:
            raise UndoError("git is not installed; /undo and /diff need it (apt install git)")
        self._sweep()
        excludes = await self._users_rules()
        await _run(["git", "init", "-q", "--bare", "--template=", str(self._folder)], self._workdir)
        info = self._folder / "info"
        info.mkdir(exist_ok=True)
        (info / "exclude").write_text(excludes, errors="surrogateescape")
        (info / "attributes").write_text("* -text -filter -ident -working-tree-encoding\n")
        self._ready = True

    async def _users_rules(self) -> str:
        """The ignore rules that are in no `.gitignore`. Sets the root to that of the user's repository, if any."""
        parts: list[str] = []
        here = self._workdir
        with contextlib.suppress(UndoError):
            named = await _run(["git", "config", "--path", "--get", "core.excludesFile"], here)
            parts.append(os.fsdecode(named).rstrip("\n"))
        with contextlib.suppress(UndoError):
            asked = await _run(["git", "rev-parse", "--show-toplevel", "--git-path", "info/exclude"], here)
            top, exclude = os.fsdecode(asked).splitlines()[:2]
            ignored = ["git", "-c", "core.fsmonitor=false", "check-ignore", "--no-index", "-q", "--", str(here)]
            if here == Path(top) or await _fails(ignored, here):
                self._root = Path(top)
                parts.append(exclude)
        rules = ""
        for part in parts:
            with contextlib.suppress(OSError):
                rules += read_regular(here / part, _MOST_RULES).decode("utf-8", "surrogateescape") + "\n"
        return rules

    def _sweep(self) -> None:
        """Remove what chats that crashed left here."""
        with contextlib.suppress(OSError):
            for folder in self._home.iterdir():
                owner, _, start = folder.name.partition("-")
                if owner.isdigit() and str(process_start(int(owner)) or 0) != start:
                    shutil.rmtree(folder, ignore_errors=True)

    async def _git(self, *words: str, stdin: bytes = b"") -> bytes:
        settings = ("core.looseCompression=0", "core.fsmonitor=false", "core.hooksPath=/dev/null", "core.quotePath=off")
        flags = [part for setting in settings for part in ("-c", setting)]
        more = {"GIT_DIR": str(self._folder), "GIT_WORK_TREE": str(self._root)}
        return await _run(["git", *flags, *words], self._root, more, stdin)

    def _inner(self) -> str:
        inner = self._workdir.relative_to(self._root).as_posix()
        return "" if inner == "." else inner

    def _place(self) -> list[str]:
        """What is looked at: the workspace, without the kit's own folders."""
        ours = [self._workdir / ".opensage", home_dir().absolute()]
        inside = [path.relative_to(self._root) for path in ours if path.is_relative_to(self._workdir)]
        return [f":(top,literal){self._inner()}", *(f":(exclude,top,literal){path}" for path in inside)]

    def close(self) -> None:
        """Remove everything."""
        shutil.rmtree(self._folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            self._home.rmdir()


async def _run(command: list[str], cwd: Path, more: dict[str, str] | None = None, stdin: bytes = b"") -> bytes:
    """Run git outside the sandbox, away from any setting that could start a program.

    In a thread, so that a cancelled caller leaves no half command behind; one at a time.
    """
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    if more:
        env |= {**more, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}

    def work() -> tuple[int, bytes, bytes]:
        with _one_at_a_time, _started(command, cwd, env) as process:
            out, errors = _finished(process, cwd, stdin)
            return process.returncode, out, errors

    code, out, errors = await asyncio.to_thread(work)
    if code != 0:
        raise UndoError(f"git failed: {' '.join(errors.decode(errors='replace').split())[:300]}")
    return out


@contextlib.contextmanager
def _started(command: list[str], cwd: Path, env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=cwd, env=env, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
    with process:
        try:
            yield process
        finally:
            process.kill()


def _finished(process: subprocess.Popen[bytes], root: Path, stdin: bytes) -> tuple[bytes, bytes]:
    try:
        return process.communicate(stdin, timeout=_SOON)
    except subprocess.TimeoutExpired:
        if blocking := _blocking(root):
            raise UndoError(f"{blocking} is a pipe or a device, which git would wait for; remove it") from None
    try:
        return process.communicate(timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        raise UndoError(f"git took more than {_SECONDS:.0f} s in this folder") from None


def _blocking(root: Path) -> str:
    """A file of git's that is none; "" without one."""
    end = time.monotonic() + _SECONDS
    for folder, _, names in os.walk(root):
        for name in names if ".git" in Path(folder).parts else [n for n in names if n.startswith(".git")]:
            path = os.path.join(folder, name)
            with contextlib.suppress(OSError):
                mode = os.lstat(path).st_mode
                if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
                    return path
        if time.monotonic() > end:
            break
    return ""


async def _fails(command: list[str], cwd: Path) -> bool:
    try:
        await _run(command, cwd)
    except UndoError:
        return True
    return False


def _is_empty(folder: Path) -> bool:
    return not any(files for _, _, files in os.walk(folder))


def _within(path: str, entries: frozenset[str]) -> bool:
    parts = path.split("/")
    return path in entries or any("/".join(parts[:depth]) + "/" in entries for depth in range(1, len(parts)))


@contextlib.contextmanager
def _folder(root: Path, parts: list[str], *, make: bool = False) -> Iterator[int]:
    """The descriptor of a folder below `root`, reached without following a link."""
    fd = os.open(root, tree.FOLDER)
    try:
        for part in parts:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=fd)
            inner = os.open(part, tree.FOLDER, dir_fd=fd)
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)


def _write(folder: int, name: str, data: bytes, mode: str) -> None:
    if mode == _LINK:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)
        os.symlink(data, os.fsencode(name), dir_fd=folder)
        return
    tree.write_new(folder, name, data)
    kept = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode & 0o777
    runs = kept | (kept & 0o444) >> 2 if mode == "100755" else kept & ~0o111
    os.chmod(name, runs, dir_fd=folder)
