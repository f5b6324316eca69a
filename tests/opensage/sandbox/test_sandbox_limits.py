"""Limits, with the kernel's control groups and without them."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from pathlib import Path

import pytest

from opensage.errors import ConfigError
from opensage.sandbox import SandboxLimits
from opensage.sandbox.cgroup import make_group

MIB = 1 << 20
SMALL = SandboxLimits(memory=256 * MIB, processes=60, timeout=20)
# It burns out by itself, so that a failing test does not take the machine along.
BOMB = "bomb() { [ $SECONDS -gt 6 ] && exit; bomb | bomb & }; bomb; sleep 15"


@pytest.fixture(params=["groups", "watcher"])
def means(request, monkeypatch):
    """With control groups where this machine has them, and with the supervisor's own watch alone."""
    if request.param == "watcher":
        monkeypatch.setattr("opensage.sandbox.process.make_group", lambda _name, _limits: None)
    return request.param


def host_processes() -> int:
    return sum(name.isdigit() for name in os.listdir("/proc"))


def test_fork_bomb(process_kind, means, inside):
    async def body(s):
        await s.exec("true")
        before = host_processes()
        start = time.monotonic()
        r = await s.exec(BOMB)
        assert r.exit_code == -9
        assert "killed: more than 60 processes" in r.stderr
        assert time.monotonic() - start < 10
        assert host_processes() < before + 40
        assert (await s.exec("echo alive")).stdout == "alive\n"

    inside(process_kind, body, limits=SMALL)


def test_fork_bomb_left_in_the_background(inside):
    async def body(s):
        r = await s.exec("bomb() { [ $SECONDS -gt 6 ] && exit; bomb | bomb & }; bomb")
        await asyncio.sleep(0.5)
        after = await s.exec("echo alive")
        assert after.stdout == "alive\n"
        assert "killed: more than 60 processes" in r.stderr + after.stderr.replace("were killed", "killed")

    inside("bubblewrap", body, limits=SMALL)


def test_four_gigabytes_by_one_process(process_kind, means, inside):
    async def body(s):
        r = await s.exec([s.python, "-c", "b = bytearray(4 << 30); print('got it')"])
        assert r.exit_code == 1
        assert "MemoryError" in r.stderr
        assert (await s.exec("echo alive")).stdout == "alive\n"

    inside(process_kind, body, limits=SMALL)


def test_memory_held_by_many_processes(process_kind, means, inside):
    hold = "import time; b = bytearray(100 << 20); b[::4096] = b'x' * len(b[::4096]); time.sleep(20)"

    async def body(s):
        r = await s.exec(f'for i in 1 2 3 4 5; do "{s.python}" -c "{hold}" & done; wait')
        after = await s.exec("echo alive")
        assert "more than 256 MiB of memory" in r.stderr
        assert after.stdout == "alive\n"

    inside(process_kind, body, limits=SandboxLimits(memory=256 * MIB, timeout=3))


def test_file_size_and_open_files(inside):
    async def body(s):
        r = await s.exec("head -c 3000000 /dev/zero > f; stat -c %s f; ulimit -n; ulimit -c; nice")
        assert r.stdout.split() == [str(MIB), "99", "0", "7"]

    inside("bubblewrap", body, limits=SandboxLimits(file_size=MIB, open_files=99, nice=7))


def test_programs_that_reserve_much_address_space_run(inside):
    node = shutil.which("node", path="/usr/local/bin:/usr/bin:/bin")

    async def body(s):
        code = "import mmap; m = mmap.mmap(-1, 64 << 30, flags=0x4022, prot=0); print(len(m) >> 30)"
        assert (await s.exec([s.python, "-c", code])).stdout == "64\n"
        if node:
            assert (await s.exec([node, "-e", "console.log(6*7)"])).stdout == "42\n"

    inside("bubblewrap", body)


def test_groups_are_removed(inside):
    group = make_group(f"{os.getpid()}-test", SandboxLimits())
    if group is None:  # nothing to remove where none can be made
        return
    assert all(Path(folder).is_dir() for folder in group.folders)
    group.remove()
    assert not any(Path(folder).exists() for folder in group.folders)
    seen = []

    async def body(s):
        await s.exec("sleep 60 &")
        seen.extend(s._group.folders)
        assert all(Path(folder).is_dir() for folder in seen)

    inside("bubblewrap", body)
    assert seen
    assert not any(Path(folder).exists() for folder in seen)


@pytest.mark.parametrize(
    "wrong", [{"memory": 0}, {"timeout": -1.0}, {"output": float("nan")}, {"processes": float("inf")}]
)
def test_impossible_limits_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        SandboxLimits(**wrong)


def test_a_bomb_whose_every_process_has_its_own_session(process_kind, means, inside):
    spread = "for i in range(7):\n    os.fork() or os.setsid()\nwhile time.time() < end: os.fork() or os._exit(0)"
    bomb = f"import os, time\nend = time.time() + 40\n{spread}"  # it does not end by itself before it is ended

    async def body(s):
        r = await s.exec([s.python, "-c", bomb])
        assert r.exit_code == -9 or "unavailable" in r.stderr
        assert (await s.exec("echo alive")).stdout == "alive\n"

    inside(process_kind, body, limits=SMALL)
