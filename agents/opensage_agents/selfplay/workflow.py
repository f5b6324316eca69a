"""The agent `selfplay`: proposes and solves Python problems with and without the novelty reward, and reports."""

from __future__ import annotations

import json
import re

from opensage.workflow import Outcome, Steps
from opensage_agents.pgs.asking import BudgetSpent, Desk, StepsAsker
from opensage_agents.pgs.task import PGSConfig
from opensage_agents.pgs.trace import Trace
from opensage_agents.selfplay.live import PROPOSER, SOLVER, LiveConfig, LiveSelfPlay, told
from opensage_agents.selfplay.playing import REPLY_TOKENS, told_round
from opensage_agents.selfplay.verdicts import Judge

REPORT = "selfplay.json"
_NUMBERS = {"rounds": 20, "problems": 64, "samples": 16}
_TOPIC = re.compile(r"\babout ([\w ,-]{2,60}?)(?:[.;:!?\n]|$)")


async def selfplay(steps: Steps) -> str | Outcome:
    """Run both arms with the numbers that the task names ("2 rounds of 8 problems about lists"); leaves a report."""
    config = config_of(steps.task)
    kind, left = steps.run.sandbox.kind, steps.run.budget.remaining_seconds()
    bounds = PGSConfig(max_seconds=3600.0 if left is None else left, temperature=0.8, reply_tokens=REPLY_TOKENS)
    asker, trace = StepsAsker(steps), Trace(steps.run.session.journal.path.with_suffix(".selfplay"), resume=True)
    stopped = ""
    async with Judge(kind if kind in ("bubblewrap", "docker", "local") else "auto") as judge:
        desk = Desk({PROPOSER: asker, SOLVER: asker}, bounds, trace)
        play = LiveSelfPlay(desk, judge, config, on_round=lambda each: steps.say(told_round(each)))
        try:
            await play.run()
        except BudgetSpent as error:
            stopped = play.report.stopped = str(error)
    await steps.leave(REPORT, json.dumps(play.report.to_dict(), indent=1), say="The report.")
    text = f"{told(play.report)}\nAll proposals are in {REPORT}."
    return Outcome("limit", stopped, text) if stopped else text


def config_of(task: str) -> LiveConfig:
    """Rounds, problems, samples and topic as the task says them, within bounds; 2 rounds of 8 problems without."""
    numbers = {"rounds": 2, "problems": 8, "samples": 3}
    for name, most in _NUMBERS.items():
        if found := re.search(rf"\b(\d{{1,4}})\s+{name[:-1]}s?\b", task):
            numbers[name] = min(max(int(found[1]), 1), most)
    topic = _TOPIC.search(task)
    return LiveConfig(
        numbers["rounds"], numbers["problems"], samples=numbers["samples"], topic=topic[1].strip() if topic else ""
    )


__all__ = ["config_of", "selfplay"]
