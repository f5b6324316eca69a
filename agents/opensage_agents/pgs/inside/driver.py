"""The judge's process: one job, many questions to the candidate through whoever started it, one answer."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, BinaryIO

from opensage_agents.pgs.inside import codec
from opensage_agents.pgs.inside.evaluation import Enough, Evaluation, kind_of
from opensage_agents.pgs.inside.failures import SLOW, Failure, text_of, tokens
from opensage_agents.pgs.inside.search import Search
from opensage_agents.pgs.inside.space import BadProperty, NotApplicable, approx, judge, load, said

if TYPE_CHECKING:
    from opensage_agents.pgs.inside.sequences import Sequences


class WrongArity(Exception):
    """The candidate cannot be called with so many arguments."""


class Channel:
    """Lines of JSON to and from whoever started this process."""

    def __init__(self, folder: str) -> None:
        self._out: BinaryIO = os.fdopen(os.dup(1), "wb")
        nowhere = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(nowhere, fd)
        self._calls = open(os.path.join(folder, "calls"), "rb")  # noqa: SIM115 open as long as the process

    def send(self, message: dict[str, Any]) -> None:
        """Send one message."""
        self._out.write(json.dumps(message).encode() + b"\n")
        self._out.flush()

    def receive(self) -> dict[str, Any]:
        """The next message."""
        return dict(json.loads(self._calls.readline()))

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send, and wait for the answer."""
        self.send(message)
        return self.receive()


def main(folder: str) -> None:
    """Do the job that comes first."""
    channel = Channel(folder)
    try:
        import hypothesis
    except ImportError:
        channel.send({"done": {"missing": "hypothesis"}})
        return
    del hypothesis
    sys.setrecursionlimit(5000)
    job = channel.receive()
    work = {"check": _check, "stateful": _stateful, "validate": _validate, "vacuity": _vacuity}[job["kind"]]
    try:
        done = work(job, channel.ask)
    except BadProperty as error:
        done = {"status": "invalid_property", "message": str(error), "name": error.name}
    except WrongArity as error:
        done = {"status": "invalid_code", "message": str(error)}
    except Exception as error:  # noqa: BLE001 a Tester's strategy raises anything
        done = {"status": "invalid_property", "message": said(error), "name": ""}
    channel.send({"done": done})


# --- check ---------------------------------------------------------------------------------------------------------


def _check(job: dict[str, Any], ask: Callable[..., Any]) -> dict[str, Any]:
    deadline = time.monotonic() + job["seconds"]
    space = load(job["text"])
    evaluate = _evaluation(job, space, ask, deadline)
    search = _search(job, space, evaluate)
    wrong = _first_inputs(job, search)
    if job["max_examples"]:
        search.explore()
    return _concluded(job, search, ask, deadline, wrong)


def _stateful(job: dict[str, Any], ask: Callable[..., Any]) -> dict[str, Any]:
    # Here, because plain checks need not wait for the import.
    from opensage_agents.pgs.inside.machine import Remote, StatefulMachine, names
    from opensage_agents.pgs.inside.sequences import Sequences

    deadline = time.monotonic() + job["seconds"]
    space = load(job["text"], names())
    evaluate = _evaluation(job, space, ask, deadline)
    remote = StatefulMachine._remote = Remote(evaluate, job["entry"], job["text"].splitlines())
    machines: Any = evaluate.properties
    search = Sequences(machines, remote, evaluate, job["seed"], job["max_examples"], job["steps"])
    search.first([codec.decode(args) for args in job["replay"]])
    if job["max_examples"]:
        search.explore()
    return _concluded(job, search, ask, deadline, [])


def _concluded(
    job: dict[str, Any], search: Search | Sequences, ask: Callable[..., Any], deadline: float, wrong: list[Failure]
) -> dict[str, Any]:
    """Of all failures, the one to show."""
    pool = _ranked(job, [*search.evaluate.all_failures(), *wrong])
    if pool:  # for the case that the time runs out while it is shrunk
        least = min(pool, key=lambda each: each.order)
        ask({"so_far": _summary(search, deadline, _shown(least, least, False), wrong)})
    return _summary(search, deadline, _chosen(job, search, wrong), wrong)


