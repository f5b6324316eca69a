"""What is Docker's own: containers, labels, images, engines that are lost, far away or not there."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opensage.errors import SandboxError, SandboxLost, SandboxUnavailable
from opensage.sandbox import DockerSandbox, SandboxLimits, all_sandboxes, open_sandbox, probe, prune_all
from opensage.sandbox.docker import archive
from opensage.sandbox.docker.client import BASE_IMAGE, connect
from opensage.sandbox.docker.reaper import LABEL

MIB = 1 << 20


@pytest.fixture
def client(docker_host: str) -> Iterator[Any]:
    with contextlib.closing(connect()) as client:
        yield client


def ours(client: Any, owner: int | None = None) -> list[str]:
    """Names of a process's containers, running or not; other workers use the same engine."""
    label = f"{LABEL}={owner or os.getpid()}"
    return [item["Names"][0] for item in client.containers(all=True, filters={"label": label})]


def inspect(client: Any, sandbox: Any) -> dict[str, Any]:
    return client.inspect_container(sandbox.name)


def test_probe_h11_no_container_before_it_is_needed(client, work):
    sandbox = open_sandbox("docker", work)
    assert ours(client) == []
    assert os.listdir(work) == []
    asyncio.run(sandbox.close())


def test_probe_h2_nothing_is_left_after_the_end(client, inside):
    before = {item["Name"] for item in client.volumes()["Volumes"] or []}

    async def body(s):
        await s.exec("sleep 300 &")
        assert len(ours(client)) == 1

    inside("docker", body)
    assert ours(client) == []
    assert {item["Name"] for item in client.volumes()["Volumes"] or []} <= before


