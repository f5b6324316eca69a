"""The tasks of an output folder, each with what is known of it. Nothing in the folder is trusted to be whole."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opensage.cli.stream import clean
from opensage.files import read_regular
from opensage_benchmarks.swe.errors import BenchError
from opensage_benchmarks.swe.predictions import read_predictions
from opensage_benchmarks.swe.run.folder import latest, read_status

MOST = 256 << 20
"""Bytes of a file that is read at all."""
UNREADABLE = (OSError, ValueError, RecursionError, MemoryError)


@dataclass(frozen=True, slots=True)
class Row:
    """A task of a run. What nobody recorded is None.

    Attributes:
        folder: where its files are; it need not be there.
        status: as in status.jsonl; "running" or "not started" without an outcome, "predicted" with a patch alone.
        tokens: read and written.
        cost: US dollars.
        seconds: wall time.
        patch: a unified diff.
        reason: why it ended, in one line.
    """

    id: str
    folder: Path
    status: str
    resolved: bool | None = None
    calls: int | None = None
    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None
    patch: str = ""
    reason: str = ""

    @property
    def verdict(self) -> str:
        """What the grader said, for people."""
        return "not graded" if self.resolved is None else "yes" if self.resolved else "no"

    @property
    def patch_lines(self) -> int:
        """Lines that the patch adds or removes."""
        lines = self.patch.splitlines()
        return sum(line[:1] in ("+", "-") and not line.startswith(("+++ ", "--- ")) for line in lines)


def shown(text: str) -> str:
    """Text that can be shown: no secrets, no escapes or control characters, nothing that is no Unicode."""
    return clean(text).encode("utf-8", "backslashreplace").decode()


def one_line(text: str, most: int = 300) -> str:
    """The same in one line of bounded length."""
    line = " ".join(shown(text[: most * 4]).split())
    return line if len(line) <= most else f"{line[: most - 3]}..."


def load(path: Path) -> Any:
    """A JSON file of bounded size.

    Raises:
        OSError, ValueError, RecursionError, MemoryError: one of `UNREADABLE`.
    """
    return json.loads(read_regular(path, MOST).decode("utf-8", "surrogateescape"))


def read_rows(out: Path) -> list[Row]:
    """The tasks, those with an outcome first, in the order in which they ended.

    Raises:
        BenchError: there is no run.
    """
    if out.is_file():
        patches = _predicted(out)
        return [Row(shown(id), out.parent / _folder(id), "predicted", patch=patch) for id, patch in patches.items()]
    outcomes = _outcomes(out)
    patches = {}
    with contextlib.suppress(BenchError):
        patches = _predicted(out / "preds.json")
    verdicts = _verdicts(out)
    found = {id: _ended(out, record, patches.get(id), verdicts.get(id)) for id, record in outcomes.items()}
    taken = {row.folder.name for row in found.values()}
    for row in (*_trajectories(out, taken, patches, verdicts), *_waiting(out)):
        found.setdefault(row.id, row)
    for id, patch in patches.items():
        found.setdefault(id, Row(shown(id), out / _folder(id), "predicted", verdicts.get(id), patch=patch))
    if not found:
        raise BenchError(f"{out} holds no benchmark run; give the -o of one, or a file of predictions")
    return list(found.values())


def the_one(rows: Sequence[Row], id: str) -> Row:
    """The task with this id, or the only one whose id holds it.

    Raises:
        BenchError: there is none, or there are several.
    """
    found = [row for row in rows if row.id == id] or [row for row in rows if id in row.id]
    if len(found) == 1:
        return found[0]
    names = ", ".join(one_line(row.id, 80) for row in (found or rows)[:5])
    said = f"{len(found)} tasks have" if found else "no task has"
    raise BenchError(f"{said} {one_line(id, 80)!r} in the id; there are {names}{'...' if len(rows) > 5 else ''}")


def _folder(id: str) -> str:
    """A name below the run's folder, whatever the id is."""
    name = id.replace("/", "__").replace("\0", "")
    return "_" if name in ("", ".", "..") else name


def _outcomes(out: Path) -> dict[str, dict[str, Any]]:
    try:
        records = read_status(read_regular(out / "status.jsonl", MOST))
    except UNREADABLE:
        return {}
    return latest([each for each in records if "reset" in each or isinstance(each.get("id"), str)])


