"""The agent `safety_cot`: works as its model leads, but nothing is shown or done before a judge has scored it."""

from __future__ import annotations

import os

from opensage.compaction import Compactor
from opensage.protocols import Model
from opensage.runtime import Run
from opensage.workflow import Outcome, Steps
from opensage_agents.safety_cot.guard import Guarded
from opensage_agents.safety_cot.opening import open_judge
from opensage_agents.safety_cot.tools import TOOLS

JUDGE = "OPENSAGE_SAFETY_JUDGE"
"""Variable that names the judge of the agent, as `opensage safety score --judge` does."""


async def safety_cot(steps: Steps) -> str | Outcome:
    """Let the model drive, guarded; sub-agents that inherit its model are guarded too."""
    name = os.environ.get(JUDGE, "tags")
    judge = open_judge(name)
    steps.say(f"replies are held back until the judge {judge.name} has scored them")
    if name == "tags":
        steps.say(f"the reference judge sees placeholders only; {JUDGE}=guard:MODEL names a real one")
    run = steps.run
    for each in TOOLS:
        if run.toolbox.get(each.name) is None:
            run.toolbox.add(each)
    own, engine = run.model, None if run.member is None else run.member.engine
    plain = None if engine is None else engine.model
    _use(run, Guarded(own, judge))
    if engine is not None and plain is not None:
        engine.model = Guarded(plain, judge)  # what sub-agents inherit
    try:
        return await steps.loop()
    finally:
        _use(run, own)
        if engine is not None and plain is not None:
            engine.model = plain


def _use(run: Run, model: Model) -> None:
    """The model of the run and of its compactor, whose summaries are replies too."""
    run.model = model
    run.compactor = Compactor(run.session, model, pin=None if run.member is None else run.member.pinned)
