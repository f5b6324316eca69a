"""Asking models for scores: items x wordings x models, one JSON line each, so that a run can stop and go on."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opensage.errors import LimitReached
from opensage.files import read_regular, why
from opensage.messages import Request
from opensage.models.retry import IdleTimeout, Retrying
from opensage.protocols import Model
from opensage.side import whole_reply
from opensage_agents.judge_irt.items import Item
from opensage_agents.judge_irt.perturb import filled
from opensage_agents.judge_irt.scores import ScoreError

FORMAT = "opensage-judge-scores/1"
_LABEL = re.compile(r"(?:score|rating|grade|answer)\W{0,4}(?:is|of)?\W{0,4}(\d{1,3})(?![\d.]*\d)", re.I)
_NUMBER = re.compile(r"(?<![\d.\w-])(\d{1,3})(?![\d\w]|\.\d)")


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked. `wordings`: the name of each variant and its instruction, with `{criterion}` and `{levels}`."""

    items: Sequence[Item]
    wordings: Mapping[str, str]
    criterion: str = "quality"
    levels: int = 5
    max_tokens: int = 16
    temperature: float = 0.0

    def settings(self) -> dict[str, Any]:
        """What scores of one file must have in common."""
        told = json.dumps([dict(self.wordings), self.max_tokens, self.temperature], sort_keys=True)
        return {
            "format": FORMAT, "criterion": self.criterion, "levels": self.levels,
            "instruction": hashlib.sha256(told.encode()).hexdigest()[:16],
        }  # fmt: skip

    def prompt(self, item: Item, variant: str) -> tuple[str, str]:
        """System and user text: only the instruction differs between variants, never the sample."""
        asked = filled(self.wordings[variant], self.criterion, self.levels, variant)
        return asked, f"Question: {item.question}\n\nAnswer: {item.answer}\n\nNumber from 1 to {self.levels}:"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of one run: calls, tokens, US dollars and seconds that it may take; None is without bound."""

    max_calls: int | None = None
    max_tokens: int | None = None
    max_cost: float | None = None
    max_seconds: float | None = None


@dataclass(slots=True)
class Collected:
    """What a run did. `stopped` says which bound ended it, "" when all is there."""

    asked: int = 0
    known: int = 0
    unreadable: int = 0
    tokens: int = 0
    cost: float = 0.0
    stopped: str = ""
    _start: float = field(default_factory=time.monotonic)

    def check(self, bounds: Bounds) -> None:
        """Raises `LimitReached` when a bound is reached."""
        spent = time.monotonic() - self._start
        for name, used, most in (
            ("max_calls", self.asked, bounds.max_calls), ("max_tokens", self.tokens, bounds.max_tokens),
            ("max_cost", self.cost, bounds.max_cost), ("max_seconds", spent, bounds.max_seconds),
        ):  # fmt: skip
            if most is not None and used >= most:
                raise LimitReached(f"{name}: {used:.4g} of {most:g} used")


def score_in(reply: str, levels: int) -> int | None:
    """The score that a reply gives, None when it gives none or more than one.

    `4`, `**4**`, `Score: 4`, `4/5` and `{"score": 4}` are read; `3 or 4`, `4.5` and what is outside the scale are not.
    """
    text = re.sub(rf"(\d)\s*(?:/|out of|of)\s*{levels}\b", r"\1", reply[:4000])
    found = {int(each) for each in _LABEL.findall(text)} or {int(each) for each in _NUMBER.findall(text)}
    if len(found) != 1 or re.search(r"\d\.[1-9]", text):
        return None
    score = found.pop()
    return score if 1 <= score <= levels else None


class Ledger:
    """The file of scores: its first line holds the settings, each other one an answer. One writer at a time.

    Raises:
        ScoreError: the file holds scores of other settings, cannot be written, or another run writes it.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path, self._settings = path, dict(settings)
        self.done: set[tuple[str, str, str]] = set()
        self.replies: dict[str, str] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a+b")
        except OSError as error:
            raise ScoreError(f"{path} cannot be written: {why(error)} or give another --out") from error
        self._lock()
        self._load()

    def _lock(self) -> None:
        import fcntl

        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise ScoreError(f"another run writes {self.path}: wait for it, or give another --out") from error

    def _load(self) -> None:
        whole = read_regular(self.path)
        data, _, torn = whole.rpartition(b"\n")
        if torn:  # the process died in the middle of it
            self._file.truncate(len(data) + 1 if data else 0)
        lines = data.decode(errors="replace").splitlines() if data else []
        if not lines:
            self._write({"settings": self._settings})
        for number, line in enumerate(lines, 1):
            self._line(line, number)

    def _line(self, line: str, number: int) -> None:
        try:
            row = json.loads(line)
            if number == 1:
                found = row["settings"]
            else:
                self.done.add((str(row["judge"]), str(row["variant"]), str(row["sample_id"])))
                self.replies[str(row["key"])] = str(row["reply"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            self.close()
            raise ScoreError(
                f"{self.path}, line {number} is damaged: remove that line or give another --out"
            ) from error
        if number == 1 and found != self._settings:
            self.close()
            raise ScoreError(f"{self.path} holds scores of another criterion, scale or wording: give another --out")

    def add(self, row: dict[str, Any]) -> None:
        """Keep one answer."""
        self._write(row)
        self.done.add((row["judge"], row["variant"], row["sample_id"]))
        self.replies[row["key"]] = row["reply"]

    def _write(self, row: Mapping[str, Any]) -> None:
        try:
            self._file.write(json.dumps(row, ensure_ascii=False).encode(errors="replace") + b"\n")
            self._file.flush()
        except OSError as error:
            raise ScoreError(f"{self.path} cannot be written: {why(error)}; the same command goes on") from error

    def close(self) -> None:
        """End writing."""
        self._file.close()


async def acollect(
    models: Sequence[Model],
    plan: Plan,
    out: str | Path,
    bounds: Bounds | None = None,
    *,
    workers: int = 1,
    tell: Callable[[str], None] = lambda _text: None,
) -> Collected:
    """Score every item with every wording by every model; what the file holds is not asked again.

    Args:
        models: judges, told apart by their names.
        plan: what is asked.
        out: file of JSON lines, read by `opensage judge fit`.
        bounds: of this run.
        workers: questions at once, to each model in turn.
        tell: hears of progress.

    Raises:
        ScoreError: the file cannot be used, or two models have one name.
        ModelError: a model cannot answer; what was scored stays.
    """
    names = [model.name for model in models]
    if len(set(names)) < len(names) or not names or workers < 1:
        raise ScoreError("give at least one model, each once, and at least one worker")
    ledger, total = Ledger(Path(out), plan.settings()), Collected()
    try:
        for model in models:
            await _one_judge(model, plan, ledger, bounds or Bounds(), total, workers)
            tell(f"{model.name}: {total.asked} asked, {total.known} known, {total.unreadable} unreadable")
    except LimitReached as error:
        total.stopped = error.reason
    finally:
        ledger.close()
    return total


def collect(
    models: Sequence[Model], plan: Plan, out: str | Path, bounds: Bounds | None = None, **more: Any
) -> Collected:
    """`acollect`, for code that is not async."""
    return asyncio.run(acollect(models, plan, out, bounds, **more))


async def _one_judge(model: Model, plan: Plan, ledger: Ledger, bounds: Bounds, total: Collected, workers: int) -> None:
    jobs = [(item, variant) for item in plan.items for variant in plan.wordings]
    missing = [job for job in jobs if (model.name, job[1], job[0].id) not in ledger.done]
    total.known += len(jobs) - len(missing)
    queue = iter(missing)
    asker = Retrying(IdleTimeout(model))

    async def work() -> None:
        for item, variant in queue:
            await _one_score(asker, model.name, plan, item, variant, ledger, bounds, total)

    try:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(workers, len(missing))):
                tasks.create_task(work())
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def _one_score(
    asker: Model, name: str, plan: Plan, item: Item, variant: str, ledger: Ledger, bounds: Bounds, total: Collected
) -> None:
    system, user = plan.prompt(item, variant)
    key = hashlib.sha256(json.dumps([name, system, user, plan.settings()], sort_keys=True).encode()).hexdigest()[:24]
    reply, tokens, cost = ledger.replies.get(key), 0, 0.0
    if reply is None:
        total.check(bounds)
        total.asked += 1
        messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        request = Request(
            messages, tool_choice="none", max_tokens=plan.max_tokens, temperature=plan.temperature, agent="judge"
        )
        answer = await whole_reply(asker, request)
        reply, tokens, cost = answer.text, answer.usage.tokens, answer.usage.cost or 0.0
    score = score_in(reply, plan.levels)
    total.tokens, total.cost, total.unreadable = (
        total.tokens + tokens,
        total.cost + cost,
        total.unreadable + (score is None),
    )
    ledger.add({
        "judge": name, "criterion": plan.criterion, "sample_id": item.id, "variant": variant, "score": score,
        "reply": reply[:2000], "key": key, "tokens": tokens, "cost": cost,
    })  # fmt: skip
