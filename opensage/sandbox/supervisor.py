"""First process of a sandbox: starts commands, ends their process trees, opens files for the host.

Run as `python -I -S supervisor.py FD CONFIG`; FD is one end of an AF_UNIX SOCK_SEQPACKET pair. It is process 1 of a
bubblewrap sandbox and an ordinary session leader in the `local` backend, so both share one meaning of "run" and "kill".
Only the standard library: it runs wherever the interpreter does, without site-packages.

Each command has a *keeper*: a forked child that is the subreaper of everything the command starts. Orphans, daemons and
new sessions stay below their keeper, so a command's processes are always exactly the descendants of one known process.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import resource
import selectors
import signal
import socket
import stat
import struct
import sys
import time
from types import FrameType
from typing import Any, NoReturn

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38
KILL_TICK, WATCH_TICK, SHUT_SECONDS = 0.005, 0.1, 60.0
PAGE = resource.getpagesize()
LIBC = ctypes.CDLL(None, use_errno=True)


class Refused(Exception):
    """A path leads out of the folders that files may be read from or written to."""


# --- process trees -------------------------------------------------------------------------------------------------


def _int_list(path: str) -> list[int]:
    try:
        with open(path, "rb") as file:
            return [int(item) for item in file.read().split()]
    except (OSError, ValueError):
        return []


def _parents() -> dict[int, list[int]]:
    """Children of every process, from /proc/PID/stat: for kernels built without /proc/PID/task/TID/children."""
    tree: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as file:
                tree.setdefault(int(file.read().rpartition(b")")[2].split()[1]), []).append(int(name))
    return tree


HAVE_CHILDREN = os.path.exists(f"/proc/self/task/{os.getpid()}/children")


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            found += _int_list(f"/proc/{pid}/task/{task}/children")
    return found


def descendants(root: int, most: int = 1 << 20) -> list[int]:
    """Processes below `root`, without it, `most` or a few more at most. A snapshot: repeat it until nothing is left."""
    tree = None if HAVE_CHILDREN else _parents()
    found: list[int] = []
    seen, todo = {root}, [root]
    while todo and len(found) <= most:
        pid = todo.pop()
        for child in _children(pid) if tree is None else tree.get(pid, []):
            if child not in seen:
                seen.add(child)
                found.append(child)
                todo.append(child)
    return found


def _signal_all(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def _groups(pids: list[int]) -> list[int]:
    """Process groups, as negative numbers for `kill`, but for our own, in which keepers are too."""
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            found.add(-os.getpgid(pid))
    return [group for group in found if group not in (-os.getpgid(0), 0, -1)]


def kill_below(root: int) -> None:
    """Kill what is below `root`, as far as it can be seen now; repeat it until nothing is left.

    A group is signalled at one stroke, during which none of its members can fork: a fork bomb, whose processes share
    their group, does not outrun that. A few of its processes are enough to know the group, so they come first.
    """
    for most in (8, 1 << 20):
        found = descendants(root, most)
        _signal_all(_groups(found), signal.SIGKILL)
        _signal_all(found, signal.SIGSTOP)
    _signal_all(descendants(root), signal.SIGKILL)


def freeze_and_kill_below(root: int) -> None:
    """For process 1: stop all of its namespace at one stroke, so that nothing can fork, and let the rest go on."""
    _signal_all([-1], signal.SIGSTOP)
    _signal_all(descendants(root), signal.SIGKILL)
    _signal_all([-1], signal.SIGCONT)


def kill_until_gone(root: int, seconds: float) -> None:
    """Kill below `root` (a subreaper of the caller's own) and reap, until it has no child or time is up."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        kill_below(root)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(KILL_TICK)


def resident(pid: int) -> int:
    """Bytes of memory a process holds now."""
    numbers = _int_list(f"/proc/{pid}/statm")
    return numbers[1] * PAGE if len(numbers) > 1 else 0


def proportional(pid: int) -> int:
    """Bytes a process holds, with shared pages divided among those that share them."""
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/smaps_rollup", "rb") as file:
        for line in file:
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
    return resident(pid)


# --- one command ---------------------------------------------------------------------------------------------------


def _close_all_but(*keep: int) -> None:
    for name in os.listdir("/proc/self/fd"):
        number = int(name)
        if number not in keep:
            with contextlib.suppress(OSError):
                os.close(number)


def _limit(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    wish = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (wish, wish))


def _fail(text: str, code: int) -> NoReturn:
    with contextlib.suppress(OSError):
        os.write(2, f"opensage: {text}\n".encode(errors="replace"))
    os._exit(code)


def _yield(config: dict[str, Any]) -> None:
    """Take a command's place behind the supervisor, which must get its turn, and live, among what it has to end."""
    LIBC.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)  # or an ordinary user may not write the second setting
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, min(19, config["priority"] + config["nice"]))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def _become(request: dict[str, Any], fds: dict[str, int], config: dict[str, Any]) -> NoReturn:
    """In the command's own process: take its pipes, limits and folder, and turn into the program."""
    os.setsid()
    stdin = fds["stdin"] if "stdin" in fds else os.open("/dev/null", os.O_RDONLY)
    # Above 9 first, so that no dup2 below overwrites one that is still needed.
    high = {name: fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for name, fd in {**fds, "stdin": stdin}.items()}
    for target, name in enumerate(("stdin", "stdout", "stderr", "script")):
        if name in high:
            os.dup2(high[name], target)
    _close_all_but(0, 1, 2, *([3] if "script" in high else []))
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    _yield(config)
    for name, value in config["rlimits"].items():
        _limit(getattr(resource, name), value)
    try:
        os.chdir(os.path.join(config["workdir"], request["cwd"]))
    except OSError as error:
        _fail(f"cannot enter {request['cwd']}: {error.strerror}", 126)
    try:
        os.execvpe(request["argv"][0], request["argv"], request["env"])
    except FileNotFoundError:
        _fail(f"{request['argv'][0]}: not found", 127)
    except (OSError, ValueError) as error:
        _fail(f"cannot run {request['argv'][0][:200]}: {getattr(error, 'strerror', None) or error}", 126)