def _summary(
    search: Search | Sequences, deadline: float, found: dict[str, Any] | None, wrong: list[Failure]
) -> dict[str, Any]:
    evaluate = search.evaluate
    stats = {
        "examples": search.examples,
        "invalid": search.invalid,
        "calls": evaluate.calls,
        "shrink_calls": search.shrink_calls,
        "evaluations": {name: evaluate.counts[name] for name in evaluate.properties},
    }
    unused = [name for name in evaluate.properties if not evaluate.counts[name] and name not in evaluate.bad]
    done = {"stats": stats, "bad": evaluate.bad, "notes": evaluate.notes, "unused": unused if evaluate.calls else []}
    broken = sorted({each.prop for each in evaluate.all_failures()} - {""})
    complete = time.monotonic() < deadline and (search.examples > 0 or not search.max_examples)
    return {
        **done,
        "complete": complete,
        "found": found,
        "broken": broken,
        "wrong": len(wrong) + search.failed_examples,
    }


def _evaluation(job: dict[str, Any], space: dict[str, Any], ask: Callable[..., Any], deadline: float) -> Evaluation:
    properties = {name: space[name] for name in job["names"]}
    kinds = frozenset(kind_of(codec.decode(result)) for _, result in job["examples"])
    return Evaluation(ask, properties, job["call_seconds"], job["fresh"], deadline, kinds)


def _search(job: dict[str, Any], space: dict[str, Any], evaluate: Evaluation) -> Search:
    def check_args(args: Any) -> None:
        least, most = job["arity"] or (0, None)
        if len(args) < least or (most is not None and len(args) > most):
            wanted = str(least) if most == least else f"{least} or more" if most is None else f"{least} to {most}"
            given = [len(example[0]) for example in job["examples"]]
            text = f"takes {wanted} arguments, but the strategy draws {len(args)}"
            if given and len(args) not in given:
                raise BadProperty(f"{job['entry']} {text}, and the examples have {given[0]}")
            raise WrongArity(f"{job['entry']} {text}")

    if "STRATEGY" not in space:
        raise BadProperty("there is no STRATEGY")
    preconditions = space.get("PRECONDITIONS", [])
    return Search(space["STRATEGY"], preconditions, evaluate, job["seed"], job["max_examples"], check_args)


def _first_inputs(job: dict[str, Any], search: Search) -> list[Failure]:
    """Earlier counterexamples, then the public examples, whose results are known. Returns the wrong answers."""
    wrong: list[Failure] = []
    pairs: list[tuple[Any, list[Any] | None]] = [(codec.decode(args), None) for args in job["replay"]]
    pairs += [(codec.decode(args), [codec.decode(result)]) for args, result in job["examples"]]
    for args, expected in pairs:
        search.check_args(args)
        try:
            fails = search.evaluate(tuple(args))
        except Enough:
            break
        search.failed_examples += bool(expected and fails)
        if expected and fails:
            search.evaluate.mark(tuple(args), f"{expected[0]!r:.500}")
        if expected and not fails:
            answer = search.evaluate.run(codec.encode(tuple(args)))
            if answer["outcome"] == "ok" and not same(codec.decode(answer["value"]), expected[0]):
                got = repr(codec.decode(answer["value"]))[:500]
                message = f"expected {expected[0]!r:.500}"
                wanted = f"{expected[0]!r:.500}"
                wrong.append(Failure(args, text_of(args), "wrong_answer", "", message, got, wanted=wanted))
    return wrong


def same(got: Any, expected: Any) -> bool:
    """Equality with an expected result; a list is as good as a tuple, for the data that comes from JSON."""
    return approx(got, expected) if not isinstance(expected, bool) else got is expected


