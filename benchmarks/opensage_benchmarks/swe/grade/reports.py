"""Reports in the two shapes of swebench 5, so that whatever reads its results reads ours.

For each task `logs/run_evaluation/RUN/MODEL/ID/` holds `report.json` (unless the tests came to no end, as there),
`test_output.txt`, `run_instance.log`, `patch.diff` and `eval.sh`; beside them `result.json` has everything that the
verdict was made from, and `junit.xml` the tests. The summary is `MODEL.RUN.json`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from opensage_benchmarks.swe.errors import BenchError
from opensage_benchmarks.swe.grade.verdict import Run, Verdict
from opensage_benchmarks.swe.records import write_whole

SCHEMA = 2
_LISTS = ("completed", "resolved", "unresolved", "infra_failure", "ambiguous_failure", "empty_patch", "error")
_START, _END, _CODE = ">>>>> Start Test Output", ">>>>> End Test Output", ">>>>> Test Exit Code"
_NOT_XML = {number: None for number in range(32) if number not in (9, 10, 13)} | {0xFFFE: None, 0xFFFF: None}


@dataclass(frozen=True, slots=True)
class Place:
    """Where the reports of one task are."""

    folder: Path

    @property
    def result(self) -> Path:
        """What the verdict was made from."""
        return self.folder / "result.json"

    @property
    def report(self) -> Path:
        """The report of swebench's form."""
        return self.folder / "report.json"

    @property
    def patch(self) -> Path:
        """The patch as it came."""
        return self.folder / "patch.diff"


def folder_name(name: str) -> str:
    """A model's or task's name as a folder, as swebench has it.

    Raises:
        BenchError: no folder can have that name.
    """
    made = name.replace("/", "__")
    if not made or made in (".", "..") or "\0" in made or len(made.encode(errors="replace")) > 200:
        raise BenchError(f"{name[:60]!r} cannot name a folder: give the model another name")
    return made


def logs_folder(out: Path, run_id: str, model: str) -> Path:
    """The folder of all tasks of one model in one run."""
    return out / "logs" / "run_evaluation" / folder_name(run_id) / folder_name(model)


def instance_report(verdict: Verdict) -> dict[str, Any]:
    """The report of one task."""
    report: dict[str, Any] = {
        "patch_is_None": False,
        "patch_exists": verdict.status != "empty_patch",
        "patch_successfully_applied": bool(verdict.applied_by),
        "resolved": verdict.resolved,
        "infra_failure": verdict.status == "infra_error",
    }
    if verdict.completed:
        nothing: dict[str, list[str]] = {"success": [], "failure": []}
        report["tests_status"] = {**verdict.tests, "FAIL_TO_FAIL": nothing, "PASS_TO_FAIL": nothing}
    if verdict.missing_tests:
        report["missing_tests"] = list(verdict.missing_tests)
    return {verdict.task_id: report}


def write_instance(place: Place, verdict: Verdict, patch: str, log: str, output: str, script: str) -> None:
    """Write everything of one task; `result.json`, which says that it is finished, comes last."""
    place.folder.mkdir(parents=True, exist_ok=True)
    place.patch.write_bytes(patch.encode("utf-8", "surrogateescape"))
    texts = {"run_instance.log": log, "eval.sh": script, "test_output.txt": _output(verdict, output)}
    if verdict.runs:
        texts["junit.xml"] = junit(verdict.task_id, verdict.runs[0])
    for name, text in texts.items():
        (place.folder / name).write_text(text, encoding="utf-8", errors="backslashreplace")
    write_verdict(place, verdict)


def write_verdict(place: Place, verdict: Verdict) -> None:
    """Write `report.json` where swebench has one, and `result.json`."""
    if verdict.completed:
        write_json(place.report, instance_report(verdict))
    else:
        place.report.unlink(missing_ok=True)
    write_json(place.result, verdict.as_record())


