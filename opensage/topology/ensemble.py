"""Several agents on the same task, each in its own copy of the workspace: horizontal topology."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from opensage.errors import LimitReached, ModelError, OpenSageError, ToolError
from opensage.log.delegations import Delegation
from opensage.log.events import AgentFinished
from opensage.messages import Message, Request
from opensage.side import ask_beside
from opensage.spec import AgentSpec
from opensage.tools.base import ToolContext
from opensage.tools.shell import describe
from opensage.topology.child import Child
from opensage.topology.copies import Copies
from opensage.topology.member import end
from opensage.topology.report import reported

if TYPE_CHECKING:
    from opensage.budget import Budget
    from opensage.topology.member import Member

MERGES = ("all", "vote", "judge", "best_by_test")
MOST = 16
_GIVEN = 0.8
"""Share of the caller's budget that all members get together."""
_TEST_SECONDS = 600.0
_SHOWN = 3000
_JUDGE = (
    "Several agents did the same task. Decide whose work is best: correct first, then complete, then simple. "
    'Answer with JSON only: {"winner": number, "reason": "one sentence"}'
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What was asked for; see the tool `run_ensemble`."""

    task: str
    members: tuple[str, ...] = ()
    n: int | None = None
    models: tuple[str, ...] = ()
    merge: str = "all"
    test: str = ""
    seconds: float | None = None

    def checked(self) -> Plan:
        """The plan, if it can be done.

        Raises:
            ToolError: it says what is missing.
        """
        size = len(self.members) if self.members else self.n or 0
        if not self.task.strip():
            raise ToolError("the task is empty; say what the agents are to do")
        if self.merge not in MERGES:
            raise ToolError(f"merge must be one of {', '.join(MERGES)}, not {self.merge!r}")
        if not 2 <= size <= MOST:
            raise ToolError(f"an ensemble has 2 to {MOST} members: give n, or the names of agents in members")
        if self.merge == "best_by_test" and not self.test.strip():
            raise ToolError("best_by_test needs test: a command that exits with 0 when the work is good")
        return self


class Ensemble:
    """One ensemble of one member of the team."""

    def __init__(self, caller: Member, plan: Plan) -> None:
        self._caller, self._plan = caller, plan.checked()

    async def run(self, ctx: ToolContext) -> str:
        """Run the members, merge what they came to; the text for the caller's model."""
        caller = self._caller
        known = caller.engine.session.delegations.of_call(ctx.call_id) or self._record(ctx.call_id)
        copies = self._copies(known[0].group)
        try:
            await asyncio.to_thread(copies.make, [d.number for d in known])
            children = self._launch(known, copies)
        except (OpenSageError, asyncio.CancelledError) as error:
            copies.ended = True
            self._give_up(known, error)
            raise
        await self._wait(children, ctx)
        return await self._merge(children, copies)

    def _record(self, call: str) -> list[Delegation]:
        """Check everything before anything starts, then give each member its place in the log."""
        caller, plan = self._caller, self._plan
        caller.check_depth()
        caller.engine.sandbox_of(caller.engine.workdir)
        for name in plan.members:
            self._check_rule("call_agent", {"name": name, "task": plan.task})
        if plan.test:
            self._check_rule("shell", {"command": plan.test})
        specs = self._specs()
        caller.count(len(specs))
        group = 1 + max((child.group for child in caller.children), default=0)
        place = f"work/{caller.engine.session.id}/e{group}"
        return [caller.record_call(spec, plan.task, call, group=group, place=place, model=spec.model) for spec in specs]

    def _specs(self) -> list[AgentSpec]:
        caller, plan = self._caller, self._plan
        if plan.members:
            specs = [caller.team.find(name).spec for name in plan.members]
        else:
            own = caller.spec
            specs = [replace_name(own, f"{own.name}-{number}") for number in range(1, (plan.n or 0) + 1)]
        if plan.models:
            specs = [s.model_copy(update={"model": plan.models[i % len(plan.models)]}) for i, s in enumerate(specs)]
        for spec in specs:
            caller.check_cycle(spec.name)
            caller.check_within(spec)
        return specs

    def _copies(self, group: int) -> Copies:
        engine = self._caller.engine
        return Copies(engine.workdir, self._caller.team.folder.parent / "work" / engine.session.id / f"e{group}")

    def _check_rule(self, name: str, arguments: dict[str, object]) -> None:
        """What an agent may not do by the tool of that name, it may not do by an ensemble either.

        That there is no isolation was asked for with the ensemble itself.
        """
        run, tool = self._caller.run, self._caller.engine.toolbox.get(name)
        if run is None or tool is None:
            raise ToolError(f"this needs the tool {name}, which you do not have")
        ruling = run.policy.ruling(tool, arguments, isolated=True, place=run.place)
        if ruling.verdict != "allow":
            raise ToolError(f"not permitted in an ensemble: {ruling.why}; use {name} itself, or do without")

    def _launch(self, known: list[Delegation], copies: Copies) -> list[Child]:
        """Put those to work that have not finished. Nobody starts before all have what they need."""
        caller = self._caller
        todo = [delegation for delegation in known if delegation.status == "running"]
        given = _GIVEN / max(1, len(todo))
        ready: list[tuple[Delegation, AgentSpec, Budget, dict[str, Any]]] = []
        try:
            for place, delegation in enumerate(todo):
                spec, workdir = self._spec_of(delegation), copies.place(delegation.number)
                own = {"workdir": workdir, "sandbox": caller.engine.sandbox_of(workdir)}
                share = caller.share(spec, given / (1 - given * place), delegation)
                ready.append((delegation, spec, share, own))
        except OpenSageError:
            for _delegation, _spec, share, _own in ready:
                share.close()
            raise
        for delegation, spec, share, own in ready:
            caller.launch(delegation, spec, share, **own)
        return [caller.at_work(delegation) for delegation in known]

    def _give_up(self, known: list[Delegation], error: BaseException) -> None:
        """No member is at work: the log must not say that one is."""
        status = "cancelled" if isinstance(error, asyncio.CancelledError) else "failed"
        for each in known:
            if each.status == "running":
                reason = str(error) or "ended by its caller"
                self._caller.tell(AgentFinished(number=each.number, agent=each.agent, status=status, reason=reason))

    def _spec_of(self, delegation: Delegation) -> AgentSpec:
        if self._plan.members:
            return self._caller.spec_of(delegation)
        spec = replace_name(self._caller.spec, delegation.agent)
        spec = spec.model_copy(update={"model": delegation.model or spec.model})
        self._caller.check_within(spec)
        return spec

    async def _wait(self, children: list[Child], ctx: ToolContext) -> None:
        caller, seconds = self._caller, self._plan.seconds
        await caller.wait(children, ctx.progress, own=True, seconds=seconds if seconds and seconds > 0 else None)
        late = [child for child in children if child.busy]
        for child in late:
            child.ending = "limit", f"seconds: the ensemble's {seconds:g} seconds were used"
        await end(late)

    # --- merging ---

    async def _merge(self, children: list[Child], copies: Copies) -> str:
        plan = self._plan
        if plan.merge == "all":
            return await self._all(children, copies)
        if plan.merge == "vote":
            winner, how = _vote(children)
        elif plan.merge == "judge":
            winner, how = await self._judge(children, copies)
        else:
            winner, how = await self._best_by_test(children, copies)
        if winner is None:
            return f"[no winner: {how}; nothing was changed]\n\n{await self._all(children, copies)}"
        done, left = await asyncio.to_thread(copies.apply, winner.delegation.number)
        lines = [f"[winner: {winner.delegation.id} {winner.delegation.agent}; {how}]"]
        lines += [f"[changed here: {', '.join(done[:30])}]"] if done else ["[it changed no file]"]
        lines += [f"[left alone, changed by somebody else meanwhile: {', '.join(left[:30])}]"] if left else []
        others = [_short(child, copies) for child in children if child is not winner]
        return "\n".join([*lines, winner.delegation.text, "", "Others (their copies are kept):", *others])

    async def _all(self, children: list[Child], copies: Copies) -> str:
        parts = []
        for child in children:
            changed = await asyncio.to_thread(copies.changes, child.delegation.number)
            kept = f"[changed in its copy {copies.place(child.delegation.number).name}: {', '.join(changed.paths)}]"
            parts.append(reported(child.delegation) + (f"\n{kept}" if changed.paths else ""))
        return "\n\n".join(parts)

    async def _judge(self, children: list[Child], copies: Copies) -> tuple[Child | None, str]:
        able = [child for child in children if child.delegation.status == "done"]
        if len(able) < 2:
            return (able[0], "the only one that is done") if able else (None, "none is done")
        shown = [f"## {number}\n{_case(child, copies)}" for number, child in enumerate(able, 1)]
        question = f"# Task\n{self._plan.task}\n\n" + "\n\n".join(shown)
        messages: list[Message] = [{"role": "system", "content": _JUDGE}, {"role": "user", "content": question}]
        run = self._caller.run
        assert run is not None
        try:
            said = await ask_beside(run.session, run.model, Request(messages, tool_choice="none", agent="judge"))
        except (ModelError, LimitReached) as error:
            return None, f"the judge gave no answer ({error})"
        picked, reason = _verdict(said, len(able))
        return (able[picked - 1], f"the judge: {reason}") if picked else (None, f"the judge named nobody: {said[:200]}")

    async def _best_by_test(self, children: list[Child], copies: Copies) -> tuple[Child | None, str]:
        scores = []
        for place, child in enumerate(children):
            passed, said = await self._test(child, copies)
            child.verdict = said
            size = await asyncio.to_thread(copies.size, child.delegation.number)
            if passed:
                scores.append((size, place, child))
        passed_by = f"the test passes for {len(scores)} of {len(children)}"
        if not scores:
            return None, passed_by
        return min(scores)[2], f"{passed_by}, its change is the smallest"

    async def _test(self, child: Child, copies: Copies) -> tuple[bool, str]:
        """Whether the test passes in a member's copy, in a sandbox of its own."""
        sandbox = self._caller.engine.sandbox_of(copies.place(child.delegation.number))
        try:
            result = await sandbox.exec(self._plan.test, timeout=_TEST_SECONDS)
        except (OpenSageError, OSError) as error:
            return False, f"the test could not run: {error}"
        finally:
            await sandbox.close()
        passed = result.exit_code == 0 and not result.timed_out
        return passed, "test passes" if passed else f"test fails: {describe(result)[-300:]}"


def replace_name(spec: AgentSpec, name: str) -> AgentSpec:
    """The same agent under another name, without limits of its own."""
    return spec.model_copy(update={"name": name[:64], "limits": None, "model": "inherit"})


def _vote(children: list[Child]) -> tuple[Child | None, str]:
    able = [child for child in children if child.delegation.status == "done"]
    if not able:
        return None, "none is done"
    counts = Counter(_answer(child) for child in able)
    best, votes = counts.most_common(1)[0]
    winner = next(child for child in able if _answer(child) == best)
    return winner, f"{votes} of {len(children)} gave this answer"


def _answer(child: Child) -> str:
    """An answer without what does not matter: case, blanks, punctuation around it."""
    return " ".join(child.delegation.text.lower().split()).strip(" .!'\"`*")


def _verdict(said: str, size: int) -> tuple[int, str]:
    """The number the judge named, 0 when there is none, and its reason."""
    found = re.search(r"\{.*\}", said, re.DOTALL)
    try:
        data = json.loads(found[0]) if found else {}
        number, reason = int(data["winner"]), str(data.get("reason", ""))
    except (ValueError, KeyError, TypeError, RecursionError):
        digits = re.search(r"winner\D{0,10}(\d+)", said, re.IGNORECASE)
        number, reason = (int(digits[1]), said[:200]) if digits else (0, "")
    return (number, reason) if 1 <= number <= size else (0, "")


def _case(child: Child, copies: Copies) -> str:
    diff = copies.diff(child.delegation.number, _SHOWN)
    return f"{child.delegation.text[:_SHOWN]}\n" + (f"```diff\n{diff}\n```" if diff else "(it changed no file)")


def _short(child: Child, copies: Copies) -> str:
    one = child.delegation
    text = " ".join(one.text.split())[:200]
    said = f"; {child.verdict}" if child.verdict else ""
    return f"- {one.id} {one.agent} [{one.status}{said}] in {copies.place(one.number).name}: {text}"


__all__ = ["MERGES", "Ensemble", "Plan"]
