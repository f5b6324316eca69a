from __future__ import annotations

from pathlib import Path

import pytest
from helpers_toolkit import Bench


@pytest.fixture(autouse=True)
def nothing_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is installed here does not count; the test of shipped toolkits brings its own."""
    monkeypatch.setattr("opensage.toolkit.library._shipped_entries", tuple)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setenv("OPENSAGE_HOME", str(tmp_path / "home"))
    return Bench(tmp_path)
