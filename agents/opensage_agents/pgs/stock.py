"""The stock of properties and inputs of one repair: proposed, filtered, looked at for vacuity, taken back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from opensage_agents.pgs.checking import acheck
from opensage_agents.pgs.filtering import afind_vacuous, avalidate
from opensage_agents.pgs.generator import key_of
from opensage_agents.pgs.ghostwriter import ghostwritten
from opensage_agents.pgs.properties import Property, PropertyError, PropertySet
from opensage_agents.pgs.report import Counterexample, Report, Select
from opensage_agents.pgs.strategies import strategy_from
from opensage_agents.pgs.task import PGSConfig, Task
from opensage_agents.pgs.tester import SLOW_WAY, TRIES, Proposal, Tester, slow_name

SUSPECT_AFTER = 2
"""Different programs that a property may reject before the Tester is asked whether it is right."""
NOTHING = "st.nothing()"
"""The strategy of a set whose public examples alone are run."""


@dataclass(slots=True)
class Stock:
    """What is known of the function so far.

    Attributes:
        by_hand: whether the properties are given; then none is asked for and none is dropped.
        kept, dropped: of the properties proposed in this round.
        suspects: properties that the Tester took back.
        notes: what else is to be known.
    """

    task: Task
    config: PGSConfig
    tester: Tester
    props: PropertySet
    by_hand: bool
    tester_failed: bool = False
    kept: tuple[str, ...] = ()
    dropped: dict[str, str] = field(default_factory=dict)
    suspects: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _begun: bool = False
    _rejected: dict[str, set[str]] = field(default_factory=dict)
    _confirmed: set[str] = field(default_factory=set)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the properties."""
        return tuple(self.props.names)

    async def fill(self, code: str) -> None:
        """Ask the Tester, in each round until half of what it is asked for, or a slow version, is kept."""
        self.kept, self.dropped = (), {}
        if self.by_hand or self.config.feedback != "property":
            return
        if not self._begun:
            self._begin()
        enough = SLOW_WAY in self.names or 2 * len(self.names) >= self.config.properties_per_round
        if self.tester_failed or enough:
            return
        proposal = await self.tester.propose(known=[*self.names, *self.suspects])
        if not proposal.properties:
            self.tester_failed = True
            self.notes.append("the Tester gave no property that can be read")
        await self._take(proposal, code)
        if not self.names and self.config.ghostwriter:
            self._draft()

    def _begin(self) -> None:
        """Inputs that need no model."""
        self._begun = True
        source, entry = self.task.code or f"{self.task.head}\n    pass\n", self.task.entry_point
        try:
            derived = strategy_from(source, entry, self.task.public_tests)
        except PropertyError as error:
            self.notes.append(f"no inputs can be derived: {error}")
            return
        self.props = replace(self.props, strategy=derived.strategy, preconditions=derived.preconditions)

    def _draft(self) -> None:
        """Properties that need no model, when the Tester has none: they are right less often than its own."""
        source = self.task.code or f"{self.task.head}\n    pass\n"
        try:
            drafted = ghostwritten(self.task.entry_point, source, self.task.public_tests)
        except PropertyError:
            return
        fresh = [each for each in drafted.properties if each.name not in self.suspects]
        self.props = replace(self.props, properties=fresh, setup=f"{self.props.setup}\n{drafted.setup}".strip())
        self.kept += tuple(each.name for each in fresh)

    async def _take(self, proposal: Proposal, code: str) -> None:
        """Add what passes the filter and is not vacuous; use the Tester's strategy when it draws."""
        self.dropped |= {name: f"unfit: {why}" for name, why in proposal.refused.items()}
        fresh = self._named(proposal.properties)
        setup = "\n".join(each for each in (self.props.setup, proposal.setup) if each)
        passed = await self._filtered(replace(self.props, properties=fresh, setup=setup)) if fresh else []
        self.props = replace(self.props, setup=setup)
        if SLOW_WAY in passed and len(passed) > 1:
            passed = await self._agreeing([each for each in fresh if each.name in passed])
        if self.config.inputs == "tester":
            await self._take_strategy(proposal, code)
        if passed:
            new = [each for each in fresh if each.name in passed]
            self.props = replace(self.props, properties=[*self.props.properties, *new])
            await self._drop_vacuous(passed, code)
        self.kept += tuple(name for name in self.names if name in passed)

    def _named(self, proposed: list[Property]) -> list[Property]:
        """Another name for a property that has one of an earlier property; the same property again is left out."""
        known = {each.name: each.text for each in self.props.properties}
        fresh = []
        for each in proposed:
            if each.name in self.suspects or known.get(each.name) == each.text:
                continue
            name = each.name
            while name in known:
                name += "_again"
            known[name] = each.text
            fresh.append(replace(each, name=name, check=each.text.replace(f"def {each.name}(", f"def {name}(", 1)))
        return fresh

    async def _filtered(self, tried: PropertySet) -> list[str]:
        try:
            report = await avalidate(tried, self.task.public_tests, sandbox=self.config.sandbox)
        except PropertyError as error:
            self.dropped |= dict.fromkeys(tried.names, f"cannot be used: {error}")
            return []
        self.dropped |= report.dropped
        return [*report.kept, *report.undecided]

    async def _agreeing(self, passed: list[Property]) -> list[str]:
        """Without those that the Tester's own version of the function breaks: one of the two is wrong.

        The version gives the right result of every public pair, so it is the more likely to be right.
        """
        others = [each for each in passed if each.name != SLOW_WAY]
        entry = slow_name(self.task)
        trial = replace(self.props, target=entry, properties=others, examples=(), adapter="")
        report = await self.run(trial, self.props.setup, self.config.inputs_per_round)
        against = [name for name in report.broken if name != SLOW_WAY]
        self.dropped |= dict.fromkeys(against, "contradicts the Tester's own version of the function")
        return [each.name for each in passed if each.name not in against]

    async def _take_strategy(self, proposal: Proposal, code: str) -> None:
        """The Tester's strategy, three times if need be; then the derived one stays."""
        text, why = proposal.strategy, ""
        for number in range(TRIES):
            why = await self._unusable(text, code) if text else "there is none"
            if not why:
                kept = proposal.preconditions if text == proposal.strategy else ()
                self.props = replace(self.props, strategy=text, preconditions=kept)
                return
            if number < TRIES - 1:
                text = await self.tester.strategy(why)
        self.notes.append(f"the Tester's inputs cannot be used ({why[:200]}): derived ones are")

    async def _unusable(self, text: str, code: str) -> str:
        """Why a strategy cannot be used, "" when it can. It runs in the judge's sandbox alone."""
        trial = replace(self.props, strategy=text, properties=(), preconditions=(), examples=())
        report = await self.run(trial, code, 5)
        return report.message if report.status == "invalid_property" else ""

    async def _drop_vacuous(self, fresh: list[str], code: str) -> None:
        if self.config.vacuity == "off":
            return
        try:
            report = await afind_vacuous(code, self.props.only(fresh), inputs=20, sandbox=self.config.sandbox)
        except (PropertyError, SyntaxError) as error:
            self.notes.append(f"vacuity was not looked at: {error}"[:300])
            return
        self.dropped |= dict.fromkeys(report.vacuous, "vacuous: no mutant of the program breaks it")
        self._remove(report.vacuous)

    def _remove(self, names: Iterable[str]) -> None:
        gone = set(names)
        self.props = self.props.only(name for name in self.names if name not in gone)

    # --- checks ---

    async def judge(self, code: str, replay: list[tuple[Any, ...]]) -> Report:
        """Check a program. What turns out unusable goes, and it is done again without that.

        Raises:
            PropertyError: properties that were given cannot be used.
        """
        while True:
            drawn = self.config.inputs_per_round if self.props.properties and self.props.strategy != NOTHING else 0
            report = await self.run(self.props, code, drawn, replay)
            unusable = report.status == "invalid_property"
            if self.by_hand:
                if unusable:
                    raise PropertyError(report.message)
                return report
            bad = [name for name in self.names if name in report.invalid]
            if unusable and not bad:
                bad = self._without_inputs(report.message)
            if not bad:
                return report
            self.dropped |= {name: f"cannot be used: {report.invalid.get(name, report.message)}" for name in bad}
            self._remove(bad)

    def _without_inputs(self, why: str) -> list[str]:
        """Inputs that cannot be drawn: go on with the public tests alone."""
        if self.props.strategy == NOTHING:
            raise PropertyError(why)
        self.notes.append(f"inputs cannot be drawn ({why[:200]}): public tests alone are run")
        self.props = replace(self.props, strategy=NOTHING, preconditions=())
        return ["the inputs"]

    async def run(
        self, props: PropertySet, code: str, drawn: int, replay: list[tuple[Any, ...]] | None = None
    ) -> Report:
        """One check with the options of this repair; without inputs the public examples alone are run."""
        config = self.config
        chosen: dict[str, Select] = {"io": "first", "minimal_io": "min_tokens"}
        own: Select = "shrink" if self.by_hand and config.select == "sure" else config.select
        return await acheck(
            code, props, max_examples=drawn, replay=replay or () if drawn else (), seed=config.seed,
            select=chosen.get(config.feedback, own), sandbox=config.sandbox,
            call_timeout=config.call_timeout, total_timeout=60.0,
        )  # fmt: skip

    async def doubts(self, found: Counterexample | None, code: str) -> bool:
        """Whether the property that was broken is taken back.

        It is asked about when it rejects one program after the other. A public pair that fails is a fault in any case.
        """
        if found is None or not found.property or self.by_hand or found.property in self._confirmed:
            return False
        if found.wanted_repr:
            return False
        rejected = self._rejected.setdefault(found.property, set())
        rejected.add(key_of(code))
        if len(rejected) < SUSPECT_AFTER:
            return False
        prop = next(each for each in self.props.properties if each.name == found.property)
        if await self.tester.confirms(prop, found):
            self._confirmed.add(prop.name)
            return False
        self.suspects.append(prop.name)
        self._remove([prop.name])
        return True
