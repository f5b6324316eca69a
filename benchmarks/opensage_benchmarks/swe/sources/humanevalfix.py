"""HumanEvalFix (Muennighoff et al. 2023, "OctoPack"): a function with one bug, and what it should do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opensage_benchmarks.swe.records import Record
from opensage_benchmarks.swe.sources.base import FunctionSource, fields


class HumanEvalFix(FunctionSource):
    """The Python part of `humanevalpack.jsonl`."""

    name = "humanevalfix"

    @staticmethod
    def recognises(path: Path, record: Mapping[str, Any]) -> bool:
        """Whether a file with this first record is of this format."""
        return fields(record, "declaration", "buggy_solution", "canonical_solution", "test")

    def problem(self, record: Record) -> str:
        """What the function should do; neither the kind of bug nor its symptom, which the record holds too."""
        name, purpose = record.wanted("entry_point"), record.wanted("docstring", "text")
        wanted = f"The function `{name}` in solution.py has a bug. Fix it so that it meets this description."
        return f"{wanted}\n\n{purpose.strip()}"

    def start(self, record: Record) -> str:
        """The function with its bug."""
        return record.wanted("declaration") + record.wanted("buggy_solution")

    def reference(self, record: Record) -> str:
        """The function as it should be."""
        return record.wanted("declaration") + record.wanted("canonical_solution")

    def check(self, record: Record) -> str:
        """The record's test, which calls itself."""
        return record.wanted("test")