def _settle_keeper(supervisor: int) -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    me = os.getpid()

    def supervisor_died(_number: int, _frame: FrameType | None) -> None:
        kill_until_gone(me, SHUT_SECONDS)
        os._exit(1)

    signal.signal(signal.SIGTERM, supervisor_died)
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != supervisor:
        os._exit(1)


def keep(
    request: dict[str, Any], fds: dict[str, int], status: int, config: dict[str, Any], supervisor: int
) -> NoReturn:
    """In the keeper: start the command, report its end on `status`, reap until nothing is left below."""
    _settle_keeper(supervisor)
    _close_all_but(status, *fds.values())
    try:
        child = os.fork()
    except OSError as error:
        os.write(fds["stderr"], f"opensage: cannot start a process: {error.strerror}\n".encode())
        os.write(status, struct.pack("i", 126))
        os._exit(0)
    if child == 0:
        try:
            _become(request, fds, config)
        finally:
            os._exit(126)
    _close_all_but(status)
    while True:
        try:
            pid, code = os.wait()
        except ChildProcessError:
            os._exit(0)
        if pid == child:
            os.write(status, struct.pack("i", os.waitstatus_to_exitcode(code)))


class Command:
    """What the supervisor knows of a running command."""

    __slots__ = ("ending", "id", "keeper", "reported", "status")

    def __init__(self, number: int, keeper: int, status: int) -> None:
        self.id, self.keeper, self.status = number, keeper, status
        self.reported = self.ending = False


# --- files ---------------------------------------------------------------------------------------------------------


def _inside(path: str, roots: list[str]) -> bool:
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)


