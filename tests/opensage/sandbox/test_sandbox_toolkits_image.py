"""The image for toolkits: what goes in, when it is taken, and that nothing half stays."""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opensage.errors import SandboxError, SandboxUnavailable
from opensage.sandbox import open_sandbox
from opensage.sandbox.docker import client as clients
from opensage.sandbox.docker import toolkits
from opensage.sandbox.docker.client import BASE_IMAGE, BASE_LABEL, PYTHON_LABEL, connect, default_image, image_id
from opensage.sandbox.docker.packages import Packages, interpreter, interpreter_files, packages
from opensage.sandbox.docker.toolkits import build_toolkits

NAME = f"opensage/kit-test-{os.getpid()}"
NONE = Packages((), (), ())


@pytest.fixture
def client(docker_host: str, work: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Names of their own stand for the real image: other workers use the same engine."""
    monkeypatch.setattr(clients, "TOOLKITS_IMAGE", f"{NAME}:latest")
    with contextlib.closing(connect()) as client:
        try:
            yield client
        finally:
            for name in [f"{NAME}:{tag}" for tag in ("latest", "base", "bare")]:
                with contextlib.suppress(Exception):
                    client.remove_image(name, force=True)


def labelled(client: Any, tag: str, image: str = BASE_IMAGE, command: str = "", **labels: str) -> str:
    """A copy of an image with labels, and with what a command changed; one of that name before is removed."""
    if image_id(client, f"{NAME}:{tag}"):
        client.remove_image(f"{NAME}:{tag}")
    made = client.create_container(image, ["sh", "-c", command or "true"])
    try:
        client.start(made["Id"])
        client.wait(made["Id"])
        changes = [f"LABEL {key}={value}" for key, value in labels.items()]
        client.commit(made["Id"], repository=NAME, tag=tag, changes=changes)
    finally:
        client.remove_container(made["Id"], force=True)
    return f"{NAME}:{tag}"


def building(client: Any) -> list[str]:
    """Containers of builds that are left; the engine gets its time to remove them."""
    until = time.monotonic() + 60
    while True:
        names = [name for each in client.containers(all=True) for name in each["Names"]]
        left = [name for name in names if name.startswith("/opensage-build-")]
        if not left or time.monotonic() > until:
            return left
        time.sleep(0.1)


def test_docker_means_the_image_for_toolkits_while_it_fits(client: Any, work: Path) -> None:
    base, python = image_id(client, BASE_IMAGE), platform.python_version()
    assert default_image(client) == BASE_IMAGE
    labelled(client, "latest", **{PYTHON_LABEL: python, BASE_LABEL: base})
    assert default_image(client) == f"{NAME}:latest"
    sandbox: Any = open_sandbox("docker", work)
    assert sandbox._plan.image == f"{NAME}:latest"
    sandbox._client.close()
    labelled(client, "latest", **{PYTHON_LABEL: python, BASE_LABEL: "sha256:an-older-one"})
    assert default_image(client) == BASE_IMAGE
    labelled(client, "latest", **{PYTHON_LABEL: "3.11.0rc1", BASE_LABEL: base})
    assert default_image(client) == BASE_IMAGE


def test_a_missing_image_says_what_makes_it(client: Any, work: Path) -> None:
    with pytest.raises(SandboxUnavailable, match=r"no image opensage/kit-test.*`opensage sandbox build --toolkits`"):
        open_sandbox(f"docker:{NAME}", work)


@pytest.mark.slow
def test_an_interpreter_that_the_base_lacks_is_put_there(
    client: Any, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever Python runs here: a base image without any lacks it, and what that needs; the older image goes."""
    bare = labelled(client, "bare", command="rm -rf /usr/bin/python3* /usr/lib/python3* /usr/lib/*/libsqlite3.so*")
    monkeypatch.setattr(toolkits, "packages", lambda only: NONE)
    monkeypatch.setattr(toolkits, "_CHECKED", {"_sqlite3": "sqlite3", "_ssl": "ssl"})
    older = image_id(client, labelled(client, "latest", note="older"))
    said: list[str] = []
    build_toolkits(client, name=f"{NAME}:latest", base=bare, folder=work, tell=said.append)
    assert any("libsqlite3.so.0" in line for line in said)
    assert said[-2:] == ["checking: import sqlite3, ssl", f"saving {NAME}:latest"]
    config = client.inspect_image(f"{NAME}:latest")["Config"]
    assert config["Labels"] == {PYTHON_LABEL: platform.python_version(), BASE_LABEL: image_id(client, bare)}
    assert image_id(client, older) == ""
    assert building(client) == []


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("_CHECKED", {"sys": "sys, no_such_module"}, "does not run in the base image.*no_such_module"),
        ("MOST_BYTES", -1, "the image would hold 0 GiB.*--package scipy"),
        ("interpreter", lambda: Path("/tmp/python3"), "lies where a container has its own files"),
        ("packages", lambda only: Packages(("gone 1",), (("gone.py", Path("/gone.py")),), ()), "cannot be packed"),
    ],
)
def test_a_build_that_fails_leaves_nothing_and_keeps_the_older_image(
    client: Any, work: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: Any, why: str
) -> None:
    older = image_id(client, labelled(client, "latest", note="older"))
    monkeypatch.setattr(toolkits, "packages", lambda only: NONE)
    monkeypatch.setattr(toolkits, name, value)
    with pytest.raises(SandboxError, match=why):
        build_toolkits(client, name=f"{NAME}:latest", folder=work / "images", tell=lambda _: None)
    assert image_id(client, f"{NAME}:latest") == older
    assert list((work / "images").iterdir()) == []
    assert building(client) == []


