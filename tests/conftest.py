"""Shared by all tests: no settings of the machine's user leak in; a Docker engine for those that need one."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import docker_engine as engines

# Its plugin would import it when a first test fails, and then Python 3.11.7 may stumble (python/cpython#106905).
import hypothesis  # noqa: F401
import pytest

sys.path.insert(0, str(Path(__file__).parent / "opensage"))
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
KEPT = ("OPENSAGE_HOME", "OPENSAGE_DATA", "OPENSAGE_REQUIRE_DOCKER", engines.SHARED)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.endswith("_API_KEY") or name == "DOCKER_HOST" or (name.startswith("OPENSAGE_") and name not in KEPT):
            monkeypatch.delenv(name)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        os.environ[engines.SHARED] = tempfile.mkdtemp(prefix="opensage-engine-")


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        engines.stop(Path(os.environ[engines.SHARED]))


@pytest.fixture(scope="session")
def docker_engine() -> str:
    """The address of an engine that holds the base image; with OPENSAGE_REQUIRE_DOCKER=1 there must be one."""
    try:
        return engines.engine(Path(os.environ[engines.SHARED]))
    except engines.NoEngine as error:
        if os.environ.get("OPENSAGE_REQUIRE_DOCKER") == "1":
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture
def docker_host(docker_engine: str, clean_environment: None, monkeypatch: pytest.MonkeyPatch) -> str:
    """That engine, for the length of a test, as `DOCKER_HOST`."""
    monkeypatch.setenv("DOCKER_HOST", docker_engine)
    return docker_engine
