"""Inputs from CrossHair, which follows a program's paths by a solver. The ordinary check alone judges them."""

from __future__ import annotations

import asyncio
import importlib.util
import shutil
import tempfile
from pathlib import Path
from typing import Any

from opensage.errors import ConfigError
from opensage.sandbox import SandboxLimits, open_sandbox
from opensage_agents.pgs.inside import codec
from opensage_agents.pgs.process import Ended, JsonProcess, install
from opensage_agents.pgs.properties import PropertySet
from opensage_agents.pgs.session import ANSWERS, PROCESSES

SOLVER_MB = 1024
START_SECONDS = 5.0
"""To start, beside the time for the properties."""
_MOST = 64
_INSIDE = ("codec", "space", "failures", "evaluation", "search", "driver", "worker", "propose")
_NEEDED = ("hypothesis", "sortedcontainers", "attr", "crosshair", "hypothesis_crosshair_provider", "z3",
           "typing_inspect", "typing_extensions", "mypy_extensions", "packaging")  # fmt: skip


def crosshair_folders() -> tuple[str, ...]:
    """Folders that hold CrossHair and what it needs.

    Raises:
        ConfigError: it is not installed; the message names the command.
    """
    specs = [importlib.util.find_spec(name) for name in _NEEDED]
    if any(spec is None or spec.origin is None for spec in specs):
        raise ConfigError("backend='crosshair' needs CrossHair: pip install 'opensage[pgs-crosshair]'")
    origins = [Path(str(spec.origin)) for spec in specs if spec is not None]
    folders = [each.parents[1] if each.name == "__init__.py" else each.parent for each in origins]
    return tuple(dict.fromkeys(map(str, folders)))


async def propose(code: str, propset: PropertySet, seconds: float, *, seed: int, sandbox: str) -> tuple[list[Any], str]:
    """Inputs, encoded, those that seem to fail first; and a note on how it went. `seconds` is for each property.

    Candidate and properties share a process here, so the candidate may hide or invent what it likes: an input that is
    proposed is no more than an input.

    Raises:
        ConfigError: CrossHair is not installed, or the properties are machines.
        SandboxError: no sandbox can be opened.
    """
    if propset.stateful:
        raise ConfigError("backend='crosshair' draws arguments of calls: leave it out for a machine")
    paths = crosshair_folders()
    root = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="opensage-pgs-"))
    job = {
        "text": propset.to_source(), "names": propset.names, "code": code, "entry": propset.entry, "cpu": 0,
        "adapter": propset.adapter, "seed": seed, "seconds": seconds, "solver_mb": SOLVER_MB,
    }  # fmt: skip
    try:
        install(root / "both", *_INSIDE)
        (root / "work").mkdir()
        limits = SandboxLimits(memory=2 * SOLVER_MB << 20, processes=PROCESSES, nice=0, file_size=64 << 20, output=4096)
        shown = [root / "both", *map(Path, paths)]
        box = open_sandbox(sandbox, root / "work", limits=limits, read_only=shown, hidden=[ANSWERS])
        try:
            whole = seconds * len(propset.names) + START_SECONDS
            return await _collected(JsonProcess(box, root / "both", "propose", whole + 30, paths), job, whole)
        finally:
            await box.close()
    finally:
        await asyncio.to_thread(shutil.rmtree, root, ignore_errors=True)


async def _collected(process: JsonProcess, job: dict[str, Any], seconds: float) -> tuple[list[Any], str]:
    failing: dict[str, Any] = {}
    others: dict[str, Any] = {}
    ended = "the time was over"
    await process.start()
    try:
        async with asyncio.timeout(seconds):
            await process.send(job)
            while True:
                said = await process.receive(seconds)
                if "args" not in said:
                    ended = str(said.get("done", "it broke off"))[:300]
                    break
                if _is_arguments(said["args"]):
                    kind = failing if said.get("fails") else others
                    kind.setdefault(repr(said["args"]), said["args"])
                    while len(kind) > _MOST:
                        kind.pop(next(iter(kind)))
    except TimeoutError:
        pass
    except Ended as error:
        ended = str(error)
    finally:
        await process.stop()
    found = list((failing | others).values())
    note = f"crosshair proposed {len(found)} inputs" + (f", then ended: {ended}" if ended else "")
    return found, note


def _is_arguments(data: Any) -> bool:
    """Whether it is a tuple that can be decoded: a candidate can write there too."""
    try:
        return isinstance(codec.decode(data), tuple)
    except (ValueError, RecursionError):
        return False
