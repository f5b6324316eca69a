"""A server opened by its address alone: who may ask it stands in the environment. The kit's memory on it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from memory_servers import Address

from opensage_memory.errors import ReadOnly
from opensage_memory.store.opening import open_store


@pytest.fixture
def address(bolt: Address, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in (("USER", bolt.user), ("PASSWORD", bolt.password), ("DATABASE", bolt.database or "")):
        monkeypatch.setenv(f"OPENSAGE_NEO4J_{name}", value)
    monkeypatch.setenv("OPENSAGE_ARCADEDB_HTTP", bolt.sql)
    return bolt.uri


def test_user_and_password_come_from_the_environment(address: str) -> None:
    with contextlib.closing(open_store(address)) as store:
        assert store.check() == []
    with contextlib.closing(open_store(address, read_only=True)) as store:
        with pytest.raises(ReadOnly), store.write():
            pass


def test_a_run_remembers_on_a_server(address: str, tmp_path: Path) -> None:
    from helpers_run import call, calls, go, results, say

    note: Any = calls(call("remember", {"text": "The ferry leaves at nine"}))
    result, _ = go([note, say("noted")], tmp_path, "Note when the ferry leaves", memory=address)
    assert result.warnings == []
    _, model = go(
        [calls(call("recall", {"query": "ferry"})), say("x")], tmp_path, "When does the ferry leave?", memory=address
    )
    assert "The ferry leaves at nine" in model.requests[0]["messages"][1]["content"]
    assert "Note when the ferry leaves" in results(model)[0]
    assert not (tmp_path / ".opensage" / "memory").exists()