def test_a_build_that_is_killed_leaves_nothing(client: Any, work: Path) -> None:
    command = [sys.executable, "-m", "opensage", "sandbox", "build", "--toolkits", "--package", "pytest"]
    process = subprocess.Popen([*command, "--tag", f"{NAME}:latest"], stderr=subprocess.PIPE, text=True, cwd=work)
    assert process.stderr is not None
    with process:
        assert any(line.startswith("packing") for line in process.stderr)
        process.send_signal(signal.SIGKILL)
    assert building(client) == []
    assert image_id(client, f"{NAME}:latest") == ""


def test_the_command_refuses_what_does_not_fit_together(client: Any, work: Path) -> None:
    for words in (
        ["--toolkits", "--file", "Dockerfile"],
        ["--package", "numpy"],
        ["--toolkits", "--package", "no-such"],
    ):
        command = [sys.executable, "-m", "opensage", "sandbox", "build", *words]
        done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 2, done.stderr
        assert "--toolkits" in done.stderr or "not installed beside OpenSage: no-such" in done.stderr


def test_what_only_the_kit_needs_is_left_out() -> None:
    found = packages()
    names = {name.split()[0] for name in found.names}
    assert {"numpy", "pip", "pytest", "pyyaml", "networkx"} <= names
    assert not names & {"litellm", "openai", "xllamacpp", "mypy", "opensage"}
    assert {"litellm", "openai", "opensage"} <= set(found.left_out)
    small = packages(["PyTest"])
    assert {name.split()[0] for name in small.names} >= {"numpy", "pip", "pluggy", "pytest"}
    assert len(small.files) < len(found.files)
    assert all(path.is_file() and not name.startswith("/") and ".." not in name for name, path in small.files)
    assert not any("/tests/" in name for name, _ in small.files)


def test_the_interpreter_is_this_one_with_its_library() -> None:
    names = [name for name, _ in interpreter_files()]
    assert names[0] == str(interpreter())[1:]
    assert any(name.endswith("/os.py") for name in names)
    assert not any("/site-packages/" in name or "/idlelib/" in name for name in names)


def test_own_code_in_the_workspace_is_read_only_and_no_part_of_it(
    client: Any, inside: Any, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interpreter in the workspace runs outside: nothing inside may change it, and no snapshot holds it."""
    (work / "venv").mkdir()
    (work / "venv" / "pyvenv.cfg").write_text("home = /usr/bin\n")
    monkeypatch.setattr("opensage.sandbox.paths.interpreter_folders", lambda: [work / "venv"])

    async def body(sandbox: Any) -> None:
        done = await sandbox.exec("echo bad > venv/sitecustomize.py; rm -r venv; mv venv other; echo good > file")
        assert "Read-only file system" in done.stderr
        before = await sandbox.snapshot()
        (work / "venv" / "later.py").write_text("")
        await sandbox.exec("rm file")
        await sandbox.restore(before)

    inside("docker", body)
    assert sorted(path.name for path in (work / "venv").iterdir()) == ["later.py", "pyvenv.cfg"]
    assert (work / "file").read_text() == "good\n"
