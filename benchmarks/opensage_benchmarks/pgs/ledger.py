"""Records of a run, kept as they come: a run that is ended goes on where it was."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opensage.errors import ConfigError
from opensage.files import why


class Ledger:
    """A file of JSON lines: first the settings, then one record a job.

    A record holds the wall clock and the CPU time, this process's and its children's, since the one before it in the
    same process. So the sums over a group hold what it cost, also when it was interrupted.

    Raises:
        ConfigError: the file was made with other settings, or cannot be written.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path = path
        self.records: dict[tuple[str, str], dict[str, Any]] = {}
        lines = self._lines()
        if lines and lines[0] != settings:
            raise ConfigError(f"{path} was made with other settings ({_other(lines[0], settings)}): name another --out")
        for each in lines[1:]:
            self.records[each["group"], each["name"]] = each
        self._rewrite([dict(settings), *self.records.values()])
        self._last = _spent()

    def tick(self) -> None:
        """Start the clocks of the next record here."""
        self._last = _spent()

    def add(self, group: str, name: str, data: Mapping[str, Any]) -> None:
        """Keep a record, on the disk at once."""
        now = _spent()
        wall, cpu = (round(new - old, 3) for new, old in zip(now, self._last, strict=True))
        self._last = now
        record = {"group": group, "name": name, "wall": wall, "cpu": cpu, **data}
        self.records[group, name] = record
        try:
            with self.path.open("a") as file:
                file.write(json.dumps(record) + "\n")
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be written: {why(error)} and start again") from error

    def group(self, name: str) -> dict[str, dict[str, Any]]:
        """The records of a group, by the jobs' names."""
        return {job: record for (group, job), record in self.records.items() if group == name}

    def _lines(self) -> list[dict[str, Any]]:
        try:
            text = self.path.read_text() if self.path.exists() else ""
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{self.path} cannot be read ({error}): name another --out") from error
        return [each for line in text.splitlines() if (each := _parsed(line))]

    def _rewrite(self, lines: list[dict[str, Any]]) -> None:
        """Without a torn last line, which the next record would be glued to."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            new = self.path.with_suffix(".new")
            new.write_text("".join(json.dumps(each) + "\n" for each in lines))
            new.replace(self.path)
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be written: {why(error)} or name another --out") from error


def _parsed(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    fits = isinstance(found, dict) and ({"group", "name", "wall", "cpu"} <= found.keys() or "sandbox" in found)
    return found if fits else {}


def _other(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}: {there.get(key)}, now {wanted[key]}" for key in wanted if there.get(key) != wanted[key])


def _spent() -> tuple[float, float]:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return time.monotonic(), sum(each.ru_utime + each.ru_stime for each in used)
