"""A run where no terminal is: a table of its tasks, or the steps of one after another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from opensage_benchmarks.swe.report import console
from opensage_benchmarks.swe.view.look import COLUMNS, body, cells, headline, title, verdict_style
from opensage_benchmarks.swe.view.rows import Row, one_line
from opensage_benchmarks.swe.view.steps import read_steps

_LINES = {"system": 3, "result": 40, "note": 40}
"""Of a step of this kind that are printed."""


def show_rows(out: Path, rows: Sequence[Row]) -> None:
    """The tasks and how many are resolved."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in COLUMNS:
        words = name in ("task", "status", "resolved", "reason")
        table.add_column(name, justify="left" if words else "right", overflow="fold", no_wrap=not words)
    for row in rows:
        id, status, verdict, *numbers, reason = cells(row)
        table.add_row(*map(Text, (id, status)), Text(verdict, verdict_style(row)), *numbers, Text(one_line(reason, 80)))
    screen = console()
    screen.print(table)
    graded = [row for row in rows if row.resolved is not None]
    said = f"{sum(bool(row.resolved) for row in graded)} of {len(graded)} graded are resolved"
    screen.print(f"\n{len(rows)} tasks, {said}; one step by step: opensage bench view {out} ID", soft_wrap=True)


def show_task(row: Row) -> None:
    """What was done, step by step, and the patch."""
    screen = console()
    screen.print(headline(row), soft_wrap=True)
    for step in read_steps(row):
        screen.print()
        screen.print(title(step), soft_wrap=True)
        if step.text:
            screen.print(body(step, _LINES.get(step.kind)), soft_wrap=True)
