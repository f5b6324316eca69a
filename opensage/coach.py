"""Keeps a small model at work: it tends to answer as soon as it has read something, with nothing done.

Only models that ask for it (`needs_coach`) are coached; a large model's answer is final.
"""

from __future__ import annotations

import re

from opensage.log.events import ToolResult
from opensage.messages import ToolCall

THINK = (
    "[Not done: the command still fails and you changed nothing. Which line of the program is wrong? Explain in two "
    "sentences, then write the wrong line and the corrected line.]"
)
ACT = (
    "[Now make that change: call edit with the path of the program, old (the wrong line, exactly as it stands there) "
    "and new (the corrected line). Do not change the test. Then run the test again.]"
)
MOST = 3
"""Answers that may be sent back in one run."""
_FAILED = re.compile(r"(?m)^\[?exit code -?[1-9]|timed out after")
_CHANGES = frozenset({"write", "edit"})


class Coach:
    """Follows the results of a run and says what an answer came too early for.

    When nothing was changed it first asks for a diagnosis in plain text, since a small model finds a bug in words that
    it does not find while it writes a call.
    """

    def __init__(self) -> None:
        self._failed_command = ""
        self._changed = False
        self._failed_call = ""
        self._given = 0
        self.thinking = False
        """Whether the next reply is to be a thought in plain text, with tools off."""

    def see(self, call: ToolCall, result: ToolResult) -> None:
        """Take one result into account."""
        self._failed_call = "" if result.ok else call.name
        if call.name == "shell" and result.ok:
            self._failed_command = call.arguments if _FAILED.search(result.text) else ""
            self._changed = False
        elif call.name in _CHANGES and result.ok:
            self._changed = True

    def advice(self) -> str:
        """Why the answer is sent back, or "" when it stands."""
        if self.thinking:
            self.thinking = False
            return ACT
        text = self._text()
        if not text or self._given >= MOST:
            return ""
        self._given += 1
        return text

    def _text(self) -> str:
        if self._failed_call:
            return f"[Not done: your last call of {self._failed_call} failed. Mend it and call it again.]"
        if not self._failed_command:
            return ""
        if self._changed:
            return f"[Not done: you changed a file but did not check it. Run this again: {self._failed_command[:300]}]"
        self.thinking = True
        return THINK
