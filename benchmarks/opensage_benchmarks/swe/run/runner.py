"""One run: every task without an outcome gets a worker, a watchdog and an account; outcomes are recorded at once."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from opensage_benchmarks.swe.agents import agent_modules, check_agent, needs_reference
from opensage_benchmarks.swe.errors import BenchError, TaskError
from opensage_benchmarks.swe.run.caps import Account, Accounts, Caps
from opensage_benchmarks.swe.run.config import RunConfig, differences, file_hash, task_hash, versions
from opensage_benchmarks.swe.run.executor import Executor, LocalExecutor, WorkerDied
from opensage_benchmarks.swe.run.folder import OutputFolder, Record
from opensage_benchmarks.swe.run.job import task_to
from opensage_benchmarks.swe.run.progress import Progress, SilentProgress
from opensage_benchmarks.swe.run.summary import Summary, summarise
from opensage_benchmarks.swe.task import Task

INFRA = frozenset({"infra_error", "missing_repo", "model_error", "cancelled"})
"""Statuses that say nothing about the agent. "hung" is one too when it was the worker that hung."""
EXECUTORS = ("local", "ray")
TRIES = 2
"""Of a task whose worker dies."""
Grade = Callable[[Task, Path], bool | None]
Again = Literal["resume", "retry-errors", "redo"]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What may differ from one run on a folder to the next.

    Attributes:
        workers: tasks at one time.
        total: caps of the run as a whole, earlier runs on the folder included (but for their time).
        again: what is done with tasks that have an outcome: "resume" leaves them, "retry-errors" does those again that
            failed for no fault of the agent or were cut by a total cap, "redo" does all again.
        executor: "local" or "ray".
        grade: called in a thread with a task and its folder of results after each attempt; says whether it is resolved.
        selection: how the tasks were chosen, for run.json.
    """

    workers: int = 1
    total: Caps = field(default_factory=Caps)
    again: Again = "resume"
    executor: str = "local"
    grade: Grade | None = None
    progress: Progress = field(default_factory=SilentProgress)
    selection: Mapping[str, Any] = field(default_factory=dict)


def run(tasks: Sequence[Task], config: RunConfig, out: Path, options: RunOptions | None = None) -> Summary:
    """Run tasks, or go on with a run; returns what it came to, in `exit_code` too.

    Raises:
        TaskError: two tasks have one id.
        OutputLocked: another run writes to `out`.
        BenchError: `out` holds a run of another configuration, or cannot be written.
        OpenSageError: the agent or the model cannot be what is meant.
    """
    return asyncio.run(arun(tasks, config, out, options))


async def arun(tasks: Sequence[Task], config: RunConfig, out: Path, options: RunOptions | None = None) -> Summary:
    """Like `run`, in a running event loop."""
    options = options or RunOptions()
    _check_ids(tasks)
    if options.executor not in EXECUTORS:
        raise BenchError(f"unknown executor {options.executor!r}; use {' or '.join(EXECUTORS)}")
    check_agent(config.agent, config.options)
    folder = OutputFolder(out)
    try:
        told = _enter(folder, tasks, config, options)
        run = _Run(tasks, config, options, folder)
        summary = await run.all()
        told["runs"][-1] |= run.facts() | {"exit_code": summary.exit_code}
        folder.write_json("run.json", told)
        return summary
    finally:
        folder.close()


def _check_ids(tasks: Sequence[Task]) -> None:
    seen: set[str] = set()
    for task in tasks:
        name = task.folder_name
        if name in seen:
            raise TaskError(f"two tasks have the id {task.id}; remove one of them")
        if not name or name.startswith(".") or "\0" in name or len(name.encode(errors="replace")) > 240:
            raise TaskError(f"task id {task.id[:80]!r} cannot be the name of a folder; rename it")
        seen.add(name)


def _enter(folder: OutputFolder, tasks: Sequence[Task], config: RunConfig, options: RunOptions) -> dict[str, Any]:
    """Compare with what the folder holds, and write down this run; returns what run.json holds."""
    before = folder.config() or {}
    wrong = differences(before["config"], config.to_dict()) if "config" in before else []
    hashes = {task.id: task_hash(task) for task in tasks}
    changed = [id for id, record in folder.outcomes.items() if record["task"] != hashes.get(id, record["task"])]
    wrong += [f"task {id} is not the same any more" for id in changed]
    if wrong and options.again != "redo":
        listed = "; ".join(wrong[:5])
        raise BenchError(f"{folder.path} holds a run of another configuration ({listed}); choose another -o, or --redo")
    if wrong:
        folder.reset("; ".join(wrong)[:1000])
    this = {
        "started": round(time.time(), 3),
        "workers": options.workers,
        "total": {name: getattr(options.total, name) for name in Caps.__slots__},
        "again": options.again,
        "executor": options.executor,
        "selection": dict(options.selection),
        "tasks": [task.id for task in tasks],
        "versions": versions(),
    }
    runs = [*(() if wrong else before.get("runs", ())), this]
    data = {"config": config.to_dict(), "tasks_sha256": file_hash(Path(config.path)), "runs": runs}
    folder.write_json("run.json", data)
    return data


