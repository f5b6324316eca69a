"""The whole loop without a model: a script states the properties and gives the corrected program on the second call."""

from __future__ import annotations

from typing import Any

from opensage.models import ScriptedModel
from opensage_agents.pgs.inside.failures import tokens
from opensage_agents.pgs.properties import PropertySet
from opensage_agents.pgs.repair import PGSWorkflow
from opensage_agents.pgs.task import PGSConfig, from_code


async def repaired(buggy: str, corrected: str, propset: PropertySet, sandbox: str) -> dict[str, Any]:
    """How it ended, how often the Generator was asked, and the longest feedback in tokens."""
    started = from_code(buggy, propset.entry)
    task = type(started)(started.description, propset.entry, None, (), started.head, propset.adapter)
    generator = [_block(buggy), {"repeat": _block(corrected), "times": -1}]
    tester = {"repeat": _block(propset.to_source()), "times": -1}
    model = ScriptedModel({"agents": {"tester": [tester], "generator": generator}})
    config = PGSConfig(sandbox=sandbox, ghostwriter=False, call_timeout=0.5)
    result = await PGSWorkflow(model, config=config).arun(task)
    told = [each.prompt.partition("\n```\n\n")[2].partition("Say in one or two")[0] for each in result.rounds]
    return {
        "status": result.status, "generator_calls": result.calls["generator"],
        "feedback_tokens": max(map(tokens, told), default=0), "properties": result.properties.names,
        "dropped": [name for each in result.rounds for name in each.dropped],
    }  # fmt: skip


def _block(code: str) -> dict[str, str]:
    return {"text": f"```python\n{code}\n```"}
