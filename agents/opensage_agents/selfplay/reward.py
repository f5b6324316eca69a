"""The plug-in: a host's reward, and what is paid on top for leaving the support of what was used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from opensage_agents.selfplay.buffer import HistoryBuffer
from opensage_agents.selfplay.detector import SeenDetector
from opensage_agents.selfplay.embedding import Encoder
from opensage_agents.selfplay.errors import BadValue, NotEnoughHistory
from opensage_agents.selfplay.host import INVALID
from opensage_agents.selfplay.text import LONGEST, wordlike

Array = NDArray[np.float64]
Form = Literal["additive", "gated"]
Parts = dict[str, Any]


class NoveltyReward:
    """Host reward plus novelty, behind a gate of learnability [R].

    additive: R = host + lam * novelty * [valid] * [p_lo <= s <= p_hi]. gated: R = host * (1 - beta * seen) where
    host > 0. Novelty is never paid for what is no question, is longer than `longest`, or is always or never solved.

    Args:
        detector: fitted and calibrated, or None: then the host's reward alone is given, and `parts["note"]` says so.
        lam: weight of the novelty, at least 0.
        beta: share of the host's reward that a seen question loses, in [0, 1].
        form: "additive" or "gated".
        p_lo, p_hi: shares of solved samples between which a question counts as learnable.
        alpha: false-novel rate at which a question counts as seen.
        encoder: of the questions.
        longest: characters of a question.

    Raises:
        BadValue: an argument is out of bounds.
    """

    def __init__(
        self, detector: SeenDetector | None = None, lam: float = 0.5, beta: float = 0.5, form: Form = "additive",
        p_lo: float = 0.2, p_hi: float = 0.8, *, alpha: float = 0.05, encoder: Encoder | None = None,
        longest: int = LONGEST,
    ) -> None:  # fmt: skip
        if not (np.isfinite(lam) and lam >= 0):
            raise BadValue(f"lam is {lam}: it is at least 0")
        if not 0 <= beta <= 1:
            raise BadValue(f"beta is {beta}: it is between 0 and 1")
        if not 0 <= p_lo < p_hi <= 1:
            raise BadValue(f"p_lo is {p_lo} and p_hi {p_hi}: p_lo is less than p_hi, both are between 0 and 1")
        if form not in ("additive", "gated"):
            raise BadValue(f"form is {form!r}: it is additive or gated")
        if not 0 < alpha < 1:
            raise BadValue(f"alpha is {alpha}: it is between 0 and 1")
        self.detector, self.lam, self.beta, self.form = detector, float(lam), float(beta), form
        self.p_lo, self.p_hi, self.alpha, self.longest = p_lo, p_hi, alpha, longest
        self.encoder = encoder or Encoder()
        self.note = "" if detector else "no detector: the host's reward alone"

    def __call__(self, questions: Sequence[str], s: Any, host_reward: Any, valid: Any = None) -> tuple[Array, Parts]:
        """Rewards of a batch, (n,), and what they are made of.

        Args:
            questions: texts.
            s: share of the solver's samples that are right, or of its majority answer, in [0, 1].
            host_reward: of the trainer.
            valid: whether each is a question that can be answered; all are without it.

        Returns:
            The rewards, and a dict with `novelty`, `seen`, `gate`, `bonus`, `host` (arrays of n) and `note` (a text).

        Raises:
            BadValue: numbers of another count, s outside [0, 1], NaN; says the row.
        """
        number = len(questions)
        shares, host = _numbers("s", s, number), _numbers("host_reward", host_reward, number)
        outside = np.flatnonzero((shares < 0) | (shares > 1))
        if len(outside):
            raise BadValue(f"s is {shares[outside[0]]} in row {outside[0]}: a share is between 0 and 1")
        asked = np.array([wordlike(text) for text in questions], dtype=bool)
        fine = asked & (np.ones(number, dtype=bool) if valid is None else _flags(valid, number))
        host = np.where(asked, host, INVALID)
        novelty = self._novelty(questions, asked)
        short = np.array([len(text) <= self.longest for text in questions], dtype=bool)
        gate = fine & short & (shares >= self.p_lo) & (shares <= self.p_hi)
        seen = novelty <= 1 - self.alpha if self.detector else np.zeros(number, dtype=bool)
        total = self._total(host, novelty, seen, gate)
        parts = {"novelty": novelty, "seen": seen, "gate": gate, "bonus": total - host, "host": host, "note": self.note}
        return total, parts

    def _total(self, host: Array, novelty: Array, seen: NDArray[np.bool_], gate: NDArray[np.bool_]) -> Array:
        if self.form == "gated":
            return np.where(host > 0, host * (1 - self.beta * seen), host)
        # Where nothing is paid the host's number comes back as it is, to the last bit.
        return np.where(gate, host + self.lam * novelty, host)

    def _novelty(self, questions: Sequence[str], asked: NDArray[np.bool_]) -> Array:
        found = np.zeros(len(questions))
        if self.detector is not None and asked.any():
            places = np.flatnonzero(asked).tolist()
            found[places] = self.detector.novelty(self.encoder.encode([questions[place] for place in places]))
        return found

    def refit(self, history: Iterable[str], detector: SeenDetector) -> str:
        """Fit a new detector on the history, for the next round; returns "" or why the host's reward alone is given."""
        try:
            self.detector = detector.fit_history(self.encoder.encode(list(history)))
            self.note = ""
        except NotEnoughHistory as error:
            self.detector, self.note = None, f"{error}; the host's reward alone"
        return self.note


