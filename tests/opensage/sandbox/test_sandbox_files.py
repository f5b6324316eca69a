"""Files: whole or not at all, and never outside the workspace."""

from __future__ import annotations

import asyncio
import os
import resource
import shlex
import signal
import stat
import threading
from pathlib import Path

import pytest

from opensage.errors import PathRefused, SandboxError, ToolError
from opensage.sandbox import open_sandbox


def test_write_and_read(kind, inside, work):
    odd = "ünï' \"x"

    async def body(s):
        await s.write_bytes("new/deep/file.txt", b"one")
        assert (work / "new/deep/file.txt").read_bytes() == b"one"
        await s.write_bytes(str(work / "abs"), b"\0\xff" * 100_000)
        assert await s.read_bytes("./abs") == b"\0\xff" * 100_000
        assert await s.read_bytes("abs", 3, 4) == b"\xff\0\xff\0"
        assert await s.read_bytes("abs", 10**9) == b""
        assert await s.read_bytes("new/../new/deep/file.txt") == b"one"
        assert (await s.exec("cat new/deep/file.txt")).stdout == "one"
        await s.exec(f"echo hi > {shlex.quote(odd)}")
        assert await s.read_bytes(odd) == b"hi\n"
        with pytest.raises(ToolError):
            await s.read_bytes("abs", -1)
        assert sorted(os.listdir(work / "new/deep")) == ["file.txt"]

    inside(kind, body)


def test_mode_bits_are_kept_and_nothing_half_is_left(kind, inside, work):
    script = work / "run.sh"
    script.write_text("old")
    script.chmod(0o754)

    async def body(s):
        await s.write_bytes("run.sh", b"#!/bin/sh\necho ran\n")
        assert stat.S_IMODE(script.stat().st_mode) == 0o754
        assert (await s.exec(["./run.sh"])).stdout == "ran\n"
        for _ in range(20):
            task = asyncio.create_task(s.write_bytes("run.sh", b"y" * 3_000_000))
            await asyncio.sleep(0.001)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert script.read_bytes() in (b"#!/bin/sh\necho ran\n", b"y" * 3_000_000)
        await asyncio.sleep(0.3)
        assert sorted(p.name for p in work.iterdir()) == [".opensage", "run.sh"] if kind == "bubblewrap" else ["run.sh"]

    inside(kind, body)


def test_ordinary_errors_name_the_path(kind, inside, work):
    (work / "folder").mkdir()
    (work / "file").write_text("x")

    async def body(s):
        with pytest.raises(FileNotFoundError, match="missing/one"):
            await s.read_bytes("missing/one")
        with pytest.raises(IsADirectoryError):
            await s.read_bytes("folder")
        with pytest.raises(IsADirectoryError):
            await s.write_bytes("folder", b"")
        with pytest.raises(NotADirectoryError):
            await s.write_bytes("file/below", b"")
        with pytest.raises(OSError, match="name too long"):
            await s.write_bytes("n" * 300, b"")
        for wrong in ("", "a\0b", ".", "/", str(work)):
            with pytest.raises((PathRefused, IsADirectoryError)):
                await s.write_bytes(wrong, b"")

    inside(kind, body)


def test_paths_out_of_the_workspace_are_refused(kind, inside, work):
    outside = work.parent / "outside"
    outside.mkdir()
    (outside / "key").write_text("secret")
    (work / "sub").mkdir()

    async def body(s):
        links = (
            f"ln -s /etc/passwd abs; ln -s {outside} dir; ln -s ../../outside sub/rel; ln -s abs again; ln -s loop loop"
        )
        await s.exec(links + "; ln -s nowhere dangling; ln -s /proc/self/root root; ln -s ../outside/new fresh")
        tried = [
            "abs",
            "again",
            "dir/key",
            "sub/rel/key",
            "../outside/key",
            str(outside / "key"),
            "/etc/passwd",
            "root/etc",
        ]
        tried += ["sub/../../outside/key", f"{work}/../outside/key", "/proc/self/environ", "/dev/null"]
        for path in tried:
            with pytest.raises((PathRefused, FileNotFoundError)):
                await s.read_bytes(path)
        if kind != "local":  # its own /tmp hides the one outside, so this name is free there
            tried = [path for path in tried if not path.endswith("outside/key") or not path.startswith("/")]
            await s.write_bytes(str(outside / "key"), b"overwritten")
        for path in [
            *tried,
            "dangling",
            "fresh",
            "dir/new",
            "sub/rel/new",
            "dir/deep/new",
            "../new",
            "missing/../../new",
        ]:
            with pytest.raises((PathRefused, FileNotFoundError)):
                await s.write_bytes(path, b"overwritten")
        with pytest.raises(OSError, match="symbolic links"):
            await s.read_bytes("loop")
        for path in ("dir/key", "../outside", "sub/rel"):
            target = work.parent / "copied"
            if path == "sub/rel":  # a link at the end is copied as a link
                await s.copy_out(path, target)
                assert target.is_symlink()
                continue
            with pytest.raises((PathRefused, FileNotFoundError)):
                await s.copy_out(path, target)

    inside(kind, body)
    assert (outside / "key").read_text() == "secret"
    assert sorted(p.name for p in outside.iterdir()) == ["key"]
    assert not (work.parent / "new").exists()


def test_links_within_the_workspace_are_followed(kind, inside, work):
    (work / "real").mkdir()
    (work / "real" / "file").write_text("old")
    (work / "link").symlink_to("real/file")
    (work / "folder").symlink_to(work / "real")

    async def body(s):
        await s.write_bytes("link", b"new")
        assert (work / "link").is_symlink()
        assert (work / "real/file").read_bytes() == b"new"
        await s.write_bytes("folder/second/x", b"2")
        assert (work / "real/second/x").read_bytes() == b"2"
        assert await s.read_bytes("folder/file") == b"new"

    inside(kind, body)


