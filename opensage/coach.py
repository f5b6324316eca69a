"""Keeps a small model at work: it tends to answer as soon as it has read something, with nothing done.

Only models that ask for it (`needs_coach`) are coached; a large model's answer is final.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from opensage.arguments import parse_arguments
from opensage.errors import LimitReached, ModelError, ToolError
from opensage.log.events import ToolResult
from opensage.messages import Message, Request, ToolCall
from opensage.side import ask_beside

if TYPE_CHECKING:
    from opensage.runtime import Run

MOST = 4
"""Answers that may be sent back in one run."""
_FAILED = re.compile(r"(?m)^\[?exit code -?[1-9]|timed out after")
_CHANGES = frozenset({"write", "edit"})
_OUTPUT, _PROGRAM = 1200, 4000
"""Characters of the failing output (its end) and of the program (its beginning) that a diagnosis is asked about."""
_DIAGNOSE = (
    "Output of the failing command:\n{output}\n\nProgram {path}:\n{program}\n\n"
    "Which line of the program is wrong? Explain in two sentences, then write the wrong line and the corrected line."
)
_ACT = (
    "[Not done: the command still fails and you changed nothing since. A second look at {path} says:\n{thought}\n"
    "Make that change now: call edit with path, old (the wrong line, exactly as it stands in the file) and new (the "
    "corrected line). Do not change the test. Then run the command again.]"
)
_LOOK = "[Not done: the command fails and you changed nothing. Read the program it tests, mend it, and run it again.]"


class Coach:
    """Follows the results of a run and says what an answer came too early for.

    When nothing was changed it asks for a diagnosis in plain text beside the conversation: a small model finds a bug in
    words, with nothing else before it, that it does not find while it writes a call.
    """

    def __init__(self) -> None:
        self._command = self._output = ""
        self._path = ""
        self._changed = False
        self._failed_call = ""
        self._given = 0

    def see(self, call: ToolCall, result: ToolResult) -> None:
        """Take one result into account."""
        self._failed_call = "" if result.ok else call.name
        if not result.ok:
            return
        if call.name == "shell":
            failed = _FAILED.search(result.text) is not None
            self._command, self._output = (call.arguments, result.text) if failed else ("", "")
            self._changed = False
        elif call.name in _CHANGES:
            self._changed = True
        if call.name in ("read", *_CHANGES):
            self._remember(_path(call))

    async def advice(self, run: Run) -> str:
        """Why the answer is sent back, or "" when it stands."""
        if self._given >= MOST or run.budget.exhausted():
            return ""
        text = await self._text(run)
        self._given += bool(text)
        return text

    async def _text(self, run: Run) -> str:
        if self._failed_call:
            return f"[Not done: your last call of {self._failed_call} failed. Mend it and call it again.]"
        if not self._command:
            return ""
        if self._changed:
            return f"[Not done: you changed a file but did not check it. Run this again: {self._command[:300]}]"
        thought = await self._diagnosis(run)
        return _ACT.format(path=self._path, thought=thought) if thought else _LOOK

    async def _diagnosis(self, run: Run) -> str:
        program = await self._program(run)
        if not program:
            return ""
        question = _DIAGNOSE.format(output=self._output[-_OUTPUT:], path=self._path, program=program)
        messages: list[Message] = [
            {"role": "system", "content": "You find bugs in programs."},
            {"role": "user", "content": question},
        ]
        warmth = 0.0 if self._given == 0 else 0.7  # another look must not be the same look
        request = Request(messages, tool_choice="none", max_tokens=220, temperature=warmth, agent="coach")
        try:
            return await ask_beside(run.session, run.model, request)
        except (ModelError, LimitReached):
            return ""  # the advice does without

    async def _program(self, run: Run) -> str:
        if not self._path:
            return ""
        try:
            data = await run.sandbox.read_bytes(self._path, limit=_PROGRAM)
        except (ToolError, OSError):
            return ""
        return data.decode("utf-8", "replace")

    def _remember(self, path: str) -> None:
        """The file that is likely wrong: the last one looked at that is no test."""
        if path and "test" not in path.lower() and ":" not in path:
            self._path = path


def _path(call: ToolCall) -> str:
    try:
        return str(parse_arguments(call.arguments).get("path") or "")
    except ToolError:
        return ""
