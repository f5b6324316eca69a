"""Commands: the same meaning in every backend that runs real processes."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import math
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from opensage.errors import SandboxError, SandboxLost, ToolError
from opensage.sandbox import SandboxLimits, open_sandbox
from opensage.sandbox.docker.client import connect

MIB = 1 << 20


def rss() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


async def until(condition, seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        await asyncio.sleep(0.02)
    return True


async def still(path: Path, seconds: float = 0.4) -> bool:
    """Whether a file that something used to write to has stopped growing."""
    before = path.stat().st_size
    await asyncio.sleep(seconds)
    return path.stat().st_size == before


BEAT = "while :; do echo x >> beat; sleep 0.02; done"


def test_script_and_argv(kind, inside, work):
    async def body(s):
        r = await s.exec("echo out; echo err >&2; pwd; exit 3")
        assert (r.exit_code, r.stdout, r.stderr) == (3, f"out\n{work}\n", "err\n")
        assert not r.timed_out
        assert not r.truncated
        assert r.duration > 0
        assert (await s.exec(["printf", "%s|", "a b", "$HOME", "*"])).stdout == "a b|$HOME|*|"
        assert (await s.exec("kill -9 $$")).exit_code == -9
        assert (await s.exec([s.python, "-c", "print(6 * 7)"])).stdout == "42\n"

    inside(kind, body)


def test_what_cannot_start_is_data(kind, inside):
    async def body(s):
        r = await s.exec(["no-such-program-here"])
        assert r.exit_code == 127
        assert "not found" in r.stderr
        r = await s.exec(["/etc"])
        assert r.exit_code == 126
        r = await s.exec("true", cwd="no/such/folder")
        assert r.exit_code == 126
        assert "no/such/folder" in r.stderr
        r = await s.exec(["echo", "x" * 300_000])
        assert r.exit_code == 126
        assert "too long" in r.stderr
        for wrong in ([], ["a\0b"], [1], "a\0b", "\ud800"):
            with pytest.raises(ToolError):
                await s.exec(wrong)
        with pytest.raises(ToolError):
            await s.exec("true", env={"A=B": "c"})

    inside(kind, body)


def test_env_cwd_stdin(kind, inside, work, monkeypatch):
    (work / "sub").mkdir()
    monkeypatch.setenv("CALLERS_OWN_KEY", "a-key-of-the-caller")

    async def body(s):
        seen = (await s.exec("env")).stdout
        assert "PATH=" in seen
        assert "a-key-of-the-caller" not in seen
        r = await s.exec("pwd; echo $EXTRA; cat", cwd="sub", env={"EXTRA": "naïve"}, stdin=b"fed\n")
        assert r.stdout == f"{work}/sub\nnaïve\nfed\n"
        assert (await s.exec("pwd", cwd="/usr")).stdout == "/usr\n"
        assert (await s.exec("cat; echo end")).stdout == "end\n"
        big = os.urandom(MIB) * 5
        r = await s.exec("sha256sum", stdin=big)
        assert r.stdout.split()[0] == hashlib.sha256(big).hexdigest()
        r = await s.exec("head -c 3", stdin=b"abc" * MIB)
        assert r.stdout == "abc"

    inside(kind, body)


def test_a_script_longer_than_an_argument_may_be(kind, inside):
    async def body(s):
        r = await s.exec("cat <<'EOF' | wc -c\n" + "y" * 400_000 + "\nEOF\necho done; exit 4")
        assert (r.exit_code, r.stdout) == (4, "400001\ndone\n")

    inside(kind, body)


def test_probe_i1_bytes_that_are_not_text(kind, inside):
    async def body(s):
        r = await s.exec(r"printf '\xff\xfe\x80'; printf 'caf\xc3\xa9\0' >&2")
        assert r.stdout == "\ufffd\ufffd\ufffd"
        assert r.stderr == "café\0"

    inside(kind, body)


def test_probe_h9_endless_output_and_odd_timeouts(kind, inside):
    async def body(s):
        await s.exec("true")
        before = rss()
        for odd in (-1, 0, math.nan):
            r = await s.exec("yes", timeout=odd)
            assert r.timed_out
            assert r.truncated
            assert r.duration < 6
            assert len(r.stdout) < 3 * 65536
            assert "bytes cut" in r.stdout
        for huge in (1e300, math.inf):
            r = await s.exec("sleep 60", timeout=huge)
            assert r.timed_out
        assert rss() - before < 32 * MIB

    inside(kind, body, limits=SandboxLimits(timeout=0.3, timeout_ceiling=0.4, output=65536))


def test_a_hundred_megabytes_are_bounded(inside):
    async def body(s):
        await s.exec("true")
        before, peak = rss(), 0

        def look(_name: str, _chunk: bytes) -> None:
            nonlocal peak
            peak = max(peak, rss())

        r = await s.exec("echo first; head -c 100000000 /dev/zero | tr '\\0' x; echo; echo last", on_output=look)
        assert r.truncated
        assert r.stdout.startswith("first\n")
        assert r.stdout.endswith("\nlast\n")
        assert len(r.stdout) < MIB + 100
        assert f"{100_000_000 + 12 - MIB} bytes cut" in r.stdout
        assert max(peak, rss()) - before < 16 * MIB

    inside("bubblewrap", body)


def test_probe_h10_children_die_at_the_timeout(kind, inside, work):
    async def body(s):
        start = time.monotonic()
        r = await s.exec("sleep 300 & wait", timeout=1)
        assert r.timed_out
        assert time.monotonic() - start < 6
        daemon = f"echo before; setsid sh -c 'setsid sh -c \"{BEAT}\" & exit' & nohup sh -c '{BEAT}' & wait"
        r = await s.exec(daemon, timeout=0.5)
        assert r.timed_out
        assert r.stdout == "before\n"
        assert await still(work / "beat")

    inside(kind, body)


def test_probe_e1_cancel_ends_the_tree_before_it_returns(kind, inside, work):
    async def body(s):
        task = asyncio.create_task(s.exec(f"setsid sh -c '{BEAT}' & {BEAT}"))
        assert await until((work / "beat").exists)
        task.cancel()
        start = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - start < 6
        assert await still(work / "beat")
        assert (await s.exec("echo fine")).stdout == "fine\n"

    inside(kind, body)


def test_cancel_at_any_moment_leaves_nothing(kind, inside, work):
    async def body(s):
        await s.exec("true")
        for step in range(12):
            task = asyncio.create_task(s.exec(f"echo x >> beat; {BEAT}"))
            await asyncio.sleep(step * 0.003)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        (work / "beat").touch()
        assert await still(work / "beat")

    inside(kind, body)


def test_background_work_stays_until_the_sandbox_closes(kind, work):
    server = (
        "import http.server as h; h.ThreadingHTTPServer(('127.0.0.1', {}), h.SimpleHTTPRequestHandler).serve_forever()"
    )
    port = 18000 + os.getpid() % 10000
    (work / "page").write_text("served")

    async def main():
        s = open_sandbox(kind, work)
        start = time.monotonic()
        r = await s.exec(f'"{s.python}" -c "{server.format(port)}" & echo started')
        assert r.stdout == "started\n"
        assert time.monotonic() - start < 6
        get = (
            "import time, urllib.request as u\n"
            "for i in range(100):\n"
            f"    try: print(u.urlopen('http://127.0.0.1:{port}/page').read().decode()); break\n"
            "    except OSError: time.sleep(0.05)\n"
        )
        for _ in range(2):  # its log lines go to a pipe that nobody waits for any more
            assert (await s.exec([s.python, "-c", get], timeout=20)).stdout == "served\n"
        await s.exec(f"({BEAT}) > /dev/null 2>&1 &")
        await s.exec("yes &")
        assert await until((work / "beat").exists)
        await s.close()
        assert await still(work / "beat")

    asyncio.run(main())


def test_probe_h7_no_zombies_after_five_hundred_processes(kind, inside):
    async def body(s):
        r = await s.exec(
            "for i in $(seq 500); do (sleep 0 &) ; done; for i in $(seq 20); do setsid sleep 300 & done; kill $!"
        )
        assert r.exit_code == 0
        count = (
            "grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | while read f; do grep -h Name $f; "
            "done | grep -c sleep"
        )
        await asyncio.sleep(0.3)
        assert (await s.exec(count)).stdout == "0\n"

    inside(kind, body)


def test_fifty_at_once(kind, inside):
    async def body(s):
        start = time.monotonic()
        results = await asyncio.gather(*(s.exec(f"sleep 1; echo {n}; exit {n}") for n in range(50)))
        assert [(r.exit_code, r.stdout) for r in results] == [(n, f"{n}\n") for n in range(50)]
        assert time.monotonic() - start < 45  # one after the other would be fifty seconds; a busy machine needs twenty

    inside(kind, body)


def test_no_descriptor_is_left(kind, inside):
    async def body(s):
        async def some():
            await s.exec("echo a; sleep 0.1 &", stdin=b"x")
            await s.exec("sleep 9", timeout=0.05)
            await s.write_bytes("f", b"1")
            await s.read_bytes("f")
            with pytest.raises(ToolError):
                await s.read_bytes("/etc/passwd")

        await some()
        await asyncio.sleep(0.3)
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            await some()
        await asyncio.sleep(0.3)
        assert len(os.listdir("/proc/self/fd")) <= before

    inside(kind, body)


def test_output_hook(kind, inside):
    async def body(s):
        seen = []
        await s.exec("echo a; echo b >&2", on_output=lambda name, chunk: seen.append((name, chunk)))
        assert sorted(seen) == [("stderr", b"b\n"), ("stdout", b"a\n")]

        def broken(_name, _chunk):
            raise TimeoutError("the hook's own")

        with pytest.raises(TimeoutError, match="own"):
            await s.exec("echo a; sleep 30", on_output=broken)

    inside(kind, body)


def lose(sandbox: Any) -> None:
    """End it from outside, as an engine or a person would."""
    if sandbox.kind == "docker":
        with contextlib.closing(connect()) as client:
            client.kill(sandbox.name)
    else:
        os.kill(sandbox.pid, 9)


def test_lost_sandbox_fails_what_runs_and_is_restarted_once(kind, inside, work):
    async def body(s):
        for again in ("starts a new one", "stop"):
            task = asyncio.create_task(s.exec(f"setsid sh -c '{BEAT}' & sleep 60"))
            assert await until((work / "beat").exists)
            lose(s)
            with pytest.raises(SandboxLost, match=again):
                await asyncio.wait_for(task, 5)
            assert s.kind == "docker" or await until(lambda: not os.path.exists(f"/proc/{s.pid}/exe"))
            await asyncio.sleep(0.3)
            assert await still(work / "beat")
            (work / "beat").unlink()
            if again == "stop":
                with pytest.raises(SandboxLost, match="twice"):
                    await s.exec("true")
            else:
                assert (await s.exec("echo back")).stdout == "back\n"

    inside(kind, body)


def test_a_command_that_kills_everything_it_can(kind, inside, work):
    """Inside bubblewrap process 1 cannot be killed; its keepers can, and then nothing of theirs is left."""
    if kind == "docker":  # in a workspace of root's own the commands are root, and may end the container
        os.chown(work, 1000, 1000)
    # In `local` only its keeper: `kill -9 -1` would be this machine's end.
    script = "kill -9 $PPID; sleep 61.7" if kind == "local" else "kill -9 1; kill -9 -1; sleep 61.7"

    async def body(s):
        r = await s.exec(f"sleep 61.7 & {script}", timeout=10)
        assert r.exit_code == -9
        assert not r.timed_out
        assert (
            await s.exec("echo alive; cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep 61[.]7'")
        ).stdout == "alive\n0\n"

    inside(kind, body)


def test_close(kind, work):
    async def main():
        s = open_sandbox(kind, work)
        task = asyncio.create_task(s.exec("sleep 60"))
        await s.exec("true")
        await s.close()
        with pytest.raises(SandboxLost, match="closed"):
            await task
        await s.close()
        with pytest.raises(SandboxError, match="closed"):
            await s.exec("true")
        with pytest.raises(SandboxError, match="closed"):
            await s.snapshot()
        never = open_sandbox(kind, work)
        await never.close()

    asyncio.run(main())
    if kind != "docker":  # it has records of no other kind than its containers' labels
        assert list((work.parent / "home" / "sandboxes").iterdir()) == []


def test_one_sandbox_through_several_event_loops(kind, work):
    s = open_sandbox(kind, work)
    for n in range(3):
        r = asyncio.run(s.exec(f"echo {n}; (sleep 1; echo late) &"))
        assert r.stdout == f"{n}\n"
    asyncio.run(s.close())


def test_stdin_of_the_host_may_be_closed(kind, work):
    code = (
        "import asyncio, os\nfor fd in (0, 1, 2): os.close(fd)\n"
        "from pathlib import Path\nfrom opensage.sandbox import open_sandbox\n"
        "async def main():\n"
        f"    s = open_sandbox({kind!r}, Path({str(work)!r}))\n"
        "    r = await s.exec('cat; echo out; echo err >&2')\n"
        "    await s.write_bytes('got', (r.stdout + r.stderr).encode())\n"
        "    await s.close()\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=30, check=False)
    assert done.returncode == 0
    assert (work / "got").read_text() == "out\nerr\n"
