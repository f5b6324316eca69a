"""What people see of a run, an evaluation, a validation, a comparison: tables, and JSON beside them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from opensage_benchmarks.swe.compare import Rate, compare, wilson
from opensage_benchmarks.swe.errors import BenchError
from opensage_benchmarks.swe.run.folder import read_outcomes
from opensage_benchmarks.swe.run.summary import Summary, summarise

if TYPE_CHECKING:
    from opensage_benchmarks.swe.grade.evaluate import Progress as Told
    from opensage_benchmarks.swe.grade.evaluate import Summary as Evaluation
    from opensage_benchmarks.swe.grade.verdict import Verdict
    from opensage_benchmarks.swe.validate import Validation


def console() -> Console:
    """The terminal, or plain text of a fixed width where there is none."""
    return Console(width=None if sys.stdout.isatty() else 110, highlight=False)


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for place, name in enumerate(columns):
        table.add_column(name, justify="left" if place == 0 else "right", overflow="fold")
    return table


@contextlib.contextmanager
def counting(what: str, total: int, *, quiet: bool = False) -> Iterator[Told]:
    """A bar with how many are graded, resolved, and the time left; a line for each where there is no terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    terminal = Console(stderr=True)
    resolved = 0
    with Progress(*columns, console=terminal, disable=quiet or not terminal.is_terminal) as bars:
        bar = bars.add_task(what, total=total)

        def told(verdict: Verdict, _done: int, _all: int) -> None:
            nonlocal resolved
            resolved += verdict.resolved
            bars.update(bar, advance=1, description=f"{what}, {resolved} resolved")
            if not quiet and not terminal.is_terminal:
                print(f"{verdict.task_id}: {verdict.status}", file=sys.stderr, flush=True)

        yield told


def show_run(out: Path, summary: Summary) -> None:
    """A run: what came of its tasks, what it cost."""
    table = _table(str(out), "")
    for name, value in _run_rows(summary):
        table.add_row(name, value)
    console().print(table)


def _run_rows(summary: Summary) -> Iterator[tuple[str, str]]:
    yield "tasks finished", f"{summary.finished} of {summary.tasks}"
    if summary.resolved is not None:
        yield "resolved", _rate(wilson(summary.resolved, summary.graded))
    yield "ended by a limit", str(summary.limits_hit)
    for status, number in sorted(summary.statuses.items()):
        yield f"  {status}", str(number)
    yield "errors of the machine", str(summary.classes.get("infra", 0))
    yield "patches", str(summary.patches)
    yield "model calls, tool calls", f"{summary.model_calls:,}, {summary.tool_calls:,}"
    yield "tokens read, written", f"{summary.input_tokens:,}, {summary.output_tokens:,}"
    unknown = f" and {summary.unknown_price} tasks of unknown price" if summary.unknown_price else ""
    yield "cost, US dollars", f"{summary.cost:.2f}{unknown}"
    yield "wall time, CPU time, s", f"{summary.wall_s:.0f}, {summary.cpu_s:.0f}"
    if summary.median:
        yield (
            "a task, median: s, calls, tokens",
            ", ".join(f"{summary.median[name]:,.0f}" for name in ("wall_s", "model_calls", "tokens")),
        )
    if summary.budget:
        yield "stopped", f"{summary.budget}; not started: {len(summary.not_started)}"


def _rate(rate: Rate) -> str:
    interval = f"95 % interval {100 * rate.low:.0f} to {100 * rate.high:.0f}"
    return f"{rate.resolved} of {rate.total} ({100 * rate.rate:.0f} %, {interval})"


def show_evaluation(found: Evaluation) -> None:
    """Each task's verdict, then the sums."""
    table = _table("task", "verdict", "tests that fail", "s")
    for id, verdict in found.verdicts.items():
        failing = sum(len(lists["failure"]) for lists in verdict.tests.values())
        table.add_row(id, verdict.status, str(failing or ""), f"{verdict.seconds:.1f}")
    screen = console()
    screen.print(table)
    screen.print(f"resolved: {_rate(wilson(found.resolved, len(found.verdicts)))}" if found.verdicts else "no verdicts")
    screen.print(f"report: {found.path}", soft_wrap=True)


