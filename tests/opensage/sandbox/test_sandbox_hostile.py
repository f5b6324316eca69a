"""Hostile programs: each is contained, the host is unaffected, and nothing of it runs on.

A backend joins by a line in `BACKENDS`: its kind, and the marks that say where it can be tried.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import opensage
from opensage.errors import SandboxError
from opensage.protocols import ExecResult
from opensage.sandbox.limits import MIB, SandboxLimits

BACKENDS = [pytest.param("bubblewrap"), pytest.param("docker")]
LIMITS = SandboxLimits(memory=512 * MIB, processes=64, timeout=60.0, output=MIB // 8)
SECONDS = 3.0
"""Each program's time limit; what ends by it must have ended 2 s later."""

PROGRAMS = {
    "busy_loop": "while True: pass",
    "huge_power": "print(len(str(9 ** 9 ** 9)))",
    "deep_recursion": """
        import sys
        sys.setrecursionlimit(1 << 30)
        def down(n): return [down(n + 1)]
        down(0)
    """,
    "four_gigabytes": "b = bytearray(4 << 30); print('ESCAPED', len(b))",
    "fork_bomb": """
        import os
        while True:
            try: os.fork()
            except OSError: pass
    """,
    "exit_at_once": "import os; os._exit(7)",
    "output_flood": """
        import os
        while True: os.write(1, b'x' * 65536)
    """,
    "write_outside": """
        import pathlib
        for place in (OUTSIDE + '/mark', '/usr/mark', '/etc/mark', '/mark', '../mark', WORK + '/.opensage/mark'):
            try: pathlib.Path(place).write_text('ESCAPED')
            except OSError: pass
    """,
    "read_secrets": """
        import glob, os, pathlib
        places = [OUTSIDE + '/secret', '../outside/secret', '/etc/shadow', *glob.glob('/proc/[0-9]*/environ')]
        for place in (*places, *glob.glob('/proc/[0-9]*/root' + OUTSIDE + '/secret')):
            try: print(pathlib.Path(place).read_bytes())
            except OSError: pass
        print(dict(os.environ))
    """,
    "connect_out": """
        import socket
        for family, address in ((socket.AF_INET, ('127.0.0.1', PORT)), (socket.AF_UNIX, chr(0) + NAME),
                                (socket.AF_UNIX, OUTSIDE + '/socket'), (socket.AF_INET, ('1.1.1.1', 53)),
                                (getattr(socket, 'AF_VSOCK', 40), (2, 1024))):
            try:
                with socket.socket(family) as sock:
                    sock.settimeout(0.5)
                    sock.connect(address)
                    print('ESCAPED', family, address)
            except OSError: pass
    """,
    "catch_everything": """
        import signal, time
        for number in range(1, 65):
            try: signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError): pass
        while True:
            try:
                while True: time.sleep(0.01)
            except BaseException: pass
    """,
    "daemon": """
        import os, time
        for _ in range(2):
            if os.fork(): time.sleep(100)
            os.setsid()
        while True:
            with open('beat', 'a') as file: file.write('x')
            time.sleep(0.02)
    """,
}
# Either way out is one: a bomb may meet its limit first; in Docker the interpreter is still busy with its own traceback.
UNDECIDED = {("bubblewrap", "fork_bomb"), ("docker", "fork_bomb"), ("docker", "deep_recursion")}
ENDED_BY_TIME = {"busy_loop", "huge_power", "output_flood", "catch_everything", "daemon"}


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    if request.param == "docker":
        request.getfixturevalue("docker_host")
    return str(request.param)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What a program outside the sandbox could find: a secret in a file and in the environment, open sockets."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("SECRET-of-a-file")
    monkeypatch.setenv("HOSTILE_TEST_KEY", "SECRET-of-the-environment")
    name = f"opensage-hostile-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as tcp, _listening("\0" + name), _listening(f"{outside}/socket"):
        yield {"OUTSIDE": str(outside), "PORT": tcp.getsockname()[1], "NAME": name}


