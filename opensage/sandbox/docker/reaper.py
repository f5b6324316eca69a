"""What dead owners left in an engine: found by labels, and removed."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from opensage.sandbox.docker.container import remove
from opensage.sandbox.state import SandboxRecord, here, process_start

LABEL = "opensage.owner"


def labels(workdir: str, run: str = "") -> dict[str, str]:
    """Labels that name this process as the owner."""
    found = {
        LABEL: str(os.getpid()),
        "opensage.owner.start": str(process_start(os.getpid()) or 0),
        "opensage.host": here(),
        "opensage.started": f"{time.time():.3f}",
        "opensage.workdir": workdir,
    }
    return {**found, "opensage.run": run} if run else found


def containers(client: Any) -> list[SandboxRecord]:
    """The containers of OpenSage in this engine, of any owner, oldest first."""
    found = client.containers(all=True, filters={"label": LABEL})
    records = [_record(item["Names"][0].lstrip("/"), item["Labels"]) for item in found if item.get("Names")]
    return sorted(records, key=lambda record: record.started)


def prune(client: Any) -> list[SandboxRecord]:
    """Remove the containers, with their volumes, and the saved images of owners that are dead."""
    dead = [record for record in containers(client) if not record.alive]
    for record in dead:
        remove(client, record.name)
    for image in client.images(filters={"label": LABEL}):
        if not _record(image["Id"], image["Labels"]).alive:
            remove_image(client, image["Id"])
    return dead


def remove_image(client: Any, name: str) -> None:
    """Remove an image, unless it is gone or a container uses it."""
    import docker

    try:
        client.remove_image(name, force=True)
    except docker.errors.APIError as error:
        if error.status_code not in (404, 409):
            raise


def _record(name: str, labels: Mapping[str, str]) -> SandboxRecord:
    return SandboxRecord(
        name,
        "docker",
        labels.get("opensage.workdir", ""),
        _number(labels.get(LABEL, "")),
        _number(labels.get("opensage.owner.start", "")),
        labels.get("opensage.host", ""),
        _number(labels.get("opensage.started", "").partition(".")[0]),
    )


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0
