"""Shared by all tests: no settings of the machine's user leak in."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "opensage"))
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.endswith("_API_KEY") or (
            name.startswith("OPENSAGE_") and name not in ("OPENSAGE_HOME", "OPENSAGE_DATA")
        ):
            monkeypatch.delenv(name)