def test_probe_e8_no_command_outlives_its_cancellation(client, inside):
    async def body(s):
        await s.exec("true")
        task = asyncio.create_task(s.exec("sleep 600"))
        await asyncio.sleep(0.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert "sleep" not in (await s.exec("ps -eo args")).stdout

    inside("docker", body)
    assert ours(client) == []


OWNER = """
import asyncio, sys
from pathlib import Path
from opensage.sandbox import open_sandbox

async def main(folder):
    for _ in range(3):
        sandbox = open_sandbox("docker", Path(folder))
        await sandbox.exec("sleep 97.531 > /dev/null 2>&1 &")
    print("up", flush=True)
    await asyncio.sleep(60)

asyncio.run(main(sys.argv[1]))
"""


def owner(work: Path) -> subprocess.Popen[bytes]:
    """A process that has started three sandboxes."""
    process = subprocess.Popen([sys.executable, "-c", OWNER, str(work)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    return process


@pytest.mark.parametrize("end", ["SIGKILL", "SIGTERM"])
def test_probe_h1_containers_of_a_killed_owner_end_and_are_removed(client, work, end):
    process = owner(work)
    try:
        records = [record for record in all_sandboxes() if record.owner == process.pid]
        assert [(record.kind, record.alive) for record in records] == [("docker", True)] * 3
        assert process.pid not in [record.owner for record in prune_all()]  # a living owner's stay
        assert len(ours(client, process.pid)) == 3
    finally:
        process.send_signal(getattr(signal, end))
        process.communicate()
    until = time.monotonic() + 20
    while ours(client, process.pid) and time.monotonic() < until:  # nobody has asked for it: their input has ended
        time.sleep(0.1)
    assert ours(client, process.pid) == []


def test_a_container_whose_owner_died_at_the_wrong_moment_is_reaped_at_the_next_start(client, inside):
    labels = {LABEL: "4194303", "opensage.owner.start": "1", "opensage.host": _here(), "opensage.started": "1.0"}
    client.create_container(BASE_IMAGE, ["true"], labels=labels, name=f"opensage-never-started-{os.getpid()}")
    elsewhere = client.create_container(BASE_IMAGE, ["true"], labels={**labels, "opensage.host": "another machine"})
    try:

        async def body(s):
            await s.exec("true")

        inside("docker", body)
        left = client.containers(all=True, filters={"label": f"{LABEL}=4194303"})
        assert [item["Id"] for item in left] == [elsewhere["Id"]]
    finally:
        client.remove_container(elsewhere["Id"], force=True)


def _here() -> str:
    from opensage.sandbox.state import here

    return here()


def test_probe_h3_a_killed_container_is_a_distinct_error_then_one_restart_then_the_end(client, inside):
    async def body(s):
        for says in ("starts a new one", "stop"):
            task = asyncio.create_task(s.exec("sleep 60"))
            while s.name is None or "sleep 60" not in str(client.top(s.name)):
                await asyncio.sleep(0.1)
            client.kill(s.name)
            with pytest.raises(SandboxLost, match=says):
                await asyncio.wait_for(task, 10)
            if says == "stop":
                with pytest.raises(SandboxLost, match="twice"):
                    await s.exec("true")
            else:
                assert (await s.exec("echo back")).stdout == "back\n"

    inside("docker", body)


def test_a_container_is_what_it_is_said_to_be(client, inside, work):
    (work / "opensage.toml").write_text("")
    limits = SandboxLimits(memory=300 * MIB, processes=50, cpus=1.5, open_files=99)

    async def body(s):
        await s.exec("true")
        found = inspect(client, s)
        host = found["HostConfig"]
        assert (host["Memory"], host["MemorySwap"], host["PidsLimit"]) == (300 * MIB, 300 * MIB, 164)
        assert host["NanoCpus"] == 1.5e9
        assert host["CapDrop"] == ["ALL"]
        assert "no-new-privileges" in host["SecurityOpt"]
        assert (host["ReadonlyRootfs"], host["Init"], host["AutoRemove"]) == (True, True, True)
        assert host["NetworkMode"] == "none"
        assert not host["Privileged"]
        assert found["Config"]["Labels"]["opensage.workdir"] == str(work)
        assert (await s.exec("ulimit -n")).stdout == "99\n"
        for tried in ("echo x >> opensage.toml", "rm opensage.toml", "echo x > .opensage/x", "rmdir .opensage",
                      "echo x > /usr/x", "echo x > /x", "mount -t tmpfs x /mnt"):  # fmt: skip
            assert (await s.exec(tried)).exit_code != 0, tried
        assert (work / "opensage.toml").read_text() == ""
        assert os.listdir(work / ".opensage") == []

    inside("docker", body, limits=limits)


def test_files_belong_to_the_owner_of_the_workspace(client, inside, work):
    os.chown(work, 12345, 23456)

    async def body(s):
        r = await s.exec("id -u; id -g; echo x > made; grep CapEff /proc/self/status; kill -9 -1; kill -9 1 7 8")
        assert r.stdout.split()[:2] == ["12345", "23456"]
        assert int(r.stdout.split()[3], 16) == 0
        await s.write_bytes("sub/written", b"x")
        await s.copy_in(Path(__file__), "sub/copied")
        for name in ("made", "sub", "sub/written", "sub/copied"):
            status = (work / name).stat()
            assert (status.st_uid, status.st_gid) == (12345, 23456), name
        # What ends commands is out of their reach.
        assert (await s.exec("sleep 60 & sleep 60", timeout=0.5)).timed_out
        assert "sleep" not in (await s.exec("ps -eo args")).stdout

    inside("docker", body)


def test_network_only_when_asked_for(client, inside):
    look = "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ' | sort | tr '\\n' ' '"

    async def body(s):
        return (await s.exec(look)).stdout

    assert inside("docker", body) == "lo "
    assert inside("docker", body, network=True) == "eth0 lo "


def test_a_fork_bomb_is_ended_and_said(client, inside):
    bomb = "bomb() { [ $SECONDS -gt 6 ] && exit; bomb | bomb & }; bomb"

    async def body(s):
        r = await s.exec(f"{bomb}; sleep 15", timeout=8)
        assert "killed: more than 60 processes" in r.stderr
        assert (await s.exec("echo alive")).stdout == "alive\n"
        r = await s.exec(bomb)
        for _ in range(3):
            after = await s.exec("echo alive")
            if "killed" in r.stderr + after.stderr:
                break
        assert "killed: more than 60 processes" in r.stderr + after.stderr
        assert (await s.exec("ps -e | wc -l")).stdout.strip() < "9"

    inside("docker", body, limits=SandboxLimits(processes=60))


def test_memory_that_runs_out_is_said(client, inside):
    hold = "b = bytearray(100 << 20); b[::4096] = b'x' * len(b[::4096]); import time; time.sleep(9)"

    async def body(s):
        r = await s.exec(f'for i in 1 2 3; do {s.python} -c "{hold}" & done; wait', timeout=12)
        assert "more than 256 MiB of memory" in r.stderr
        assert (await s.exec("echo alive")).stdout == "alive\n"

    inside("docker", body, limits=SandboxLimits(memory=256 * MIB))


def test_a_workspace_of_the_image_is_saved_by_commits(client):
    async def main():
        s = DockerSandbox(inside="/srv/project")
        try:
            await s.exec("mkdir -p /srv/project", cwd="/")
            await s.write_bytes("kept.txt", b"first")
            one = await s.snapshot()
            assert await s.snapshot() == one  # nothing was changed
            await s.exec("echo second > kept.txt; echo x > new.txt; apt-get --version > /var/tmp/outside")
            two = await s.snapshot()
            assert two != one
            await s.restore(one)
            assert await s.read_bytes("kept.txt") == b"first"
            assert (await s.exec("ls; ls /var/tmp")).stdout == "kept.txt\n"
            await s.restore(two)
            assert await s.read_bytes("kept.txt") == b"second\n"
            with pytest.raises(SandboxError, match="no snapshot"):
                await s.restore("0" * 16)
        finally:
            await s.close()

    asyncio.run(main())
    assert client.images(filters={"label": f"{LABEL}={os.getpid()}"}) == []
    assert ours(client) == []


def test_a_container_that_runs_already_is_used_and_left(client, tmp_path):
    made = client.create_container(BASE_IMAGE, ["sh", "-c", "mkdir /there; sleep 300"])
    client.start(made["Id"])
    (tmp_path / "in.txt").write_text("in")

    async def main():
        s = DockerSandbox(inside="/there", container=made["Id"])
        try:
            assert (await s.exec("echo hi > out.txt; pwd")).stdout == "/there\n"
            await s.copy_in(tmp_path / "in.txt", "in.txt")
            await s.copy_out("out.txt", tmp_path / "out.txt")
            assert (tmp_path / "out.txt").read_text() == "hi\n"
            assert (await s.exec("sleep 77 & setsid sleep 77", timeout=0.5)).timed_out
            with pytest.raises(SandboxError, match="not saved"):
                await s.snapshot()
        finally:
            await s.close()

    try:
        asyncio.run(main())
        assert client.inspect_container(made["Id"])["State"]["Running"]
        assert "sleep 77" not in str(client.top(made["Id"]))
    finally:
        client.remove_container(made["Id"], force=True)


@pytest.fixture
def far_engine(docker_host: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The engine behind a TCP port, as one that is far away; it cannot see our folders by other paths."""
    relay = subprocess.Popen([sys.executable, "-c", RELAY, docker_host.removeprefix("unix://")], stdout=subprocess.PIPE)
    assert relay.stdout is not None
    monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{int(relay.stdout.readline())}")
    yield os.environ["DOCKER_HOST"]
    relay.kill()
    relay.communicate()


RELAY = """
import asyncio, sys

async def copy(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.close()

async def relay(reader, writer):
    there, to = await asyncio.open_unix_connection(sys.argv[1])
    await asyncio.gather(copy(reader, to), copy(there, writer))
    writer.close(); to.close()

async def main():
    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""


@pytest.mark.parametrize("owner", [0, 12345])
def test_an_engine_on_another_machine_gets_a_copy_and_gives_it_back(far_engine, client, work, monkeypatch, owner):
    """The inode tells that the engine's folder is another one; here it is told so."""
    os.chown(work, owner, owner)
    monkeypatch.setattr("opensage.sandbox.docker.backend.DockerSandbox._shared", lambda _self, _host: None)
    (work / "sub").mkdir()
    (work / "sub/in.txt").write_text("in")
    (work / "gone.txt").write_text("x")
    (work / ".opensage").mkdir()
    (work / ".opensage/log").write_text("kept")

    async def main():
        s = open_sandbox("docker", work)
        try:
            r = await s.exec("cat sub/in.txt; rm gone.txt; echo out > sub/out.txt; ls -A; head -c 3", stdin=b"abcdef")
            assert r.stdout == "insub\nabc" or r.stdout == "in.opensage\nsub\nabc", r
            assert not (work / "sub/out.txt").exists()
            saved = await s.snapshot()
            assert (work / "sub/out.txt").read_text() == "out\n"
            await s.exec("rm -r sub; echo y > other")
            await s.restore(saved)
            assert await s.read_bytes("sub/out.txt") == b"out\n"
            await s.exec("echo more >> sub/out.txt")
        finally:
            await s.close()

    asyncio.run(main())
    assert (work / "sub/out.txt").read_text() == "out\nmore\n"
    assert sorted(os.listdir(work)) == [".opensage", "sub"]
    assert (work / ".opensage/log").read_text() == "kept"
    assert ours(client) == []


def test_without_an_engine_or_an_image_the_message_names_the_fix(docker_host, work, monkeypatch):
    with pytest.raises(SandboxUnavailable, match="docker pull nosuch:1"):
        open_sandbox("docker:nosuch:1", work)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{work}/nothing.sock")
    with pytest.raises(SandboxUnavailable, match=r"apt install docker\.io"):
        open_sandbox("docker", work)
    assert open_sandbox("auto", work).kind == "bubblewrap"
    assert "docker" not in [record.kind for record in [*all_sandboxes(), *prune_all()]]
    monkeypatch.setenv("DOCKER_HOST", "nonsense://x")
    with pytest.raises(SandboxUnavailable, match="no Docker engine"):
        open_sandbox("docker", work)
    assert os.listdir(work) == []


def test_auto_takes_docker_where_it_is_ready(docker_host, work):
    assert open_sandbox("auto", work).kind == "docker"


def test_the_probe_holds(docker_host):
    rows = asyncio.run(probe("docker"))
    assert [row for row in rows if not row.holds] == []
    assert len(rows) == 14


def tar_of(*members: tuple[str, bytes, str]) -> Any:
    """A tar of (name, type, link target or content)."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, kind, text in members:
            member = tarfile.TarInfo(name)
            member.type, member.mode = kind, 0o6755
            if kind == tarfile.REGTYPE:
                member.size = len(text)
            else:
                member.linkname = text
            tar.addfile(member, io.BytesIO(text.encode()) if kind == tarfile.REGTYPE else None)
    return file


@pytest.mark.parametrize(
    "members",
    [
        [("../out", tarfile.REGTYPE, "x")],
        [("w/../../out", tarfile.REGTYPE, "x")],
        [("/tmp/opensage-test-out", tarfile.REGTYPE, "x")],
        [("w", tarfile.SYMTYPE, ".."), ("w/out", tarfile.REGTYPE, "x")],
        [("w", tarfile.DIRTYPE, ""), ("w/up", tarfile.SYMTYPE, "../.."), ("w/up/out", tarfile.REGTYPE, "x")],
        [("w", tarfile.LNKTYPE, "../outside"), ("w", tarfile.REGTYPE, "x")],
        [("w", tarfile.LNKTYPE, "/etc/passwd")],
    ],
)
def test_an_archive_out_of_a_container_lands_nowhere_else(tmp_path, members):
    (tmp_path / "outside").write_text("kept")
    (tmp_path / "in").mkdir()
    with pytest.raises(SandboxError, match="cannot be unpacked"):
        archive.unpack(tar_of(*members), "w", tmp_path / "in" / "w")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["in", "outside"]
    assert (tmp_path / "outside").read_text() == "kept"


def test_an_archive_keeps_links_and_drops_what_is_special(tmp_path):
    members = [("w", tarfile.DIRTYPE, ""), ("w/a", tarfile.REGTYPE, "text"), ("w/link", tarfile.SYMTYPE, "/etc/passwd")]
    members += [("w/hard", tarfile.LNKTYPE, "w/a"), ("w/fifo", tarfile.FIFOTYPE, "")]
    archive.unpack(tar_of(*members), "w", tmp_path / "w")
    assert sorted(os.listdir(tmp_path / "w")) == ["a", "hard", "link"]
    assert os.readlink(tmp_path / "w/link") == "/etc/passwd"
    assert (tmp_path / "w/hard").read_text() == "text"
    assert (tmp_path / "w/a").stat().st_mode & 0o7777 == 0o755
    with pytest.raises(SandboxError, match="cannot be unpacked"):
        archive.unpack(io.BytesIO(b"no tar" * 1000), "w", tmp_path / "v")


def test_what_the_engine_refuses_ends_nothing_else(docker_host, inside):
    async def body(s):
        await s.exec("sleep 55 > /dev/null 2>&1 &")
        r = await s.exec(["true", "x" * 200_000])
        assert r.exit_code == 126
        assert "could not be started" in r.stderr
        assert "too long" in r.stderr
        assert "sleep 55" in (await s.exec("ps -eo args")).stdout

    inside("docker", body)


def test_a_bomb_does_not_cost_the_neighbours_their_life(docker_host, inside, work):
    async def body(s):
        other = asyncio.create_task(s.exec("sleep 4 & echo > begun; wait; echo whole"))
        while not (work / "begun").exists():  # on a busy machine its start takes longer than that of the bomb
            await asyncio.sleep(0.1)
        r = await s.exec("bomb() { [ $SECONDS -gt 2 ] && exit; bomb | bomb & }; bomb; sleep 1", timeout=3)
        assert r.timed_out or r.exit_code != 0 or "unavailable" in r.stderr
        assert (await other).stdout == "whole\n"
        assert (await s.exec("echo alive")).stdout == "alive\n"

    inside("docker", body, limits=SandboxLimits(processes=60))


def test_probe_e8_ctrl_c_leaves_no_container(client, work):
    turns = [{"tool_calls": [{"name": "shell", "arguments": {"command": "sleep 600"}}]}, {"text": "never"}]
    (work / "turns.json").write_text(json.dumps(turns))
    command = [sys.executable, "-m", "opensage", "run", "x", "-m", "script:turns.json", "--sandbox", "docker", "--yes"]
    with subprocess.Popen(
        command, cwd=work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=_heed
    ) as process:
        try:
            until = time.monotonic() + 60
            names: list[str] = []
            while time.monotonic() < until and not (names and "sleep 600" in str(client.top(names[0]))):
                names = ours(client, process.pid)
                time.sleep(0.1)
            labels = client.inspect_container(names[0])["Config"]["Labels"]
            (log,) = (work / ".opensage" / "sessions").glob("*.jsonl")
            assert labels["opensage.run"] == log.stem
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=30)
        finally:
            process.kill()
        assert process.returncode == 130
        assert ours(client, process.pid) == []


def _heed() -> None:
    """Tests that run in the background of a shell inherit that Ctrl-C is ignored; a terminal's programs do not."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_an_image_from_a_dockerfile(client, work, monkeypatch):
    name = f"opensage-test-{os.getpid()}:1"
    (work / "Dockerfile").write_text(f"FROM {BASE_IMAGE}\nRUN echo made > /made\n")
    try:
        done = _opensage("sandbox", "build", "--file", "Dockerfile", "--tag", name, cwd=work)
        assert (done.returncode, done.stdout) == (0, f"{name}\n"), done.stderr

        async def main():
            s = open_sandbox(f"docker:{name}", work)
            try:
                assert (await s.exec("cat /made")).stdout == "made\n"
            finally:
                await s.close()

        asyncio.run(main())
        (work / "Dockerfile").write_text(f"FROM {BASE_IMAGE}\nRUN exit 3\n")
        done = _opensage("sandbox", "build", "--file", "Dockerfile", "--tag", f"{name}x", cwd=work)
        assert done.returncode == 2
        assert "building" in done.stderr.splitlines()[-1]
        assert _opensage("sandbox", "build", "--file", "nowhere", cwd=work).returncode == 2
    finally:
        client.remove_image(name, force=True)


def _opensage(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "opensage", *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
