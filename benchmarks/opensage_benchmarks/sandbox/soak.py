"""Sandboxes whose owners are killed at random moments: what is left after the next start."""

from __future__ import annotations

import asyncio
import random
import secrets
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from opensage.sandbox import all_sandboxes, open_sandbox

OWNER = """
import asyncio, sys
from pathlib import Path
from opensage.sandbox import open_sandbox

async def main(kind, folder, mark):
    while True:
        sandbox = open_sandbox(kind, Path(folder))
        print("begun", flush=True)
        await sandbox.exec(["true"])
        await sandbox.exec(f"sleep {mark} > /dev/null 2>&1 & setsid sleep {mark} > /dev/null 2>&1 &")
        await sandbox.close()

asyncio.run(main(*sys.argv[1:]))
"""


def soak(client: Any, kind: str, count: int, seed: int = 0) -> dict[str, Any]:
    """Let owners start sandboxes one after another, kill each owner (SIGKILL) at a random moment, then count.

    Args:
        client: of the Docker engine.
        kind: of the sandboxes.
        count: sandboxes to be started in all.
        seed: of the moments.
    """
    rng = random.Random(seed)
    mark = str(100_000 + secrets.randbelow(800_000))
    before = _engine(client)
    begun = kills = 0
    since = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        while begun < count:
            begun += _owner(kind, folder, mark, rng, count - begun)
            kills += 1
        asyncio.run(_next_start(kind, Path(folder)))
    after = _engine(client)
    left = {name: sorted(after[name] - before[name]) for name in after}
    return {
        "kind": kind,
        "sandboxes": begun,
        "owners_killed": kills,
        "seed": seed,
        "seconds": round(time.monotonic() - since, 1),
        "left": {**left, "records": len(all_sandboxes()), "processes": _processes(mark)},
    }


def _owner(kind: str, folder: str, mark: str, rng: random.Random, most: int) -> int:
    """One owner and its end; returns how many sandboxes it had begun."""
    life, begun, first = rng.uniform(0.0, 6.0), 0, True
    with subprocess.Popen([sys.executable, "-c", OWNER, kind, folder, mark], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        until = time.monotonic() + 60
        while time.monotonic() < until and begun < most and owner.stdout.readline():
            begun += 1
            if first:
                until, first = time.monotonic() + life, False
        time.sleep(rng.uniform(0.0, 0.8))
        owner.kill()
    return begun


async def _next_start(kind: str, folder: Path) -> None:
    sandbox = open_sandbox(kind, folder)
    try:
        await sandbox.exec(["true"])
    finally:
        await sandbox.close()


def _engine(client: Any) -> dict[str, set[str]]:
    return {
        "containers": {item["Id"] for item in client.containers(all=True)},
        "volumes": {item["Name"] for item in client.volumes()["Volumes"] or []},
        "networks": {item["Id"] for item in client.networks()},
        "images": {item["Id"] for item in client.images(all=True)},
    }


def _processes(mark: str) -> list[int]:
    """Processes of this machine that have the mark among their arguments."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in place.read_bytes().split(b"\0"):
                found.append(int(place.parent.name))
        except OSError:  # ended meanwhile
            continue
    return found
