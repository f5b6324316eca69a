"""The `docker` sandbox: containers of a Docker engine. The SDK is imported when an engine is first asked."""

from __future__ import annotations

from opensage.sandbox.docker.backend import DockerSandbox
from opensage.sandbox.docker.client import BASE_IMAGE

__all__ = ["BASE_IMAGE", "DockerSandbox"]
