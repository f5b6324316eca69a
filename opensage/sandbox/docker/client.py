"""The connection to a Docker engine."""

from __future__ import annotations

import contextlib
import os
import platform
import socket
import stat
from collections.abc import Iterator
from typing import Any

from opensage.errors import SandboxError, SandboxUnavailable

BASE_IMAGE = "opensage/base:latest"
TOOLKITS_IMAGE = "opensage/toolkits:latest"
PYTHON_LABEL = "opensage.python"
BASE_LABEL = "opensage.base"
"""Labels of the image for toolkits: its Python's version, and the id of the base image that it was made from."""
SOCKET = "/var/run/docker.sock"
TIMEOUT = 60
"""Seconds the engine gets for an answer, streams aside."""
MISSING_SDK = "the Docker SDK is not installed: `pip install 'opensage[docker]'`"


def connect() -> Any:
    """A client (`docker.APIClient`) of the engine that `DOCKER_HOST` names, else of the one at the usual socket.

    Raises:
        SandboxUnavailable: the SDK is not installed, or no engine answers.
    """
    try:
        import docker
        from docker.utils import kwargs_from_env
    except ImportError as error:
        raise SandboxUnavailable(MISSING_SDK) from error
    where = os.environ.get("DOCKER_HOST") or f"unix://{SOCKET}"
    try:
        _knock(where)
        client = docker.APIClient(version="auto", timeout=TIMEOUT, max_pool_size=64, **kwargs_from_env())
        client.ping()
    except (docker.errors.DockerException, OSError, ValueError) as error:
        raise SandboxUnavailable(
            f"no Docker engine answers at {where} ({_short(error)}): install and start one "
            "(`apt install docker.io`), join the group `docker`, or set DOCKER_HOST"
        ) from error
    return client


def _knock(address: str) -> None:
    """Open a local engine's socket once: the SDK would leave its own open when there is none.

    Raises:
        OSError: as the system says it.
    """
    if address.startswith("unix://"):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(TIMEOUT)
            sock.connect(address.removeprefix("unix://"))


def may_answer() -> bool:
    """Whether it is worth asking: an engine is named, or there is a socket. Costs no import."""
    if os.environ.get("DOCKER_HOST"):
        return True
    with contextlib.suppress(OSError):
        return stat.S_ISSOCK(os.stat(SOCKET).st_mode) and os.access(SOCKET, os.W_OK)
    return False


def image_id(client: Any, name: str) -> str:
    """The id of an image that the engine holds, or nothing."""
    return str(_inspected(client, name).get("Id", ""))


def default_image(client: Any) -> str:
    """What `docker` without a name means: the image for toolkits if it fits, else the base image, else nothing.

    It fits when its Python is of the running version, and no other base image has been made since.
    """
    base, labels = image_id(client, BASE_IMAGE), _labels(client, TOOLKITS_IMAGE)
    if labels.get(PYTHON_LABEL) == platform.python_version() and base in ("", labels.get(BASE_LABEL)):
        return TOOLKITS_IMAGE
    return BASE_IMAGE if base else ""


def need_image(client: Any, name: str) -> None:
    """See that the engine holds an image.

    Raises:
        SandboxUnavailable: it does not; the message says what makes it.
    """
    with said("looking for the image"):
        if image_id(client, name):
            return
    ours = {BASE_IMAGE: "", TOOLKITS_IMAGE: " --toolkits"}
    known = next((more for image, more in ours.items() if name in (image, image.partition(":")[0])), None)
    pull = f"`docker pull {name}`, or " if known is None else ""
    raise SandboxUnavailable(f"Docker has no image {name}: {pull}make it with `opensage sandbox build{known or ''}`")


def ready_image() -> str:
    """`default_image` of the engine that answers; nothing when none does: what `auto` asks."""
    if not may_answer():
        return ""
    try:
        client = connect()
        with said("looking for the image"), contextlib.closing(client):
            return default_image(client)
    except SandboxError:
        return ""


def docker_is_ready() -> bool:
    """Whether an engine answers and holds an image to begin with."""
    return bool(ready_image())


def _labels(client: Any, image: str) -> dict[str, str]:
    return dict((_inspected(client, image).get("Config") or {}).get("Labels") or {})


def _inspected(client: Any, image: str) -> dict[str, Any]:
    import docker

    try:
        return dict(client.inspect_image(image))
    except docker.errors.NotFound:
        return {}


@contextlib.contextmanager
def said(what: str) -> Iterator[None]:
    """Turn what the engine or the way to it reports into one line.

    Raises:
        SandboxError: with what was tried and the engine's words.
    """
    import docker

    try:
        yield
    except (docker.errors.DockerException, OSError) as error:
        raise SandboxError(f"Docker: {what} failed: {_short(error)}") from error


def cut(stream: Any) -> None:
    """Break a stream of the engine: whoever reads it comes to its end."""
    with contextlib.suppress(OSError, AttributeError):
        getattr(stream, "_sock", stream).shutdown(2)


def close(stream: Any) -> None:
    """Close a stream of the engine, and the response it came with; for the one who reads it."""
    cut(stream)
    for part in (getattr(stream, "_response", None), stream, getattr(stream, "_sock", None)):
        if part is not None:
            with contextlib.suppress(OSError, ValueError):
                part.close()


def _short(error: BaseException) -> str:
    text = str(getattr(error, "explanation", "") or error).strip() or type(error).__name__
    return " ".join(text.split())[:400]
