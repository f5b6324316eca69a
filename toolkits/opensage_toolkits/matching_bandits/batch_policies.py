"""The vectorised twins of the policies: state (S, N) or (S, N, K), the same rules, the same random numbers."""

from __future__ import annotations

import numpy as np

from .baselines import SIGNALS
from .batch import BatchArms, BatchPlayers, BatchTally, Outcome
from .ledger import Field
from .market import Bools, Floats, Ints
from .stability import NOBODY as STAY
from .stability import at_arm, stable_matchings
from .two_sided import TwoSidedRule


def pick_true(allowed: Bools, pick: Floats) -> Ints:
    """The arm number floor(pick * count) among those allowed; pick in [0, 1)."""
    rank = allowed.cumsum(axis=2)
    wanted = (pick * rank[:, :, -1]).astype(np.int64) + 1
    return np.asarray((rank >= wanted[:, :, None]).argmax(axis=2))


class BatchLearningArms(BatchArms):
    """Twin of `LearningArm`."""

    def __init__(self, field: Field, c: float = 1.0) -> None:
        super().__init__(field)
        self.c, self.tally = c, BatchTally(field.shape)

    def scores(self, step: int) -> Floats:
        """Upper bounds; those never seen come first."""
        return self.tally.bounds(self.c * np.log(step + 1))

    def observe(self, outcome: Outcome) -> None:
        """Learn from a payoff."""
        self.tally.add(outcome.won, outcome.its_reward)

    def forget(self, who: Bools) -> None:
        """Start anew with these ids."""
        self.tally.clear(who)


class BatchWaySE(BatchPlayers):
    """Twin of `WaySE`; `horizon` is T for the confidence radius, (S,), or None."""

    def __init__(self, field: Field, horizon: Ints | None, c: float = 0.5) -> None:
        super().__init__(field)
        self.c, self.K = c, field.shape[2]
        self.log_horizon = None if horizon is None else c * np.log(horizon.astype(np.float64))[:, None]
        self.tally = BatchTally(field.shape)
        self.dead = np.zeros(field.shape, dtype=np.bool_)
        self.served = np.full(field.shape, -self.K)
        self.current, self.rejections = np.zeros((2, *field.shape[:2]), dtype=np.int64)
        self.parked = np.zeros(field.shape[:2], dtype=np.bool_)

    def restart(self, who: Bools) -> None:
        """Back to the start of exploring."""
        super().restart(who)
        self.tally.clear(who)
        self.dead[who], self.served[who], self.parked[who] = False, -self.K, False
        self.current[who], self.rejections[who] = 0, 0

    def act(self, age: Ints, present: Bools, draws: Floats) -> Ints:
        """Parked: the best arm alive. Exploring: the current arm unless it served within K steps."""
        self.age, self.present = age, present
        best = np.where(self.dead, -np.inf, self.tally.means).argmax(axis=2)
        best = np.where(self.dead.all(axis=2), STAY, best)
        moved = self.parked & present & (best != self.current)
        self.current[moved], self.rejections[moved] = best[moved], 0
        self.explored += present & ~self.parked
        if self.parked.all():
            return best
        served = at_arm(self.served, self.current)
        waiting = (self.current < 0) | (age - served < self.K)
        return np.where(self.parked, best, np.where(waiting, STAY, self.current))

    def observe(self, outcome: Outcome) -> None:
        """Accepted: learn and go on; the K-th rejection in a row: out of reach for good."""
        asked, accepted = outcome.proposal >= 0, outcome.accepted
        self.rejections = np.where(accepted, 0, self.rejections + (asked & ~accepted))
        self.tally.add(outcome.won, outcome.reward)
        given_up = asked & ~accepted & (self.rejections == self.K)
        if given_up.any():
            self.dead |= given_up[:, :, None] & (outcome.proposal[:, :, None] == self.numbers)
            self.rejections[given_up] = 0
        if not self.parked.all():
            self.served = np.where(outcome.won, self.age[:, :, None], self.served)
            self._advance(asked, accepted | given_up)

    def _advance(self, asked: Bools, done: Bools) -> None:
        """Explorers go to the next arm alive, and park if their order is sure."""
        exploring = asked & ~self.parked
        distance = (self.numbers - self.current[:, :, None] - 1) % self.K
        ahead = np.where(self.dead, self.K, distance).argmin(axis=2)
        ahead = np.where(self.dead.all(axis=2), STAY, ahead)
        self.current = np.where(exploring & done, ahead, self.current)
        fixed = self.log_horizon
        log_term = 2 * self.c * np.log(self.age + 1.0) if fixed is None else np.broadcast_to(fixed, asked.shape)
        self.parked |= exploring & self.tally.settled(~self.dead, log_term)


