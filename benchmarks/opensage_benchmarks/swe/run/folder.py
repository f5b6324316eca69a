"""The output folder: one writer, whole files, a log of outcomes that is only appended to."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opensage.files import why
from opensage_benchmarks.swe.errors import BenchError, OutputLocked

Record = dict[str, Any]
_NO_OUTCOME = "cancelled"
FIELDS = frozenset(
    {
        "id", "status", "class", "reason", "task", "started", "wall_s", "cpu_s", "model_calls", "tool_calls",
        "input_tokens", "output_tokens", "cost", "patch_bytes",
    }
)  # fmt: skip
"""What a line of status.jsonl must have to be an outcome."""


class OutputFolder:
    """What a run writes. Opening it takes its lock; an outcome that was recorded is on the disk.

    Attributes:
        outcomes: the last record of each task that has one, in the order of their first ends.
        spent: every record there ever was, for what they cost.

    Raises:
        OutputLocked: another run writes to it.
        BenchError: it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.work = path / ".work"
        self.outcomes: dict[str, Record] = {}
        self.spent: list[Record] = []
        self._preds: dict[str, dict[str, str]] = {}
        with self._explained():
            path.mkdir(parents=True, exist_ok=True)
            self._lock = self._locked()
            with contextlib.ExitStack() as undo:
                undo.callback(os.close, self._lock)
                self._clean()
                self.scratch = Path(tempfile.mkdtemp(prefix="opensage-bench-"))
                undo.callback(shutil.rmtree, self.scratch, ignore_errors=True)
                self._write_lock()
                self._status = self._open_status()
                undo.pop_all()

    def _locked(self) -> int:
        handle = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise OutputLocked(f"another run writes to {self.path}; wait for it or choose another -o") from None
        return handle

    def _clean(self) -> None:
        """Remove what a run that was killed left: half results here, workspaces elsewhere."""
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir()
        with contextlib.suppress(ValueError, KeyError, TypeError):
            left = Path(json.loads(os.read(self._lock, 1 << 16))["scratch"])
            if left.name.startswith("opensage-bench-"):
                shutil.rmtree(left, ignore_errors=True)

    def _write_lock(self) -> None:
        data = json.dumps({"pid": os.getpid(), "scratch": str(self.scratch)}).encode()
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, data, 0)

    def _open_status(self) -> int:
        place = self.path / "status.jsonl"
        handle = os.open(place, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        data = place.read_bytes()
        whole = data.rfind(b"\n") + 1
        os.ftruncate(handle, whole)  # a torn last line is of a task that is done again
        records = read_status(data[:whole])
        self.spent = records
        self.outcomes = latest(records)
        return handle

    @contextlib.contextmanager
    def _explained(self) -> Any:
        try:
            yield
        except OSError as error:
            said = "the disk is full. Free space" if error.errno == errno.EFBIG else why(error)
            raise BenchError(f"cannot write to {self.path}: {said} and run again: what is finished is kept") from error

    def config(self) -> dict[str, Any] | None:
        """run.json as an earlier run left it.

        Raises:
            BenchError: it cannot be read.
        """
        place = self.path / "run.json"
        try:
            found = json.loads(place.read_text(encoding="utf-8"))
            return found if isinstance(found, dict) else {}
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise BenchError(f"{place} cannot be read: {error}; choose another -o, or remove it") from error

    def write_json(self, name: str, data: Any) -> None:
        """Replace a file as a whole."""
        with self._explained():
            temporary = self.work / f"{name}.new"
            with temporary.open("w", encoding="utf-8") as file:
                json.dump(data, file, indent=1, default=str)
                file.write("\n")
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.path / name)

    def reset(self, reason: str) -> None:
        """Make all outcomes so far void, e.g. because the configuration changed."""
        self._append({"reset": reason, "time": round(time.time(), 3)})
        self.outcomes, self._preds = {}, {}

    def keep(self, record: Record, results: Path | None, folder: str, model_name: str) -> None:
        """Record one outcome: first its files, then the record, then the predictions."""
        with self._explained():
            if results is not None and results.is_dir():
                target = self.path / folder
                if target.exists():
                    target.replace(self.work / f"{folder}.old-{time.monotonic_ns()}")
                results.replace(target)
        self._append(record)
        if record["status"] == _NO_OUTCOME:
            self.outcomes.pop(record["id"], None)
        else:
            self.outcomes[record["id"]] = record
        self.predict(model_name, [(record, folder)])

    def _append(self, record: Record) -> None:
        line = json.dumps(record).encode() + b"\n"
        with self._explained():
            end = os.fstat(self._status).st_size
            try:
                if os.write(self._status, line) != len(line):
                    raise OSError(errno.ENOSPC, "the disk is full")
                os.fsync(self._status)
            except OSError:
                os.ftruncate(self._status, end)
                raise

    def predict(self, model_name: str, records: list[tuple[Record, str]]) -> None:
        """Bring preds.json up to date. A task that failed for the machine's fault has no prediction."""
        for record, folder in records:
            self._preds.pop(record["id"], None)
            if record["class"] == "agent":
                patch = self._patch(folder) if record["status"] != "invalid_patch" else ""
                self._preds[record["id"]] = {
                    "instance_id": record["id"],
                    "model_name_or_path": model_name,
                    "model_patch": patch,
                }
        self.write_json("preds.json", self._preds)

    def _patch(self, folder: str) -> str:
        try:
            return (self.path / folder / "patch.diff").read_bytes().decode(errors="surrogateescape")
        except FileNotFoundError:
            return ""

    def close(self) -> None:
        """Remove what is of no use to anybody, and free the lock."""
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.rmtree(self.scratch, ignore_errors=True)
        os.close(self._status)
        os.close(self._lock)


def read_status(data: bytes) -> list[Record]:
    """The records of a status.jsonl; lines that are none are passed over: their tasks have no outcome."""
    records = []
    for line in data.splitlines():
        with contextlib.suppress(ValueError):
            record = json.loads(line)
            if isinstance(record, dict) and ("reset" in record or record.keys() >= FIELDS):
                records.append(record)
    return records


def latest(records: list[Record]) -> dict[str, Record]:
    """The last record of each task since the last reset, but for those of tasks that were cancelled."""
    found: dict[str, Record] = {}
    for record in records:
        if "reset" in record:
            found = {}
        elif record["status"] == _NO_OUTCOME:
            found.pop(record["id"], None)
        else:
            found[record["id"]] = record
    return found


def read_outcomes(path: Path) -> Mapping[str, Record]:
    """The outcomes in an output folder, without its lock.

    Raises:
        BenchError: there is no run.
    """
    try:
        return latest(read_status((path / "status.jsonl").read_bytes()))
    except OSError as error:
        raise BenchError(f"{path} holds no benchmark run: {error.strerror}; give the -o of one") from error
