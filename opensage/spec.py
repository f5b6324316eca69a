"""Specs are data: what an agent is and what it may spend. Written by people in files, by agents through tools."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=1, le=10**12)]
CountOrZero = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Limits(BaseModel):
    """What one run, with all its sub-agents, may spend. None means no limit of that kind."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_turns: Count | None = 100
    """Model calls. The last one allowed is asked for a final answer instead of more tool calls."""
    max_cost: Positive | None = None
    """US dollars. Checked before each call; with a model of unknown price it bounds nothing, which is said once."""
    max_tokens: Count | None = None
    """Input plus output tokens of all calls."""
    max_tool_calls: Count | None = None
    """Tool calls."""
    max_seconds: Positive | None = None
    """Wall clock."""
    max_agents: CountOrZero | None = 32
    """Agents called in all, and agents created in all; 0 turns delegation off."""
    max_live_agents: Count | None = 8
    """Agents at work at one time. One that waits for others does not count."""
    max_depth: CountOrZero | None = 3
    """Levels of delegation below the root; 0 turns delegation off."""

    def within(self, other: Limits) -> Limits:
        """The tighter of both, limit by limit; what `other` does not name is no wish."""
        named = {name: getattr(other, name) for name in other.model_fields_set}
        pairs = {name: (getattr(self, name), named.get(name)) for name in Limits.model_fields}
        return Limits(**{name: min((v for v in pair if v is not None), default=None) for name, pair in pairs.items()})

    @classmethod
    def none(cls) -> Limits:
        """No limit of any kind."""
        return cls(**dict.fromkeys(cls.model_fields))


class AgentSpec(BaseModel):
    """An agent: a name, an instruction and what it may use."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")] = "main"
    """Unique in a run."""
    description: str = ""
    """When to call it, in a line."""
    instruction: str = ""
    """Added to the system message."""
    model: str = "inherit"
    """A model string, or "inherit" for the run's."""
    tools: tuple[str, ...] | None = None
    """Names of the tools it may use; None means all of the run's."""
    toolkits: tuple[str, ...] | None = None
    """Names of the toolkits it may use; None means all that its creator may, but none when `tools` are named."""
    limits: Limits | None = None
    """Its own limits, inside the run's."""
    workflow: str = ""
    """Name of the installed workflow that drives its steps; without it the model does. See docs/agents.md."""
    memory_scope: Literal["own", "shared", "none"] = "own"
    """Whose memory it has: its own and what is published, its creator's, or none."""
