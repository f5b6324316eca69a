"""The system message: short, since a small model reads it on every turn."""

from __future__ import annotations

from opensage.spec import AgentSpec

_BASE = """You are OpenSage, an agent that works on the user's files with tools.
Working folder: {workdir}
{place}
Rules:
- Look before you change: read a file before you edit it. Use one tool at a time when its result decides the next step.
- After a change, run the test or program that shows it works.
- When a tool reports an error, read it and do what it says; never repeat the same call.
- Take paths relative to the working folder.
- When the task is done, answer in a few plain sentences. Do not invent results you have not seen."""

_PLACES = {
    True: "Commands run in a sandbox: no network, and only the working folder can be written.",
    False: "Commands run directly on the user's machine: be careful.",
}


def system_message(spec: AgentSpec, workdir: str, *, isolated: bool, instructions: str = "") -> str:
    """The text that opens every request of an agent."""
    parts = [_BASE.format(workdir=workdir, place=_PLACES[isolated])]
    parts += [text for text in (spec.instruction, instructions) if text]
    return "\n\n".join(parts)
