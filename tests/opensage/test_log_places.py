"""Logs and blobs in odd places: pipes, links and folders for sessions, full and read-only disks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_cli import one_line, opensage, script

from opensage.errors import SessionError
from opensage.log.journal import Journal
from opensage.log.store import SessionStore
from opensage.sandbox.bubblewrap import working_bwrap

ROOT = Path(__file__).parents[2]


def placed(code: str, folder: Path, *mount: str) -> str:
    """What code prints that sees another mount at `folder`."""
    command = [working_bwrap(), "--dev-bind", "/", "/", *mount, "--", sys.executable, "-c", code, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)}, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_is_no_regular_file_is_no_session(tmp_path: Path) -> None:
    assert opensage("run", "the task", "-m", script(tmp_path, {"text": "ok"}), cwd=tmp_path).returncode == 0
    folder = tmp_path / ".opensage/sessions"
    os.mkfifo(folder / "pipe.jsonl")
    (folder / "folder.jsonl").mkdir()
    (folder / "link.jsonl").symlink_to(next(folder.glob("2*.jsonl")))
    (folder / "zzz.jsonl").symlink_to("/dev/zero")
    listed = opensage("sessions", "list", cwd=tmp_path).stdout
    assert listed.count("the task") == 1
    assert len(listed.splitlines()) == 2
    assert "the task" in opensage("sessions", "show", "last", cwd=tmp_path).stdout
    for name in ("pipe", "folder", "link", "zzz"):
        assert "no session" in one_line(opensage("sessions", "show", name, cwd=tmp_path))
        assert "no session" in one_line(opensage("resume", name, "x", "-m", "script:s.json", cwd=tmp_path))


def test_no_log_is_written_through_a_link_or_into_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("mine\n")
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "kept")
    os.mkfifo(tmp_path / "pipe.jsonl")
    for name in ("link", "pipe"):
        with pytest.raises(SessionError, match="session log"):
            Journal(tmp_path / f"{name}.jsonl")
    assert (tmp_path / "kept").read_text() == "mine\n"


PUT = """
import sys
from pathlib import Path
from opensage.errors import SessionError
from opensage.log.blobs import BlobStore
try:
    BlobStore(Path(sys.argv[1]) / "x.blobs").put(b"x" * 1_000_000)
except SessionError as error:
    print(error)
print(sorted(path.name for path in Path(sys.argv[1]).rglob("*") if path.is_file()))
"""


def test_output_that_cannot_be_stored_names_the_fix(tmp_path: Path) -> None:
    full = placed(PUT, tmp_path, "--size", "500000", "--tmpfs", str(tmp_path))
    assert "the disk is full. Free space and resume." in full
    locked = placed(PUT, tmp_path, "--ro-bind", str(tmp_path), str(tmp_path))
    assert "Read-only file system. Make it writable and resume." in locked
    (tmp_path / "x.blobs").write_text("")
    assert "x.blobs: File exists. Mend that and resume." in placed(PUT, tmp_path)
    for said in (full, locked):
        assert said.splitlines()[-1] == "[]"  # nothing half-written


FORK = """
import sys
from pathlib import Path
from opensage.errors import SessionError
from opensage.log.blobs import BlobStore
from opensage.log.events import SessionStarted, encode
from opensage.log.store import SessionStore
folder = Path(sys.argv[1])
(folder / "a.jsonl").write_bytes(encode(SessionStarted(session="a")))
for byte in (b"x", b"y"):
    BlobStore(folder / "a.blobs").put(byte * 400_000)
try:
    SessionStore(folder).fork("a")
except SessionError as error:
    print(error)
print(sorted(path.name for path in folder.iterdir()))
"""


def test_a_fork_on_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    said = placed(FORK, tmp_path, "--size", "1300000", "--tmpfs", str(tmp_path)).splitlines()
    assert "the disk is full. Free space." in said[0]
    assert said[1] == "['a.blobs', 'a.jsonl']"


def test_a_fork_takes_no_pipe_along(tmp_path: Path) -> None:
    assert opensage("run", "x", "-m", script(tmp_path, {"text": "ok"}), cwd=tmp_path).returncode == 0
    store = SessionStore(tmp_path / ".opensage/sessions")
    (session,) = store.ids()
    (store.folder / f"{session}.blobs").mkdir()
    os.mkfifo(store.folder / f"{session}.blobs" / ("0" * 64))
    forked = store.fork(session)
    assert store.load(forked).events[0].type == "session.started"