def _listening(address: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(address)
    sock.listen()
    return sock


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_hostile_program_is_contained(
    name: str, backend: str, inside: Callable[..., Any], work: Path, host: dict[str, Any]
) -> None:
    async def body(sandbox: Any) -> tuple[ExecResult, float, ExecResult, int]:
        known = "\n".join(f"{key} = {value!r}" for key, value in {**host, "WORK": sandbox.workdir}.items())
        await sandbox.write_bytes("hostile.py", (known + "\n" + textwrap.dedent(PROGRAMS[name])).encode())
        await sandbox.exec("true")
        start = time.monotonic()
        result = await sandbox.exec([sandbox.python or "python3", "hostile.py"], timeout=SECONDS)
        took = time.monotonic() - start
        before = _size(work / "beat")
        left = await sandbox.exec(r"sleep 0.3; cat /proc/[0-9]*/cmdline | tr '\0' ' '", timeout=20)
        return result, took, left, before

    result, took, left, before = inside(backend, body, limits=LIMITS)
    assert took < SECONDS + 2
    assert result.timed_out == (name in ENDED_BY_TIME) or (backend, name) in UNDECIDED
    assert (result.exit_code == 0) == (name in ("write_outside", "read_secrets", "connect_out"))
    assert result.exit_code == 7 or name != "exit_at_once"
    assert "ESCAPED" not in result.stdout
    assert "SECRET" not in result.stdout + result.stderr
    assert len(result.stdout) + len(result.stderr) < 4 * LIMITS.output
    # Nothing left, and the sandbox still works.
    assert left.exit_code == 0, left.stderr
    assert "hostile.py" not in left.stdout
    assert _size(work / "beat") == before
    assert not [path for path in work.parent.rglob("*mark*") if path.name != "mark" or "ESCAPED" in path.read_text()]
    assert not [path for path in (Path("/usr/mark"), Path("/etc/mark"), Path("/mark")) if path.exists()]


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


@pytest.mark.parametrize("script", ["kill -STOP $PPID; sleep 60", "while :; do kill -STOP $PPID; done"])
def test_a_command_that_stops_what_watches_it_ends_in_time(script: str, inside: Callable[..., Any]) -> None:
    async def body(sandbox: Any) -> tuple[ExecResult, float, ExecResult]:
        await sandbox.exec("true")
        start = time.monotonic()
        result = await sandbox.exec(script, timeout=1.0)
        return result, time.monotonic() - start, await sandbox.exec("echo alive")

    result, took, after = inside("bubblewrap", body)
    assert result.timed_out
    assert took < 3
    assert after.stdout == "alive\n"


def test_full_memory_folders_leave_room_to_empty_them(inside: Callable[..., Any]) -> None:
    async def body(sandbox: Any) -> tuple[ExecResult, ExecResult]:
        full = await sandbox.exec("for d in /dev/shm /tmp ~; do cat /dev/zero > $d/fill; done", timeout=30)
        return full, await sandbox.exec("rm /dev/shm/fill /tmp/fill ~/fill && echo empty")

    full, emptied = inside("bubblewrap", body, limits=SandboxLimits(memory=256 * MIB))
    assert full.stderr.count("No space left") == 3, full.stderr
    assert emptied.stdout == "empty\n", emptied.stderr


CALLS = """
import ctypes, errno, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *arguments):
    numbers = {'keyctl': (250, 219), 'io_uring_setup': (425, 425)}[name]
    code = libc.syscall(numbers[os.uname().machine == 'aarch64'], *arguments)
    return 'done' if code >= 0 else errno.errorcode[ctypes.get_errno()]
def tried(work):
    try: work()
    except OSError as error: return errno.errorcode[error.errno]
    return 'done'
made = os.O_CREAT | os.O_WRONLY
open('plain', 'w').close()
print('chmod', tried(lambda: os.chmod('plain', 0o4755)))
print('open', tried(lambda: os.open('other', made, 0o4755)))
print('tmpfile', tried(lambda: os.open('.', os.O_TMPFILE | os.O_WRONLY, 0o4755)))
print('mknod', tried(lambda: os.mknod('node', 0o104755)))
print('vsock', tried(lambda: socket.socket(40, socket.SOCK_STREAM)))
print('keyctl', call('keyctl', 0, -3, 0))
print('ring', call('io_uring_setup', 1, 0))
print('honest', tried(lambda: os.chmod('plain', 0o1755)), tried(lambda: os.open('third', made, 0o755)),
      tried(lambda: socket.socket()), tried(socket.socketpair))
"""


def test_calls_that_namespaces_do_not_stop_are_refused(inside: Callable[..., Any], work: Path) -> None:
    async def body(sandbox: Any) -> str:
        return str((await sandbox.exec([sandbox.python, "-c", CALLS])).stdout)

    said = dict(line.split(" ", 1) for line in inside("bubblewrap", body).splitlines())
    assert said == {
        "chmod": "EPERM", "open": "EPERM", "tmpfile": "EPERM", "mknod": "EPERM", "vsock": "EAFNOSUPPORT",
        "keyctl": "EPERM", "ring": "ENOSYS", "honest": "done done done done",
    }  # fmt: skip
    assert not [path for path in work.rglob("*") if path.lstat().st_mode & 0o6000]


def test_the_kit_cannot_be_changed_from_inside_when_it_is_the_workspace(tmp_path: Path) -> None:
    """Most of its modules are loaded when they are needed, outside the sandbox."""
    package = Path(opensage.__file__).parent
    home = tmp_path / "kit"
    shutil.copytree(package, home / "opensage", ignore=shutil.ignore_patterns("__pycache__"))
    script = (
        "import asyncio, pathlib; from opensage.sandbox import open_sandbox\n"
        "async def main():\n"
        f"    box = open_sandbox('bubblewrap', pathlib.Path({str(home)!r}))\n"
        "    print((await box.exec('echo x >> opensage/cli/main.py; mv opensage away; touch free && ls')).stdout)\n"
        "    await box.close()\n"
        "asyncio.run(main())\n"
    )
    env = {**os.environ, "PYTHONPATH": str(home), "OPENSAGE_HOME": str(tmp_path / "home")}
    done = subprocess.run([sys.executable, "-c", script], env=env, cwd="/", capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["free", "opensage"]
    assert (home / "opensage/cli/main.py").read_bytes() == (package / "cli/main.py").read_bytes()


def test_folders_nested_by_the_thousand_are_an_error_with_a_reason(inside: Callable[..., Any], work: Path) -> None:
    nest = "import os\nfor _ in range(3000): os.mkdir('deep'); os.chdir('deep')"

    async def body(sandbox: Any) -> None:
        await sandbox.exec([sandbox.python, "-c", nest])
        try:
            with pytest.raises(SandboxError, match="cannot be saved"):
                await sandbox.snapshot()
        finally:
            await sandbox.exec("rm -rf deep")

    inside("bubblewrap", body)
    assert not (work / "deep").exists()
