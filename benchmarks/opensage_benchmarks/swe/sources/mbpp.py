"""MBPP (Austin et al. 2021, "Program Synthesis with Large Language Models"), sanitized or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opensage_benchmarks.swe.errors import TaskError
from opensage_benchmarks.swe.records import Record
from opensage_benchmarks.swe.sources.base import FunctionSource, fields


class Mbpp(FunctionSource):
    """`sanitized-mbpp.json` or `mbpp.jsonl`.

    Args:
        path: the file.
        shown: how many of a task's asserts the agent is told; the function's name stands nowhere else. The paper shows
            all three, and then a solution may be made to fit them.
        skip_bad: whether bad records are left out.
    """

    name = "mbpp"

    def __init__(self, path: Path, *, shown: int = 1, skip_bad: bool = False) -> None:
        super().__init__(path, skip_bad=skip_bad)
        self._shown = shown

    @staticmethod
    def recognises(path: Path, record: Mapping[str, Any]) -> bool:
        """Whether a file with this first record is of this format."""
        return fields(record, "task_id", "code", "test_list")

    def identity(self, record: Record) -> str:
        """`mbpp/NUMBER`."""
        number = record.data.get("task_id")
        if not isinstance(number, int | str):
            raise TaskError(f"{record.place}: task_id must be a number")
        return f"mbpp/{number}"

    def problem(self, record: Record) -> str:
        """The task, and an assert that shows the function's name."""
        shown = "\n".join(_list(record, "test_list")[: self._shown])
        return (
            f"{record.wanted('prompt', 'text')}\nWrite it in solution.py. It must pass, among other tests:\n\n{shown}\n"
        )

    def start(self, record: Record) -> str:
        """An empty file."""
        return ""

    def reference(self, record: Record) -> str:
        """The reference program."""
        return record.wanted("code") + "\n"

    def check(self, record: Record) -> str:
        """The asserts, after their imports."""
        setup = [*_list(record, "test_imports"), record.text("test_setup_code")]
        return "\n".join((*setup, *_list(record, "test_list"), *_list(record, "challenge_test_list"))) + "\n"


def _list(record: Record, name: str) -> list[str]:
    value = record.data.get(name)
    if value is None:
        return []
    if not isinstance(value, Sequence) or isinstance(value, str) or not all(isinstance(each, str) for each in value):
        raise TaskError(f"{record.place}: {name} must be a list of texts")
    return list(value)
