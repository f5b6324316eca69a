"""Keeps tool output within what a model can read: head and tail in the history, the whole beside the log."""

from __future__ import annotations

from dataclasses import dataclass

from opensage.log.blobs import BlobStore

CALL_CHARS = 16_000
TURN_CHARS = 48_000
_LEAST = 800


@dataclass(frozen=True, slots=True)
class Shaped:
    """A text fit for the history. `blob` and `size` (characters of the whole) are set when it was cut."""

    text: str
    blob: str = ""
    size: int = 0


class Allowance:
    """Characters one turn's results may use together: every call has its even share, and what others left over."""

    def __init__(self, calls: int, window: int | None) -> None:
        scale = 1.0 if window is None else min(1.0, window / 64_000)
        self.call = max(_LEAST, int(CALL_CHARS * scale))
        self._left = max(_LEAST, int(TURN_CHARS * scale))
        self._share = self._left // max(calls, 1)
        self._waiting = calls

    def take(self, wanted: int) -> int:
        """Characters granted to the next result that wants `wanted`."""
        self._waiting -= 1
        free = self._left - self._waiting * self._share
        granted = min(wanted, self.call, max(free, min(self._share, self.call)))
        self._left -= granted
        return granted


def shape(text: str, allowance: Allowance, blobs: BlobStore) -> Shaped:
    """Cut a text to its allowance, keeping head and tail and storing the whole."""
    limit = allowance.take(len(text))
    if len(text) <= limit:
        return Shaped(text)
    blob = blobs.put(text.encode("utf-8", "surrogatepass"))
    head, tail = int(limit * 0.6), int(limit * 0.4)
    cut = len(text) - head - tail
    middle = f"\n[... {cut} of {len(text)} characters left out; all of it: read(path='blob:{blob[:16]}') ...]\n"
    return Shaped(text[:head] + middle + text[len(text) - tail :], blob, len(text))
