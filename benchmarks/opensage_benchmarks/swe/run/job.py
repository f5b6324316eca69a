"""One task in its own process: prepare, let the agent work, take the patch, write down what happened."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opensage import __version__
from opensage.errors import LimitReached, ModelError, OpenSageError
from opensage.spec import Limits
from opensage_benchmarks.swe.agent import Assignment, Attempt, BenchAgent
from opensage_benchmarks.swe.agents import open_agent
from opensage_benchmarks.swe.errors import BudgetSpent, MissingRepo, PatchError
from opensage_benchmarks.swe.images import sandbox_for
from opensage_benchmarks.swe.run.protocol import Channel
from opensage_benchmarks.swe.run.reopen import reopen
from opensage_benchmarks.swe.survey import LeftOut
from opensage_benchmarks.swe.task import Task
from opensage_benchmarks.swe.workspace import Taken, Workspace, prepare, take_patch

FORMAT = "opensage-bench-1"
_BASE = "base"
"""File beside the workspace that names its base commit."""
_STATUS = {"empty": "failed"}
"""Statuses of a kit run that are called otherwise here: "empty" means empty replies, not an empty patch."""


class PipeGate:
    """The run's budget, asked over the worker's channel. An answer takes no longer than a look at a few numbers."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._lock = asyncio.Lock()

    async def ask(self) -> None:
        """Wait for leave to make one model call.

        Raises:
            BudgetSpent: there is none.
        """
        async with self._lock:
            self._channel.say("ask")
            answer = await asyncio.to_thread(self._channel.hear)
        if answer is None:
            raise BudgetSpent("the runner is gone")
        if reason := str(answer.get("refused") or ""):
            raise BudgetSpent(reason)

    async def tell(self, *, cost: float | None, input_tokens: int, output_tokens: int) -> None:
        """Account for one call."""
        self._channel.say("tell", cost=cost, input_tokens=input_tokens, output_tokens=output_tokens)


def run_job(job: Mapping[str, Any], channel: Channel, scratch: Path) -> None:
    """Do the task of a job; the last message is its end."""
    task, folder = task_from(job["task"]), Path(job["folder"])
    attempt, taken = Attempt("failed"), Taken(b"")
    try:
        workspace, attempt = _work(job, task, channel, scratch)
        try:
            taken = take_patch(workspace)
            status = _STATUS.get(attempt.status, attempt.status)
            status, reason = ("empty_patch" if status == "done" and not taken.patch else status), attempt.reason
        except PatchError as error:
            status, reason = "invalid_patch", str(error)
        _keep(job, folder, attempt, taken, status)
    except Failed as error:
        status, reason = error.status, str(error)
    except OSError as error:
        status, reason = "infra_error", f"{type(error).__name__}: {error}"
    channel.say(
        "end",
        status=status,
        reason=reason[:4000],
        tool_calls=attempt.tool_calls,
        sandbox=attempt.sandbox,
        patch_bytes=len(taken.patch),
        left_out=[f"{item.path}: {item.why}" for item in _worth_saying(taken)][:200],
    )


def salvage(scratch: Path, folder: Path) -> None:
    """Take the patch of a task whose process was ended, if it got as far as a workspace."""
    base = scratch / _BASE
    if not base.is_file():
        return
    try:
        taken = take_patch(Workspace(scratch / "workspace", scratch / "trusted", base.read_text()))
    except PatchError:
        return  # as of a task that ended by itself: there is no valid patch
    if taken.patch:
        (folder / "patch.diff").write_bytes(taken.patch)


