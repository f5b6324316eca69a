"""The steps of `coder` with a small model: explore, reproduce, fix, verify, finish, each decided by what ran.

A small model often finds a bug in one function that is put before it with nothing else, and loses itself in a
conversation of many calls. So code finds the function and the examples, the model writes candidates, and examples,
tests and agreement choose among them (the last as in CodeT, Chen et al. 2022, arXiv 2207.10397).
With a large model the loop drives, with the instruction in AGENT.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from opensage.errors import LimitReached
from opensage.workflow import Outcome, Steps
from opensage_agents.coder.checks import Checker, Score, own_checks
from opensage_agents.coder.examples import examples_in
from opensage_agents.coder.functions import replaced, signature_of
from opensage_agents.coder.prompts import again, first
from opensage_agents.coder.target import Target, find_target

MOST_CANDIDATES = 12
_COLD, _STEP, _HOT = 0.6, 0.1, 1.3
"""Temperatures: the first question is asked at 0, the others ever warmer, since a small model repeats itself."""
AGREE = 3
"""Candidates that must agree when no example tells right from wrong."""


@dataclass(slots=True)
class Candidate:
    """A version of the file, what it scored, and how often the model wrote the same function."""

    text: str
    score: Score
    votes: int = 1


@dataclass(slots=True)
class Repair:
    """The state of one repair."""

    steps: Steps
    target: Target
    checker: Checker
    before: Score
    found: dict[str, Candidate] = field(default_factory=dict)

    @property
    def best(self) -> Candidate | None:
        """The candidate that passes most; among equals the one that was written most often, then first."""
        return max(self.found.values(), key=lambda one: (one.score.passed, one.votes), default=None)

    @property
    def kept(self) -> Candidate | None:
        """The version that is to stay: the best, unless it passes less than what was there."""
        best = self.best
        return None if best is None or best.score.passed < self.before.passed else best

    @property
    def failed(self) -> Candidate | None:
        """The best candidate that is better than what was there and still fails, or else the last one that fails."""
        wrong = [one for one in self.found.values() if not one.score.whole]
        better = [one for one in wrong if one.score.passed > self.before.passed]
        return max(better, key=lambda one: one.score.passed) if better else wrong[-1] if wrong else None

    def good(self, candidate: Candidate) -> bool:
        """Whether nothing is left to try."""
        if not candidate.score.whole:
            return False
        if self.before.whole:  # the examples do not show the defect
            return candidate.votes >= AGREE
        return True


async def coder(steps: Steps) -> str | Outcome:
    """Mend one function by candidates that are tried, or let the model drive when there is no such function."""
    if not steps.small:
        return await steps.loop()
    target = await find_target(steps)
    if target is None:
        steps.say("no single Python function is meant: the model drives")
        return await steps.loop()
    steps.say(f"explore: {target.path}, function {target.place.name}")
    repair = await _reproduce(steps, target)
    try:
        await _try_candidates(repair)
    except LimitReached as error:
        await _settle(repair)
        return Outcome("limit", error.reason, _told(repair))
    await _settle(repair)
    return _outcome(repair)


async def _reproduce(steps: Steps, target: Target) -> Repair:
    name = target.place.short
    known = target.parameters
    examples = examples_in(steps.task, name, known) or examples_in(target.docstring, name, known)
    checker = Checker(steps, target, examples)
    await checker.find_tests()
    if not examples and not checker.tests:
        checker.checks = await own_checks(steps, target)
    before = await checker.score(target.text)
    steps.say(f"reproduce: {before.told()}")
    return Repair(steps, target, checker, before)


async def _try_candidates(repair: Repair) -> None:
    """Ask until a candidate is good, ever more freely; every second question shows a version that failed, and how."""
    steps, target = repair.steps, repair.target
    for number in range(MOST_CANDIDATES):
        failed = repair.failed if number % 2 else None
        prompt = first(target, steps.task, repair.before)
        if failed is not None:
            prompt = again(target, steps.task, failed.text, failed.score)
        warmth = min(_COLD + _STEP * number, _HOT) if number else 0.0
        reply = await steps.ask(prompt, purpose="fix", max_tokens=900, temperature=warmth)
        text = replaced(target.text, target.place, reply)
        if text and await _seen(repair, text):
            return


async def _seen(repair: Repair, text: str) -> bool:
    """Score a candidate; returns whether it is good."""
    place = repair.target.found_in(text)
    if place is None:
        return False
    key = signature_of(text, place)
    known = repair.found.get(key)
    if known is None:
        known = repair.found[key] = Candidate(text, await repair.checker.score(text))
        repair.steps.say(f"fix: candidate {len(repair.found)}: {known.score.told()}")
    else:
        known.votes += 1
    return repair.good(known)


async def _settle(repair: Repair) -> None:
    """Leave the version that is to stay in the file, also when the time for calls is over: it stood there before."""
    steps, target = repair.steps, repair.target
    text = target.text if repair.kept is None else repair.kept.text
    await steps.leave(target.path, text, say="Finish: the best version stays.")


def _outcome(repair: Repair) -> Outcome:
    """Done when nothing that can be checked speaks against it; checks that the model made are no more than votes."""
    kept = repair.kept
    if kept is None:
        return Outcome("stuck", "no candidate was better than what was there", _told(repair))
    if kept.score.sure and not kept.score.whole:
        return Outcome("stuck", f"the best version is not right yet: {kept.score.told()}", _told(repair))
    return Outcome(text=_told(repair))


def _told(repair: Repair) -> str:
    place, kept = repair.target.place.name, repair.kept
    if kept is None:
        return f"I found no change of {place} that helps; nothing is changed."
    return f"Changed {place} in {repair.target.path}. Before: {repair.before.told()}. Now: {kept.score.told()}."


__all__ = ["coder"]