def _chosen(job: dict[str, Any], search: Search | Sequences, wrong: list[Failure]) -> dict[str, Any] | None:
    """The failure to show: shrunk, the least of its kind, and one that comes each time."""
    evaluate = search.evaluate
    flaky: set[tuple[str, str]] = set()
    for _ in range(3):
        pool = [each for each in [*evaluate.all_failures(), *wrong] if each.kind not in flaky]
        if not pool:
            return None
        pool = _ranked(job, pool)
        start = min(pool, key=lambda each: each.order)
        first = next(each for each in pool if each.kind == start.kind)
        sure = bool(job["select"] == "sure" and start.wanted)
        shrinkable = start.outcome != "wrong_answer"
        shrunk = False
        if shrinkable and not sure and job["select"] in ("shrink", "sure") and job["max_examples"]:
            shrunk = search.shrink(start, job["shrink_calls"], job["shrink_seconds"])
        pool = pool if sure else [*evaluate.all_failures(), *wrong]
        kind = [each for each in pool if each.kind == start.kind]
        least = first if job["select"] == "first" else min(kind, key=lambda each: each.key, default=start)
        confirmed = search.confirmed(least) if shrinkable else least
        if confirmed is not None:
            return _shown(confirmed, first, shrunk)
        flaky.add(start.kind)
        evaluate.notes.append(f"flaky: {start.prop or start.outcome} does not fail each time")
    return None


def _ranked(job: dict[str, Any], pool: list[Failure]) -> list[Failure]:
    """Those that may be shown: of public examples alone, where these go first and some fail."""
    sure = [each for each in pool if each.wanted] if job["select"] == "sure" else []
    return sure or pool


def _shown(found: Failure, first: Failure, shrunk: bool) -> dict[str, Any]:
    data = asdict(found)
    data["args"] = codec.encode(tuple(found.args))
    return {**data, "tokens": tokens(found.text), "shrunk_from": first.text, "shrunk": shrunk}


# --- filter --------------------------------------------------------------------------------------------------------


def _validate(job: dict[str, Any], _ask: Callable[..., Any]) -> dict[str, Any]:
    """Which properties accept every public pair."""
    space = load(job["text"])
    dropped: dict[str, str] = {}
    applied: set[str] = set()
    for args, result in job["examples"]:
        for name in job["names"]:
            if name in dropped:
                continue
            given, wanted = tuple(codec.decode(args)), codec.decode(result)
            shown = f"{text_of(given)} -> {wanted!r}"[:400]
            try:
                message = judge(name, space[name], given, wanted, given)
            except NotApplicable:
                continue
            except BadProperty as error:
                dropped[name] = f"cannot be used: {error}"
                continue
            applied.add(name)
            if message is not None:
                dropped[name] = f"rejects {shown}: {message}"
    return {"dropped": dropped, "applied": sorted(applied)}


# --- vacuity -------------------------------------------------------------------------------------------------------


def _vacuity(job: dict[str, Any], ask: Callable[..., Any]) -> dict[str, Any]:
    """How many mutants each property rejects. A result of another type than the candidate's proves nothing."""
    deadline = time.monotonic() + job["seconds"]
    space = load(job["text"])
    evaluate = _evaluation(job, space, ask, deadline)
    inputs = _search(job, space, evaluate).sample(job["max_examples"])
    kinds: list[tuple[Any, str]] = []
    rejected: set[str] = set()
    for args in inputs:
        answer = evaluate.run(codec.encode(args))
        if answer["outcome"] == "ok":
            kinds.append((args, _kind(answer)))
            rejected |= set(evaluate.verdicts(args, answer))
        if evaluate.slow >= evaluate.most_slow:
            break
    counts = dict(evaluate.counts)
    killed: dict[str, list[int]] = {name: [] for name in job["names"]}
    ran = 0
    for number in range(job["mutants"]):
        if time.monotonic() > deadline or not ask({"load": number})["ok"]:
            continue
        ran += 1
        for name in _killers(evaluate, kinds):
            killed[name].append(number)
    return {
        "killed": killed,
        "counts": counts,
        "rejected": sorted(rejected),
        "bad": evaluate.bad,
        "ran": ran,
        "answers": len(kinds),
    }


def _killers(evaluate: Evaluation, inputs: list[tuple[Any, str]]) -> set[str]:
    found: set[str] = set()
    for args, kind in inputs:
        answer = evaluate.run(codec.encode(args), 0.3)
        if answer["outcome"] in SLOW:
            break
        if answer["outcome"] == "ok" and _kind(answer) == kind:
            found |= set(evaluate.verdicts(args, answer))
    return found


def _kind(answer: dict[str, Any]) -> str:
    return type(codec.decode(answer["value"])).__name__
