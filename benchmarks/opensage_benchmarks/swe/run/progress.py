"""How far a run is: a bar on a terminal, lines without one, JSON on demand."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress as Bar


class Progress(Protocol):
    """Is told what happens in a run."""

    def begin(self, total: int, done: Sequence[Mapping[str, Any]]) -> None:
        """So many tasks, of which some have an outcome from before."""

    def start(self, id: str) -> None:
        """A task begins."""

    def finish(self, record: Mapping[str, Any], cost: float | None) -> None:
        """A task has an outcome; `cost` is that of the run so far, None when unknown."""

    def say(self, text: str) -> None:
        """Something that a person should know."""

    def end(self) -> None:
        """The run is over."""


class SilentProgress:
    """Says nothing."""

    def begin(self, total: int, done: Sequence[Mapping[str, Any]]) -> None:
        """Nothing."""

    def start(self, id: str) -> None:
        """Nothing."""

    def finish(self, record: Mapping[str, Any], cost: float | None) -> None:
        """Nothing."""

    def say(self, text: str) -> None:
        """Nothing."""

    def end(self) -> None:
        """Nothing."""


class Tally:
    """Counts of a run, its rate and what is left."""

    def __init__(self) -> None:
        self.total = self.finished = self.now = self.patches = self.graded = self.resolved = 0
        self.statuses: Counter[str] = Counter()
        self.cost: float | None = 0.0
        self.began = time.monotonic()

    def add(self, record: Mapping[str, Any]) -> None:
        """Count an outcome."""
        self.finished += 1
        self.statuses[str(record["status"])] += 1
        self.patches += record["patch_bytes"] > 0
        if record.get("resolved") is not None:
            self.graded += 1
            self.resolved += bool(record["resolved"])

    def left_s(self) -> float | None:
        """Seconds until the end, when the rest takes as long as this run's tasks did."""
        left = self.total - self.finished
        return (time.monotonic() - self.began) / self.now * left if self.now else None

    def text(self) -> str:
        """Counts in a line."""
        parts = [f"{count} {status}" for status, count in self.statuses.most_common()]
        if self.graded:
            parts.insert(0, f"{self.resolved}/{self.graded} resolved ({self.resolved / self.graded:.0%})")
        parts.append("cost unknown" if self.cost is None else f"${self.cost:.4g}")
        return ", ".join(parts)


class LineProgress:
    """A line for each outcome."""

    def __init__(self, out: IO[str] | None = None) -> None:
        self._out = out or sys.stderr
        self.tally = Tally()

    def begin(self, total: int, done: Sequence[Mapping[str, Any]]) -> None:
        """Say what there is to do."""
        self.tally.total = total
        for record in done:
            self.tally.add(record)
        self.say(f"{total} tasks" + (f", {len(done)} have an outcome" if done else ""))

    def start(self, id: str) -> None:
        """Nothing: outcomes are enough."""

    def finish(self, record: Mapping[str, Any], cost: float | None) -> None:
        """Say how a task ended."""
        self._count(record, cost)
        left = self.tally.left_s()
        when = f", about {clock(left)} left" if left else ""
        why = f" ({record['reason']})" if record["reason"] else ""
        status = f"{record['id']}: {record['status']}{why}"
        self.say(f"[{self.tally.finished}/{self.tally.total}] {status}; {self.tally.text()}{when}")

    def _count(self, record: Mapping[str, Any], cost: float | None) -> None:
        self.tally.now += 1
        self.tally.cost = cost
        self.tally.add(record)

    def say(self, text: str) -> None:
        """Write a line."""
        encoding = getattr(self._out, "encoding", None) or "utf-8"
        print(text.encode(encoding, "replace").decode(encoding), file=self._out)
        self._out.flush()

    def end(self) -> None:
        """Nothing."""


class JsonProgress(LineProgress):
    """One event a line."""

    def __init__(self, out: IO[str] | None = None) -> None:
        super().__init__(out or sys.stdout)

    def begin(self, total: int, done: Sequence[Mapping[str, Any]]) -> None:
        """`run.started`."""
        self.tally.total = total
        for record in done:
            self.tally.add(record)
        self._event("bench.started", total=total, finished=len(done))

    def start(self, id: str) -> None:
        """`task.started`."""
        self._event("task.started", id=id)

    def finish(self, record: Mapping[str, Any], cost: float | None) -> None:
        """`task.finished`, with the record."""
        self._count(record, cost)
        self._event("task.finished", **record, finished=self.tally.finished, total=self.tally.total, run_cost=cost)

    def say(self, text: str) -> None:
        """`note`."""
        self._event("note", text=text)

    def _event(self, type: str, **data: Any) -> None:
        print(json.dumps({"type": type, **data}), file=self._out, flush=True)


class BarProgress(LineProgress):
    """A bar with what is left, cost and counts."""

    _bar: Bar

    def begin(self, total: int, done: Sequence[Mapping[str, Any]]) -> None:
        """Draw it."""
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        self._bar = Bar(*columns, TextColumn("{task.description}", markup=False), console=Console(file=self._out))
        self.tally.total = total
        for record in done:
            self.tally.add(record)
        self._id = self._bar.add_task(self.tally.text(), total=total, completed=len(done))
        self._bar.start()

    def finish(self, record: Mapping[str, Any], cost: float | None) -> None:
        """Move it."""
        self._count(record, cost)
        self._bar.update(self._id, advance=1, description=self.tally.text())

    def say(self, text: str) -> None:
        """Write a line above it."""
        self._bar.console.print(text, markup=False, highlight=False)

    def end(self) -> None:
        """Leave it as it is."""
        self._bar.stop()


def clock(seconds: float) -> str:
    """E.g. `1:02:03`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def open_progress(*, json_lines: bool = False, out: IO[str] | None = None) -> Progress:
    """The one that fits: JSON when asked for, a bar on a terminal, lines elsewhere."""
    if json_lines:
        return JsonProgress(out)
    stream = out or sys.stderr
    return BarProgress(stream) if stream.isatty() else LineProgress(stream)
