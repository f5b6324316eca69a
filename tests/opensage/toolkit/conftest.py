from __future__ import annotations

from pathlib import Path

import pytest
from helpers_toolkit import Bench


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setenv("OPENSAGE_HOME", str(tmp_path / "home"))
    return Bench(tmp_path)
