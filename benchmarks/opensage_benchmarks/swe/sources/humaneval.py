"""HumanEval (Chen et al. 2021, "Evaluating Large Language Models Trained on Code"): a function from its docstring."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opensage_benchmarks.swe.records import Record
from opensage_benchmarks.swe.sources.base import FunctionSource, fields


class HumanEval(FunctionSource):
    """`HumanEval.jsonl`, gzipped or not."""

    name = "humaneval"

    @staticmethod
    def recognises(path: Path, record: Mapping[str, Any]) -> bool:
        """Whether a file with this first record is of this format."""
        return fields(record, "prompt", "canonical_solution", "entry_point", "test") and "buggy_solution" not in record

    def problem(self, record: Record) -> str:
        """The task, and the function's head."""
        name = record.wanted("entry_point")
        wanted = f"Complete the function `{name}` in solution.py so that it does what its docstring says."
        return f"{wanted}\n\n{self.start(record)}"

    def start(self, record: Record) -> str:
        """The prompt: imports, helpers, and a function that is only its docstring."""
        return record.wanted("prompt")

    def reference(self, record: Record) -> str:
        """The prompt and the canonical body."""
        return self.start(record) + record.wanted("canonical_solution")

    def check(self, record: Record) -> str:
        """The record's `check`, called with the function. Some copies call it themselves."""
        return f"{record.wanted('test')}\n\ncheck({record.wanted('entry_point')})\n"
