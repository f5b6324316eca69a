"""What can be wrong with a benchmark run, each with the fix in its message."""

from __future__ import annotations

from opensage.errors import OpenSageError


class BenchError(OpenSageError):
    """A benchmark cannot go on."""


class TaskError(BenchError):
    """A file of tasks or predictions, or a record in it, cannot be read."""


class MissingRepo(BenchError):
    """The repository that a task starts from is not at hand."""


class PatchError(BenchError):
    """A patch is no diff, leaves the tree, or does not apply."""


class BudgetSpent(BenchError):
    """A cap of the task or of the run is reached; no further model call is made."""


class OutputLocked(BenchError):
    """Another run writes to the same output folder."""