def _output(verdict: Verdict, output: str) -> str:
    """Statuses in a form that swebench's own parsers read come first: what a candidate printed comes after them."""
    if not verdict.runs:
        return output
    run = verdict.runs[0]
    lines = [f"{status} {id}" for id, status in run.tests.items()]
    head = "\n".join([_START, *lines, _END, f"{_CODE}: {run.exit_code}"])
    return f"{head}\n\n{run.trouble and f'>>>>> Tests Errored: {run.trouble}'}\n\n{output}"


def junit(name: str, run: Run) -> str:
    """Results as JUnit's XML, made here from what the driver reported, never by the candidate's process."""
    suite = ElementTree.Element("testsuite", name=_xml(name), tests=str(len(run.tests)), time=str(run.duration))
    for id, status in run.tests.items():
        place, _, test = id.rpartition("::")
        attributes = {"classname": _xml(place), "name": _xml(test), "time": str(run.seconds.get(id, 0.0))}
        case = ElementTree.SubElement(suite, "testcase", attributes)
        if status in ("FAILED", "ERROR", "SKIPPED"):
            ElementTree.SubElement(case, {"FAILED": "failure", "ERROR": "error", "SKIPPED": "skipped"}[status])
    return ElementTree.tostring(suite, encoding="unicode") + "\n"


def _xml(text: str) -> str:
    return text.translate(_NOT_XML).encode("utf-8", "backslashreplace").decode()


def read_verdict(place: Place) -> Verdict | None:
    """A finished task's verdict; None when there is none, or it was cut off."""
    try:
        return Verdict.of_record(json.loads(place.result.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def summary(verdicts: Iterable[Verdict], task_ids: Iterable[str], submitted: Iterable[str]) -> dict[str, Any]:
    """The summary of one run of one model.

    Args:
        verdicts: of the tasks that have a prediction.
        task_ids: of all tasks.
        submitted: of all predictions, those for unknown tasks included.
    """
    verdicts, tasks, sent = list(verdicts), sorted(set(task_ids)), sorted(set(submitted))
    ids: dict[str, list[str]] = {name: [] for name in _LISTS}
    for verdict in verdicts:
        for name in _lists_of(verdict):
            ids[name].append(verdict.task_id)
    done = {verdict.task_id for verdict in verdicts}
    counts = {f"{name}_instances": len(ids[name]) for name in _LISTS}
    named = {f"{name}_ids": sorted(ids[name]) for name in _LISTS}
    reasons = {v.task_id: v.reason for v in sorted(verdicts, key=lambda v: v.task_id) if v.reason and not v.completed}
    return {
        "total_instances": len(tasks),
        "submitted_instances": len(sent),
        **counts,
        **named,
        "incomplete_ids": [id for id in tasks if id not in done],
        "submitted_ids": sent,
        "failure_reasons": reasons,
        "schema_version": SCHEMA,
    }


def _lists_of(verdict: Verdict) -> tuple[str, ...]:
    """The lists of the summary that a task is in."""
    match verdict.status:
        case "resolved":
            return ("completed", "resolved")
        case "unresolved":
            return ("completed", "unresolved")
        case "empty_patch":
            return ("empty_patch",)
        case "infra_error":
            return ("error", "infra_failure")
        case "error":
            return ("error", "ambiguous_failure")
        case _:
            return ("error",)


def write_json(path: Path, value: object) -> None:
    """Write a file whole or not at all. Only ASCII is written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(value, indent=4) + "\n")


def read_summary(where: Path | Mapping[str, Any]) -> dict[str, Any]:
    """A summary from its file, or as it is.

    Raises:
        BenchError: it is none of this form.
    """
    try:
        value = dict(where) if isinstance(where, Mapping) else json.loads(where.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BenchError(f"{where}: no summary of an evaluation: {error}") from error
    if not isinstance(value, dict) or not isinstance(value.get("resolved_ids"), list):
        raise BenchError(f"{where}: no summary of an evaluation: MODEL.RUN.json with resolved_ids is wanted")
    return value
