"""A memory file among many processes, killed in the middle of writing, damaged, half gone."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from opensage_memory import Memory, New
from opensage_memory.errors import Damaged, ReadOnly, StoreUnavailable
from opensage_memory.store.sqlite import SqliteStore

WRITER = """
import random, sys, time
from opensage_memory import Memory, New
path, name, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
memory, dice, alive, number = Memory(path), random.Random(name), [], 0
end = time.monotonic() + seconds
while time.monotonic() < end:
    number += 1
    step = dice.random()
    if step < 0.6 or len(alive) < 4:
        item = memory.add(New(f"{name} writes {number} about Topic {number % 7}", author=name, session=name), "s")
        alive.append(item.id)
        print("+", item.id, flush=True)
    elif step < 0.75:
        gone = alive.pop(dice.randrange(len(alive)))
        print("?", gone, flush=True)
        memory.forget(gone, "s")
        print("-", gone, flush=True)
    elif step < 0.9:
        fact = memory.state(name, "counts", str(number), "s", functional=True)
        print("+", fact.id, flush=True)
    else:
        keep, gone = dice.sample(alive, 2)
        print("?", gone, flush=True)  # it goes when the other one is forgotten
        memory.merge(keep, gone, "s")
        alive.remove(gone)
print("end", flush=True)
"""
READER = """
import sys, time
from opensage_memory import Memory
memory, end, count = Memory(sys.argv[1]), time.monotonic() + float(sys.argv[2]), 0
while time.monotonic() < end:
    memory.search("writes about topic", "s"); memory.counts("s"); count += 1
