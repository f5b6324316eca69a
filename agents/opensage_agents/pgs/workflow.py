"""The agent `pgs`: finds the function that a task means, repairs it by properties, and leaves the best version."""

from __future__ import annotations

from pathlib import Path

from opensage.workflow import Outcome, Steps
from opensage_agents.coder.functions import replaced
from opensage_agents.coder.target import Target, find_target
from opensage_agents.pgs.asking import StepsAsker
from opensage_agents.pgs.repair import PGSWorkflow
from opensage_agents.pgs.result import Result, Round
from opensage_agents.pgs.task import PGSConfig, Task, pairs_in


async def pgs(steps: Steps) -> str | Outcome:
    """Repair one function of the workspace; the model drives when no single function is meant."""
    target = await find_target(steps)
    if target is None:
        steps.say("no single Python function is meant: the model drives")
        return await steps.loop()
    name = target.place.name
    steps.say(f"pgs: {target.path}, function {name}")
    pairs = pairs_in(steps.task, target.place.short) or pairs_in(target.docstring, target.place.short)
    task = Task(_described(steps, target), name, target.text, pairs)
    workflow = PGSWorkflow(
        StepsAsker(steps), config=_config(steps), trace=_trace(steps), resume=True,
        on_round=lambda each: steps.say(_told_round(each)),
    )  # fmt: skip
    result = await workflow.arun(task)
    await _leave(steps, target, result)
    return _outcome(steps, result, target)


def _described(steps: Steps, target: Target) -> str:
    """The task, and what the function's docstring adds to it."""
    said = target.docstring
    return steps.task if not said or said in steps.task else f"{steps.task}\n\nIts docstring:\n{said}"


def _config(steps: Steps) -> PGSConfig:
    """Small models get inputs that are derived: theirs seldom draw what is valid."""
    kind = steps.run.sandbox.kind
    left = steps.run.budget.remaining_seconds()
    return PGSConfig(
        sandbox=kind if kind in ("bubblewrap", "docker", "local") else "auto",
        inputs="derived" if steps.small else "tester",
        max_seconds=left if left is not None else 3600.0,
    )


def _trace(steps: Steps) -> Path:
    """Beside the session's log, so that a resumed session asks nothing twice."""
    session = steps.run.session
    return session.journal.path.with_suffix(".pgs")


async def _leave(steps: Steps, target: Target, result: Result) -> None:
    """Put the best version into the file, when it is another one. Other functions of the file stay as they are."""
    if result.code.strip() == target.text.strip():
        return
    place = target.found_in(result.code)
    whole = replaced(target.text, target.place, f"```python\n{result.code}\n```") if place else ""
    await steps.leave(target.path, whole or result.code, say="The best version stays.")


def _outcome(steps: Steps, result: Result, target: Target) -> Outcome:
    names = ", ".join(result.properties.names)
    told = f"{target.place.name} in {target.path}: {result.status}. Properties: {names or 'none'}."
    if result.status in ("solved", "solved_public_only"):
        return Outcome(text=told)
    spent = steps.run.budget.exhausted()
    if result.status == "budget" and spent:
        return Outcome("limit", spent, told)
    return Outcome("stuck", f"{result.status}: {result.reason}", told)


def _told_round(each: Round) -> str:
    found = each.counterexample
    shown = f": {found['property'] or found['outcome']} with {found['args_repr'][:200]}" if found else ""
    return f"round {each.number}: {each.status}{shown}"


__all__ = ["pgs"]
