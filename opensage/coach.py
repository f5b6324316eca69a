"""Keeps a small model at work: it tends to answer as soon as it has read something, with nothing done.

Only models that ask for it (`needs_coach`) are coached; a large model's answer is final.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from posixpath import normpath
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
_MAKES = frozenset({"create_toolkit", "update_toolkit", "create_agent", "call_agent"})
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

    A file must be read before it is edited. When nothing was changed, or a change did not help, it asks for a
    diagnosis in plain text beside the conversation: a small model finds a bug in words, with nothing else before it,
    that it does not find while it writes a call.
    """

    def __init__(self) -> None:
        self._command = self._output = self._silent = ""
        self._path = ""
        self._known: set[str] = set()
        self._written: set[str] = set()
        self._changed = False
        self._failed_call = ""
        self._given = 0
        self.worried = False
        """Whether a change was just seen not to help, so that advice should come before the next reply."""

    async def check(self, run: Run, name: str, arguments: Mapping[str, object]) -> None:
        """Refuse an edit of a file that was not looked at, and show the file.

        Raises:
            ToolError: with what the file holds.
        """
        path = str(arguments.get("path") or "")
        if name != "edit" or not arguments.get("old") or normpath(path) in self._known:
            return
        self._known.add(normpath(path))
        if content := await _content(run, path):
            self._path = self._path if "test" in path.lower() else path
            raise ToolError(f"Not edited, since you had not read {path}. It holds:\n{content}\nNow call edit again.")

    def see(self, call: ToolCall, result: ToolResult) -> None:
        """Take one result into account."""
        self._failed_call = "" if result.ok or call.name not in _CHANGES | _MAKES else call.name
        if not result.ok:
            return
        if call.name == "shell":
            self._ran(call, result)
        elif call.name in _CHANGES:
            self._changed = True
        if call.name in ("read", *_CHANGES):
            self._remember(call)

    def _ran(self, call: ToolCall, result: ToolResult) -> None:
        failed = _FAILED.search(result.text) is not None
        self.worried = failed and self._changed and self._command != ""
        self._command, self._output = (call.arguments, result.text) if failed else ("", "")
        mine = any(_runs(call.arguments, path) for path in self._written)
        self._silent = call.arguments if mine and result.text == "(no output)" else ""
        self._changed = False

    async def advice(self, run: Run) -> str:
        """Why the answer is sent back, or "" when it stands."""
        self.worried = False
        if self._given >= MOST or run.budget.exhausted():
            return ""
        text = await self._text(run)
        self._given += bool(text)
        return text

    async def _text(self, run: Run) -> str:
        if self._failed_call:
            return f"[Not done: your last call of {self._failed_call} failed. Mend it and call it again.]"
        if self._silent:
            command, self._silent = self._silent, ""
            return f"[Not done: {command[:200]} printed nothing at all. Mend the program so that it does, and run it.]"
        if not self._command:
            return ""
        if self._changed:
            return f"[Not done: you changed a file but did not check it. Run this again: {self._command[:300]}]"
        thought = await self._diagnosis(run)
        return _ACT.format(path=self._path, thought=thought) if thought else _LOOK

    async def _diagnosis(self, run: Run) -> str:
        program = await _content(run, self._path)
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

    def _remember(self, call: ToolCall) -> None:
        """The file that is likely wrong: the last one looked at that is no test."""
        path = _path(call)
        if not path or ":" in path:
            return
        self._known.add(normpath(path))
        if call.name == "write":
            self._written.add(path)
        if "test" not in path.lower():
            self._path = path


async def _content(run: Run, path: str) -> str:
    if not path:
        return ""
    try:
        data = await run.sandbox.read_bytes(path, limit=_PROGRAM)
    except (ToolError, OSError):
        return ""
    return run.mask.text(data.decode("utf-8", "replace"))


def _runs(command: str, path: str) -> bool:
    """Whether a command starts this file as a program."""
    return re.search(rf"(?:\b(?:python3?|node|bash|sh) (?:-\w+ )*(?:\./)?|\./){re.escape(path)}\b", command) is not None


def _path(call: ToolCall) -> str:
    try:
        return str(parse_arguments(call.arguments).get("path") or "")
    except ToolError:
        return ""
