"""Looking at a run: a table of its tasks, one task step by step, an inspector for a terminal, and one HTML page."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from opensage_benchmarks.swe.view.rows import read_rows, the_one


def view(out: Path, id: str = "", html: Path | None = None) -> None:
    """Show a run in the terminal, interactively where that is possible, or write it to a page.

    Args:
        out: a run's folder, also of mini-swe-agent, or a file of predictions.
        id: the task to show; without one, all are listed.
        html: the page to write.

    Raises:
        BenchError: there is no run, no such task, or the page cannot be written.
    """
    rows = read_rows(out)
    chosen = the_one(rows, id) if id else None
    if html is not None:
        from opensage_benchmarks.swe.view.page import write_page

        print(write_page(html, out, rows if chosen is None else [chosen]))
    elif _interactive():
        from opensage_benchmarks.swe.view.screen import Inspector

        Inspector(out, rows, chosen).run()
    else:
        from opensage_benchmarks.swe.view.plain import show_rows, show_task

        show_rows(out, rows) if chosen is None else show_task(chosen)


def _interactive() -> bool:
    """Whether there is a terminal that can be drawn on, and what draws on it."""
    terminal = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    return terminal and importlib.util.find_spec("textual") is not None
