"""A memory file whose surroundings change under it."""

from __future__ import annotations

import os
import threading

import pytest

from opensage_memory import Memory
from opensage_memory.errors import StoreUnavailable
from opensage_memory.store.sqlite import connection

S = "ada/kit"


def files_with(folder, word):
    """Names of the files of a memory that hold a word."""
    return sorted(file.name for file in folder.glob("memory.db*") if word in file.read_bytes())


@pytest.fixture
def memory(tmp_path):
    with Memory(tmp_path / "memory.db") as opened:
        yield opened


def test_a_purge_that_a_reader_hinders_says_so_and_is_done_by_the_next(memory, tmp_path, monkeypatch):
    item = memory.add("zebrasecret word", S)
    with Memory(tmp_path / "memory.db") as other, other.store.read() as reader:
        assert reader.get([item.id])
        memory.store._connect().execute("PRAGMA busy_timeout=50")
        monkeypatch.setattr(connection, "WAIT_SECONDS", 0.1)
        with pytest.raises(StoreUnavailable, match="vacuum"):
            memory.forget(item.id, S, purge=True)
    assert memory.get(item.id, S) is None
    memory.vacuum()
    assert files_with(tmp_path, b"zebrasecret") == []


@pytest.mark.parametrize("replaced", [False, True])
def test_nothing_is_written_to_a_file_that_is_gone(memory, tmp_path, replaced):
    memory.add("amber", S)
    (tmp_path / "memory.db").rename(tmp_path / "moved.db")
    if replaced:
        (tmp_path / "memory.db").write_bytes(b"another")
    with pytest.raises(StoreUnavailable, match="nothing was written"):
        memory.add("birch", S)


def test_a_memory_that_is_closed_while_it_is_used_says_so(memory):
    with pytest.raises(StoreUnavailable, match="closed"), memory.store.write() as writer:
        memory.close()
        writer.set_meta("name", "value")


def test_what_is_recalled_is_given_though_it_cannot_be_counted(memory):
    memory.add("the port is 5433", S)
    with memory.store.read():
        assert "5433" in memory.context("port", S).text


def test_a_lock_that_was_held_at_a_fork_does_not_hold_the_child(memory, monkeypatch):
    before = memory.store._writing
    held = threading.Thread(target=before.acquire)
    held.start()
    held.join()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    memory.store._connect()
    assert memory.store._writing is not before
    before.release()
