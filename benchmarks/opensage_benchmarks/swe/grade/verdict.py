"""From results of tests to a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from opensage_benchmarks.swe.grade.results import PASSING, Results, find
from opensage_benchmarks.swe.task import Task

FAIL_TO_PASS, PASS_TO_PASS = "FAIL_TO_PASS", "PASS_TO_PASS"
_TAMPERED = "what the tests hang on was replaced while they ran: {}"


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the test command, as it ended.

    Attributes:
        exit_code: of the command.
        tests: id → PASSED, FAILED, ERROR, SKIPPED or XFAIL.
        aliases: other ids → id.
        seconds: id → time.
        trouble: why nothing can be concluded; empty when it can.
    """

    exit_code: int
    tests: Mapping[str, str] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    trouble: str = ""
    duration: float = 0.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a patch is worth.

    Attributes:
        status: "resolved", "unresolved", "empty_patch", "invalid_patch", "error" (the tests did not come to an end:
            the candidate's doing, or a broken task) or "infra_error" (no sandbox, no disk, a task that does not fit).
        reason: for all but the first two.
        tests: list of ids → "success" and "failure" → ids, in the task's order.
        missing_tests: ids that did not run; they are failures too.
        flaky: ids with different outcomes in several runs; the first run counts.
        applied_by: the command that applied the patch.
        put_back: files of the patch that steer the tests and were given the base's content.
        runs: what was measured.
    """

    task_id: str
    status: str
    reason: str = ""
    tests: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    missing_tests: Sequence[str] = ()
    flaky: Sequence[str] = ()
    applied_by: str = ""
    put_back: Sequence[str] = ()
    runs: Sequence[Run] = field(default=(), repr=False)
    seconds: float = 0.0

    @property
    def resolved(self) -> bool:
        """Whether every test that must pass passed."""
        return self.status == "resolved"

    @property
    def completed(self) -> bool:
        """Whether tests ran to their end."""
        return self.status in ("resolved", "unresolved")

    def as_record(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Verdict:
        """The inverse of `as_record`."""
        return cls(**{**record, "runs": tuple(Run(**run) for run in record.get("runs", ()))})


def run_of(results: Results, exit_code: int, timed_out: bool, seconds: float, said: str) -> Run:
    """A run of pytest under the driver."""
    trouble = _trouble(results, exit_code, said)
    if timed_out:
        trouble = f"the tests did not end within {seconds:.0f} s"
    return Run(exit_code, results.tests, results.aliases, results.seconds, trouble, round(seconds, 3))


def _trouble(results: Results, exit_code: int, said: str) -> str:
    if results.ended is None or results.broken:
        what = "its results stopped half-way" if results.tests else "it reported nothing"
        return f"pytest did not come to its end (exit code {exit_code}, {what}): {said}"
    if results.tampered:
        return _TAMPERED.format(", ".join(results.tampered[:3]))
    if results.uncollected:
        place, text = next(iter(results.uncollected.items()))
        return f"{place} could not be collected: {_last(text)}"
    if results.ended not in (0, 1):
        return f"pytest ended with exit code {results.ended}: {said}"
    failed = any(status in ("FAILED", "ERROR") for status in results.tests.values())
    if exit_code != results.ended or (exit_code == 0) == failed:
        return f"the exit code {exit_code} does not fit what the tests reported"
    return ""


def _last(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1].strip()[:300] if lines else "no reason was given"


def run_of_command(task: Task, exit_code: int, timed_out: bool, seconds: float, said: str) -> Run:
    """A run of a command whose exit code speaks for all tests."""
    ids = (*task.fail_to_pass, *task.pass_to_pass) or ("command",)
    trouble = f"the tests did not end within {seconds:.0f} s" if timed_out else ""
    if exit_code in (126, 127) or exit_code < 0:
        trouble = trouble or f"the test command ended with exit code {exit_code}: {said}"
    return Run(
        exit_code, dict.fromkeys(ids, "PASSED" if exit_code == 0 else "FAILED"), trouble=trouble, duration=seconds
    )


def judge(task: Task, runs: Sequence[Run], **more: Any) -> Verdict:
    """The verdict on a patch that applied and was tested once or more.

    Every id of FAIL_TO_PASS must have PASSED or XFAIL; of PASS_TO_PASS, SKIPPED will do too, as swebench 5 has it. A
    test that did not run is a failure. Without ids, every test that was found must pass, and there must be one.
    """
    first = runs[0]
    if first.trouble:
        return Verdict(task.id, "error", first.trouble, runs=tuple(runs), **more)
    wanted, maintained = task.fail_to_pass, task.pass_to_pass
    if not wanted and not maintained:
        wanted = tuple(first.tests)
        if not wanted:
            return Verdict(task.id, "error", "no test was found", runs=tuple(runs), **more)
    tests = {
        FAIL_TO_PASS: _sorted(first, wanted, PASSING),
        PASS_TO_PASS: _sorted(first, maintained, (*PASSING, "SKIPPED")),
    }
    missing = tuple(id for id in (*wanted, *maintained) if find(id, first.tests, first.aliases) is None)
    failed = any(lists["failure"] for lists in tests.values())
    flaky = tuple(
        id for id in (*wanted, *maintained) if len({find(id, r.tests, r.aliases) in PASSING for r in runs}) > 1
    )
    status = "unresolved" if failed else "resolved"
    return Verdict(task.id, status, "", tests, missing, flaky, runs=tuple(runs), **more)


def _sorted(run: Run, ids: Sequence[str], enough: Sequence[str]) -> dict[str, list[str]]:
    lists: dict[str, list[str]] = {"success": [], "failure": []}
    for id in dict.fromkeys(ids):
        lists["success" if find(id, run.tests, run.aliases) in enough else "failure"].append(id)
    return lists
