"""The two sandboxes of a check: one for the candidate, one for the judge, and the talk between them."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opensage.errors import ConfigError
from opensage.protocols import Sandbox
from opensage.sandbox import SandboxLimits, open_sandbox
from opensage_agents.pgs.candidate import Candidate, InvalidCode, patience
from opensage_agents.pgs.process import Ended, JsonProcess, install

THOUGHT = 4.5
"""Seconds that the judge may think between two questions: 20 of wall clock, more on a busy machine."""
PROCESSES = 24
_JUDGE = ("codec", "space", "failures", "evaluation", "search", "machine", "sequences", "driver")
ANSWERS = Path(__file__).with_name("quixbugs")
"""Properties of programs that may be the candidate. Where the kit is installed, the interpreter's folders show them."""
_NEEDED = ("hypothesis", "sortedcontainers", "attr")


class Silent(Exception):
    """The judge does not answer: a property or the strategy does not end."""


@dataclass(slots=True)
class Bench:
    """Where one check runs."""

    root: Path
    judge: JsonProcess
    candidate_box: Sandbox
    seconds: float
    so_far: dict[str, Any] | None = None
    """What the judge would say if the time ended now."""

    def candidate(self, code: str, entry: str, adapter: str) -> Candidate:
        """A version of the code under test. One at a time: `stop` it before the next."""
        return Candidate(self.candidate_box, self.root / "candidate", entry, code, adapter, self.seconds)

    async def talk(self, job: dict[str, Any], candidate: Candidate | None, versions: list[Candidate]) -> dict[str, Any]:
        """Give the judge its job and answer its questions until it is done.

        Raises:
            Silent: it does not say anything for too long.
        """
        await self.judge.send(job)
        while True:
            try:
                said = await self.judge.receive(patience(THOUGHT))
            except (TimeoutError, Ended) as error:
                raise Silent(str(error) or "nothing for too long") from error
            if "done" in said:
                return dict(said["done"])
            if "so_far" in said:
                self.so_far = dict(said["so_far"])
                await self.judge.send({})
            elif "load" in said:
                candidate = await _changed(candidate, versions[int(said["load"])])
                await self.judge.send({"ok": candidate is not None})
            elif "call" in said and candidate is not None:
                await self.judge.send(await candidate.call(said["call"], float(said["cpu"]), bool(said["fresh"])))
            elif "object" in said and candidate is not None:
                await self.judge.send(await candidate.ask(dict(said["object"]), float(said["cpu"])))
            elif "restart" in said and candidate is not None:
                await candidate.stop()
                await self.judge.send({})
            else:
                raise Silent("it broke off")


async def _changed(old: Candidate | None, new: Candidate) -> Candidate | None:
    if old is not None:
        await old.stop()
    try:
        await new.start()
    except InvalidCode:
        await new.stop()
        return None
    return new


@contextlib.asynccontextmanager
async def bench(kind: str, memory_mb: int, seconds: float) -> AsyncIterator[Bench]:
    """Open both sandboxes; everything in them ends with the block.

    Raises:
        ConfigError: Hypothesis is not installed.
        SandboxUnavailable: nothing of this kind works here.
    """
    paths = hypothesis_folders()
    root = Path(tempfile.mkdtemp(prefix="opensage-pgs-"))
    boxes: list[Sandbox] = []
    try:
        for name, modules in (("candidate", ("codec", "worker")), ("judge", _JUDGE)):
            install(root / name, *modules)
            (root / f"{name}-work").mkdir()
            memory = max(64, memory_mb) if name == "candidate" else 1024
            limits = SandboxLimits(memory=memory << 20, processes=PROCESSES, nice=0, file_size=64 << 20, output=4096)
            shown = [root / name, *(map(Path, paths) if name == "judge" else ())]
            work = root / f"{name}-work"
            boxes.append(open_sandbox(kind, work, limits=limits, read_only=shown, hidden=[ANSWERS]))
        judge = JsonProcess(boxes[1], root / "judge", "driver", seconds + 120, paths)
        await judge.start()
        try:
            yield Bench(root, judge, boxes[0], seconds)
        finally:
            await judge.stop()
    finally:
        await asyncio.gather(*(box.close() for box in boxes))
        await asyncio.to_thread(shutil.rmtree, root, ignore_errors=True)


def hypothesis_folders() -> tuple[str, ...]:
    """Folders that hold Hypothesis and what it needs.

    Raises:
        ConfigError: it is not installed; the message names the command.
    """
    specs = [importlib.util.find_spec(name) for name in _NEEDED]
    if specs[0] is None or specs[0].origin is None:
        raise ConfigError("checking properties needs Hypothesis: pip install 'opensage[pgs]'")
    found = [str(Path(spec.origin).parents[1]) for spec in specs if spec is not None and spec.origin is not None]
    return tuple(dict.fromkeys(found))


class Clock:
    """Seconds since the start."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def __call__(self) -> float:
        """Seconds."""
        return round(time.monotonic() - self._start, 3)