def _numbers(name: str, values: Any, number: int) -> Array:
    try:
        found: Array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise BadValue(f"{name} is no list of numbers: {error}") from error
    if found.shape != (number,):
        raise BadValue(f"{name} has the shape {found.shape}: wanted is one number for each of {number} questions")
    bad = np.flatnonzero(~np.isfinite(found))
    if len(bad):
        raise BadValue(f"{name} is {found[bad[0]]} in row {bad[0]}: wanted are finite numbers")
    return found


def _flags(valid: Any, number: int) -> NDArray[np.bool_]:
    found = np.asarray(valid)
    if found.shape != (number,) or (number and found.dtype.kind not in "bui"):
        raise BadValue(f"valid is no list of {number} truth values: write true or false, not a text")
    return found.astype(bool)


HostFunction = Callable[..., Sequence[Any]]


class WrappedReward:
    """A host's reward function with the plug-in on top; see `wrap_reward`."""

    def __init__(
        self, host: HostFunction, reward: NoveltyReward, history: HistoryBuffer,
        detector: Callable[[int], SeenDetector], key: str, solved: str,
    ) -> None:  # fmt: skip
        self.host, self.reward, self.history, self.detector = host, reward, history, detector
        self.key, self.solved = key, solved
        self.round, self.parts = 0, Parts()
        self._refit()

    def __call__(self, questions: Sequence[str], *args: Any, **options: Any) -> list[Any]:
        """What the host gave, in its own form: numbers, or dicts with the number under `key`, novelty put beside it.

        Raises:
            BadValue: the host gave another number of rewards, or what is no reward; says the row.
        """
        given = list(self.host(questions, *args, **options))
        if len(given) != len(questions):
            raise BadValue(f"the host gave {len(given)} rewards for {len(questions)} questions")
        rows = [self._row(each, place) for place, each in enumerate(given)]
        host, shares, valid = (np.array([row[place] for row in rows]) for place in range(3))
        total, self.parts = self.reward(questions, shares, host, valid.astype(bool))
        novelty = self.parts["novelty"]
        return [
            {**each, self.key: float(value), "novelty": float(new)} if isinstance(each, Mapping) else float(value)
            for each, value, new in zip(given, total, novelty, strict=True)
        ]

    def _row(self, each: Any, place: int) -> tuple[float, float, bool]:
        """Host reward, share solved, validity. Of a bare number the share is what min(s, 1 - s) would have it be."""
        value = each.get(self.key) if isinstance(each, Mapping) else each
        if isinstance(value, bool) or not isinstance(value, int | float | np.number):
            raise BadValue(
                f"the host's reward in row {place} is {value!r}: wanted is a number, here or as {self.key!r}"
            )
        host = float(value)
        share = each.get(self.solved) if isinstance(each, Mapping) else None
        valid = each.get("valid", host >= 0) if isinstance(each, Mapping) else host >= 0
        if not isinstance(valid, bool | np.bool_ | int):
            raise BadValue(f"valid is {valid!r} in row {place}: it is true or false")
        return host, min(max(host, 0.0), 0.5) if share is None else share, bool(valid)

    def end_round(self, used: Iterable[str]) -> str:
        """Take what the solver was trained on into the history, and refit for the next round.

        Returns:
            "" or why the host's reward alone is given.
        """
        self.history.add(used, self.round)
        self.round += 1
        return self._refit()

    def _refit(self) -> str:
        return self.reward.refit(self.history.questions, self.detector(self.round))


def wrap_reward(
    host_fn: HostFunction, reward: NoveltyReward | None = None, history: HistoryBuffer | None = None, *,
    detector: Callable[[int], SeenDetector] = lambda number: SeenDetector(seed=number), key: str = "overall",
    solved: str = "s",
) -> WrappedReward:  # fmt: skip
    """The plug-in for any trainer: a function from questions (and whatever else the host takes) to rewards.

    Call it as the host's function was called, and `end_round(used)` after each round with the questions that the solver
    was trained on. The detector changes there and nowhere else.

    Args:
        host_fn: `list[str], ... -> list[float | dict]`.
        reward: how novelty is paid; its encoder embeds.
        history: what was used so far.
        detector: makes the detector of a round.
        key: name of the number in the host's dicts.
        solved: name of the share of solved samples in them. A host that gives bare numbers, or dicts without it, is
            taken to pay min(s, 1 - s), and less than 0 for what is not valid; if it penalises repeats, give the share.
    """
    history = HistoryBuffer() if history is None else history
    return WrappedReward(host_fn, reward or NoveltyReward(), history, detector, key, solved)
