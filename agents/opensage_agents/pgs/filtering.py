"""Properties that are of no use: those that reject what is right, and those that reject nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from opensage_agents.pgs.candidate import Candidate, InvalidCode
from opensage_agents.pgs.checking import acheck
from opensage_agents.pgs.inside import codec
from opensage_agents.pgs.mutants import mutants
from opensage_agents.pgs.properties import PropertyError, PropertySet
from opensage_agents.pgs.report import FilterReport
from opensage_agents.pgs.session import Silent, bench

ENOUGH_MUTANTS = 5
ENOUGH_ANSWERS = 5
"""Inputs that the program must answer before a property can be called vacuous."""


async def avalidate(
    propset: PropertySet,
    public_tests: Sequence[tuple[Sequence[Any], Any]],
    *,
    sandbox: str = "auto",
    total_timeout: float = 30.0,
) -> FilterReport:
    """Let every property judge right pairs `(args, result)`. One that rejects a pair is dropped, with the pair.

    Pairs say nothing about machines: these stay undecided.

    Raises:
        PropertyError: the file as a whole cannot be used.
        SandboxError: no sandbox can be opened.
    """
    if propset.stateful:
        return FilterReport(undecided=tuple(propset.names))
    pairs = [[codec.encode(tuple(args)), codec.encode(result)] for args, result in public_tests]
    job = {"kind": "validate", "text": propset.to_source(), "names": propset.names, "examples": pairs}
    done = await _done(job, sandbox, total_timeout)
    dropped = {str(name): str(why) for name, why in done["dropped"].items()}
    left = [name for name in propset.names if name not in dropped]
    kept = tuple(name for name in left if name in done["applied"])
    return FilterReport(kept, dropped, tuple(name for name in left if name not in kept))


@dataclass(frozen=True, slots=True)
class VacuityReport:
    """How many mutants each property rejects.

    Attributes:
        killed: numbers of the mutants, by property.
        vacuous: properties that accept the candidate and every mutant, or never applied to an input that it answers.
        mutants: how many could be run; with fewer than five, only those that never applied are called vacuous.
    """

    killed: dict[str, tuple[int, ...]]
    vacuous: tuple[str, ...]
    mutants: int


def find_vacuous(code: str, propset: PropertySet, **options: Any) -> VacuityReport:
    """`afind_vacuous` for code that runs no event loop."""
    return asyncio.run(afind_vacuous(code, propset, **options))


async def afind_vacuous(
    code: str,
    propset: PropertySet,
    *,
    seed: int = 0,
    inputs: int = 30,
    most_mutants: int = 12,
    call_timeout: float = 0.5,
    total_timeout: float = 60.0,
    sandbox: str = "auto",
    memory_mb: int = 512,
) -> VacuityReport:
    """Change the code by small steps and see which properties notice.

    Raises:
        PropertyError: the properties or the code cannot be used.
        SandboxError: no sandbox can be opened.
    """
    versions = mutants(code, propset.entry, most_mutants)
    if propset.stateful:
        options = {"seed": seed, "max_examples": inputs, "call_timeout": call_timeout, "memory_mb": memory_mb}
        return await _idle_machines((code, *versions), propset, sandbox=sandbox, total_timeout=total_timeout, **options)
    job = {
        "kind": "vacuity", "text": propset.to_source(), "names": propset.names, "entry": propset.entry, "seed": seed,
        "max_examples": inputs, "call_seconds": call_timeout, "seconds": total_timeout * 0.8, "fresh": False,
        "mutants": len(versions), "arity": None, "examples": [],
    }  # fmt: skip
    done = await _done(job, sandbox, total_timeout, (code, *versions), propset, memory_mb)
    killed = {name: tuple(done["killed"][name]) for name in propset.names}
    if done["answers"] < ENOUGH_ANSWERS:  # the program fails on nearly every input: nothing is known of the properties
        return VacuityReport({name: tuple(done["killed"][name]) for name in propset.names}, (), int(done["ran"]))
    unused = {name for name in propset.names if not done["counts"].get(name) and name not in done["bad"]}
    blind = {name for name in propset.names if not killed[name] and name not in {*done["rejected"], *done["bad"]}}
    vacuous = unused | (blind if done["ran"] >= ENOUGH_MUTANTS else set())
    return VacuityReport(killed, tuple(name for name in propset.names if name in vacuous), int(done["ran"]))


async def _idle_machines(codes: Sequence[str], propset: PropertySet, **options: Any) -> VacuityReport:
    """Which machines no mutant breaks."""
    killed: dict[str, tuple[int, ...]] = dict.fromkeys(propset.names, ())
    rejected: set[str] = set()
    unused: set[str] = set()
    ran = 0
    for number, code in enumerate(codes):
        report = await acheck(code, propset, select="first", **options)
        if report.status == "invalid_property":
            raise PropertyError(report.message)
        if number == 0:
            rejected = {*report.broken, *report.invalid}
            unused = {name for name in propset.names if not report.stats.evaluations.get(name)} - set(report.invalid)
            continue
        ran += report.status != "invalid_code"
        killed |= {name: (*killed[name], number - 1) for name in report.broken}
    blind = {name for name in propset.names if not killed[name] and name not in rejected}
    vacuous = unused | (blind if ran >= ENOUGH_MUTANTS else set())
    return VacuityReport(killed, tuple(name for name in propset.names if name in vacuous), ran)


async def _done(
    job: dict[str, Any],
    sandbox: str,
    seconds: float,
    codes: Sequence[str] = (),
    propset: PropertySet | None = None,
    memory_mb: int = 512,
) -> dict[str, Any]:
    try:
        async with bench(sandbox, memory_mb, seconds) as place, asyncio.timeout(seconds):
            versions = [place.candidate(code, propset.entry, propset.adapter) for code in codes if propset is not None]
            try:
                done = await _talk(place.talk, job, versions)
            finally:
                for each in versions:
                    await each.stop()
    except (TimeoutError, Silent, InvalidCode) as error:
        raise PropertyError(f"nothing was decided within {seconds:g} s: {error or 'too slow'}") from error
    if "status" in done:
        raise PropertyError(str(done["message"]))
    return done


async def _talk(talk: Any, job: dict[str, Any], versions: list[Candidate]) -> dict[str, Any]:
    if not versions:
        return dict(await talk(job, None, []))
    await versions[0].start()
    return dict(await talk(job, versions[0], versions[1:]))