class BatchWaySE2S(BatchPlayers):
    """Twin of `WaySE2S`."""

    draws = 2

    def __init__(self, field: Field, rule: TwoSidedRule | None = None) -> None:
        super().__init__(field)
        self.rule, self.K, self.tally = rule or TwoSidedRule(), field.shape[2], BatchTally(field.shape)
        self.patience = self.rule.patience * self.K
        self.marked = np.zeros(field.shape, dtype=np.bool_)
        self.rates, self.lengths = np.zeros(0), np.zeros(0, dtype=np.int64)
        self.trial, self.home = np.full((2, *field.shape[:2]), STAY)
        self.streak, self.rejections, self.walk_until = np.zeros((3, *field.shape[:2]), dtype=np.int64)

    def restart(self, who: Bools) -> None:
        """Nothing known, nothing marked."""
        super().restart(who)
        self.tally.clear(who)
        self.marked[who], self.trial[who], self.home[who] = False, STAY, STAY
        self.streak[who], self.rejections[who], self.walk_until[who] = 0, 0, 0

    def act(self, age: Ints, present: Bools, draws: Floats) -> Ints:
        """Home, unless the coin says probe or a walk is under way."""
        clear = np.asarray(self.marked.all(axis=2))
        if self.rule.forget:
            clear |= present & (age & (age - 1) == 0)
        self.marked &= ~clear[:, :, None]
        value = np.where(self.tally.counts > 0, self.tally.means, 2.0)
        home = np.where(self.marked, -np.inf, value).argmax(axis=2)
        self.rejections[present & (home != self.home)] = 0
        self.home = np.where(present, home, self.home)
        better = self.marked & (value > at_arm(value, home)[:, :, None])
        return self._propose(np.maximum(age, 1), present, draws, better)

    def _rates(self, age: Ints) -> tuple[Floats, Ints]:
        """Exploration rate and length of a walk at each age, from a table that grows with the oldest."""
        if self.rates.size <= age.max():
            ages = range(1, 2 * int(age.max()) + 1024)
            self.rates = np.array([1.0, *(self.rule.eps(a, self.K) for a in ages)])
            self.lengths = np.ceil(self.K**2 / self.rates).astype(np.int64)
        return self.rates[age], self.lengths[age]

    def _propose(self, age: Ints, present: Bools, draws: Floats, better: Bools) -> Ints:
        rule, some = self.rule, better.any(axis=2)
        eps, length = self._rates(age)
        coin, pick = draws[:, :, 0], draws[:, :, 1]
        start = present & some & (self.walk_until < age) & (coin >= 1 - rule.walk * eps / length)
        self.walk_until = np.where(start, age + length, self.walk_until)
        walking = some & (self.walk_until >= age) & (self.trial == STAY)
        probe = coin < eps * (1 - rule.walk)
        up = walking | (probe & some & (coin >= eps * (1 - rule.walk - rule.upward)))
        self.probing = up | probe
        self.explored += present & self.probing
        anywhere = (pick * self.K).astype(np.int64)
        return np.where(up, pick_true(better, pick), np.where(probe, anywhere, self.home))

    def observe(self, outcome: Outcome) -> None:
        """Learn; a marked arm that accepts goes on trial, an arm that keeps rejecting is marked."""
        asked, accepted, arm = outcome.proposal >= 0, outcome.accepted, outcome.proposal
        self.tally.add(outcome.won, outcome.reward)
        found = self.probing & accepted & at_arm(self.marked, arm)
        on_trial = asked & ~self.probing & (arm == self.trial)
        at_home = asked & ~self.probing
        self.rejections = np.where(at_home, np.where(accepted, 0, self.rejections + 1), self.rejections)
        self.streak += on_trial & accepted
        settled = on_trial & accepted & (self.streak >= self.patience)
        given_up = at_home & ~accepted & (on_trial | (self.rejections >= self.patience))
        self._mark(arm, found, given_up)
        self.rejections[found | given_up] = 0
        self.streak[found] = 0
        self.trial[settled | (given_up & on_trial)] = STAY
        self.walk_until[settled] = 0
        self.trial = np.where(found, arm if self.rule.trial else STAY, self.trial)

    def _mark(self, arm: Ints, found: Bools, given_up: Bools) -> None:
        here = arm[:, :, None] == self.numbers
        self.marked = (self.marked & ~(here & found[:, :, None])) | (here & given_up[:, :, None])