print("end", count, flush=True)
"""


def start(code: str, *args: object) -> subprocess.Popen[str]:
    """A process of its own."""
    paths = os.pathsep.join(sys.path)
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )


def acknowledged(said: str) -> tuple[set[str], set[str]]:
    """Ids of items that must be there, and of those that must not."""
    there: set[str] = set()
    gone: set[str] = set()
    for line in said.splitlines():
        mark, _, id = line.partition(" ")
        if mark == "+":
            there.add(id)
        elif mark in "?-":
            there.discard(id)
            if mark == "-":
                gone.add(id)
    return there, gone


def sound(path: Path, there: set[str], gone: set[str] = frozenset()) -> None:  # type: ignore[assignment]
    """Everything that was acknowledged is there, what was forgotten is not, and all indexes agree."""
    memory = Memory(path)
    with memory.store.read() as reader:
        found = set(reader.get(there | gone))
    assert there <= found
    assert not gone & found
    counts = memory.counts()
    assert counts.items == counts.indexed == sum(counts.kinds.values())
    assert (counts.dangling, counts.orphans) == (0, 0)
    assert memory.check() == []
    memory.close()


@pytest.mark.slow
def test_memory_probe_49_killed_at_fifty_moments_of_mixed_writes(tmp_path):
    path, dice = tmp_path / "memory.db", random.Random(49)
    Memory(path).close()
    there: set[str] = set()
    gone: set[str] = set()
    for batch in range(10):
        writers = [start(WRITER, path, f"w{batch}-{number}", 60) for number in range(5)]
        for writer in writers:
            assert writer.stdout.readline()  # it writes
        for writer in writers:
            time.sleep(dice.uniform(0, 0.08))
            writer.send_signal(signal.SIGKILL)
        for writer in writers:
            said, error = writer.communicate()
            assert error == ""
            mine = acknowledged(said.rpartition("\n")[0])
            there = (there | mine[0]) - mine[1]
            gone |= mine[1]
    sound(path, there, gone)


@pytest.mark.slow
def test_memory_probe_46_three_writers_and_two_readers_for_ten_seconds(tmp_path):
    path = tmp_path / "memory.db"
    processes = [start(WRITER, path, f"w{number}", 10) for number in range(3)]
    processes += [start(READER, path, 10) for _ in range(2)]
    said = []
    for process in processes:
        out, error = process.communicate(timeout=120)
        assert (process.returncode, error) == (0, "")
        assert "end" in out
        said.append(out)
    both = [acknowledged(out) for out in said[:3]]
    sound(path, set().union(*(there for there, _ in both)), set().union(*(gone for _, gone in both)))


def test_memory_probe_47_eight_processes_make_one_new_file_at_once(tmp_path):
    path = tmp_path / "new" / "memory.db"
    code = "import sys; from opensage_memory import Memory; print(Memory(sys.argv[1]).add('Hello from ' + sys.argv[2], 's').id)"
    processes = [start(code, path, number) for number in range(8)]
    ids = set()
    for process in processes:
        out, error = process.communicate(timeout=120)
        assert (process.returncode, error) == (0, "")
        ids.add(out.strip())
    assert len(ids) == 8
    sound(path, ids)


def test_memory_probe_48_open_in_two_processes(tmp_path):
    path = tmp_path / "memory.db"
    memory = Memory(path)
    mine = memory.add("From the first", "s")
    other = start(
        "import sys; from opensage_memory import Memory; m = Memory(sys.argv[1]); print(m.add('From the second', 's').id, len(m.search('from', 's')))",
        path,
    )
    out, error = other.communicate(timeout=60)
    assert error == ""
    assert out.split()[1] == "2"
    assert {hit.item.id for hit in memory.search("from", "s")} == {mine.id, out.split()[0]}


def line(n: int) -> str:
    return f"Line {n} is about Thing {n % 9} and more words"


def filled(path: Path, count: int = 300) -> list[str]:
    memory = Memory(path)
    ids = [item.id for item in memory.add_many([New(line(n)) for n in range(count)], "s")]
    memory.close()
    return ids


@pytest.mark.parametrize("where", [100, 9_000, 40_000, 70_000, 120_000])
def test_memory_probe_51_a_damaged_file_is_read_only_and_repaired_into_another(tmp_path, where):
    path = tmp_path / "memory.db"
    filled(path)
    with sqlite3.connect(path) as link:
        link.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    link.close()
    data = bytearray(path.read_bytes())
    data[where : where + 100] = random.Random(where).randbytes(100)
    path.write_bytes(data)
    damaged = path.read_bytes()
    try:
        memory = Memory(path)
    except Damaged as error:
        assert "check --repair" in str(error)
        return
    faults = memory.trouble or "\n".join(memory.check())
    if not faults:  # the bytes were in no use
        assert {item.text for _, item in memory.items("s", kinds=("fact",))} == {line(n) for n in range(300)}
        return
    if memory.trouble:
        assert "check --repair" in memory.trouble
        with pytest.raises(ReadOnly, match="check --repair"):
            memory.add("more", "s")
    saved, lost = memory.store.repair(tmp_path / "repaired.db")
    assert saved + len(lost) >= 100
    with pytest.raises(StoreUnavailable, match="exists"):
        memory.store.repair(tmp_path / "repaired.db")
    memory.close()
    assert path.read_bytes() == damaged
    repaired = Memory(tmp_path / "repaired.db")
    assert repaired.check() == []
    assert repaired.counts().items == saved
    repaired.add("It goes on", "s")


def test_a_file_that_is_none_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "memory.db"
    path.write_text('{"half": ')
    with pytest.raises(Damaged, match="not a database"):
        Memory(path)
    assert path.read_text() == '{"half": '
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as link:
        link.execute("CREATE TABLE users (name TEXT)")
    link.close()
    with pytest.raises(StoreUnavailable, match="another program"):
        Memory(other)
    newer = tmp_path / "newer.db"
    Memory(newer).close()
    with sqlite3.connect(newer) as link:
        link.execute("PRAGMA user_version=99")
    link.close()
    with pytest.raises(StoreUnavailable, match="newer OpenSage"):
        Memory(newer)


def test_memory_probe_55_the_main_file_alone_was_removed(tmp_path):
    path = tmp_path / "memory.db"
    memory = Memory(path)
    memory.add("In the journal", "s")
    (tmp_path / "memory.db-wal").rename(tmp_path / "kept")
    memory.close()
    path.unlink()
    (tmp_path / "kept").rename(tmp_path / "memory.db-wal")
    with pytest.raises(Damaged, match="is gone, but its journal"):
        Memory(path)
    assert not path.exists()


def test_a_folder_that_cannot_be_written(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.raises(StoreUnavailable, match="name another place"):
        Memory(blocked / "memory.db")


def test_memory_probe_58_without_extensions_and_without_fts5(tmp_path, monkeypatch):
    path = tmp_path / "memory.db"
    assert not any("load_extension" in file.read_text() for file in Path("memory").rglob("*.py"))
    memory = Memory(path)
    first = memory.add("Written with the built-in index", "s")
    memory.close()
    from opensage_memory.store.sqlite import store as module
    from opensage_memory.store.sqlite.index import PostingIndex

    monkeypatch.setattr(module, "text_index", lambda link: PostingIndex())
    memory = Memory(path)
    second = memory.add("Written with an index of our own", "s")
    memory.forget(memory.add("Written in vain", "s").id, "s")
    assert [hit.item.id for hit in memory.search("built-in index", "s")] == [first.id, second.id]
    assert memory.counts().indexed == memory.counts().items
    assert memory.check() == []
    memory.close()
    monkeypatch.undo()
    memory = Memory(path)
    assert {hit.item.id for hit in memory.search("index", "s")} == {first.id, second.id}
    assert memory.search("vain", "s") == []
    assert memory.check() == []


def test_forgotten_leaves_no_byte_behind(tmp_path):
    path = tmp_path / "memory.db"
    memory = Memory(path)
    memory.add_many([New(f"Ordinary line {n}", "message", f"k{n}", session="t") for n in range(30)], "s")
    secret = "Xylophonist Quetzalcoatl"
    gone = memory.add(New(f"The name is {secret}", "message", "k-secret", session="t"), "s")
    memory.state("Vault", "opened by", secret, "s", derived=[gone.id])
    memory.consolidate("s")
    memory.supersede(
        memory.add(f"{secret} was here", "s", derived=[gone.id]).id, f"{secret} left", "s", derived=[gone.id]
    )
    files = lambda: b"".join(file.read_bytes() for file in tmp_path.iterdir())  # noqa: E731
    assert b"Quetzalcoatl" in files()
    memory.forget(gone.id, "s", purge=True)
    memory.close()
    left = files().lower()
    for part in (b"quetzalcoatl", b"xylophonist", b"quetzal"):
        assert part not in left
    assert Memory(path).check() == []


def test_a_migration_leaves_a_copy(tmp_path, monkeypatch):
    from opensage_memory.store.sqlite import connection

    path = tmp_path / "memory.db"
    filled(path, 5)
    monkeypatch.setattr(connection, "VERSION", 2)
    monkeypatch.setattr(connection, "MIGRATIONS", {1: "ALTER TABLE items ADD COLUMN extra TEXT"})
    store = SqliteStore(path)
    with store.read() as reader:
        assert "extra" in [row[1] for row in reader.link.execute("PRAGMA table_info(items)")]
    store.close()
    with sqlite3.connect(tmp_path / "memory.db.v1.bak") as backup:
        assert backup.execute("PRAGMA user_version").fetchone() == (1,)
        assert backup.execute("SELECT count(*) FROM items WHERE kind = 'fact'").fetchone() == (5,)
    backup.close()


def test_a_migration_that_fails_leaves_the_file(tmp_path, monkeypatch):
    from opensage_memory.store.sqlite import connection

    path = tmp_path / "memory.db"
    filled(path, 5)
    monkeypatch.setattr(connection, "VERSION", 2)
    monkeypatch.setattr(connection, "MIGRATIONS", {1: "CREATE TABLE extra (x); CREATE TABLE items (y)"})
    with pytest.raises(sqlite3.OperationalError, match="already exists"):
        SqliteStore(path)
    monkeypatch.undo()
    memory = Memory(path)
    assert memory.check() == []
    with memory.store.read() as reader:
        assert reader.link.execute("SELECT count(*) FROM sqlite_master WHERE name = 'extra'").fetchone() == (0,)


def test_import_is_light():
    code = (
        "import json, sys, time\n"
        "for name in ('litellm', 'torch', 'docker', 'neo4j'): sys.modules[name] = None\n"
        "began = time.process_time(); import opensage_memory; spent = time.process_time() - began\n"
        "began = time.process_time(); from opensage_memory import Memory; used = time.process_time() - began\n"
        "numpy = 'numpy' in sys.modules\n"
        "m = Memory(sys.argv[1]); m.add('It works alone', 's'); found = len(m.search('works alone', 's'))\n"
        "print(json.dumps([spent, used, found, numpy, 'opensage' in sys.modules]))"
    )
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        process = start(code, Path(folder) / "m.db")
        out, error = process.communicate(timeout=60)
    assert error == ""
    spent, used, found, numpy, kit = json.loads(out)
    assert spent <= 0.1
    assert used <= 0.25
    assert (found, numpy, kit) == (1, False, False)
