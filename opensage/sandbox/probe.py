"""Tests of a backend's guarantees on this machine, each by trying to break it."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from opensage.errors import OpenSageError, PathRefused
from opensage.protocols import Sandbox
from opensage.sandbox.limits import MIB, SandboxLimits
from opensage.sandbox.opening import open_sandbox

LIMITS = SandboxLimits(memory=256 * MIB, processes=64, timeout=20.0, output=MIB // 8)


@dataclass(frozen=True, slots=True)
class ProbeRow:
    """One guarantee: whether it holds here, and what was seen."""

    guarantee: str
    holds: bool
    detail: str


@dataclass(slots=True)
class _Trial:
    """A sandbox to be attacked, a folder next to its workspace, and a secret that must not be found."""

    sandbox: Sandbox
    outside: Path
    secret: str


Check = Callable[[_Trial], Awaitable[tuple[bool, str]]]


async def probe(kind: str, parent: Path | None = None) -> list[ProbeRow]:
    """Try every guarantee of a backend.

    Args:
        kind: "docker", "bubblewrap" or "local".
        parent: a folder for the workspace of the trial; the machine's temporary folder when not given.

    Returns:
        One row a guarantee; only the first one, failed, when the sandbox does not start.
    """
    with tempfile.TemporaryDirectory(prefix="opensage-probe-", dir=parent) as folder:
        workdir, outside = Path(folder) / "work", Path(folder) / "outside"
        workdir.mkdir()
        outside.mkdir()
        secret = secrets.token_hex(16)
        os.environ["OPENSAGE_PROBE_KEY"] = secret
        try:
            sandbox = open_sandbox(kind, workdir, limits=LIMITS)
            try:
                return await _rows(_Trial(sandbox, outside, secret))
            finally:
                await sandbox.close()
        except OpenSageError as error:
            return [ProbeRow("starts", False, str(error))]
        finally:
            del os.environ["OPENSAGE_PROBE_KEY"]


async def _rows(trial: _Trial) -> list[ProbeRow]:
    rows = []
    for name, check in CHECKS.items():
        try:
            rows.append(ProbeRow(name, *await check(trial)))
        except (OpenSageError, OSError) as error:
            rows.append(ProbeRow(name, False, f"{type(error).__name__}: {error}"))
            if name == "starts":
                break
    return rows


async def _starts(trial: _Trial) -> tuple[bool, str]:
    start = time.monotonic()
    result = await trial.sandbox.exec("echo ready")
    return result.stdout == "ready\n", f"first command after {time.monotonic() - start:.2f} s"


async def _network(trial: _Trial) -> tuple[bool, str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        result = await trial.sandbox.exec(f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo reached", timeout=5)
    names = await trial.sandbox.exec("tail -n +3 /proc/net/dev | cut -d: -f1")
    seen = names.stdout.split()
    return "reached" not in result.stdout and seen == ["lo"], f"interfaces: {' '.join(seen) or 'none'}"


async def _read_only(trial: _Trial) -> tuple[bool, str]:
    mark = trial.outside / "mark"
    await trial.sandbox.exec(f"mkdir -p {trial.outside}; echo x > {mark}")
    open_ = [str(mark)] if mark in trial.outside.iterdir() else []
    # Not tried for real: where it worked, it would be this machine that is written to.
    places = "/ /usr /etc /bin /lib /home /var /proc/sys/kernel/core_pattern"
    result = await trial.sandbox.exec(f"for f in {places}; do test -w $f && echo $f; done")
    open_ += result.stdout.split()
    return not open_, f"can be written: {', '.join(open_)}" if open_ else "nothing outside can be written"


async def _home(trial: _Trial) -> tuple[bool, str]:
    (trial.outside / "key").write_text(trial.secret)
    result = await trial.sandbox.exec(f"cat {trial.outside}/key {Path.home()}/.ssh/*")
    return not result.stdout, "files outside were read" if result.stdout else "files outside are not there"


async def _processes(trial: _Trial) -> tuple[bool, str]:
    result = await trial.sandbox.exec("readlink /proc/self/ns/pid; ls /proc | grep -c '^[0-9]*$'")
    namespace, count = (*result.stdout.split(), "", "")[:2]
    return bool(namespace) and namespace != os.readlink("/proc/self/ns/pid"), f"{count} processes visible"


async def _environment(trial: _Trial) -> tuple[bool, str]:
    result = await trial.sandbox.exec("env; cat /proc/[0-9]*/environ | tr '\\0' '\\n'")
    return trial.secret not in result.stdout, "the caller's keys are " + (
        "visible" if trial.secret in result.stdout else "absent"
    )


async def _rights(trial: _Trial) -> tuple[bool, str]:
    script = "grep -E '^(CapEff|CapBnd|NoNewPrivs):' /proc/self/status; id -u; unshare -Ur true 2>&1 && echo namespaces"
    words = (await trial.sandbox.exec(script)).stdout.split()
    status = dict(zip(words[::2], words[1::2], strict=False))
    powerless = int(status.get("CapEff:", "1"), 16) == 0 and status.get("NoNewPrivs:") == "1"
    return (
        powerless and "namespaces" not in words,
        f"capabilities {status.get('CapEff:', '?')}, uid {' '.join(words[6:7])}",
    )


async def _links(trial: _Trial) -> tuple[bool, str]:
    key = trial.outside / "key"
    key.write_text(trial.secret)
    await trial.sandbox.exec(f"ln -sf {key} link; ln -sfn {trial.outside} folder")
    tried = ("link", "folder/key", "../outside/key", str(key))
    for path in tried:
        try:
            if trial.secret.encode() in await trial.sandbox.read_bytes(path):
                return False, f"{path} was read"
            await trial.sandbox.write_bytes(path, b"x")
            return False, f"{path} was written"
        except (PathRefused, FileNotFoundError):
            continue
    return key.read_text() == trial.secret, f"{len(tried)} ways out refused"


async def _log(trial: _Trial) -> tuple[bool, str]:
    log = Path(trial.sandbox.workdir) / ".opensage" / "sessions"
    log.mkdir(parents=True, exist_ok=True)
    (log / "probe").write_text("kept")
    await trial.sandbox.exec("rm -rf .opensage; mv .opensage away; echo x > .opensage/sessions/probe")
    kept = (log / "probe").is_file() and (log / "probe").read_text() == "kept"
    return kept, "the session log cannot be reached" if kept else "the session log was changed"


async def _fork_bomb(trial: _Trial) -> tuple[bool, str]:
    result = await trial.sandbox.exec("bomb() { [ $SECONDS -gt 4 ] && exit; bomb | bomb & }; bomb; sleep 3", timeout=10)
    after = await trial.sandbox.exec("echo alive")
    return "processes" in result.stderr + after.stderr and "alive" in after.stdout, "a fork bomb was ended"


async def _memory(trial: _Trial) -> tuple[bool, str]:
    python = trial.sandbox.python or "python3"
    result = await trial.sandbox.exec([python, "-c", "b = bytearray(4 << 30); print(len(b))"], timeout=15)
    return result.exit_code != 0 and not result.stdout, f"4 GiB asked for: exit code {result.exit_code}"


async def _output(trial: _Trial) -> tuple[bool, str]:
    result = await trial.sandbox.exec("head -c 20000000 /dev/zero | tr '\\0' x")
    kept = len(result.stdout)
    return result.truncated and kept < 3 * LIMITS.output, f"20,000,000 bytes printed, {kept} kept"


async def _timeout(trial: _Trial) -> tuple[bool, str]:
    start = time.monotonic()
    result = await trial.sandbox.exec("setsid sh -c 'while :; do date >> beat; sleep 0.05; done' & wait", timeout=0.5)
    took, beat = time.monotonic() - start, Path(trial.sandbox.workdir) / "beat"
    before = beat.stat().st_size
    await asyncio.sleep(0.3)
    return result.timed_out and beat.stat().st_size == before, f"a command and its daemon ended after {took:.2f} s"


async def _dies(trial: _Trial) -> tuple[bool, str]:
    """Last: it closes the sandbox."""
    await trial.sandbox.exec("(while :; do date >> beat2; sleep 0.05; done) > /dev/null 2>&1 &")
    await asyncio.sleep(0.3)
    await trial.sandbox.close()
    beat = Path(trial.sandbox.workdir) / "beat2"
    before = beat.stat().st_size
    await asyncio.sleep(0.3)
    return beat.stat().st_size == before > 0, "background processes ended with the sandbox"


CHECKS: dict[str, Check] = {
    "starts": _starts,
    "no network": _network,
    "read-only outside the workspace": _read_only,
    "files outside invisible": _home,
    "other processes invisible": _processes,
    "environment and keys absent": _environment,
    "no rights to gain": _rights,
    "paths cannot leave the workspace": _links,
    "session log out of reach": _log,
    "fork bomb contained": _fork_bomb,
    "memory bounded": _memory,
    "output bounded": _output,
    "time-out ends the whole tree": _timeout,
    "nothing outlives the sandbox": _dies,
}
