"""Docker images that are made for one task."""

from __future__ import annotations

import contextlib

from opensage.errors import SandboxUnavailable
from opensage_benchmarks.swe.task import Task


def sandbox_for(task: Task, wished: str) -> str:
    """The kind of sandbox of a task: its image, when the engine holds it and no other kind is asked for.

    An image that is not there is not fetched; the task then runs in `wished`.
    """
    if not task.image or wished not in ("auto", "docker"):
        return wished
    from opensage.sandbox.docker.client import connect, image_id, may_answer

    if not may_answer():
        return wished
    with contextlib.suppress(SandboxUnavailable), contextlib.closing(connect()) as client:
        return f"docker:{task.image}" if image_id(client, task.image) else wished
    return wished
