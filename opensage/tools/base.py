"""A tool: a name, a JSON schema and a function. `ToolContext` is what a tool may touch."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from opensage.log.events import Event
from opensage.protocols import Sandbox

Approval = Literal["allow", "ask", "deny"]
Question = Callable[[str], Awaitable[str]]


@dataclass(slots=True)
class ToolContext:
    """What a tool may touch. A function gets it by naming a parameter of this type; the model never sees it.

    Attributes:
        sandbox: where commands run (started on first use).
        workdir: the workspace on the host.
        session: id of the session.
        agent: name of the agent that calls.
        call_id: id of this call.
        state: a dict that lives as long as the session's process, shared by the tools of one agent
            (the shell keeps its place here, the task table too). Keys are tool names.
        ask: asks the person, or None when nobody is there.
        progress: shows a line of progress to people; never sent to the model.
        blob: reads a stored large output by its hash.
        record: writes an event into the session's log, or None outside a run.
    """

    sandbox: Sandbox
    workdir: Path
    session: str = ""
    agent: str = "main"
    call_id: str = ""
    state: dict[str, Any] = field(default_factory=dict)
    ask: Question | None = None
    progress: Callable[[str], None] = lambda _text: None
    blob: Callable[[str], bytes] | None = None
    record: Callable[[Event], Event] | None = None


@dataclass(slots=True)
class ToolOutput:
    """A result with something for the person beside the text for the model.

    Attributes:
        text: what the model gets.
        diff: unified diff of what changed, shown to people only; empty when nothing did.
    """

    text: str
    diff: str = ""


@dataclass(slots=True)
class Tool:
    """Something an agent may call.

    Attributes:
        name: matches `[a-zA-Z0-9_-]{1,64}` (the providers' rule).
        description: one or two lines; it is in every prompt.
        parameters: JSON schema of an object.
        invoke: `async (arguments, context) -> object`; a str goes to the model as it is, anything else as JSON.
            Raises `ToolError` for what the model can mend; any other exception becomes a tool error too.
        parallel: whether calls of one turn may overlap. Plain (not async) functions default to False.
        approval: the default when no permission rule matches; None leaves it to the policy.
        source: where it came from: "builtin", "python", "toolkit:<name>", "mcp:<server>".
        changes: whether it can change files or run programs (asked for outside an isolating sandbox).
        resumable: whether a call that was at work when the process ended is simply made again: it finds what it began.
        target: name of the argument that permission patterns match first, e.g. "command", "path".
        asks: looks at the arguments and says why a person is asked although no rule says so; "" for no need.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    invoke: Callable[[dict[str, Any], ToolContext], Awaitable[object]]
    parallel: bool = True
    approval: Approval | None = None
    source: str = "python"
    changes: bool = False
    resumable: bool = False
    target: str | None = None
    asks: Callable[[Mapping[str, Any]], Awaitable[str]] | None = None
    func: Callable[..., Any] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the wrapped Python function directly."""
        if self.func is None:
            raise TypeError(f"tool {self.name} wraps no Python function")
        return self.func(*args, **kwargs)

    def schema(self) -> dict[str, Any]:
        """The OpenAI function schema sent to the model."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}
