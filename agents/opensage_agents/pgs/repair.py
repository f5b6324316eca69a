"""The loop: properties, inputs, the least failure, a repair, until nothing fails or the budget is spent.

After "PGS: Effective LLM Code Refinement via Property-Oriented and Structurally Minimal Feedback" (arXiv 2506.18315).
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from opensage.protocols import Model
from opensage.spec import AgentSpec
from opensage_agents.pgs.asking import AgentAsker, Asker, BudgetSpent, Desk, ModelAsker
from opensage_agents.pgs.feedback import BLIND, REPEATED, WORSE, feedback
from opensage_agents.pgs.generator import Generator, key_of
from opensage_agents.pgs.properties import PropertyError, PropertySet
from opensage_agents.pgs.report import FAILED, Counterexample, Report
from opensage_agents.pgs.result import Result, Round, Status
from opensage_agents.pgs.stock import NOTHING, Stock
from opensage_agents.pgs.task import PGSConfig, Task
from opensage_agents.pgs.tester import Tester
from opensage_agents.pgs.trace import Trace
from opensage_agents.pgs.written import is_literal

CYCLES = 2
"""Repeated programs in a row that end the loop."""
OnRound = Callable[[Round], None]


class PGSWorkflow:
    """Repairs programs with a Generator and a Tester: models, agents, or anything that answers questions.

    Args:
        generator: writes and repairs.
        tester: states properties; the generator's when there is none. Not asked when properties are given.
        config: how.
        properties: written by hand, instead of the Tester's.
        trace: a JSON lines file that is written as things happen.
        resume: whether to go on where that file ends.
        options: for agents, those of a run.
        on_round: called after each round.
    """

    def __init__(
        self,
        generator: Model | AgentSpec | Asker,
        tester: Model | AgentSpec | Asker | None = None,
        config: PGSConfig | None = None,
        *,
        properties: PropertySet | None = None,
        trace: Path | None = None,
        resume: bool = False,
        options: dict[str, Any] | None = None,
        on_round: OnRound | None = None,
    ) -> None:
        self.config = config or PGSConfig()
        self._askers = {"generator": _asker(generator, options or {})}
        self._askers["tester"] = _asker(tester, options or {}) if tester is not None else self._askers["generator"]
        self._properties, self._trace, self._resume, self._on_round = properties, trace, resume, on_round

    def run(self, task: Task) -> Result:
        """`arun` for code that runs no event loop."""
        return asyncio.run(self.arun(task))

    async def arun(self, task: Task) -> Result:
        """Repair, or write, one program.

        Raises:
            ModelError: a model cannot answer.
            SandboxError: no sandbox can be opened.
            PropertyError: the trace cannot be used, or properties written by hand.
        """
        _fits(task, self._properties)
        trace = Trace(self._trace, resume=self._resume)
        desk = Desk(self._askers, self.config, trace)
        result = await _Repair(task, self.config, desk, self._properties, self._on_round).run()
        trace.add("result", status=result.status, reason=result.reason, code=result.code, tokens=result.tokens)
        return result


def _fits(task: Task, given: PropertySet | None) -> None:
    """A class is judged by a machine, a function by properties of its calls.

    Raises:
        PropertyError: one of the two goes with the other.
    """
    stateful = given is not None and given.stateful
    if task.is_class and not stateful:
        raise PropertyError(
            f"{task.entry_point} is a class: give a file with a machine of its calls (--properties FILE), or name one "
            "of its methods"
        )
    if stateful and not task.is_class:
        raise PropertyError(
            f"the properties are a machine, and {task.entry_point} is no class of the program; without a program, "
            f"give the signature `class {task.entry_point}:`"
        )
    if task.is_class and task.public_tests:
        raise PropertyError("a class has no public tests: put them into the machine, as a rule")


def _asker(given: Model | AgentSpec | Asker, options: dict[str, Any]) -> Asker:
    if isinstance(given, AgentSpec):
        return AgentAsker(given, **options)
    return cast("Asker", given) if hasattr(given, "ask") else ModelAsker(given)


@dataclass(frozen=True, slots=True)
class _Version:
    """A program and what the check said of it, with the properties of that time."""

    code: str
    report: Report
    names: tuple[str, ...]

    def badness(self, gate: bool) -> tuple[int, int, int]:
        """Less is better: public tests that fail (with the gate), properties that break, public tests again."""
        report = self.report
        judged = any(report.stats.evaluations.values())
        fell = report.status not in ("ok", "violated", "inconclusive")
        broken = len(report.broken) + (0 if not fell else 1 if judged else 1 + len(self.names))
        wrong = report.wrong if report.status != "invalid_code" else 10**6
        return (wrong if gate else 0, broken, wrong)


class _End(Exception):
    def __init__(self, status: Status, reason: str = "") -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class _Repair:
    """One run of the loop."""

    def __init__(
        self, task: Task, config: PGSConfig, desk: Desk, given: PropertySet | None, on_round: OnRound | None
    ) -> None:
        self.task, self.config, self.desk, self.on_round = task, config, desk, on_round
        props = given or PropertySet(task.entry_point, NOTHING, adapter=task.adapter)
        props = replace(props, examples=list(task.public_tests) or props.examples)
        self.stock = Stock(task, config, Tester(desk, task), props, given is not None)
        self.generator = Generator(desk, task)
        self.best: _Version | None = None
        self.replay: list[tuple[Any, ...]] = []
        self.seen: set[str] = set()
        self.repeats = 0
        self.rounds: list[Round] = []
        self.start = time.monotonic()
        self.code = task.code or ""

    async def run(self) -> Result:
        """Until it ends."""
        status, reason = await self._ending()
        stock, desk = self.stock, self.desk
        return Result(
            status, self.best.code if self.best else self.code, tuple(self.rounds), stock.props, tuple(stock.suspects),
            tuple(stock.notes), reason, desk.tokens, desk.cost, dict(desk.calls),
            round(time.monotonic() - self.start, 3),
        )  # fmt: skip

    async def _ending(self) -> tuple[Status, str]:
        try:
            await self._loop()
        except _End as end:
            return end.status, end.reason
        except BudgetSpent as end:
            return "budget", str(end)
        return self._unsolved("budget", f"max_rounds: {self.config.max_rounds} repairs were tried")

    async def _loop(self) -> None:
        if not self.code:
            self.code = await self.generator.write()
            self._none_if_empty(self.code)
        note = diff = ""
        for number in range(self.config.max_rounds + 1):
            began, tokens = time.monotonic(), self.desk.tokens
            now = await self._judged()
            if (end := self._solved(now)) is not None:
                self._record(number, now, diff, "", note, tokens, began)
                raise end
            now, worse = await self._better(now)
            if number == self.config.max_rounds:
                self._record(number, now, diff, "", note, tokens, began)
                return
            note = " ".join(each for each in (note, WORSE if worse else "") if each)
            code, prompt = await self.generator.repair(now.code, self._told(now.report, note))
            self._record(number, now, diff, prompt, note, tokens, began)
            self._none_if_empty(code)
            note, diff = self._counted(code, now.code), _diff(now.code, code)
            self.code = code

    def _none_if_empty(self, code: str) -> None:
        if not code:
            raise _End("generator_failed", "no reply held the program")

    async def _judged(self) -> _Version:
        """The program of this round, checked with properties that are not in doubt.

        A repair that was paid for is checked also when nothing more can be asked: the next question then ends the loop.
        """
        with contextlib.suppress(*(BudgetSpent,) if self.rounds else ()):
            await self.stock.fill(self.code)
        while True:
            report = await self.stock.judge(self.code, self.replay)
            doubted = False
            with contextlib.suppress(BudgetSpent):
                doubted = await self.stock.doubts(report.counterexample, self.code)
            if not doubted:
                return _Version(self.code, report, self.stock.names)

    async def _better(self, now: _Version) -> tuple[_Version, bool]:
        """The version to go on with, and whether that is an earlier one."""
        found = now.report.counterexample
        plain = found is not None and (found.stateful or is_literal(found.args_repr))
        if found is not None and found.args not in self.replay and plain:
            self.replay.append(found.args)
        best = self.best
        if best is not None and best.code != now.code and self.config.revert_on_regression:
            if best.names != self.stock.names:
                best = _Version(best.code, await self.stock.judge(best.code, self.replay), self.stock.names)
            if now.badness(self.config.public_gate) > best.badness(self.config.public_gate):
                self.best = best
                return best, True
        self.best = now
        return now, False

    def _solved(self, now: _Version) -> _End | None:
        report = now.report
        if report.status in FAILED or report.status == "invalid_code" or report.wrong:
            return None
        if self.config.feedback == "none" and not self.task.public_tests:
            return None  # nothing can be known
        self.best = now
        if self.stock.names and report.status == "ok":
            return _End("solved")
        if self.stock.tester_failed:
            return _End("tester_failed", "no property could be read, and no public test fails")
        if not self.stock.names and self.config.feedback == "property":
            return _End("solved_public_only", "no property survived")
        return _End("solved_public_only", report.message)

    def _unsolved(self, status: Status, reason: str) -> tuple[Status, str]:
        if self.config.feedback == "property" and not self.stock.names:
            return "tester_failed" if self.stock.tester_failed else "no_valid_property", reason
        return status, reason

    def _counted(self, code: str, before: str) -> str:
        """A note when a program has been there before; too often ends the loop."""
        self.seen.add(key_of(before))
        if key_of(code) not in self.seen:
            self.repeats = 0
            return ""
        self.repeats += 1
        if self.repeats >= CYCLES and self.config.feedback != "none":
            raise _End(*self._unsolved("cycle", "the Generator repeats programs that were wrong"))
        return REPEATED

    def _told(self, report: Report, note: str) -> str:
        if self.config.feedback == "none":
            return BLIND
        return "\n".join(each for each in (feedback(report, self.stock.props), note) if each)

    def _record(self, number: int, now: _Version, diff: str, prompt: str, note: str, tokens: int, began: float) -> None:
        found = now.report.counterexample
        shown = _shown(found) if found else None
        done = Round(
            number, now.code, diff, now.report.status, self.stock.kept, dict(self.stock.dropped), shown, prompt, note,
            self.desk.tokens - tokens, round(time.monotonic() - began, 3),
        )  # fmt: skip
        self.rounds.append(done)
        self.desk.trace.add("round", **asdict(done))
        if self.on_round is not None:
            self.on_round(done)


def _shown(found: Counterexample) -> dict[str, Any]:
    """As plain data: arguments by their repr, the steps of a machine by theirs."""
    data = {key: value for key, value in asdict(found).items() if key != "args"}
    return {**data, "steps": repr(found.args)} if found.stateful else data


def _diff(old: str, new: str) -> str:
    return "\n".join(difflib.unified_diff(old.splitlines(), new.splitlines(), "before", "after", lineterm=""))