class Files:
    """Opens paths below the allowed folders. What was opened is checked, not the name: links cannot be swapped in."""

    def __init__(self, workdir: str, roots: list[str], hidden: list[str]) -> None:
        self.workdir, self.roots, self.hidden = workdir, roots, hidden

    def _checked(self, fd: int, path: str) -> str:
        real = os.readlink(f"/proc/self/fd/{fd}")
        if not _inside(real, self.roots) or _inside(real, self.hidden):
            os.close(fd)
            raise Refused(f"{path} leads outside the workspace {self.workdir}")
        return real

    def _open(self, path: str, flags: int = 0) -> tuple[int, str]:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC | flags)
        return fd, self._checked(fd, path)

    def read(self, path: str) -> int:
        """A descriptor to read the regular file at `path` (links inside the workspace are followed)."""
        fd, _real = self._open(path)
        try:
            mode = os.fstat(fd).st_mode
            if stat.S_ISDIR(mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if not stat.S_ISREG(mode):
                raise Refused(f"{path} is not a regular file")
            return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        finally:
            os.close(fd)

    def folder(self, path: str, make: bool) -> int:
        """A descriptor of the folder at `path`, made with its parents when `make`."""
        try:
            return self._open(path, os.O_DIRECTORY)[0]
        except FileNotFoundError:
            if not make:
                raise
        above, name = os.path.split(path.rstrip("/"))
        parent = self.folder(above or "/", make)
        try:
            if name in ("", ".", ".."):
                raise Refused(f"{path} leads through a folder that does not exist")
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=parent)
            if stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                raise Refused(f"{path} is a link to nothing")
            fd = os.open(name, os.O_PATH | os.O_CLOEXEC | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
        finally:
            os.close(parent)
        self._checked(fd, path)
        return fd

    def place(self, path: str, make: bool, follow: bool) -> tuple[int, str]:
        """A descriptor of the folder that holds `path`, and the last name; a link at the end is followed or kept."""
        path = path.rstrip("/") or "/"
        if follow and os.path.islink(path):
            try:
                fd, path = self._open(path)
            except FileNotFoundError as error:
                raise Refused(f"{path} is a link to nothing") from error
            os.close(fd)
        above, name = os.path.split(path)
        if name in ("", ".", ".."):
            raise Refused(f"{path} does not name a file")
        fd = self.folder(above, make)
        full = os.path.join(os.readlink(f"/proc/self/fd/{fd}"), name)
        if _inside(full, self.hidden) or full in self.roots:
            os.close(fd)
            raise Refused(f"{path} cannot be replaced")
        return fd, name


# --- the supervisor ------------------------------------------------------------------------------------------------


class Supervisor:
    """One loop over the host's socket, the keepers and a clock."""

    def __init__(self, sock: socket.socket, config: dict[str, Any]) -> None:
        self.sock, self.config = sock, config
        self.files = Files(config["workdir"], config["roots"], config["hidden"])
        # A relative path means the workspace: `..` must not reach the sandbox's own /tmp when the workspace lies there.
        self.workspace = Files(config["workdir"], [config["workdir"]], config["hidden"])
        self.commands: dict[int, Command] = {}
        self.selector = selectors.DefaultSelector()
        self.selector.register(sock, selectors.EVENT_READ, None)
        wake, self.wake = socket.socketpair()
        wake.setblocking(False)
        self.wake.setblocking(False)
        self._wake_writer = wake
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.selector.register(self.wake, selectors.EVENT_READ, None)
        self.watched = 0.0

    def tell(self, kind: str, number: int, fds: tuple[int, ...] = (), **more: object) -> None:
        """Send one message to the host."""
        data = json.dumps({"t": kind, "id": number, **more}).encode()
        socket.send_fds(self.sock, [data], list(fds))

    def run(self) -> None:
        """Serve until the host is gone."""
        self.tell("ready", 0)
        while True:
            for key, _events in self.selector.select(self._tick()):
                if key.fileobj is self.sock:
                    if not self._request():
                        return
                elif key.fileobj is self.wake:
                    with contextlib.suppress(BlockingIOError):
                        self.wake.recv(4096)
                else:
                    self._report(key.data)
            self._reap()
            self._end_marked()
            self._watch()

    def _tick(self) -> float | None:
        if any(command.ending for command in self.commands.values()):
            return KILL_TICK
        return WATCH_TICK if self.commands else None

    def _request(self) -> bool:
        data, fds, _flags, _address = socket.recv_fds(self.sock, 4096, 8, socket.MSG_CMSG_CLOEXEC)
        if not data:
            return False
        head = json.loads(data)
        named = dict(zip(head["fds"], fds, strict=True))
        try:
            if head["op"] == "kill":
                for command in self.commands.values():
                    command.ending |= command.id == head["id"]
            else:
                with open(named.pop("payload"), "rb") as file:
                    body = json.loads(file.read())
                self._start(head["id"], body, named) if head["op"] == "exec" else self._open(head["id"], body)
        finally:
            for fd in named.values():
                os.close(fd)
        return True

    def _start(self, number: int, body: dict[str, Any], fds: dict[str, int]) -> None:
        reader, writer = os.pipe()
        me = os.getpid()
        try:
            keeper = os.fork()
        except OSError as error:
            os.close(reader)
            os.close(writer)
            self.tell("failed", number, errno=error.errno)
            return
        if keeper == 0:
            try:
                keep(body, fds, writer, self.config, me)
            finally:
                os._exit(1)
        os.close(writer)
        command = self.commands[keeper] = Command(number, keeper, reader)
        self.selector.register(reader, selectors.EVENT_READ, command)

    def _open(self, number: int, body: dict[str, Any]) -> None:
        path = os.path.join(self.config["workdir"], body["path"])
        files = self.files if body["path"].startswith("/") else self.workspace
        fd = -1
        try:
            if body["how"] == "read":
                fd, name = files.read(path), ""
            else:
                fd, name = files.place(path, body["make"], body["follow"])
            self.tell("opened", number, (fd,), name=name)
        except Refused as error:
            self.tell("refused", number, text=str(error)[:1000])
        except (OSError, ValueError) as error:
            self.tell("failed", number, errno=getattr(error, "errno", None) or errno.EINVAL)
        finally:
            if fd >= 0:
                os.close(fd)

    def _report(self, command: Command) -> None:
        """Tell the host how the command's main process ended; -9 when its keeper was killed before it could say."""
        if command.reported:
            return
        data = os.read(command.status, 4)
        command.reported = True
        self.selector.unregister(command.status)
        os.close(command.status)
        self.tell("exit", command.id, code=struct.unpack("i", data)[0] if len(data) == 4 else -9)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            command = self.commands.pop(pid, None)
            if command is None:
                continue
            self._report(command)
            if status != 0:
                self._sweep()
            self.tell("gone", command.id)

    def _sweep(self) -> None:
        """A keeper was killed by what it kept: its orphans are ours now, and nothing else of ours is not a keeper."""
        for pid in _children(os.getpid()) if HAVE_CHILDREN else _parents().get(os.getpid(), []):
            if pid not in self.commands:
                _signal_all([*descendants(pid), pid], signal.SIGSTOP)
                _signal_all([*descendants(pid), pid], signal.SIGKILL)

    def _end_marked(self) -> None:
        for command in list(self.commands.values()):
            if command.ending:
                kill_below(command.keeper)
                _signal_all([command.keeper], signal.SIGCONT)  # what it kept may have stopped it

    def _watch(self) -> None:
        """End the largest command when all together hold too many processes or too much memory."""
        now = time.monotonic()
        if not self.commands or now - self.watched < WATCH_TICK:
            return
        self.watched = now
        # Not counted to the end: a fork bomb grows while it is counted.
        trees = {keeper: descendants(keeper, most=self.config["processes"]) for keeper in self.commands}
        if sum(map(len, trees.values())) > self.config["processes"]:
            self._cull(max(trees, key=lambda keeper: len(trees[keeper])), "processes")
        elif self.config["memory"]:
            self._watch_memory(trees)

    def _watch_memory(self, trees: dict[int, list[int]]) -> None:
        limit = self.config["memory"]
        for measure in (resident, proportional):  # the second is exact and slow: only when the first is over
            held = {keeper: sum(map(measure, pids)) for keeper, pids in trees.items()}
            if sum(held.values()) <= limit:
                return
        self._cull(max(held, key=lambda keeper: held[keeper]), "memory")

    def _cull(self, keeper: int, why: str) -> None:
        command = self.commands[keeper]
        if not command.ending:
            command.ending = True
            self.tell("culled", command.id, why=why)
            freeze_and_kill_below(keeper) if os.getpid() == 1 else kill_below(keeper)

    def shut(self) -> None:
        """End everything below. As process 1 the kernel does it at our exit; elsewhere it takes patience."""
        if os.getpid() != 1:
            kill_until_gone(os.getpid(), SHUT_SECONDS)


def _settle(config: dict[str, Any]) -> None:
    """Make this process hard to reach from below, and whatever it starts unable to gain rights."""
    config["priority"] = os.getpriority(os.PRIO_PROCESS, 0)
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    LIBC.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def main() -> None:
    """Take the socket and the settings from the command line and serve."""
    config = json.loads(sys.argv[2])
    _settle(config)
    sock = socket.socket(fileno=int(sys.argv[1]))
    sock.set_inheritable(False)
    supervisor = Supervisor(sock, config)
    try:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            supervisor.run()
    finally:
        supervisor.shut()
        os._exit(0)


if __name__ == "__main__":
    main()
