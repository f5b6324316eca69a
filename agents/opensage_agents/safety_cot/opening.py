"""Judges by name."""

from __future__ import annotations

from opensage.errors import ConfigError
from opensage_agents.safety_cot.judges import Judge, TagJudge


def open_judge(name: str) -> Judge:
    """The judge of a name: `tags`, `keywords`, or `guard:MODEL` with any model string of the kit.

    Raises:
        ConfigError: no such judge; ModelNotFound: no such model.
    """
    kind, colon, rest = name.partition(":")
    if name == "tags":
        return TagJudge()
    if name == "keywords":
        from opensage_agents.safety_cot.peers import KeywordJudge

        return KeywordJudge()
    if kind == "guard" and colon and rest:
        from opensage.models import open_model
        from opensage_agents.safety_cot.guard_models import GuardModelJudge

        return GuardModelJudge(open_model(rest))
    raise ConfigError(f"--judge {name}: it is tags, keywords, or guard:MODEL with a model string")
