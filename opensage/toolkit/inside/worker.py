"""The worker of a pure toolkit: a process that has imported the toolkit once and forks for each call.

The caller hands its three standard files to the worker, so that a forked call is in nothing different from a process of
its own: a crash ends that call, and a caller that is killed takes its call along. The worker ends with the sandbox.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any, NoReturn

from .entry import run, with_packages
from .stage import whole

IDLE_SECONDS = 600.0
SOCKET = ".worker"


def through_worker(place: str, package: str) -> NoReturn:
    """Let the worker answer, started first when there is none; ends as the call ended."""
    import _socket

    conn = _connect(_socket, place) or _started(_socket, place, package)
    numbers = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
    try:
        conn.sendmsg([b"x"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, numbers)])
        status = conn.recv(16)
    except OSError:
        status = b""
    if not status:
        os.write(2, b"the worker of this toolkit ended\n")
        os._exit(1)
    code = int(status)
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code & 255)


def _connect(socket: Any, place: str) -> Any:
    conn = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    folder = os.open(place, os.O_RDONLY)
    try:
        conn.connect(f"/proc/self/fd/{folder}/{SOCKET}")  # a path of any length
        return conn
    except OSError:
        conn.close()
        return None
    finally:
        os.close(folder)


def _started(socket: Any, place: str, package: str) -> Any:
    import fcntl
    import socket as sockets

    with open(os.path.join(place, ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        conn = _connect(socket, place)
        if conn is not None:
            return conn
        folder = os.open(place, os.O_RDONLY)
        path = f"/proc/self/fd/{folder}/{SOCKET}"
        if os.path.lexists(path):
            os.unlink(path)
        server = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM)
        server.bind(path)
        server.listen(64)
        os.close(folder)
        if os.fork() == 0:
            _become_worker(server, place, package)
        server.close()
        return _connect(socket, place)


def _become_worker(server: Any, place: str, package: str) -> NoReturn:
    os.setsid()
    if os.fork():
        os._exit(0)
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    os.closerange(3, server.fileno())
    os.closerange(server.fileno() + 1, 1024)
    try:
        Worker(server, place, package).serve()
    finally:
        os._exit(0)


class Worker:
    """Forks one process for each call, with the toolkit already imported."""

    def __init__(self, server: Any, place: str, package: str) -> None:
        self.server, self.place, self.package = server, place, package
        self.jobs: dict[int, Any] = {}
        self.good = self._served = False

    def serve(self) -> None:
        """Until nothing came for a while, or the staged files are gone."""
        import select
        import signal

        self._preload()
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        last = time.monotonic()
        while self.jobs or time.monotonic() - last < IDLE_SECONDS:
            poll = select.poll()
            poll.register(self.server, select.POLLIN)
            poll.register(reader, select.POLLIN)
            for conn in self.jobs.values():
                poll.register(conn, 0)
            ready = dict(poll.poll(5000))
            if reader in ready:
                os.read(reader, 4096)
            self._reap()
            for pid, conn in self.jobs.items():
                if ready.get(conn.fileno(), 0) & (select.POLLHUP | select.POLLERR):
                    _kill(pid)
            if self.server.fileno() in ready:
                self._accept()
                last = time.monotonic()
            if self._served and not self.jobs and not (self.good and whole(self.place)):
                return

    def _preload(self) -> None:
        import importlib
        import json  # noqa: F401 each call needs it
        import warnings

        with_packages(self.place, self.package)
        warnings.filterwarnings("ignore", message=".*multi-threaded.*fork.*")
        try:
            importlib.import_module(f"{self.package}.tools")
            self.good = True
        except BaseException:  # noqa: BLE001 the call itself will say it
            self.good = False

    def _accept(self) -> None:
        import array
        import socket

        conn, _ = self.server.accept()
        numbers = array.array("i")
        conn.settimeout(5)
        try:
            _, extra, _, _ = conn.recvmsg(1, socket.CMSG_SPACE(3 * numbers.itemsize))
        except OSError:
            extra = []
        for level, kind, data in extra:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                numbers.frombytes(data)
        self._served = True
        if len(numbers) == 3:
            pid = os.fork()
            if pid == 0:
                self._child(numbers)
            self.jobs[pid] = conn
        else:
            conn.close()
        for number in numbers:
            os.close(number)

    def _child(self, numbers: Any) -> NoReturn:
        import signal

        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            for place, number in enumerate(numbers):
                os.dup2(number, place)
            os.closerange(3, 1024)
            random = sys.modules.get("numpy.random")
            if random is not None:  # the forked ones would all draw the same numbers
                random.seed()
            run(self.place, "call", self.package)
        finally:
            os._exit(1)

    def _reap(self) -> None:
        import contextlib

        for pid, conn in list(self.jobs.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                del self.jobs[pid]
                code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
                with contextlib.suppress(OSError):  # it was killed meanwhile
                    conn.sendall(str(code).encode())
                conn.close()


def _kill(pid: int) -> None:
    import contextlib
    import signal

    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