class BatchETGS(BatchPlayers):
    """Twin of `ETGS`; with `desynchronised`, ages are taken for the time."""

    def __init__(self, field: Field, horizon: int, desynchronised: bool = False) -> None:
        super().__init__(field)
        self.lag = np.where(desynchronised, 0, field.arrivals - 1)
        self.log_term = np.full(field.shape[:2], 0.5 * np.log(horizon))
        self.K, self.tally = field.shape[2], BatchTally(field.shape)
        self.dead = np.zeros(field.shape, dtype=np.bool_)
        self.committed, self.signal = np.zeros((2, *field.shape[:2]), dtype=np.bool_)

    def restart(self, who: Bools) -> None:
        """Start exploring again."""
        super().restart(who)
        self.tally.clear(who)
        self.dead[who], self.committed[who] = False, False

    def act(self, age: Ints, present: Bools, draws: Floats) -> Ints:
        """Round-robin with signals, then down the list."""
        players = np.arange(self.field.shape[1])
        clock = age + self.lag
        best = np.where(self.dead, -np.inf, self.tally.means).argmax(axis=2)
        best = np.where(self.dead.all(axis=2), STAY, best)
        self.signal = ~self.committed & present & np.isin(clock, _SIGNALS)
        self.explored += present & ~self.committed
        proposal = np.where(self.committed, best, (players + clock) % self.K)
        if self.signal.any():
            sure = self.tally.settled(~np.zeros_like(self.dead), self.log_term)
            proposal = np.where(self.signal, np.where(sure, players, STAY), proposal)
        return proposal

    def observe(self, outcome: Outcome) -> None:
        """Learn while exploring; committed, one rejection is final; all N accepted at a signal: all are sure."""
        free = ~self.committed
        self.tally.add(outcome.won & free[:, :, None], outcome.reward)
        lost = self.committed & (outcome.proposal >= 0) & ~outcome.accepted
        self.dead |= lost[:, :, None] & (outcome.proposal[:, :, None] == self.numbers)
        full = (outcome.winners >= 0).sum(axis=1, keepdims=True) == self.field.shape[1]
        self.committed |= self.signal & full


_SIGNALS = np.array(sorted(SIGNALS))


class BatchCAUCB(BatchPlayers):
    """Twin of `CAUCB`."""

    draws = 1

    def __init__(self, field: Field, delay: float = 0.1) -> None:
        super().__init__(field)
        self.delay, self.tally = delay, BatchTally(field.shape)
        self.last = np.full(field.shape[:2], STAY)
        self.open = np.ones(field.shape, dtype=np.bool_)

    def restart(self, who: Bools) -> None:
        """No arm tried, no winner seen."""
        super().restart(who)
        self.tally.clear(who)
        self.last[who], self.open[who] = STAY, True

    def act(self, age: Ints, present: Bools, draws: Floats) -> Ints:
        """The best upper bound among arms whose last winner they like no better than this player."""
        bounds = self.tally.bounds(1.5 * np.log(np.maximum(age, 1) + 1.0)[:, :, None])
        best = np.where(self.open, bounds, -np.inf).argmax(axis=2)
        best = np.where(self.open.any(axis=2), best, STAY)
        self.present = present
        choose = present & ((draws[:, :, 0] >= self.delay) | (self.last == STAY))
        self.last = np.where(choose, best, self.last)
        return self.last

    def observe(self, outcome: Outcome) -> None:
        """Learn, and look at the winners."""
        self.tally.add(outcome.won, outcome.reward)
        its = np.where(outcome.won, self.field.liked, -np.inf).max(axis=1, keepdims=True)
        self.open = np.where(self.present[:, :, None], self.field.liked >= its, self.open)


class CentralUCBGS(BatchPlayers):
    """A platform that matches by the players' upper bounds (Liu, Mania and Jordan 2020): no player decides alone."""

    def __init__(self, field: Field) -> None:
        super().__init__(field)
        self.tally = BatchTally(field.shape)

    def restart(self, who: Bools) -> None:
        """The platform forgets what it knew of them."""
        super().restart(who)
        self.tally.clear(who)

    def act(self, age: Ints, present: Bools, draws: Floats) -> Ints:
        """Deferred acceptance on the upper bounds and the arms' true tastes."""
        bounds = self.tally.bounds(1.5 * np.log(np.maximum(age, 1) + 1.0)[:, :, None])
        return stable_matchings(bounds, self.field.liked, present)

    def observe(self, outcome: Outcome) -> None:
        """Learn from a payoff."""
        self.tally.add(outcome.won, outcome.reward)
