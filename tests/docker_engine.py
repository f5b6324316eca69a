"""A Docker engine for the tests: the one that answers, else one of their own that ends with them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

SHARED = "OPENSAGE_TEST_ENGINE"
"""Names the folder that all workers of a test run share."""
START_SECONDS = 60.0
# As the tests were started: each of them changes its own environment.
GIVEN = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
IMAGES = Path(os.environ.get("OPENSAGE_HOME") or Path.home() / ".opensage") / "images"


class NoEngine(Exception):
    """None answers, and none can be started; the message says why."""


@contextlib.contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Only one worker starts the engine and builds the image; the others wait."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def engine(folder: Path) -> str:
    """The engine's address, with the base image in it."""
    with one_at_a_time(folder):
        address = GIVEN
        if not answers(address):
            address = f"unix://{folder}/docker.sock"
            if not answers(address):
                start(folder, address)
        with_image(address)
    return address


def answers(address: str) -> bool:
    import docker

    try:
        with socket.socket(socket.AF_UNIX) as sock:  # the SDK leaves its own open when there is none
            if address.startswith("unix://"):
                sock.connect(address.removeprefix("unix://"))
        client = docker.APIClient(address, timeout=10)
    except (docker.errors.DockerException, OSError):
        return False
    with contextlib.closing(client):
        return bool(client.ping())


def start(folder: Path, address: str) -> None:
    """An engine with its own data, socket and network namespace, so that nothing of it stays."""
    if os.geteuid() != 0 or not shutil.which("dockerd"):
        raise NoEngine("no Docker engine answers; as root, `apt install docker.io` lets the tests start one")
    options = ["--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec", "--pidfile", f"{folder}/pid"]
    command = f"ip link set lo up; exec dockerd {' '.join(options)} -H {address}"
    shell = f"unshare --net sh -c '{command}' < /dev/null > {folder}/dockerd.log 2>&1 &"
    subprocess.run(["sh", "-c", shell], check=True, start_new_session=True)  # in the background: it outlives the worker
    until = time.monotonic() + START_SECONDS
    while not answers(address):
        if time.monotonic() > until:
            raise NoEngine("dockerd did not start: " + (folder / "dockerd.log").read_text(errors="replace")[-400:])
        time.sleep(0.2)


def with_image(address: str) -> None:
    import docker

    from opensage.sandbox.docker.client import BASE_IMAGE, image_id
    from opensage.sandbox.docker.images import build_base

    with contextlib.closing(docker.APIClient(address, timeout=120)) as client:
        if not image_id(client, BASE_IMAGE):
            build_base(client, folder=IMAGES, tell=lambda _line: None)


def stop(folder: Path) -> None:
    """End the engine, if the tests started one, and remove what it kept."""
    with contextlib.suppress(OSError, ValueError):
        pid = int((folder / "pid").read_text())
        os.kill(pid, signal.SIGTERM)
        until = time.monotonic() + 30
        while time.monotonic() < until and not ended(pid):
            time.sleep(0.1)
    shutil.rmtree(folder, ignore_errors=True)


def ended(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True
