"""What bubblewrap keeps out and in, each tried for real."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from opensage.sandbox import SandboxLimits


@pytest.fixture
def run(inside):
    """One script in a bubblewrap sandbox; its output."""

    def script(text: str, **options):
        async def body(s):
            return await s.exec(text, timeout=20)

        return inside("bubblewrap", body, **options)

    return script


def test_no_network(run):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        connect = f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo reached"
        assert "reached" not in run(connect).stdout
        assert run("cut -d: -f1 /proc/net/dev | tail -n +3").stdout.split() == ["lo"]
        assert "reached" in run(connect, network=True).stdout


def test_host_sockets_are_out_of_reach(run, tmp_path):
    name = f"\0opensage-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(name)
        abstract.listen()
        code = f"import socket; socket.socket(socket.AF_UNIX).connect({name!r})"
        assert "ConnectionRefusedError" in run(f'"$(command -v python3)" -c "{code}"'.replace("\0", "\\0")).stderr
    assert run("ls /run /var 2>&1 | grep -v opensage; ls /var/run/docker.sock").stdout.count("docker") == 0


def test_read_only_outside_the_workspace(run, work):
    outside = work.parent / "outside"
    outside.mkdir()
    (outside / "file").write_text("mine")
    places = "/x /usr/x /etc/x /bin/x /dev/x /proc/x /home/x /run/x /var/x"
    r = run(f"for f in {places}; do echo y > $f && echo wrote $f; done; echo y > {outside}/file; echo z > inside")
    assert r.stdout == ""
    assert (outside / "file").read_text() == "mine"
    assert sorted(os.listdir(work)) == [".opensage", "inside"]
    assert not (work.parent / "x").exists()


def test_the_home_folder_and_secrets_are_not_there(run):
    home = Path.home()
    r = run(
        f"ls -A {home}; cat /etc/shadow /etc/ssh/*key {home}/.ssh/*; ls -A ~; ls /etc/ssl/private; "
        "echo ok > ~/f; cat ~/f"
    )
    shown = set(r.stdout.split()) - {".pyenv", ".local", ".venv"}  # an interpreter may live below the home folder
    assert shown == {"ok"}


def test_other_processes_are_invisible(run):
    sleeper = subprocess.Popen(["sleep", "97.531"])
    try:
        r = run(
            "cat /proc/[0-9]*/cmdline | tr '\\0' ' '; echo; ls -d /proc/[0-9]* | wc -l; "
            f"kill -0 {sleeper.pid} && echo hit"
        )
        assert "97.531" not in r.stdout.replace(r.stdout.splitlines()[-1], "")
        assert int(r.stdout.split()[-1]) < 10
        assert sleeper.poll() is None
    finally:
        sleeper.kill()
        sleeper.wait()


def test_environment_and_keys_are_absent(run, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-for-test")
    monkeypatch.setenv("LD_PRELOAD_TEST", "sk-secret-for-test")
    r = run("env; cat /proc/[0-9]*/environ | tr '\\0' '\\n'; cat /proc/1/environ; tr '\\0' '\\n' < /proc/1/cmdline")
    assert "sk-secret" not in r.stdout
    names = {line.split("=", 1)[0] for line in run("env").stdout.splitlines()}
    assert names <= {"PATH", "HOME", "TMPDIR", "LANG", "USER", "LOGNAME", "SHELL", "TERM", "PWD", "SHLVL", "_"}
    assert run("echo $LANG $HOME; id -un; hostname").stdout == "C.UTF-8 /home/opensage\nopensage\nopensage\n"


def test_proc_gives_nothing_to_write_and_little_to_read(run):
    settings = "/proc/sys/kernel/core_pattern /proc/sys/kernel/hostname /proc/sys/vm/drop_caches /proc/sysrq-trigger"
    r = run(f"for f in {settings} /proc/irq/default_smp_affinity; do test -w $f && echo $f; done")
    assert r.stdout == ""
    r = run("for f in kcore keys kmsg kallsyms cmdline slabinfo; do head -c 100 /proc/$f 2>/dev/null; done | wc -c")
    assert r.stdout == "0\n"
    assert (
        run("ls /sys /proc/acpi /proc/scsi 2>/dev/null")
        .stdout.replace("/proc/acpi:", "")
        .replace("/proc/scsi:", "")
        .split()
        == []
    )


def test_process_one_cannot_be_reached(run):
    r = run(
        "readlink /proc/1/fd/*; cat /proc/1/fd/*; head -c 1 /proc/1/mem; cat /proc/1/environ; "
        "kill -9 1; kill -INT 1; kill -TERM 1; echo still"
    )
    assert r.stdout == "still\n"


def test_no_rights_can_be_gained(run):
    r = run("grep -E '^(CapEff|CapPrm|CapBnd|CapAmb|CapInh|NoNewPrivs)' /proc/self/status | cut -f2")
    assert r.stdout.split() == ["0000000000000000"] * 5 + ["1"]
    assert "made" not in run("unshare -Ur true && echo made; unshare -m true && echo made").stdout
    assert (
        "made"
        not in run("mount -t tmpfs x /tmp && echo made; mknod d b 8 0 && echo made; chroot / true && echo made").stdout
    )
    assert int(run("id -u").stdout) != 0


def test_the_session_log_cannot_be_touched(run, work):
    log = work / ".opensage" / "sessions"
    log.mkdir(parents=True)
    (log / "one").write_text("log")
    r = run(
        "ls -A .opensage; echo x > .opensage/y; mkdir .opensage/sessions; mv .opensage z; "
        "rm -rf .opensage; umount .opensage"
    )
    assert r.stdout == ""
    assert (log / "one").read_text() == "log"
    assert os.listdir(work / ".opensage") == ["sessions"]


def test_a_session_log_cannot_be_made_either(run, work):
    run("rmdir .opensage; mv .opensage z; mkdir -p .opensage/sessions; echo x > .opensage/config")
    assert os.listdir(work / ".opensage") == []
    assert os.listdir(work) == [".opensage"]


def test_the_settings_file_is_read_only(run, work):
    (work / "opensage.toml").write_text("sandbox = 'bubblewrap'\n")
    run(
        "echo \"sandbox = 'local'\" > opensage.toml; rm opensage.toml; mv opensage.toml x; "
        "echo y > z; mv z opensage.toml"
    )
    assert (work / "opensage.toml").read_text() == "sandbox = 'bubblewrap'\n"


def test_the_interpreter_in_the_workspace_stays_as_it_is(inside, work, tmp_path):
    """A virtual environment inside the workspace, from which the kit itself may be running."""
    venv = work / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--system-site-packages", str(venv)], check=True)
    code = (
        "import asyncio, sys; from pathlib import Path; from opensage.sandbox import open_sandbox\n"
        "async def main():\n"
        f"    s = open_sandbox('bubblewrap', Path({str(work)!r}))\n"
        "    r = await s.exec('echo bad >> .venv/pyvenv.cfg; rm -rf .venv; touch other; "
        'python -c "import sys; print(sys.prefix)"\')\n'
        "    print(r.stdout, end='')\n"
        "    name = await s.snapshot(); await s.exec('rm other'); await s.restore(name)\n"
        "    await s.close()\n"
        "asyncio.run(main())\n"
    )
    before = (venv / "pyvenv.cfg").read_text()
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        [venv / "bin/python", "-c", code], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.returncode) == (f"{venv}\n", 0), done.stderr
    assert (venv / "pyvenv.cfg").read_text() == before
    assert (work / "other").exists()


def test_folders_to_read(run, work):
    extra = work.parent / "extra"
    extra.mkdir()
    (extra / "f").write_text("shown")
    (work / ".opensage" / "toolkits").mkdir(parents=True)
    (work / ".opensage" / "toolkits" / "t").write_text("kit")
    r = run(
        f"cat {extra}/f .opensage/toolkits/t; echo x > {extra}/f; echo x > .opensage/toolkits/t; ls -A .opensage",
        read_only=[extra, work / ".opensage" / "toolkits"],
    )
    assert r.stdout == "shownkittoolkits\n"
    assert (extra / "f").read_text() == "shown"


def test_scratch_space_is_bounded(run):
    r = run(
        "for d in /tmp ~ /dev/shm; do head -c 9000000 /dev/zero > $d/x; stat -c %s $d/x; done",
        limits=SandboxLimits(scratch=4 << 20),
    )
    assert [int(size) <= 4 << 20 for size in r.stdout.split()] == [True] * 3


def test_git_and_compilers_work_as_outside(run, work):
    r = run(
        "git init -q . && git config user.email a@b && git config user.name n && echo x > f && "
        "git add f && git commit -qm m && git log --oneline | wc -l"
    )
    assert r.stdout == "1\n", r.stderr
