"""What is measured: jobs of a few seconds each, in groups that follow one another."""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opensage_agents.pgs.checking import acheck
from opensage_agents.pgs.filtering import afind_vacuous, avalidate
from opensage_agents.pgs.properties import PropertySet
from opensage_agents.pgs.report import Select
from opensage_benchmarks.pgs import data, hostile, reference, scripted

EXAMPLES, FEW = 100, 25
CALL_SECONDS = 0.5
TOTAL_SECONDS = 120.0

BLIND = ("accepts_everything", "is_a_list", "never_applies")
"""Properties of the vacuity check that must be called vacuous."""
_BLIND = """
def accepts_everything(args, result):
    return True


def is_a_list(args, result):
    return isinstance(result, list)


@prop(when=lambda args: len(args[0]) > 1000)
def never_applies(args, result):
    return False
"""


@dataclass(frozen=True, slots=True)
class Job:
    """One measurement. `work` gives what is to be kept of it; one that is `alone` has no other beside it."""

    group: str
    name: str
    work: Callable[[], Awaitable[dict[str, Any]]]
    alone: bool = False


def plan(folder: Path, seeds: Sequence[int], sandbox: str, quick: bool) -> list[Job]:
    """All jobs, in order.

    Raises:
        ConfigError: the data is not there or is of another form.
    """
    jobs = [*_quixbugs(folder, seeds, sandbox), *_filter(folder, sandbox), *_vacuity(folder, sandbox)]
    jobs += [*_fixes(folder, seeds[0], sandbox)]
    jobs = [job for job in jobs if not quick or job.group in ("filter", "vacuity") or data.in_quick(job.name)]
    return [*jobs, *_outcomes(sandbox), *_isolation(sandbox)]


def _quixbugs(folder: Path, seeds: Sequence[int], sandbox: str) -> Iterator[Job]:
    sets = data.shipped("opensage_agents.pgs", "quixbugs")
    codes = {
        where: {name: data.program(folder, where, name) for name in sets} for where in (data.BUGGY, data.CORRECTED)
    }
    groups = [(f"buggy, seed {seed}", data.BUGGY, seed, EXAMPLES) for seed in seeds]
    groups += [(f"corrected, seed {seed}", data.CORRECTED, seed, EXAMPLES) for seed in seeds]
    groups += [("buggy, 25 inputs", data.BUGGY, seeds[0], FEW), ("again", data.BUGGY, seeds[0], EXAMPLES)]
    for group, where, seed, examples in groups:
        for name, propset in sets.items():
            yield Job(group, name, _check(codes[where][name], propset, seed, examples, sandbox))
    for name, propset in sets.items():
        work = _check(codes[data.BUGGY][name], propset, seeds[0], EXAMPLES, sandbox, select="min_tokens")
        yield Job("least drawn", name, work)
    for name, propset in sets.items():
        yield Job("scripted", name, _scripted(codes[data.BUGGY][name], codes[data.CORRECTED][name], propset, sandbox))


def _scripted(
    buggy: str, corrected: str, propset: PropertySet, sandbox: str
) -> Callable[[], Awaitable[dict[str, Any]]]:
    async def work() -> dict[str, Any]:
        return await scripted.repaired(buggy, corrected, propset, sandbox)

    return work


def _check(
    code: str,
    propset: PropertySet,
    seed: int,
    examples: int,
    sandbox: str,
    seconds: float = CALL_SECONDS,
    select: Select = "shrink",
) -> Callable[[], Awaitable[dict[str, Any]]]:
    async def work() -> dict[str, Any]:
        report = await acheck(
            code, propset, max_examples=examples, seed=seed, call_timeout=seconds, total_timeout=TOTAL_SECONDS,
            sandbox=sandbox, select=select,
        )  # fmt: skip
        spent = report.stats.seconds
        return {"seconds": spent, "late": spent > TOTAL_SECONDS / 2, "report": report.to_dict(times=False)}

    return work


def _filter(folder: Path, sandbox: str) -> Iterator[Job]:
    for name, propset in data.shipped("opensage_benchmarks.pgs", "planted").items():
        public = data.pairs(folder, name)

        async def work(propset: PropertySet = propset, public: Any = public) -> dict[str, Any]:
            report = await avalidate(propset, public, sandbox=sandbox, total_timeout=TOTAL_SECONDS)
            return {"kept": report.kept, "dropped": report.dropped, "undecided": report.undecided}

        yield Job("filter", name, work)


def _vacuity(folder: Path, sandbox: str) -> Iterator[Job]:
    propset = data.shipped("opensage_agents.pgs", "quixbugs")["mergesort"]
    code = data.program(folder, data.CORRECTED, "mergesort")
    both = PropertySet.from_source(propset.to_source() + _BLIND)

    async def work() -> dict[str, Any]:
        report = await afind_vacuous(code, both, sandbox=sandbox, total_timeout=TOTAL_SECONDS)
        return {"vacuous": report.vacuous, "mutants": report.mutants, "others": propset.names}

    yield Job("vacuity", "mergesort", work)


def _fixes(folder: Path, seed: int, sandbox: str) -> Iterator[Job]:
    tasks = [(task, reference.property_file(task)) for task in data.fixes(folder)]
    for group, buggy in (("HumanEvalFix, buggy", True), ("HumanEvalFix, canonical", False)):
        for task, propset in tasks:
            code = task.buggy if buggy else task.canonical
            yield Job(group, task.name, _check(code, propset, seed, EXAMPLES, sandbox))


def _outcomes(sandbox: str) -> Iterator[Job]:
    for name, code in hostile.OUTCOMES.items():
        yield Job("outcomes", name, _check(code, hostile.PROPERTIES, 0, 3, sandbox, hostile.OUTCOME_SECONDS))


def _isolation(sandbox: str) -> Iterator[Job]:
    for name in hostile.HOSTILE:

        async def work(name: str = name) -> dict[str, Any]:
            before = hostile.standing()
            with tempfile.TemporaryDirectory() as place:
                report, harmed = await hostile.attack(name, sandbox, Path(place))
            left = sorted(hostile.standing() - before)
            late = report.stats.seconds > hostile.SECONDS + 2
            fits = report.status in hostile.HOSTILE[name][1]
            data = {"status": report.status, "seconds": report.stats.seconds, "left": left, "harmed": harmed}
            return {**data, "held": fits and not (left or harmed or late)}

        yield Job("isolation", name, work, alone=True)
