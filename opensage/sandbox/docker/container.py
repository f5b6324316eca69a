"""A running container and the link to its first command."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from opensage.errors import OpenSageError
from opensage.sandbox.docker.client import said
from opensage.sandbox.docker.plan import Plan
from opensage.sandbox.docker.warden import SCRIPT, Facts, Warden

START_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Container:
    """A container that commands can run in: made by `start`, or one that was there. Its methods block: use a thread."""

    client: Any
    name: str
    warden: Warden
    facts: Facts
    ours: bool

    @classmethod
    def start(cls, client: Any, plan: Plan, name: str, labels: Mapping[str, str]) -> Container:
        """Make and start one.

        Raises:
            SandboxError: the engine refuses it.
            SandboxLost: it does not get ready.
        """
        with said(f"making a container of {plan.image}"):
            plan.create(client, name, labels)
        warden: Warden | None = None
        try:
            with said("starting the container"):
                # Attached before the start: should this program die, its end of the stream closes, and so does the
                # container's input, which ends it.
                warden = Warden(client.attach_socket(name, params={"stdin": 1, "stdout": 1, "stream": 1}))
                client.start(name)
            return cls(client, name, warden, warden.start(START_SECONDS), ours=True)
        except BaseException:
            if warden is not None:
                warden.close()
            remove(client, name)
            raise

    @classmethod
    def attach(cls, client: Any, name: str, workdir: str) -> Container:
        """Use one that runs already; it is left running."""
        with said(f"using the container {name}"):
            made = client.exec_create(name, ["/bin/sh", "-c", SCRIPT, "warden", "0", workdir], stdin=True, stderr=False)
            warden = Warden(client.exec_start(made["Id"], socket=True))
        return cls(client, name, warden, warden.start(START_SECONDS), ours=False)

    def close(self) -> None:
        """End it, if it is ours. Safe to call twice."""
        self.warden.close()
        if self.ours:
            remove(self.client, self.name)


def remove(client: Any, name: str) -> None:
    """Remove a container and its nameless volumes; gone already is as good."""
    import docker

    try:
        client.remove_container(name, force=True, v=True)
    except docker.errors.NotFound:
        return
    except docker.errors.APIError as error:
        if error.status_code != 409:  # the engine is removing it already
            raise OpenSageError(f"Docker: the container {name} was not removed: {error.explanation}") from error
    with contextlib.suppress(docker.errors.APIError, OSError):  # a slow engine goes on removing: not worth waiting for
        client.wait(name, timeout=10, condition="removed")
