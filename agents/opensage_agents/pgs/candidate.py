"""Calls of a candidate, each with one outcome, whatever the candidate does."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opensage.protocols import ExecResult, Sandbox
from opensage_agents.pgs.process import Ended, JsonProcess

OUTCOMES = ("ok", "crashed", "recursion", "timeout", "hung")
"""What one call can come to: "timeout" has used its CPU time, "hung" has used none and not answered either."""
LOAD_SECONDS = 5.0
"""CPU time to load the candidate."""
_SIGPROF = -27
_ANSWER = ("outcome", "value", "after", "message", "line", "raises")


class InvalidCode(Exception):
    """The candidate cannot be called at all."""

    def __init__(self, text: str, line: int | None = None) -> None:
        super().__init__(text if line is None else f"line {line}: {text}")
        self.line = line


def patience(cpu: float) -> float:
    """Seconds of wall clock for CPU time: a busy machine must not make a candidate slow."""
    busy = os.getloadavg()[0] / (os.cpu_count() or 1)
    return (4 * cpu + 2) * min(4.0, max(1.0, busy))


@dataclass(slots=True)
class Candidate:
    """One version of the code under test. Started by the first call, and again after each death."""

    sandbox: Sandbox
    folder: Path
    entry: str
    code: str
    adapter: str = ""
    total: float = 60.0
    arity: tuple[int, int | None] | None = None
    _process: JsonProcess | None = None
    _number: int = field(default=0)

    async def start(self) -> None:
        """Load the code.

        Raises:
            InvalidCode: it cannot be loaded, or has no such function.
        """
        await self.stop()
        self._process = process = JsonProcess(self.sandbox, self.folder, "worker", self.total + 30)
        await process.start()
        setup = {"code": self.code, "entry": self.entry, "adapter": self.adapter, "cpu": LOAD_SECONDS}
        await process.send(setup)
        try:
            said = await process.receive(patience(LOAD_SECONDS))
        except TimeoutError:
            raise InvalidCode("loading it does not end") from None
        except Ended as error:
            raise InvalidCode(f"loading it {_death(error.result)[1]}") from None
        if "ready" not in said:
            line = said.get("line")
            raise InvalidCode(str(said.get("invalid", said))[:500], line if isinstance(line, int) else None)
        self.arity = _arity(said["ready"])

    async def call(self, args: Any, cpu: float, fresh: bool = False) -> dict[str, Any]:
        """One call: `{"outcome", "value"?, "after"?, "message"?, "line"?}`, values as the codec's data."""
        return await self.ask({"args": args, "fresh": fresh}, cpu)

    async def ask(self, request: dict[str, Any], cpu: float) -> dict[str, Any]:
        """A call, or what a machine asks of an object; of an exception also `"raises"`, the names of its classes."""
        if self._process is None:
            try:
                await self.start()
            except InvalidCode as error:  # it could be loaded before
                return {"outcome": "crashed", "message": f"on the second start: {error}"}
        process = self._process
        assert process is not None
        self._number += 1
        await process.send({**request, "id": self._number, "cpu": cpu})
        try:
            said = await process.receive(patience(cpu * (1 + len(request.get("before", ())))))
        except TimeoutError:
            said = {"outcome": "hung", "message": "waits, or does not let its CPU time be counted"}
        except Ended as error:
            outcome, text = _death(error.result)
            text = f"more than {cpu:g} s of CPU time" if outcome == "timeout" else text
            said = {"outcome": outcome, "message": text}
        if said.get("id") != self._number or said.get("outcome") not in OUTCOMES:
            await self.stop()
            if "outcome" not in said:
                said = {"outcome": "crashed", "message": "it wrote into the pipe that its answers go through"}
        return {key: said[key] for key in _ANSWER if key in said}

    async def stop(self) -> None:
        """End its process."""
        if self._process is not None:
            await self._process.stop()
            self._process = None


def _death(result: ExecResult) -> tuple[str, str]:
    if result.exit_code == _SIGPROF:
        return "timeout", "uses too much CPU time"
    note = next((line for line in result.stderr.splitlines() if "killed:" in line), "")
    if note:
        return "crashed", f"ends the process: {note.strip()}"
    if result.exit_code < 0:
        return "crashed", f"ends the process by signal {-result.exit_code}"
    return "crashed", f"ends the process with exit code {result.exit_code}"


def _arity(said: Any) -> tuple[int, int | None] | None:
    if not isinstance(said, list) or len(said) != 2 or not isinstance(said[0], int):
        return None
    return said[0], said[1] if isinstance(said[1], int) else None
