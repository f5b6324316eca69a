"""A worker: `python -m opensage_benchmarks.swe.run.worker PARENT`. It does one task after the other.

It imports once what tasks need and forks for each of them, so that a task starts in milliseconds with nothing of the
one before. Whatever a task leaves running is below this process, wherever it went, and is killed before the next one.
It ends with its parent, and everything below it ends first.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import select
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import Any

from opensage.errors import OpenSageError
from opensage.sandbox.supervisor import descendants, kill_below
from opensage_benchmarks.swe.run.protocol import Channel

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
_LIBC = ctypes.CDLL(None, use_errno=True)
_LOOK_EVERY = 0.5
_SALVAGE_S = 30.0
"""What taking the patch of an ended task may take; less than the grace the runner gives a worker."""
_DISK_SHARE = 20.0
"""Measuring the disk takes at most one part in so many of the time."""


def main(parent: int) -> None:
    """Serve the runner until it goes away."""
    _LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        return
    channel = Channel(os.dup(0), os.dup(1))
    os.dup2(2, 1)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    while (message := channel.hear()) is not None:
        if "import" in message:
            sys.path += [path for path in message["path"] if path not in sys.path]
            _warm(message["import"], message["source"])
        elif "job" in message:
            _task(message["job"], channel)


def _warm(modules: list[str], source: list[Any]) -> None:
    """Import what each task will need and open the source; what is not there is the task's to complain about."""
    for name in modules:
        with contextlib.suppress(ImportError):
            warm = getattr(importlib.import_module(name), "warm", None)
            if callable(warm):
                warm()
    from opensage_benchmarks.swe.run.reopen import reopen

    with contextlib.suppress(OpenSageError, ImportError):
        reopen(*source)


def _end(_number: int, _frame: FrameType | None) -> None:
    _kill_all()
    os._exit(0)


def _task(job: dict[str, Any], channel: Channel) -> None:
    """Do one task in a child and say how that ended."""
    folder = Path(job["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="task-", dir=job["scratch"]))
    started = time.monotonic()
    try:
        child = os.fork()
        if child == 0:
            _become(job, channel, scratch)
        why = _watch(child, job, (scratch, folder), started)
        code, used = _reap(child)
        _kill_all()
        saved = _salvage(scratch, folder) if why else 0
        keep_log(scratch / "workspace", folder)
    finally:
        remove(scratch)
    wall = round(time.monotonic() - started, 3)
    channel.say("gone", code=code, why=why, patch_bytes=saved, cpu_s=round(used, 3), wall_s=wall)


def _salvage(scratch: Path, folder: Path) -> int:
    """Take the patch of a task that was ended from outside, in a process that cannot hang either; its bytes."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            from opensage_benchmarks.swe.run.job import salvage

            salvage(scratch, folder)
            code = 0
        finally:
            os._exit(code)
    handle = os.pidfd_open(child)
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    try:
        if not poll.poll(_SALVAGE_S * 1000):
            os.kill(child, signal.SIGKILL)
    finally:
        os.close(handle)
    _reap(child)
    patch = folder / "patch.diff"
    return patch.stat().st_size if patch.is_file() else 0


def _become(job: dict[str, Any], channel: Channel, scratch: Path) -> None:
    """The child: its own session, its output in the log, nothing inherited but the channel."""
    code = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        os.setsid()
        log = os.open(Path(job["folder"]) / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        from opensage_benchmarks.swe.run.job import run_job

        run_job(job, channel, scratch)
        code = 0
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _watch(child: int, job: dict[str, Any], folders: tuple[Path, Path], started: float) -> str:
    """Wait for the child; kill it and return why when it takes too long or fills the disk."""
    handle = os.pidfd_open(child)
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    timeout, quota = job["timeout"] or float("inf"), job["disk_limit"]
    look_at = time.monotonic() + _LOOK_EVERY
    try:
        while True:
            until = min(started + timeout, look_at)
            if poll.poll(max(0.0, until - time.monotonic()) * 1000):
                return ""
            now = time.monotonic()
            if now >= started + timeout:
                return _kill(child, f"task_timeout: {timeout:g} seconds")
            if quota and (used := disk_use(folders)) > quota:
                return _kill(child, f"disk_limit: {used} of {quota} bytes used")
            look_at = time.monotonic() + max(_LOOK_EVERY, _DISK_SHARE * (time.monotonic() - now))
    finally:
        os.close(handle)


def _kill(child: int, why: str) -> str:
    os.kill(child, signal.SIGKILL)
    return why


def _reap(child: int) -> tuple[int, float]:
    """Exit code (-N for signal N) and CPU seconds of a child and of what it waited for."""
    _, status, used = os.wait4(child, 0)
    return os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime


def _kill_all() -> None:
    """Kill and reap everything below this process, until nothing is left."""
    while True:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not descendants(os.getpid()):
            return
        kill_below(os.getpid())
        time.sleep(0.002)


def disk_use(folders: tuple[Path, ...]) -> int:
    """Bytes that files below occupy; what goes away meanwhile does not matter."""
    total, todo = 0, [str(folder) for folder in folders]
    while todo:
        with contextlib.suppress(OSError), os.scandir(todo.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
    return total


def keep_log(workspace: Path, folder: Path) -> None:
    """Move the logs of kit sessions out of a workspace, through no link that was put there."""
    state, target = workspace / ".opensage", folder / "session"
    sessions = state / "sessions"
    with contextlib.suppress(OSError):
        if not state.is_symlink() and sessions.is_dir() and not sessions.is_symlink() and not target.exists():
            shutil.move(sessions, target)


def remove(folder: Path) -> None:
    """Remove a folder, also where its files were locked against that."""

    def unlock(_function: Any, path: str, _error: Any) -> None:
        with contextlib.suppress(OSError):
            os.chmod(os.path.dirname(path), 0o700)
            os.chmod(path, 0o700, follow_symlinks=False) if not os.path.islink(path) else None
            shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)

    shutil.rmtree(folder, onerror=unlock)


if __name__ == "__main__":
    main(int(sys.argv[1]))
