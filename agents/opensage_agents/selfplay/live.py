"""Self-play with a language model and no training: it proposes Python problems and solves them; a sandbox checks both.

No weights change. What the reward decides is which proposals are kept as used, and which of them are told back to the
proposer as examples. So this shows what the reward selects, not what training on it would do.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from opensage_agents.pgs.asking import Desk
from opensage_agents.selfplay.buffer import HistoryBuffer
from opensage_agents.selfplay.detector import KindName, SeenDetector
from opensage_agents.selfplay.embedding import Encoder
from opensage_agents.selfplay.errors import BadValue
from opensage_agents.selfplay.host import host_reward
from opensage_agents.selfplay.metrics import TAU, overlap
from opensage_agents.selfplay.proposal import Proposal, program_in, proposed
from opensage_agents.selfplay.reward import Form, NoveltyReward
from opensage_agents.selfplay.verdicts import Judge

PROPOSER, SOLVER = "proposer", "solver"
SHOWN = 3
"""Examples told back."""
_SYSTEM = "You are a careful programmer."
_ASK = (
    "Invent one short Python programming problem about {topic}. Answer in this form and add nothing:\n\n"
    "A statement of one to three sentences that says what the function takes and returns.\n"
    "```python\ndef name(arguments):\n    ...a correct solution...\n\n"
    "assert name(...) == ...\nassert name(...) == ...\nassert name(...) == ...\n```\n"
    "The results in the assertions are literals, and not all the same."
)
TOPICS = ("lists", "strings", "numbers", "dictionaries", "recursion", "sorting", "dates and times", "matrices")


@dataclass(frozen=True, slots=True)
class LiveConfig:
    """How a run goes.

    Attributes:
        rounds, problems: rounds, and proposals in each.
        keep: most that are kept of a round; None is half.
        samples: answers of the solver to each problem.
        topic: what problems are about; "" takes turns among eight topics.
        kind, h_min: of the detector. A short history is enough here, because there is no more: novelty is coarse then.
        lam, beta, form, p_lo, p_hi: see `NoveltyReward`. The gate is wider than there, because few samples are taken.
        tau: cosine from which two problems overlap.
        seed: of the order of topics, and of the detector.
    """

    rounds: int = 3
    problems: int = 16
    keep: int | None = None
    samples: int = 4
    topic: str = ""
    kind: KindName = "knn"
    h_min: int = 6
    lam: float = 0.5
    beta: float = 0.5
    form: Form = "additive"
    p_lo: float = 0.2
    p_hi: float = 0.8
    tau: float = TAU
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be run."""
        for name, most in (("rounds", 100), ("problems", 1000), ("samples", 100)):
            if not 1 <= getattr(self, name) <= most:
                raise BadValue(f"{name} is {getattr(self, name)}: it is from 1 to {most}")
        if self.keep is not None and not 1 <= self.keep <= self.problems:
            raise BadValue(f"keep is {self.keep}: it is from 1 to the {self.problems} problems of a round")
        SeenDetector(self.kind, h_min=self.h_min)  # what it refuses is told before a model is asked
        if not 0 < self.tau <= 1:
            raise BadValue(f"tau is {self.tau}: it is above 0 and at most 1")

    @property
    def kept(self) -> int:
        """Most problems kept of a round."""
        return self.keep or max(1, self.problems // 2)


@dataclass(frozen=True, slots=True)
class Played:
    """One proposal and what became of it: its solve rate `s`, rewards, and whether it was kept."""

    statement: str
    reason: str
    tests: int
    s: float
    host: float
    novelty: float
    reward: float
    gate: bool
    kept: bool


@dataclass(frozen=True, slots=True)
class LiveRound:
    """A round of one arm.

    Attributes:
        number: from 1 on.
        arm: "host" or "novelty".
        played: all proposals.
        overlap: share of the kept problems whose nearest earlier kept one has a cosine of at least tau; None in the
            first round.
        overlap_valid: the same of all valid proposals.
        nearest: mean cosine of the kept problems to the nearest earlier kept one; None in the first round.
        solved: mean share of right answers, of valid proposals.
        note: why novelty was not paid, if so.
    """

    number: int
    arm: str
    played: tuple[Played, ...]
    overlap: float | None
    overlap_valid: float | None
    nearest: float | None
    solved: float
    note: str = ""

    @property
    def valid(self) -> int:
        """Proposals that are problems."""
        return sum(not each.reason for each in self.played)

    @property
    def kept(self) -> int:
        """Problems that were kept."""
        return sum(each.kept for each in self.played)


@dataclass(slots=True)
class LiveReport:
    """All rounds of both arms."""

    config: LiveConfig
    rounds: list[LiveRound] = field(default_factory=list)
    stopped: str = ""
    seconds: float = 0.0

    def of(self, arm: str) -> list[LiveRound]:
        """The rounds of an arm."""
        return [each for each in self.rounds if each.arm == arm]

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        rounds = [{**asdict(each), "valid": each.valid, "kept": each.kept} for each in self.rounds]
        return {"config": asdict(self.config), "rounds": rounds, "stopped": self.stopped, "seconds": self.seconds}


@dataclass(slots=True)
class _Arm:
    name: str
    reward: NoveltyReward
    history: HistoryBuffer = field(default_factory=HistoryBuffer)
    examples: list[str] = field(default_factory=list)


class LiveSelfPlay:
    """Both arms side by side: "host" keeps by the host's reward, "novelty" by the plug-in's.

    They share the first round, in which there is no history, so that they part by the reward alone.

    Args:
        desk: asks the roles "proposer" and "solver".
        judge: runs programs, opened.
        config: see `LiveConfig`.
        encoder: of statements.
        on_round: gets each round as it ends.
    """

    def __init__(
        self, desk: Desk, judge: Judge, config: LiveConfig | None = None, encoder: Encoder | None = None,
        on_round: Callable[[LiveRound], None] = lambda _round: None,
    ) -> None:  # fmt: skip
        self.config, self._desk, self._judge = config or LiveConfig(), desk, judge
        self._encoder, self._on_round = encoder or Encoder(), on_round
        self._arms = [_Arm(name, self._reward(), HistoryBuffer()) for name in ("host", "novelty")]
        self.report = LiveReport(self.config)

    def _reward(self) -> NoveltyReward:
        config = self.config
        return NoveltyReward(
            None, config.lam, config.beta, config.form, config.p_lo, config.p_hi, encoder=self._encoder
        )

    async def run(self) -> LiveReport:
        """All rounds. What was done before an error stays in `report`.

        Raises:
            BudgetSpent, ModelError, SandboxError: see there.
        """
        start = time.monotonic()
        try:
            for number in range(1, self.config.rounds + 1):
                shared = await self._tried(self._arms[0], number) if number == 1 else None
                for arm in self._arms:
                    tried = shared or await self._tried(arm, number)
                    self.report.rounds.append(self._settle(arm, number, *tried))
                    self._on_round(self.report.rounds[-1])
        finally:
            self.report.seconds = round(time.monotonic() - start, 1)
        return self.report

    async def _tried(self, arm: _Arm, number: int) -> tuple[list[Proposal], list[float]]:
        proposals, shares = [], []
        for place in range(self.config.problems):
            reply = await self._desk.ask(PROPOSER, _SYSTEM, self._prompt(arm, number, place))
            proposals.append(await self._judge.checked(proposed(reply)))
            shares.append(await self._solved(proposals[-1]) if proposals[-1].valid else 0.0)
        return proposals, shares

    def _prompt(self, arm: _Arm, number: int, place: int) -> str:
        """The same topics in both arms; only the examples are the arm's own."""
        order = random.Random(self.config.seed * 1000 + number).sample(TOPICS, len(TOPICS))
        asked = _ASK.format(topic=self.config.topic or order[place % len(order)])
        if not arm.examples:
            return asked
        told = "\n".join(f"- {each[:400]}" for each in arm.examples)
        return f"Problems that were found good:\n{told}\n\nThey show what is wanted. {asked}"

    async def _solved(self, proposal: Proposal) -> float:
        """Share of the solver's programs that pass all tests."""
        prompt = (
            f"{proposal.statement}\n\nWrite `{proposal.head}` in Python, with the imports it needs, in one ```python "
            "block. No explanation."
        )
        passed = 0
        for _ in range(self.config.samples):
            program = program_in(await self._desk.ask(SOLVER, _SYSTEM, prompt), proposal.name)
            passed += all(await self._judge.passed(program, proposal.cases))
        return passed / self.config.samples

    def _settle(self, arm: _Arm, number: int, proposals: Sequence[Proposal], shares: Sequence[float]) -> LiveRound:
        """Reward the proposals, keep the best, and tell some of them back."""
        texts = [each.statement for each in proposals]
        valid = np.array([each.valid for each in proposals], dtype=bool)
        host = host_reward(texts, shares, valid)
        detector = SeenDetector(self.config.kind, seed=self.config.seed + number, h_min=self.config.h_min)
        arm.reward.refit(arm.history.questions, detector)
        total, parts = arm.reward(texts, shares, host, valid)
        paid = total if arm.name == "novelty" else host
        kept = self._chosen(texts, paid, valid)
        figures = self._figures(arm, texts, kept, valid)
        arm.history.add((texts[place] for place in kept), number)
        arm.examples = [texts[place] for place in kept[:SHOWN]]
        played = tuple(
            Played(
                texts[i], proposals[i].reason, len(proposals[i].cases), shares[i], float(host[i]),
                float(parts["novelty"][i]), float(paid[i]), bool(parts["gate"][i]), i in kept,
            )
            for i in range(len(texts))
        )  # fmt: skip
        solved = float(np.mean([share for share, fine in zip(shares, valid, strict=True) if fine] or [0.0]))
        note = arm.reward.note if arm.name == "novelty" else ""
        return LiveRound(number, arm.name, played, *figures, solved, note)

    def _chosen(self, texts: Sequence[str], paid: Any, valid: Any) -> list[int]:
        """Places of the best paid problems, best first; the same text is kept once."""
        order = sorted(np.flatnonzero(valid).tolist(), key=lambda place: -paid[place])
        first = {texts[place]: place for place in reversed(order)}
        return [place for place in order if first[texts[place]] == place][: self.config.kept]

    def _figures(
        self, arm: _Arm, texts: Sequence[str], kept: Sequence[int], valid: Any
    ) -> tuple[float | None, float | None, float | None]:
        if not len(arm.history) or not kept:
            return None, None, None
        known = self._encoder.encode(arm.history.questions)
        fresh = self._encoder.encode([texts[place] for place in kept])
        asked = self._encoder.encode([texts[place] for place in np.flatnonzero(valid).tolist()])
        tau = self.config.tau
        nearest = float((fresh @ known.T).max(axis=1).mean())
        return overlap(fresh, known, tau), overlap(asked, known, tau), nearest


def told(report: LiveReport) -> str:
    """The rounds for people, both arms side by side."""
    lines = ["round  arm      proposed valid kept  solved  overlap  of valid  nearest"]
    lines += [
        f"{each.number:5}  {each.arm:8} {len(each.played):8} {each.valid:5} {each.kept:4}  {each.solved:6.2f}"
        f"  {_shown(each.overlap):>7}  {_shown(each.overlap_valid):>8}  {_shown(each.nearest):>7}"
        + (f"  ({each.note})" if each.note else "")
        for each in report.rounds
    ]
    lines.append(
        f"overlap: share of kept problems with an earlier kept one at a cosine of {report.config.tau:g} or more. "
        "No weights are trained: the reward chooses what is kept and told back."
    )
    if report.stopped:
        lines.append(f"stopped: {report.stopped}")
    return "\n".join(lines)


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
