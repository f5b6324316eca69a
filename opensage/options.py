"""What `run`, `arun` and `stream` take, and what they give."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

from opensage.approval import Approver, Policy
from opensage.log.events import Event
from opensage.mcp import McpServer
from opensage.memory.settings import MemorySettings
from opensage.protocols import Model, Sandbox
from opensage.secrets import Mask
from opensage.spec import AgentSpec, Limits
from opensage.tools import Tool

if TYPE_CHECKING:
    from opensage.tracing import Tracing


class Options(TypedDict, total=False):
    """Keyword arguments of `run`, `arun` and `stream`.

    Attributes:
        agent: an `AgentSpec`; the default agent without it.
        model: a model string or a `Model`; the configured or default one without it.
        tools: functions or `Tool`s, beside the built-in ones.
        agents: sub-agents it may call, beside those it makes and those saved in a library.
        toolkits: names of the toolkits it may use, ready in the first prompt; without it all, each opened when needed.
        mcp: MCP servers whose tools it may use, beside the others.
        packages: Python packages that may be installed into the sandbox for a toolkit.
        wheels: folder of their wheels; nothing is fetched from elsewhere.
        models: model strings that it may give to agents it makes, beside its own.
        sandbox: "auto", "docker", "docker:IMAGE", "bubblewrap", "local" or a `Sandbox`.
        workdir: the workspace.
        limits: what the run may spend.
        session: id of a session to go on with.
        approve: "deny", "allow" or a function that gets the call.
        policy: permission rules.
        ask: answers questions of the agent.
        mask: the secrets to hide; those of the environment without it.
        memory: whether to remember and recall; or where, as a path, an address or settings; see docs/memory.md.
        tracing: "off", "on", "content" or a `Tracing`; see docs/tracing.md.
    """

    agent: AgentSpec | None
    model: str | Model | None
    tools: Sequence[Tool | Callable[..., Any]]
    agents: Sequence[AgentSpec]
    models: Sequence[str]
    toolkits: Sequence[str]
    mcp: Sequence[McpServer]
    packages: Sequence[str]
    wheels: str | os.PathLike[str] | None
    sandbox: str | Sandbox
    workdir: str | os.PathLike[str]
    limits: Limits | None
    session: str | None
    approve: str | Approver
    policy: Policy | None
    ask: Callable[[str], Awaitable[str]] | None
    mask: Mask | None
    memory: bool | str | os.PathLike[str] | MemorySettings | None
    tracing: str | Tracing | None


@dataclass(frozen=True, slots=True)
class Result:
    """What a run came to.

    Attributes:
        status: "done", "limit", "stuck", "failed", "cancelled" or "empty".
        text: the answer, or what there was of it.
        reason: why it stopped, when it is not done.
        usage: model calls, tool calls, tokens and cost (None when the price is unknown).
        events: every event of this run.
        warnings: what the person should know besides, e.g. that the memory could not be written.
    """

    status: str
    text: str
    reason: str
    usage: dict[str, Any]
    session_id: str
    events: list[Event] = field(repr=False)
    warnings: list[str] = field(default_factory=list)