def show_validation(found: Validation, *, as_json: bool) -> None:
    """How many references pass, how many tasks fail without one, and which tasks are no good."""
    if as_json:
        figures = {
            "gold": {id: verdict.status for id, verdict in found.gold.items()},
            "empty": {id: verdict.status for id, verdict in found.empty.items()},
            "bad": found.bad,
            "flaky": {id: list(tests) for id, tests in found.flaky.items()},
        }
        print(json.dumps(figures, indent=1))
        return
    screen = console()
    for name, verdicts in (("references", found.gold), ("without a patch", found.empty)):
        if verdicts:
            screen.print(f"{name}: {sum(v.resolved for v in verdicts.values())} of {len(verdicts)} resolved")
    for id, why in found.bad.items():
        screen.print(f"{id}: {why}", soft_wrap=True)
    for id, tests in found.flaky.items():
        screen.print(f"{id}: flaky: {', '.join(tests)}", soft_wrap=True)


def show_report(where: Path, *, as_json: bool) -> None:
    """A run's folder, or the summary of an evaluation."""
    if where.is_dir() and (where / "status.jsonl").exists():
        summary = summarise(where)
        if as_json:
            print(json.dumps(summary.to_dict(), indent=1))
        else:
            show_run(where, summary)
        return
    record = graded(where)
    if as_json:
        print(json.dumps(record, indent=1))
        return
    table = _table(str(where), "")
    for name, value in record.items():
        if name.endswith("_instances"):
            table.add_row(name.removesuffix("_instances").replace("_", " "), str(value))
    table.add_row("resolved", _rate(wilson(len(record["resolved_ids"]), len(record["submitted_ids"]))))
    console().print(table)


def graded(where: Path) -> Mapping[str, Any]:
    """The resolved and the submitted tasks of a graded run's folder, of an evaluation's folder or of its summary.

    Raises:
        BenchError: nothing is graded there, or there are several summaries.
    """
    if not where.is_dir():
        from opensage_benchmarks.swe.grade.reports import read_summary

        return read_summary(where)
    if (where / "status.jsonl").exists():
        judged = {id: each for id, each in read_outcomes(where).items() if each.get("resolved") is not None}
        if judged:
            resolved = sorted(id for id, each in judged.items() if each["resolved"])
            return {"submitted_ids": sorted(judged), "resolved_ids": resolved}
    summaries = [path for path in sorted(where.glob("*.json")) if _is_summary(path)]
    if len(summaries) != 1:
        several = f"there are {len(summaries)} summaries, name one" if summaries else "grade it: run --grade, or eval"
        raise BenchError(f"{where}: nothing to compare; {several}")
    return graded(summaries[0])


def _is_summary(path: Path) -> bool:
    try:
        return isinstance(json.loads(path.read_text(encoding="utf-8")).get("resolved_ids"), list)
    except (OSError, ValueError, AttributeError):
        return False


def show_comparison(a: Path, b: Path, *, as_json: bool) -> None:
    """A beside B, with what only one of them resolves."""
    found = compare(graded(a), graded(b))
    if as_json:
        print(json.dumps(dataclasses.asdict(found), indent=1))
        return
    table = _table("", "resolved")
    table.add_row(f"A: {a}", _rate(found.a))
    table.add_row(f"B: {b}", _rate(found.b))
    interval = f"95 % interval {100 * found.low:+.0f} to {100 * found.high:+.0f}"
    table.add_row("A less B (Newcombe 1998)", f"{100 * found.difference:+.0f} points, {interval}")
    table.add_row("p, paired and exact (McNemar)", f"{found.p_value:.3f}")
    screen = console()
    screen.print(table)
    for name, ids in (("only A", found.only_a), ("only B", found.only_b)):
        screen.print(f"{name}: {', '.join(ids) or 'none'}", soft_wrap=True)
    for name, ids in (("not in A", found.missing_in_a), ("not in B", found.missing_in_b)):
        if ids:
            screen.print(f"{name}, left out: {', '.join(ids)}", soft_wrap=True)