def test_swapped_links_win_no_race(kind, inside, work):
    """A folder and a link to the outside change places all the time; nothing outside may ever be touched."""
    outside = work.parent / "outside"
    outside.mkdir()
    (outside / "file").write_text("secret")
    (work / "real").mkdir()
    (work / "real" / "file").write_text("mine")
    (work / "evil").symlink_to(outside)
    (work / "current").symlink_to("real")
    stop = threading.Event()

    def swap():
        while not stop.is_set():
            os.symlink("evil", work / "next")
            os.replace(work / "next", work / "current")
            os.symlink("real", work / "next")
            os.replace(work / "next", work / "current")

    thread = threading.Thread(target=swap)

    async def body(s):
        await s.exec("true")
        thread.start()
        seen = {"read": 0, "written": 0, "refused": 0}
        for n in range(200):
            try:
                if n % 2:
                    assert await s.read_bytes("current/file") != b"secret"
                    seen["read"] += 1
                else:
                    await s.write_bytes("current/file", b"mine")
                    seen["written"] += 1
            except (PathRefused, FileNotFoundError):
                seen["refused"] += 1
        assert seen["refused"] > 0
        assert seen["read"] + seen["written"] > 0

    try:
        inside(kind, body)
    finally:
        stop.set()
        thread.join()
    assert [(p.name, p.read_text()) for p in outside.iterdir()] == [("file", "secret")]


def test_pipes_and_devices_are_refused_at_once(kind, inside, work):
    os.mkfifo(work / "fifo")

    async def body(s):
        with pytest.raises(PathRefused, match="regular"):
            await asyncio.wait_for(s.read_bytes("fifo"), 3)
        await s.exec("python3 -c \"import socket as s; s.socket(s.AF_UNIX).bind('sock')\"")
        with pytest.raises(PathRefused, match="regular"):
            await asyncio.wait_for(s.read_bytes("sock"), 3)

    inside(kind, body)


def test_copies(kind, inside, work):
    source = work.parent / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "x").write_text("x")
    (source / "run").write_text("#!/bin/sh\n")
    (source / "run").chmod(0o755)
    (source / "link").symlink_to("/etc/passwd")
    os.mkfifo(source / "fifo")
    out = work.parent / "out"

    async def body(s):
        await s.copy_in(source, "in/here")
        assert (await s.exec("cat in/here/deep/x; test -x in/here/run && echo runs")).stdout == "xruns\n"
        await s.copy_in(source / "run", "single")
        await s.copy_in(source, "in/here")  # again, over what is there
        await s.exec("echo more > in/here/deep/y")
        await s.copy_out("in/here", out / "tree")
        await s.copy_out("single", out / "single")
        with pytest.raises(FileNotFoundError, match="nothing-here"):
            await s.copy_in(work.parent / "nothing-here", "x")
        with pytest.raises(FileNotFoundError, match="nothing-inside"):
            await s.copy_out("nothing-inside", out / "x")

    inside(kind, body)
    assert sorted(str(p.relative_to(out)) for p in out.rglob("*")) == [
        "single", "tree", "tree/deep", "tree/deep/x", "tree/deep/y", "tree/link", "tree/run",
    ]  # fmt: skip
    assert os.readlink(out / "tree/link") == "/etc/passwd"
    assert os.access(out / "tree/run", os.X_OK)


def listing(folder: Path) -> dict[str, object]:
    found = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if not name.startswith(".opensage"):
            mode = stat.S_IMODE(path.lstat().st_mode)
            content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
            found[name] = (mode, content)
    return found


def test_snapshot_and_restore_are_exact(kind, inside, work):
    (work / ".opensage").mkdir()
    (work / ".opensage" / "log").write_text("before")
    (work / "a" / "b").mkdir(parents=True)
    (work / "a" / "b" / "file").write_text("1")
    (work / "exe").write_text("2")
    (work / "exe").chmod(0o700)
    (work / "link").symlink_to("a/b")
    before = listing(work)

    async def body(s):
        first = await s.snapshot()
        assert await s.snapshot() == first
        (work / ".opensage" / "log").write_text("after")
        await s.exec(
            "rm -r a; echo file > a; mkdir exe2; mv exe exe2/; chmod 0 exe2; rm link; ln -s /etc link; echo n > new"
        )
        second = await s.snapshot() if os.geteuid() == 0 else "x"
        assert second != first
        await s.restore(first)
        assert listing(work) == before
        assert (await s.exec("cat a/b/file; echo 3 > a/b/file")).stdout == "1"
        await s.restore(first)
        assert listing(work) == before
        for wrong in ("", "..", "0" * 16, "../../etc"):
            with pytest.raises(SandboxError, match="no snapshot"):
                await s.restore(wrong)

    inside(kind, body)
    assert (work / ".opensage" / "log").read_text() == "after"


def test_a_snapshot_needs_no_process(work):
    async def main():
        s = open_sandbox("local", work)
        name = await s.snapshot()
        (work / "new").touch()
        await s.restore(name)
        assert s.pid is None
        assert listing(work) == {}
        await s.close()

    asyncio.run(main())


def test_a_snapshot_that_does_not_fit_says_so_and_leaves_nothing_half(work):
    async def main():
        s = open_sandbox("local", work)
        (work / "big").write_bytes(b"x" * 300_000)
        old, limit = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limit[1]))
        try:
            with pytest.raises(SandboxError, match="cannot be saved"):
                await s.snapshot()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
            signal.signal(signal.SIGXFSZ, old)
        assert list(work.parent.glob("home/sandboxes/*/snapshots/*")) == []
        assert len(await s.snapshot()) == 16
        await s.close()

    asyncio.run(main())