def is_cut(record: Mapping[str, Any]) -> bool:
    """Whether a total cap ended the task: a run with a higher one may do better."""
    return record["status"] == "limit" and str(record.get("reason", "")).startswith("total_")


class _Run:
    """The state of one run."""

    def __init__(self, tasks: Sequence[Task], config: RunConfig, options: RunOptions, folder: OutputFolder) -> None:
        self.config, self.options, self.folder = config, options, folder
        self.names = {task.id: task.folder_name for task in tasks}
        self.todo = [task for task in tasks if self._is_due(task)]
        self.tasks = tasks
        self.accounts = Accounts(config.limits, options.total)
        for record in folder.spent:
            self.accounts.charge(
                *(record.get(name, 0) for name in ("cost", "input_tokens", "output_tokens", "model_calls"))
            )
        self.model_name = model_name(config)
        self.price_said = False
        self.interrupted = False
        self.failure: BaseException | None = None

    def _is_due(self, task: Task) -> bool:
        record = self.folder.outcomes.get(task.id)
        if record is None or self.options.again == "redo":
            return True
        return self.options.again == "retry-errors" and (record["class"] == "infra" or is_cut(record))

    async def all(self) -> Summary:
        """Work through the tasks, then sum up, also when it was interrupted."""
        done = list(self.folder.outcomes.values())
        self.folder.predict(self.model_name, [(record, record["id"].replace("/", "__")) for record in done])
        progress = self.options.progress
        progress.begin(len(self.tasks), [record for record in done if record["id"] in self.names])
        executor = await self._executor() if self.todo else None
        try:
            async with self._interruptible():
                await self._work(executor)
        finally:
            if executor is not None:
                await executor.close()
            progress.end()
        if self.failure is not None:
            raise self.failure
        summary = self._summary()
        self.folder.write_json("summary.json", summary.to_dict())
        return summary

    async def _executor(self) -> Executor:
        modules = agent_modules(self.config.agent, self.config.model)
        if self.options.executor == "local":
            return LocalExecutor(self.folder.work, modules)
        from opensage_benchmarks.swe.run.on_ray import RayExecutor

        return RayExecutor(self.folder.work, modules)

    @contextlib.asynccontextmanager
    async def _interruptible(self) -> AsyncIterator[None]:
        """Ctrl-C and SIGTERM stop the work, not the writing."""
        loop, me = asyncio.get_running_loop(), asyncio.current_task()
        assert me is not None

        def stop() -> None:
            self.interrupted = True
            me.cancel()

        numbers = []
        with contextlib.suppress(ValueError, RuntimeError):  # not in the main thread: whoever runs us decides
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, stop)
                numbers.append(number)
        try:
            yield
        except asyncio.CancelledError:
            if not self.interrupted:
                raise
            me.uncancel()
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    async def _work(self, executor: Executor | None) -> None:
        queue = iter(self.todo)

        async def serve() -> None:
            assert executor is not None
            for task in queue:
                if self.accounts.spent() or self.failure is not None:
                    return
                await self._one(executor, task)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(max(1, self.options.workers), len(self.todo))):
                    group.create_task(serve())
        except BaseExceptionGroup as errors:  # the disk: nothing more can be kept
            self.failure = errors.exceptions[0]

    async def _one(self, executor: Executor, task: Task) -> None:
        """One task, tried again when its worker dies; its outcome is recorded, whatever it is."""
        started, results = time.time(), self.folder.work / task.folder_name
        self.options.progress.start(task.id)
        try:
            for attempt in range(1, TRIES + 1):
                self.accounts.start(task.id)
                try:
                    ended = await executor.run(self._job(task, results), self._hearing(task.id))
                    if not is_lost(ended):
                        break
                    lost = f"the task's process was ended by signal {-ended['code']}"
                except WorkerDied as error:
                    ended, lost = {"status": "infra_error"}, str(error)
                ended |= {"status": "infra_error", "reason": f"{lost} ({attempt} of {TRIES} tries)"}
            record = self._record(task, ended, attempt, started)
        except asyncio.CancelledError:
            record = self._record(task, {"status": "cancelled", "reason": "interrupted"}, 1, started)
            self.folder.keep(record, None, task.folder_name, self.model_name)
            raise
        await self._grade(task, record, results)
        self.folder.keep(record, results, task.folder_name, self.model_name)
        self.options.progress.finish(record, self.accounts.total.money())

    def _job(self, task: Task, results: Path) -> dict[str, Any]:
        config = self.config
        return {
            "task": task_to(task),
            "reference": needs_reference(config.agent),
            "source": config.source,
            "path": config.path,
            "source_options": dict(config.source_options),
            "agent": config.agent,
            "model": config.model,
            "sandbox": config.sandbox,
            "options": dict(config.options),
            "limits": {name: getattr(config.limits, name) for name in Caps.__slots__},
            "command_timeout": config.command_timeout,
            "disk_limit": config.disk_limit,
            "timeout": config.task_timeout,
            "seed": config.seed,
            "folder": str(results),
            "scratch": str(self.folder.scratch),
        }

    def _hearing(self, id: str) -> Callable[[dict[str, Any]], Awaitable[dict[str, Any] | None]]:
        async def hear(message: dict[str, Any]) -> dict[str, Any] | None:
            if message["event"] == "ask":
                return {"refused": self.accounts.ask(id)}
            if message["event"] == "tell":
                cost = message.get("cost")
                self.accounts.tell(id, cost, int(message["input_tokens"]), int(message["output_tokens"]))
                if cost is None and not self.price_said:
                    self.price_said = True
                    name = self.config.model or self.config.agent
                    self.options.progress.say(f"the price of {name} is unknown: tokens are counted, cost is not")
            return None

        return hear

    def _record(self, task: Task, ended: Mapping[str, Any], attempt: int, started: float) -> Record:
        account, (status, reason) = self.accounts.close(task.id), outcome(ended)
        infra = status in INFRA or bool(ended.get("lost"))
        return {
            "id": task.id,
            "status": status,
            "class": "infra" if infra else "agent",
            "reason": reason,
            "task": task_hash(task),
            "tries": attempt,
            "started": round(started, 3),
            "wall_s": round(time.time() - started, 3),
            "cpu_s": ended.get("cpu_s", 0.0),
            **spending(account),
            "tool_calls": ended.get("tool_calls", 0),
            "sandbox": ended.get("sandbox", ""),
            "patch_bytes": ended.get("patch_bytes", 0),
            "left_out": ended.get("left_out", []),
        }

    async def _grade(self, task: Task, record: Record, results: Path) -> None:
        if self.options.grade is not None and record["class"] == "agent":
            record["resolved"] = await asyncio.to_thread(self.options.grade, task, results)

    def _summary(self) -> Summary:
        left = [task.id for task in self.tasks if task.id not in self.folder.outcomes]
        spent = self.accounts.spent() or next((str(r["reason"]) for r in self._mine() if is_cut(r)), "")
        summary = summarise(self.folder.path, [task.id for task in self.tasks])
        return summary.ended(not_started=tuple(left), budget=spent, interrupted=self.interrupted)

    def facts(self) -> dict[str, Any]:
        """What only the run itself could tell."""
        mine = self._mine()
        return {
            "ended": round(time.time(), 3),
            "sandboxes": sorted({str(record["sandbox"]) for record in mine if record["sandbox"]}),
            "prices_known": not any(record["cost"] is None for record in mine),
        }

    def _mine(self) -> list[Record]:
        return [record for id, record in self.folder.outcomes.items() if id in self.names]


def is_lost(ended: Mapping[str, Any]) -> bool:
    """Whether the process of a task was killed by somebody else, e.g. for want of memory."""
    return "status" not in ended and not ended.get("why") and not ended.get("lost") and ended["code"] < 0


def outcome(ended: Mapping[str, Any]) -> tuple[str, str]:
    """Status and reason of what a worker said last."""
    if "status" in ended:
        return str(ended["status"]), str(ended.get("reason", ""))
    if lost := ended.get("lost"):
        return "hung", str(lost)
    if why := str(ended.get("why") or ""):
        return ("hung" if why.startswith("task_timeout") else "error"), why
    return "error", f"the agent ended its process with code {ended['code']}; see log.txt"


def spending(account: Account) -> dict[str, Any]:
    """What the gate counted, as it stands in a record."""
    return {
        "model_calls": account.steps,
        "input_tokens": account.input_tokens,
        "output_tokens": account.output_tokens,
        "cost": account.money(),
    }


def model_name(config: RunConfig) -> str:
    """What predictions say made them."""
    return f"{config.agent}+{config.model}" if config.model else config.agent
