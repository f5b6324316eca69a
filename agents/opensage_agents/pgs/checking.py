"""`check`: does a piece of code have its properties?"""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, TypedDict, Unpack, cast

from opensage.errors import ConfigError
from opensage_agents.pgs.candidate import InvalidCode
from opensage_agents.pgs.inside import codec
from opensage_agents.pgs.properties import PropertySet
from opensage_agents.pgs.report import FAILED, Counterexample, Report, Select, Stats, Status
from opensage_agents.pgs.session import Bench, Clock, Silent, bench

MOST_STEPS = 200


class CheckOptions(TypedDict, total=False):
    """How a check runs.

    Attributes:
        max_examples: inputs that are drawn (100); with 0 the examples and `replay` alone are run.
        seed: of the drawing (0).
        call_timeout: seconds of CPU time for one call (1).
        total_timeout: seconds of wall clock for everything (30).
        sandbox: as `opensage.sandbox.open_sandbox` takes it.
        memory_mb: mebibytes for the candidate (512).
        shrink_calls: most calls while shrinking (200).
        shrink_seconds: of the judge's own time while shrinking (5); the wall clock may run four times as long.
        fresh_per_call: whether each call gets a process of its own, for code that keeps state.
        replay: arguments of earlier counterexamples, tried first.
        select: which failure of the first class in priority is shown: "shrink" shrinks it, "min_tokens" takes the
            least of those that were drawn, "first" the first. "sure" shrinks, too, but shows a public example that
            fails before anything else, as it is: whatever the properties are worth, that is a fault.
        steps: most steps of one run of a machine (20); its runs are the inputs, and `shrink_calls` counts runs.
        backend: "crosshair" has a solver look for inputs first, which follows the paths of pure Python; they are tried
            as `replay` is, and not shrunk. What it finds depends on the machine's speed.
        backend_seconds: of wall clock, for each property (10); together at most half of `total_timeout`, and 5 s to
            start.
    """

    max_examples: int
    seed: int
    call_timeout: float
    total_timeout: float
    sandbox: str
    memory_mb: int
    shrink_calls: int
    shrink_seconds: float
    fresh_per_call: bool
    replay: Sequence[Sequence[Any]]
    select: Select
    steps: int
    backend: Literal["hypothesis", "crosshair"]
    backend_seconds: float


_DEFAULTS = CheckOptions(
    max_examples=100, seed=0, call_timeout=1.0, total_timeout=30.0, sandbox="auto", memory_mb=512, shrink_calls=200,
    shrink_seconds=5.0, fresh_per_call=False, replay=(), select="shrink", steps=20, backend="hypothesis",
    backend_seconds=10.0,
)  # fmt: skip


def check(code: str, propset: PropertySet, **options: Unpack[CheckOptions]) -> Report:
    """`acheck` for code that runs no event loop."""
    return asyncio.run(acheck(code, propset, **options))


async def acheck(code: str, propset: PropertySet, **options: Unpack[CheckOptions]) -> Report:
    """Draw inputs, run the code on them, let the properties judge, shrink the failure that is to be shown.

    Code and properties run in a sandbox each. The same seed gives the same report, as long as no time runs out.

    Args:
        code: the source, as text.
        propset: what must hold.
        options: see `CheckOptions`.

    Raises:
        ConfigError: Hypothesis or the backend is not installed, or cannot do this; an option is out of bounds.
        SandboxError: no sandbox can be opened.
        PropertyError: the properties have no source.
    """
    invalid = _unparsable(code, propset.entry)
    if invalid is not None:
        return invalid
    chosen = _checked_options(options)
    clock, seconds = Clock(), chosen["total_timeout"]
    proposed: list[Any] = []
    notes: list[str] = []
    if chosen["backend"] == "crosshair":
        from opensage_agents.pgs.proposing import propose

        each = min(chosen["backend_seconds"], seconds / 2 / max(1, len(propset.names)))
        proposed, note = await propose(code, propset, each, seed=chosen["seed"], sandbox=chosen["sandbox"])
        notes, seconds = [note], max(seconds / 2, seconds - clock())
    job = _job(propset, chosen, proposed, seconds)
    report = await _judged(code, propset, job, chosen["sandbox"], chosen["memory_mb"], seconds)
    return replace(report, notes=(*report.notes, *notes))


def _checked_options(options: CheckOptions) -> CheckOptions:
    unknown = set(options) - set(_DEFAULTS)
    if unknown:
        raise TypeError(f"check has no option {', '.join(sorted(unknown))}")
    chosen: CheckOptions = {**_DEFAULTS, **options}
    if not 1 <= chosen["steps"] <= MOST_STEPS:
        raise ConfigError(f"steps is {chosen['steps']}: a run of a machine has 1 to {MOST_STEPS}")
    if chosen["backend"] not in ("hypothesis", "crosshair"):
        raise ConfigError(f"backend is {chosen['backend']!r}: it is hypothesis or crosshair")
    return chosen


