"""Programs that models wrote, run in the kit's sandbox; what they give is compared outside of it."""

from __future__ import annotations

import ast
import json
import math
import secrets
import tempfile
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from types import TracebackType
from typing import Any

from opensage.protocols import Sandbox
from opensage.sandbox import SandboxLimits, open_sandbox
from opensage_agents.selfplay.proposal import Case, Proposal

CALL_SECONDS = 2.0
_MIB = 1 << 20
_LIMITS = SandboxLimits(
    memory=512 * _MIB, processes=16, file_size=16 * _MIB, scratch=64 * _MIB, timeout=60, output=512 << 10
)


@dataclass(slots=True)
class Judge(AbstractAsyncContextManager["Judge"]):
    """Runs programs. The expected values never enter the sandbox, so a program cannot look them up.

    Args:
        kind: as `opensage.sandbox.open_sandbox` takes it.
        seconds: of one call.
    """

    kind: str = "auto"
    seconds: float = CALL_SECONDS
    _folder: tempfile.TemporaryDirectory[str] | None = None
    _box: Sandbox | None = None
    _driver: str = field(init=False, default="")

    async def __aenter__(self) -> Judge:
        self._folder = tempfile.TemporaryDirectory(prefix="opensage-selfplay-")
        try:
            self._box = open_sandbox(self.kind, Path(self._folder.name), limits=_LIMITS)
        except BaseException:
            self._folder.cleanup()
            raise
        self._driver = resources.files("opensage_agents.selfplay").joinpath("inside_driver.py").read_text("utf-8")
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._box is not None:
            await self._box.close()
        if self._folder is not None:
            self._folder.cleanup()

    async def passed(self, program: str, cases: Sequence[Case]) -> list[bool]:
        """Which tests the program passes; none if it breaks, hangs or says nothing.

        Raises:
            SandboxError: the sandbox cannot be used.
        """
        if self._box is None:
            raise RuntimeError("a judge is used in an `async with` block")
        if not program:
            return [False] * len(cases)
        mark = secrets.token_hex(16)
        job = {"code": program, "calls": [case.call for case in cases], "seconds": self.seconds, "mark": mark}
        command = [self._box.python or "python3", "-I", "-S", "-B", "-c", self._driver]
        result = await self._box.exec(
            command, stdin=json.dumps(job).encode(), timeout=self.seconds * (len(cases) + 1) + 10
        )
        rows = _rows(result.stdout, mark, len(cases))
        return [row is not None and same(row, case.expected) for row, case in zip(rows, cases, strict=True)]

    async def checked(self, proposal: Proposal) -> Proposal:
        """The proposal with the tests that its reference passes; no problem when those are fewer than two."""
        if not proposal.valid:
            return proposal
        marks = await self.passed(proposal.reference, proposal.cases)
        cases = tuple(case for case, fine in zip(proposal.cases, marks, strict=True) if fine)
        if len(cases) < 2:
            return replace(proposal, cases=cases, reason=f"its reference passes {len(cases)} of {len(marks)} tests")
        if len({case.expected for case in cases}) < 2:
            return replace(proposal, cases=cases, reason="all its tests want the same result")
        return replace(proposal, cases=cases)


def _rows(output: str, mark: str, number: int) -> list[str | None]:
    """What each call gave, as source; None where it failed. The mark keeps other prints apart."""
    line = next((line for line in reversed(output.splitlines()) if line.startswith(mark)), "")
    try:
        found = json.loads(line.removeprefix(mark)) if line else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or len(found) != number:
        return [None] * number
    return [row[1] if _fine(row) else None for row in found]


def _fine(row: Any) -> bool:
    return isinstance(row, list) and len(row) == 2 and row[0] is True and isinstance(row[1], str)


def same(got: str, expected: str) -> bool:
    """Whether two literals are equal; floats to 1e-6, a bool is no number, a list no tuple."""
    try:
        return _equal(ast.literal_eval(got), ast.literal_eval(expected))
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return False


def _equal(got: Any, want: Any) -> bool:
    if isinstance(got, bool) or isinstance(want, bool):
        return got is want
    if isinstance(got, float) or isinstance(want, float):
        both = isinstance(got, int | float) and isinstance(want, int | float)
        return both and math.isclose(got, want, rel_tol=1e-6, abs_tol=1e-9)
    if isinstance(got, list | tuple) and type(got) is type(want):
        return len(got) == len(want) and all(map(_equal, got, want))
    return type(got) is type(want) and bool(got == want)