def _predicted(path: Path) -> dict[str, str]:
    return {id: made.patch for id, made in read_predictions(path, None).by_id.items()}


def _verdicts(out: Path) -> dict[str, bool]:
    """What summaries of evaluations and reports of single tasks say, the latter last."""
    found: dict[str, bool] = {}
    paths = [path for path in sorted(out.glob("*.json")) if path.name not in ("preds.json", "run.json")]
    for path in (*paths, *sorted(out.glob("grades/*.json"))):
        with contextlib.suppress(*UNREADABLE):
            found |= _judged(load(path))
    return found


def _judged(value: Any) -> dict[str, bool]:
    if not isinstance(value, Mapping):
        return {}
    if isinstance(value.get("resolved_ids"), list):
        sent = value.get("submitted_ids")
        sent = sent if isinstance(sent, list) else []
        both = ((sent, False), (value["resolved_ids"], True))
        return {id: said for ids, said in both for id in ids if isinstance(id, str)}
    reports = ((id, each.get("resolved")) for id, each in value.items() if isinstance(each, Mapping))
    return {id: said for id, said in reports if isinstance(said, bool)}


def _ended(out: Path, record: Mapping[str, Any], patch: str | None, verdict: bool | None) -> Row:
    folder = out / _folder(record["id"])
    resolved = record.get("resolved")
    tokens = [_number(record["input_tokens"]), _number(record["output_tokens"])]
    calls = _number(record["model_calls"])
    return Row(
        id=shown(record["id"]),
        folder=folder,
        status=one_line(str(record["status"]), 40),
        resolved=resolved if isinstance(resolved, bool) else verdict,
        calls=None if calls is None else int(calls),
        tokens=None if None in tokens else int(sum(each or 0 for each in tokens)),
        cost=_number(record["cost"]),
        seconds=_number(record["wall_s"]),
        patch=_patch_in(folder) if patch is None else patch,
        reason=one_line(str(record["reason"])),
    )


def _number(value: Any) -> float | None:
    """A number that is one."""
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    with contextlib.suppress(OverflowError):
        return float(value) if plain and math.isfinite(value) else None
    return None


def _patch_in(folder: Path) -> str:
    with contextlib.suppress(*UNREADABLE):
        return read_regular(folder / "patch.diff", MOST).decode("utf-8", "surrogateescape")
    return ""


def _trajectories(
    out: Path, taken: set[str], patches: Mapping[str, str], verdicts: Mapping[str, bool]
) -> Iterator[Row]:
    """Tasks that have a trajectory and no outcome: mini-swe-agent writes no status.jsonl."""
    for path in sorted(out.glob("*/*.traj.json")):
        name = path.parent.name
        if path.name == f"{name}.traj.json" and name not in taken:
            id = next((id for id in patches if _folder(id) == name), name)
            yield _foreign(path, id, patches, verdicts)


def _foreign(path: Path, id: str, patches: Mapping[str, str], verdicts: Mapping[str, bool]) -> Row:
    info: Any = {}
    reason = ""
    try:
        whole = load(path)
        info = whole.get("info") if isinstance(whole, Mapping) else {}
    except UNREADABLE as error:
        reason = one_line(f"{path.name} cannot be read: {error}")
    info = info if isinstance(info, Mapping) else {}
    stats = info.get("model_stats")
    stats = stats if isinstance(stats, Mapping) else {}
    calls = _number(stats.get("api_calls"))
    said = info.get("submission")
    return Row(
        id=shown(id),
        folder=path.parent,
        status=one_line(str(info.get("exit_status") or "unknown"), 40),
        resolved=verdicts.get(id),
        calls=None if calls is None else int(calls),
        cost=_number(stats.get("instance_cost")),
        patch=patches.get(id) or _patch_in(path.parent) or (said if isinstance(said, str) else ""),
        reason=reason,
    )


def _waiting(out: Path) -> Iterator[Row]:
    """Tasks that run at the moment, and those that the last run still has before it."""
    ids: list[str] = []
    with contextlib.suppress(*UNREADABLE, LookupError, TypeError):
        ids = [id for id in load(out / "run.json")["runs"][-1]["tasks"] if isinstance(id, str)]
    for id in ids:
        running = (out / ".work" / _folder(id)).is_dir()
        folder = out / ".work" / _folder(id) if running else out / _folder(id)
        yield Row(shown(id), folder, "running" if running else "not started")
