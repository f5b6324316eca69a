"""A run as one HTML page that needs nothing else: no network, no files, every text escaped."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from opensage.files import why
from opensage_benchmarks.swe.errors import BenchError
from opensage_benchmarks.swe.records import write_whole
from opensage_benchmarks.swe.view.look import COLUMNS, cells
from opensage_benchmarks.swe.view.rows import Row, shown
from opensage_benchmarks.swe.view.steps import Step, cut, read_steps

PAGE = 48_000_000
"""Characters that the steps of all tasks take at most, about."""
_TASK = (20_000, 400_000)
"""Least and most characters of one task."""
_TEXTS = (20_000, 4_000, 800, 200)
"""Characters of one step: the first of these with which the task fits."""


def write_page(target: Path, out: Path, rows: Sequence[Row]) -> str:
    """Write the page, whole or not at all; returns what was written, in a line.

    Raises:
        BenchError: it cannot be written.
    """
    page = "".join(_page(out, rows))
    try:
        write_whole(target, page)
    except OSError as error:
        raise BenchError(f"cannot write {target}: {why(error)}, or choose another --html") from error
    return f"{len(rows)} tasks in {target}, {len(page) / 1e6:.1f} MB"


def _page(out: Path, rows: Sequence[Row]) -> Iterator[str]:
    folder = Path(__file__).parent
    style, script = ((folder / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    name = html.escape(shown(str(out)))
    policy = f"default-src 'none'; base-uri 'none'; form-action 'none'; style-src {_hash(style)}; "
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}script-src {_hash(script)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{name}</title>\n<style>{style}</style>\n</head>\n<body>\n<h1>{name}</h1>\n<p id=counts></p>\n"
        "<form id=filters><input type=search id=search placeholder='search ids, reasons, trajectories'"
        " aria-label=search><select id=status aria-label=status><option value=''>every status</option></select>"
        "<select id=resolved aria-label=resolved><option value=''>resolved or not</option>"
        "<option>yes</option><option>no</option><option>not graded</option></select></form>\n"
        "<noscript>This page needs JavaScript; it loads nothing.</noscript>\n"
        "<table><thead><tr id=columns></tr></thead><tbody id=tasks></tbody></table>\n"
    )
    yield _data("index", {"columns": COLUMNS, "rows": [cells(row) for row in rows]})
    budget = max(_TASK[0], min(_TASK[1], PAGE // max(1, len(rows))))
    for number, row in enumerate(rows):
        yield _data(f"task-{number}", [(step.kind, step.title, step.text) for step in _within(row, budget)])
    yield f"<script>{script}</script>\n</body>\n</html>\n"


def _hash(text: str) -> str:
    """What the page's policy calls a script or a style that may stand in it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _data(id: str, value: Any) -> str:
    """JSON in which no text can end the element it stands in."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f'<script type="application/json" id="{id}">{text}</script>\n'


def _within(row: Row, budget: int) -> list[Step]:
    """The steps of a task, long texts cut, and the middle left out where that does not do."""
    steps = read_steps(row)
    made: list[Step] = []
    for most in _TEXTS:
        made = [Step(step.kind, step.title, cut(step.text, most)) for step in steps]
        if sum(_size(step) for step in made) <= budget:
            return made
    count = max(1, budget // (2 * max(map(_size, made))))
    note = Step("note", f"{len(made) - 2 * count} steps are left out; the trajectory has them", "")
    return [*made[:count], note, *made[-count:]] if len(made) > 2 * count else made


def _size(step: Step) -> int:
    return len(step.title) + len(step.text) + 30