def _job(propset: PropertySet, chosen: CheckOptions, proposed: list[Any], seconds: float) -> dict[str, Any]:
    """What the judge is told."""
    return {
        "kind": "stateful" if propset.stateful else "check", "steps": chosen["steps"], "seed": chosen["seed"],
        "entry": propset.entry, "text": propset.to_source(), "names": propset.names,
        "max_examples": chosen["max_examples"], "call_seconds": chosen["call_timeout"], "seconds": seconds * 0.6,
        "shrink_calls": chosen["shrink_calls"], "shrink_seconds": chosen["shrink_seconds"],
        "fresh": chosen["fresh_per_call"], "select": chosen["select"],
        "replay": [*(codec.encode(tuple(args)) for args in chosen["replay"]), *proposed],
        "examples": [[codec.encode(tuple(args)), codec.encode(result)] for args, result in propset.examples],
    }  # fmt: skip


async def _judged(
    code: str, propset: PropertySet, job: dict[str, Any], sandbox: str, memory_mb: int, seconds: float
) -> Report:
    """Have the judge do a job; whatever becomes of it is a report."""
    clock, seed, wanted = Clock(), int(job["seed"]), int(job["max_examples"])
    place: Bench | None = None
    try:
        async with bench(sandbox, memory_mb, seconds) as place:
            async with asyncio.timeout(seconds):
                done = await _talked(place, code, propset, job)
    except InvalidCode as error:
        return Report("invalid_code", message=str(error), line=error.line)
    except Silent as error:
        text = f"the properties or their strategy do not end or break the process: {error}"
        return Report("invalid_property", message=text, stats=Stats(seconds=clock()))
    except TimeoutError:
        if place is not None and place.so_far is not None:
            text = f"not shrunk to the end: the {seconds:g} s were over"
            place.so_far["notes"] = [*place.so_far["notes"], text]
            return _report(place.so_far, seed, clock(), wanted)
        text = f"nothing was decided within {seconds:g} s"
        return Report("inconclusive", message=text, stats=Stats(seconds=clock()))
    return _report(done, seed, clock(), wanted)


async def _talked(place: Bench, code: str, propset: PropertySet, job: dict[str, Any]) -> dict[str, Any]:
    candidate = place.candidate(code, propset.entry, propset.adapter)
    try:
        await candidate.start()
        job["arity"] = candidate.arity
        return await place.talk(job, candidate, [])
    finally:
        await candidate.stop()


def _unparsable(code: str, entry: str) -> Report | None:
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = error.lineno if isinstance(error, SyntaxError) else None
        where = f"line {line}: " if line else ""
        return Report("invalid_code", message=f"{where}{getattr(error, 'msg', error)}", line=line)
    first = entry.partition(".")[0]
    names = {getattr(node, "name", None) or getattr(node, "id", None) for node in ast.walk(tree)}
    names |= {node.asname or node.name for node in ast.walk(tree) if isinstance(node, ast.alias)}
    if first not in names:
        return Report("invalid_code", message=f"it does not define {first}", line=1)
    return None


def _report(done: dict[str, Any], seed: int, seconds: float, wanted: int) -> Report:
    if "status" in done:
        text, name = str(done["message"]), str(done.get("name", ""))
        status = cast("Status", done["status"])
        return Report(status, message=text, invalid={name: text} if name else {}, stats=Stats(seconds=seconds))
    stats = Stats(**done["stats"], seconds=seconds)
    found = _counterexample(done["found"], seed)
    status, message = _status(done, found, stats, wanted)
    return Report(
        status, found, message, invalid=dict(done["bad"]), unused=tuple(done["unused"]), notes=tuple(done["notes"]),
        stats=stats, broken=tuple(done.get("broken", ())), wrong=int(done.get("wrong", 0)),
    )  # fmt: skip


def _status(done: dict[str, Any], found: Counterexample | None, stats: Stats, wanted: int) -> tuple[Status, str]:
    if found is not None:
        outcome = "violated" if found.outcome == "wrong_answer" else found.outcome
        assert outcome in FAILED
        return cast("Status", outcome), found.message
    if done["bad"]:
        name, text = next(iter(done["bad"].items()))
        return "invalid_property", f"{name}: {text}"
    if any(note.startswith("flaky") for note in done["notes"]):
        return "inconclusive", "what fails does not fail each time: the code is not deterministic, or keeps state"
    if not done["complete"]:
        return "inconclusive", f"the time was over after {stats.examples} of {wanted} inputs"
    if wanted and stats.evaluations and not any(stats.evaluations.values()):
        return "inconclusive", "no property applied to any input"
    return "ok", ""


def _counterexample(found: dict[str, Any] | None, seed: int) -> Counterexample | None:
    if found is None:
        return None
    return Counterexample(
        args=tuple(codec.decode(found["args"])), args_repr=found["text"], result_repr=found["result"],
        property=found["prop"], message=found["message"], tokens=found["tokens"], outcome=found["outcome"],
        shrunk_from=found["shrunk_from"], shrunk=found["shrunk"], seed=seed, stateful=bool(found["step"]),
        wanted_repr=found["wanted"],
    )  # fmt: skip
