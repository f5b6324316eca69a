"""How rows and steps look: words and colours that the plain output and the inspector share."""

from __future__ import annotations

from rich.text import Text

from opensage_benchmarks.swe.view.rows import Row
from opensage_benchmarks.swe.view.steps import Step

COLUMNS = ("task", "status", "resolved", "calls", "tokens", "cost", "s", "patch", "reason")
_STYLES = {
    "system": "dim",
    "task": "bold magenta",
    "assistant": "bold green",
    "call": "bold cyan",
    "result": "dim",
    "note": "yellow",
    "patch": "bold",
}
_VERDICTS = {True: "green", False: "red", None: "dim"}


def cells(row: Row) -> tuple[str, ...]:
    """One for each of `COLUMNS`; nothing where nothing is known."""
    return (
        row.id,
        row.status,
        row.verdict,
        "" if row.calls is None else f"{row.calls:,}",
        "" if row.tokens is None else f"{row.tokens:,}",
        "" if row.cost is None else f"{row.cost:.4f}",
        "" if row.seconds is None else f"{row.seconds:.0f}",
        str(row.patch_lines),
        row.reason,
    )


def verdict_style(row: Row) -> str:
    """Of everything that says whether a task is resolved."""
    return _VERDICTS[row.resolved]


def headline(row: Row) -> Text:
    """The facts of a task in one or two lines."""
    _, status, verdict, calls, tokens, cost, seconds, patch, reason = cells(row)
    facts = (
        (status, ""),
        ("not graded" if row.resolved is None else f"resolved: {verdict}", ""),
        (calls, " calls"),
        (tokens, " tokens"),
        (cost and f"$ {cost}", ""),
        (seconds, " s"),
        (patch, " patch lines"),
    )
    text = Text().append(row.id, style="bold")
    text.append("  " + ", ".join(f"{value}{unit}" for value, unit in facts if value), style=verdict_style(row))
    return text.append(f"\n{reason}", style="yellow") if reason else text


def body(step: Step, most: int | None = None) -> Text:
    """The text of a step, its first `most` lines with a note of how many more there are."""
    lines = step.text.split("\n")
    kept = lines if most is None or len(lines) <= most else lines[:most]
    text = diff(kept) if step.kind == "patch" else Text("\n".join(kept))
    if len(kept) < len(lines):
        text.append(f"\n... {len(lines) - len(kept):,} more lines", style="dim italic")
    return text


def title(step: Step) -> Text:
    """The line above a step."""
    mark = {"call": "> ", "result": "< "}.get(step.kind, "")
    return Text().append(f"{mark}{step.title}", style=_STYLES[step.kind])


def diff(lines: list[str]) -> Text:
    """A unified diff in colours."""
    text = Text()
    for number, line in enumerate(lines):
        text.append(f"\n{line}" if number else line, style=_diff_style(line))
    return text


def _diff_style(line: str) -> str:
    if line.startswith(("diff ", "--- ", "+++ ", "index ")):
        return "bold"
    return {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
