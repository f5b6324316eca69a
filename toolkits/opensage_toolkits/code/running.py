"""Runs tests and says which failed where: pytest and unittest by their reports, other programs by their exit code."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .process import Ended, run

FAILURES = 20
_MESSAGE = 600
_TAIL = 3000
_REPORT = 32 << 20
_PLACE = re.compile(r"^(?:E\s+)?(?:File \")?([^\s:\"<>]+\.[A-Za-z]{1,4})(?:\", line |:)(\d+)", re.MULTILINE)
_ASSERTED = re.compile(r"^(?:>\s+|\s*)(assert .+|self\.assert\w+\(.+)$", re.MULTILINE)
_UNITTEST = Path(__file__).with_name("unittest_report.py")


@dataclass(slots=True)
class Failure:
    """A test that failed. `assertion` is its line of code, `message` begins with what the runner said."""

    test: str
    kind: str
    file: str
    line: int | None
    message: str
    assertion: str = ""


@dataclass(slots=True)
class TestReport:
    """What a run came to. `status`: passed, failed, timeout, none (no test ran), error (the runner itself failed)."""

    runner: str
    status: str
    exit_code: int
    seconds: float
    passed: int = 0
    failed: int = 0
    errors: int = 0
    skipped: int = 0
    failures: list[Failure] = field(default_factory=list)
    output: str = ""

    def shown(self) -> dict[str, Any]:
        """As a tool returns it."""
        row = asdict(self)
        row["failures"] = [{k: v for k, v in one.items() if v not in ("", None)} for one in row["failures"][:FAILURES]]
        left = len(self.failures) - FAILURES
        return {**row, **({"more_failures": left} if left > 0 else {})}


def run_tests(command: str = "", path: str = "", seconds: float = 120.0, root: Path | str = ".") -> TestReport:
    """Run tests.

    Args:
        command: a shell command; without it pytest where it is installed, else unittest.
        path: file, folder or test id for them.
        seconds: time limit.
        root: the workspace.

    Raises:
        ValueError: the path begins with a dash, or both a command of another kind and a path are given.
    """
    if path.startswith("-"):
        raise ValueError(f"{path!r} is no path")
    words = _words(command)
    kind = _kind(words) if command else _installed(root)
    if kind == "command" and path:
        raise ValueError("path is for pytest and unittest: write it into the command")
    with tempfile.TemporaryDirectory(prefix="opensage-tests-") as folder:
        report = Path(folder) / "report"
        begun = time.monotonic()
        done = _started(kind, words, command, path, seconds, root, report)
        taken = round(time.monotonic() - begun, 2)
        if kind == "pytest":
            return _from_pytest(report, done, taken, root)
        return _from_unittest(report, done, taken, root) if kind == "unittest" else _from_code(done, taken)


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # the shell will say what is wrong with it
        return []


def _kind(words: list[str]) -> str:
    """Pytest and unittest where the whole command is a call of one of them; a command for the shell else."""
    if not words or any(set(word) & set("|;&<>$`*?") or "=" in word.split("/")[0][:1] for word in words):
        return "command"
    program = words[0].rpartition("/")[2]
    if program in ("pytest", "py.test"):
        return "pytest"
    if re.fullmatch(r"python[\d.]*", program) and words[1:2] == ["-m"] and words[2:3] in (["pytest"], ["unittest"]):
        return words[2]
    return "command"


def _installed(root: Path | str) -> str:
    return "pytest" if run([python(root), "-c", "import pytest"], root, 30).code == 0 else "unittest"


def python(root: Path | str = ".") -> str:
    """The Python of the workspace: that of its environment, the one on the path, else this one."""
    own = [os.path.join(os.path.realpath(root), name, "bin", "python") for name in (".venv", "venv")]
    for place in (*own, shutil.which("python"), shutil.which("python3")):
        if place and os.path.isfile(place) and os.access(place, os.X_OK):
            return place
    return sys.executable


def _started(
    kind: str, words: list[str], command: str, path: str, seconds: float, root: Path | str, report: Path
) -> Ended:
    paths = [path] if path else []
    if kind == "pytest":
        argv = words or [python(root), "-m", "pytest", "-q", "--tb=short"]
        if shutil.which(argv[0]) is None:  # installed without its script
            argv = [python(root), "-m", "pytest", *argv[1:]]
        return run([*argv, *paths, f"--junitxml={report}", "-o", "junit_family=xunit1"], root, seconds)
    if kind == "unittest":
        argv, rest = (words[:1], words[3:]) if words else ([python(root)], [])
        if rest[:1] == ["discover"]:
            return run(command, root, seconds)
        return run([*argv, str(_UNITTEST), str(report), *rest, *paths], root, seconds)
    return run(command, root, seconds)


def _from_pytest(report: Path, done: Ended, taken: float, root: Path | str) -> TestReport:
    made = TestReport("pytest", "error", done.code, taken, output=_tail(done.output))
    cases = list(_cases(report))
    for case in cases:
        kind, element = _outcome(case)
        if kind == "passed":
            made.passed += 1
        elif kind == "skipped":
            made.skipped += 1
        else:
            made.failed += kind == "failed"
            made.errors += kind == "error"
            made.failures.append(_failure(case, kind, element, root))
    return _finished(made, done)


def _finished(made: TestReport, done: Ended) -> TestReport:
    ran = made.passed + made.failed + made.errors + made.skipped
    if done.late:
        made.status = "timeout"
    elif made.failures:
        made.status = "failed"
    elif done.code == 0 and ran:
        made.status = "passed"
    elif not ran and (done.code in (0, 5)):
        made.status = "none"
    if made.status in ("passed", "failed"):
        made.output = ""
    return made


def _cases(report: Path) -> Iterator[ElementTree.Element]:
    """Test cases of a JUnit report; none where it was not written whole. The tests may have written what they like."""
    try:
        if report.stat().st_size > _REPORT:
            return
        data = report.read_bytes()
        if b"<!DOCTYPE" in data or b"<!ENTITY" in data:
            return
        yield from ElementTree.fromstring(data).iter("testcase")
    except (OSError, ElementTree.ParseError):
        return


def _outcome(case: ElementTree.Element) -> tuple[str, ElementTree.Element]:
    for tag, kind in (("failure", "failed"), ("error", "error"), ("skipped", "skipped")):
        found = case.find(tag)
        if found is not None:
            return kind, found
    return "passed", case


def _failure(case: ElementTree.Element, kind: str, element: ElementTree.Element, root: Path | str) -> Failure:
    text = element.text or ""
    name = "::".join(filter(None, (case.get("file") or case.get("classname", ""), case.get("name", ""))))
    places = [(file, int(line)) for file, line in _PLACE.findall(text) if _own(file, root)]
    file, line = places[-1] if places else (case.get("file", ""), _number(case.get("line")))
    asserted = _ASSERTED.findall(text)
    message = (element.get("message") or text).strip()
    if message == "collection failure":
        message = "\n".join(line[1:].strip() for line in text.splitlines() if line.startswith("E ")) or text.strip()
    return Failure(name, kind, _relative(file, root), line, message[:_MESSAGE], asserted[-1][:300] if asserted else "")


def _number(text: str | None) -> int | None:
    return int(text) + 1 if text and text.isdigit() else None


def _own(file: str, root: Path | str) -> bool:
    """Whether a file is of the workspace, not of a library."""
    full = Path(root, file)
    return "site-packages" not in full.parts and full.is_file()


def _relative(file: str, root: Path | str) -> str:
    home = os.path.realpath(root) + os.sep
    return file.removeprefix(home)


def _from_unittest(report: Path, done: Ended, taken: float, root: Path | str) -> TestReport:
    made = TestReport("unittest", "error", done.code, taken, output=_tail(done.output))
    try:
        rows = json.loads(report.read_bytes()[:_REPORT])
    except (OSError, ValueError):
        rows = {}
    if not isinstance(rows, dict) or not isinstance(rows.get("failures"), list):
        return _finished(made, done)
    made.passed, made.skipped = int(rows.get("passed", 0)), int(rows.get("skipped", 0))
    for row in rows["failures"]:
        made.failed += row["kind"] == "failed"
        made.errors += row["kind"] == "error"
        file, line = row.get("file", ""), row.get("line")
        text = (row["message"][:_MESSAGE], row.get("assertion", "")[:300])
        made.failures.append(Failure(row["test"], row["kind"], _relative(file, root), line, *text))
    return _finished(made, done)


def _from_code(done: Ended, taken: float) -> TestReport:
    status = "timeout" if done.late else "passed" if done.code == 0 else "failed"
    made = TestReport("command", status, done.code, taken, output=_tail(done.output))
    if status == "failed":
        places = [(file, int(line)) for file, line in _PLACE.findall(done.output)]
        made.failures = [Failure("", "failed", file, line, "") for file, line in dict.fromkeys(places[:FAILURES])]
    return made


def _tail(text: str) -> str:
    return text if len(text) <= _TAIL else f"[...] {text[-_TAIL:]}"
