"""Agents without a model: one that writes the reference, one that does nothing. For the runner's own tests."""

from __future__ import annotations

from opensage_benchmarks.swe.agent import Assignment, Attempt, Gate
from opensage_benchmarks.swe.errors import PatchError
from opensage_benchmarks.swe.git import git, said


class Gold:
    """Applies the reference patch, which only this agent is given."""

    name = "gold"

    async def solve(self, work: Assignment, gate: Gate) -> Attempt:
        """Apply it.

        Raises:
            PatchError: it does not apply.
        """
        patch = work.options.get("reference", "")
        if patch.strip():
            done = git("apply", "-", folder=work.workdir, stdin=patch.encode(errors="surrogateescape"), check=False)
            if done.returncode != 0:
                raise PatchError(f"the reference does not apply: {said(done)}")
        return Attempt("done")


class Empty:
    """Does nothing."""

    name = "empty"

    async def solve(self, work: Assignment, gate: Gate) -> Attempt:
        """Nothing."""
        return Attempt("done")
