"""The local grader: a fresh checkout, the patch, the task's tests, in a sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from opensage.errors import SandboxError, SandboxUnavailable
from opensage.protocols import Sandbox
from opensage.sandbox import SandboxLimits, open_sandbox
from opensage_benchmarks.swe.errors import BenchError, PatchError
from opensage_benchmarks.swe.grade.checkout import Built, build, remove_tree
from opensage_benchmarks.swe.grade.results import Results
from opensage_benchmarks.swe.grade.verdict import Run, Verdict, judge, run_of, run_of_command
from opensage_benchmarks.swe.images import sandbox_for
from opensage_benchmarks.swe.patch import as_patch
from opensage_benchmarks.swe.task import Task, TaskSource, TestPlan
from opensage_benchmarks.swe.workspace import prepare

TEST_SECONDS = 60.0
COMMAND_SECONDS = 1800.0
_INSTALL = "pip install 'opensage[bench]', or use an image that has it"
_ENVIRONMENT = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "1"}
_DRIVER = Path(__file__).with_name("driver.py")


@dataclass(slots=True)
class Log:
    """What is written down of one grading, for a person."""

    lines: list[str] = field(default_factory=list)
    output: str = ""
    script: str = ""

    def add(self, text: str) -> None:
        """A line of the log."""
        self.lines.append(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {text.rstrip()}")


@dataclass(frozen=True, slots=True)
class Grader:
    """Grades patches of the tasks of one source.

    Attributes:
        source: of the tasks.
        sandbox: a kind of the kit's; a task whose image is present is tested in it unless another kind is asked for.
        test_timeout: seconds for one test (by pytest-timeout), 0 for no limit.
        command_timeout: seconds for all tests of a task, unless its plan says otherwise.
        reruns: how often the tests run; more than once marks flaky ones.
        limits: of the sandbox.
    """

    source: TaskSource
    sandbox: str = "auto"
    test_timeout: float = TEST_SECONDS
    command_timeout: float = COMMAND_SECONDS
    reruns: int = 1
    limits: SandboxLimits = field(default_factory=SandboxLimits)

    async def grade(self, task: Task, patch: str | None, log: Log | None = None) -> Verdict:
        """The verdict on a patch. What candidates can do wrong is a status, never an exception.

        Raises:
            OpenSageError: what only a person can mend, such as an unknown kind of sandbox.
        """
        log = log or Log()
        started = time.monotonic()
        if not (patch or "").strip():
            verdict = Verdict(task.id, "empty_patch", "there is no patch")
        else:
            verdict = await self._graded(task, patch or "", log)
        log.add(f"{verdict.status}{': ' if verdict.reason else ''}{verdict.reason}")
        return replace(verdict, seconds=round(time.monotonic() - started, 3))

    async def _graded(self, task: Task, patch: str, log: Log) -> Verdict:
        try:
            async with self._folder() as folder:
                plan = await asyncio.to_thread(self.source.test_plan, task)
                built, checkout = await asyncio.to_thread(self._build, task, plan, patch, folder, log)
                runs = await self._run(task, plan, checkout, log)
        except PatchError as error:
            return Verdict(task.id, "invalid_patch", str(error))
        except (BenchError, SandboxUnavailable, OSError) as error:
            return Verdict(task.id, "infra_error", str(error))
        except SandboxError as error:  # it was lost, by what ran in it
            return Verdict(task.id, "error", str(error))
        return judge(task, runs, applied_by=built.applied.step, put_back=built.put_back)

    @contextlib.asynccontextmanager
    async def _folder(self) -> AsyncIterator[Path]:
        place = Path(tempfile.mkdtemp(prefix="opensage-grade-"))
        try:
            yield place
        finally:
            await asyncio.to_thread(remove_tree, place)

    def _build(self, task: Task, plan: TestPlan, patch: str, folder: Path, log: Log) -> tuple[Built, Path]:
        data = as_patch(patch)
        checkout = folder / "checkout"
        checkout.mkdir()
        workspace = prepare(self.source, task, checkout, folder / "trusted")
        built = build(workspace, task, plan, data)
        log.add(f"{built.applied.log}>>>>> Applied Patch by {built.applied.step}")
        for path in built.put_back:
            log.add(f"put back to the base, because it steers the tests: {path!r}")
        return built, checkout

    async def _run(self, task: Task, plan: TestPlan, checkout: Path, log: Log) -> list[Run]:
        kind = await asyncio.to_thread(sandbox_for, task, self.sandbox)
        seconds = plan.timeout or self.command_timeout
        limits = replace(self.limits, timeout_ceiling=max(seconds, self.limits.timeout_ceiling))
        box = open_sandbox(kind, checkout, limits=limits)
        try:
            log.add(f"tests run in the sandbox {kind} ({box.kind})")
            return [await self._once(task, plan, box, seconds, log) for _ in range(max(1, self.reruns))]
        finally:
            await box.close()

    async def _once(self, task: Task, plan: TestPlan, box: Sandbox, seconds: float, log: Log) -> Run:
        if box.python is None:
            await box.exec(["true"])  # an image says where its Python is once it runs
        python = box.python or "python3"
        words = [python if word == "{python}" else word for word in plan.command]
        log.script = f"#!/bin/sh\ncd {box.workdir}\n{_quoted(words)}\n"
        if not plan.junit:
            done = await box.exec(words, timeout=seconds, env=_ENVIRONMENT)
            log.output = done.stdout + done.stderr
            said = _last_line(log.output)
            return run_of_command(task, done.exit_code, done.timed_out, done.duration, said)
        results = Results()
        command = [python, "-s", "-c", await asyncio.to_thread(_DRIVER.read_text)]
        environment = dict(_ENVIRONMENT)
        if not task.image:  # the plug-ins of this machine are none of the task's; those of an image made for it are
            environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        done = await box.exec(
            command, timeout=seconds, env=environment, stdin=self._settings(words, results), on_output=results.feed
        )
        log.output = done.stderr
        if results.unable:
            raise BenchError(f"{python} in the sandbox cannot run pytest ({results.unable}): {_INSTALL}")
        if results.untimed:
            log.add("pytest-timeout is not installed where the tests run: there was no time limit for each of them")
        if results.forged:
            log.add(f"{results.forged} lines on the results' way out were not signed, and not believed")
        return run_of(results, done.exit_code, done.timed_out, done.duration, _last_line(done.stderr))

    def _settings(self, words: Sequence[str], results: Results) -> bytes:
        here, arguments = split_pytest(words)
        arguments = ["-p", "no:cacheprovider", "--rootdir=.", *arguments]
        settings = {"key": results.key, "seconds": self.test_timeout, "here": here, "arguments": arguments}
        return json.dumps(settings).encode() + b"\n"


def split_pytest(words: Sequence[str]) -> tuple[bool, list[str]]:
    """Whether a command of pytest puts the current folder on the module path, and pytest's arguments.

    Raises:
        BenchError: it is no command of pytest.
    """
    if words and words[0].rpartition("/")[2] in ("pytest", "py.test"):
        return False, list(words[1:])
    for place, word in enumerate(words[:-1]):
        if word == "-m" and words[place + 1] in ("pytest", "py.test"):
            return "-P" not in words[:place] and "-I" not in words[:place], list(words[place + 2 :])
    raise BenchError(f"{' '.join(words)[:200]!r} does not run pytest: say junit=False in the test plan")


def _quoted(words: Sequence[str]) -> str:
    import shlex

    return shlex.join(words)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no output"