class Failed(Exception):
    """A task that has no attempt, with the status that says why."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def _work(job: Mapping[str, Any], task: Task, channel: Channel, scratch: Path) -> tuple[Workspace, Attempt]:
    workspace = _prepare(job, task, scratch)
    options = {**job["options"], **({"reference": task.patch} if job["reference"] else {})}
    work = Assignment(
        task_id=task.id,
        problem=task.problem,
        workdir=workspace.folder,
        log=Path(job["folder"]),
        model=job["model"],
        sandbox=sandbox_for(task, job["sandbox"]),
        limits=_limits(job["limits"]),
        command_timeout=job["command_timeout"] or None,
        seed=job["seed"],
        options=options,
    )
    try:
        agent: BenchAgent = open_agent(job["agent"], job["options"])
        return workspace, asyncio.run(agent.solve(work, PipeGate(channel)))
    except (BudgetSpent, LimitReached) as error:
        return workspace, Attempt("limit", str(error))
    except ModelError as error:
        raise Failed("model_error", str(error)) from error
    except OpenSageError as error:  # no sandbox, no such agent, a setting: nothing that the agent did
        raise Failed("infra_error", f"{type(error).__name__}: {error}") from error
    except BaseException as error:  # whatever an agent raises ends its task and no other
        traceback.print_exc(file=sys.stderr)
        raise Failed("error", f"{type(error).__name__}: {error}") from error


def _prepare(job: Mapping[str, Any], task: Task, scratch: Path) -> Workspace:
    folder = scratch / "workspace"
    folder.mkdir()
    try:
        source = reopen(job["source"], job["path"], job["source_options"])
        workspace = prepare(source, task, folder, scratch / "trusted")
        (scratch / _BASE).write_text(workspace.base)
        return workspace
    except MissingRepo as error:
        raise Failed("missing_repo", str(error)) from error
    except OpenSageError as error:
        raise Failed("infra_error", str(error)) from error


def _limits(given: Mapping[str, Any]) -> Limits:
    """As a kit run takes them; the gate holds them too, also where an agent does not."""
    return Limits(
        max_turns=given["steps"] or None,
        max_cost=given["cost"] or None,
        max_tokens=given["tokens"] or None,
        max_seconds=given["seconds"] or None,
    )


def _keep(job: Mapping[str, Any], folder: Path, attempt: Attempt, taken: Taken, status: str) -> None:
    (folder / "patch.diff").write_bytes(taken.patch)
    if left := _worth_saying(taken):
        lines = "".join(f"{item.path} ({item.bytes} bytes): {item.why}\n" for item in left)
        (folder / "left_out.txt").write_text(lines, encoding="utf-8", errors="backslashreplace")
        (folder / "left_out.diff").write_bytes(taken.left_out_diff)
    stats = {
        "instance_cost": attempt.cost,
        "api_calls": attempt.model_calls,
        "input_tokens": attempt.input_tokens,
        "output_tokens": attempt.output_tokens,
    }
    config = {name: job[name] for name in ("agent", "model", "sandbox", "limits", "options", "seed")}
    info = {
        "exit_status": "Submitted" if status == "done" else status,
        "reason": attempt.reason,
        "submission": taken.patch.decode(errors="replace"),
        "model_stats": stats,
        "config": config,
        "version": __version__,
    }
    whole = {"info": info, "messages": _plain(attempt.messages), "trajectory_format": FORMAT}
    text = json.dumps({**whole, "instance_id": job["task"]["id"]}, indent=1, default=str)
    (folder / f"{folder_name(job['task']['id'])}.traj.json").write_text(text + "\n", encoding="utf-8")


def _worth_saying(taken: Taken) -> list[LeftOut]:
    """What was left out, but for the state of the kit."""
    return [item for item in taken.left_out if item.path.partition("/")[0] != ".opensage"]


def _plain(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [dict(message) for message in messages]


def folder_name(id: str) -> str:
    """As `Task.folder_name`."""
    return id.replace("/", "__")


def task_from(data: Mapping[str, Any]) -> Task:
    """A task as a job holds it."""
    lists = {name: tuple(data[name]) for name in ("fail_to_pass", "pass_to_pass")}
    return Task(**{**data, **lists})


def task_to(task: Task) -> dict[str, Any]:
    """A task as a job holds it."""
    return dataclasses.asdict(task)
