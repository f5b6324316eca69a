"""Reading a constrained answer while it is written: an answer's text streams, a call waits until it is whole."""

from __future__ import annotations

import re
from collections.abc import Collection

from opensage.messages import CallChunk, Delta
from opensage.models.assembler import parse_json
from opensage.models.text_calls import calls_in_text

_SIMPLE = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_NAME = re.compile(r'\s*\{\s*"name"\s*:\s*"((?:[^"\\]|\\.)*)"\s*,\s*"arguments"\s*:\s*')


class StringDecoder:
    """Decodes a JSON string that comes in pieces; stops at its closing quote."""

    def __init__(self) -> None:
        self._held = ""
        self.done = False

    def feed(self, piece: str) -> str:
        """The text that is certain by now."""
        if self.done:
            return ""
        text, self._held = self._held + piece, ""
        out: list[str] = []
        at = 0
        while at < len(text):
            size = self._take(text, at, out)
            if size == 0:
                self._held = text[at:]
                break
            at += size
            if self.done:
                break
        return "".join(out)

    def _take(self, text: str, at: int, out: list[str]) -> int:
        """Decode one character or escape; 0 when more of it is still to come."""
        char = text[at]
        if char == '"':
            self.done = True
            return 1
        if char != "\\":
            out.append(char)
            return 1
        if at + 1 >= len(text):
            return 0
        kind = text[at + 1]
        if kind != "u":
            out.append(_SIMPLE.get(kind, kind))
            return 2
        return self._unicode(text, at, out)

    def _unicode(self, text: str, at: int, out: list[str]) -> int:
        unit = _unit(text, at)
        if unit is None:
            return 0 if len(text) < at + 6 else self._bad(out, 2)
        if not 0xD800 <= unit < 0xDC00:
            out.append("\ufffd" if 0xDC00 <= unit < 0xE000 else chr(unit))
            return 6
        if len(text) < at + 12 and "\\u".startswith(text[at + 6 : at + 8]):
            return 0
        low = _unit(text, at + 6)
        if low is None or not 0xDC00 <= low < 0xE000:
            return self._bad(out, 6)
        out.append(chr(0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00)))
        return 12

    def _bad(self, out: list[str], size: int) -> int:
        out.append("\ufffd")
        return size


def _unit(text: str, at: int) -> int | None:
    r"""The code unit of a `\uXXXX` escape at this place, or None when it is not whole or not one."""
    escape = text[at : at + 6]
    return int(escape[2:], 16) if re.fullmatch(r"\\u[0-9a-fA-F]{4}", escape) else None


class ConstrainedReader:
    """Turns the pieces of a constrained answer into deltas.

    Args:
        answer: name of the answer branch.
        names: the tools that the model was given, for calls in free text.
    """

    def __init__(self, answer: str, names: Collection[str]) -> None:
        self._prefix = f'{{"name": "{answer}", "arguments": {{"text": "'
        self._answer, self._names = answer, names
        self._parts: list[str] = []
        self._head = ""
        self._decoder: StringDecoder | None = None

    def feed(self, piece: str) -> Delta | None:
        """Take a piece; a delta when some of the answer's text is certain."""
        self._parts.append(piece)
        if self._decoder is not None:
            text = self._decoder.feed(piece)
            return Delta(text=text) if text else None
        if len(self._head) < len(self._prefix):
            self._head += piece
            if self._head.startswith(self._prefix):
                self._decoder = StringDecoder()
                text = self._decoder.feed(self._head[len(self._prefix) :])
                return Delta(text=text) if text else None
        return None

    def finish(self, reason: str | None) -> Delta:
        """The last delta: what was not streamed, and why it ended."""
        if self._decoder is not None:
            return Delta(finish_reason=reason)
        text = "".join(self._parts)
        if reason == "length":
            return self._cut(text)
        return self._whole(text, reason)

    def _whole(self, text: str, reason: str | None) -> Delta:
        calls = calls_in_text(text, self._names)
        if len(calls) == 1 and calls[0].name == self._answer:
            said = parse_json(calls[0].arguments)
            answer = said.get("text") if isinstance(said, dict) else None
            return Delta(text=answer if isinstance(answer, str) else text, finish_reason=reason)
        if not calls:
            return Delta(text=text, finish_reason=reason)
        chunks = tuple(CallChunk(i, None, call.name, call.arguments) for i, call in enumerate(calls))
        return Delta(calls=chunks, finish_reason="tool_calls")

    def _cut(self, text: str) -> Delta:
        """A call that the token limit cut: kept as far as it came, so that it can be named, and never run."""
        match = _NAME.match(text)
        if match is None:
            return Delta(text=text, finish_reason="length")
        return Delta(calls=(CallChunk(0, None, match.group(1), text[match.end() :]),), finish_reason="length")
