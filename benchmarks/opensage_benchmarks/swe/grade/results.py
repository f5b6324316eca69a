"""What the driver reports, as it comes in, and how ids of tests are found in it."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PASSING = ("PASSED", "XFAIL")
_LONGEST = 1 << 20
_MOST_TESTS = 200_000


@dataclass(slots=True)
class Results:
    """Results of one run of the tests.

    Attributes:
        tests: node id → PASSED, FAILED, ERROR, SKIPPED or XFAIL; a test that did not end is FAILED.
        seconds: node id → time of all its phases.
        texts: node id → the end of what failed.
        aliases: other names of tests → node id.
        uncollected: file or class → why it could not be collected.
        tampered: what the candidate replaced.
        forged: lines that were not signed.
        broken: whether a line is missing.
        untimed: whether no time limit held for each test.
        unable: why pytest cannot run there at all, e.g. because it is not installed.
        ended: the exit code that pytest meant to leave with; None when it never came to its end.
    """

    tests: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    uncollected: dict[str, str] = field(default_factory=dict)
    tampered: list[str] = field(default_factory=list)
    forged: int = 0
    broken: bool = False
    untimed: bool = False
    unable: str = ""
    ended: int | None = None
    key: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)
    _rest: bytes = field(default=b"", repr=False)
    _next: int = 0
    _complete: set[str] = field(default_factory=set, repr=False)

    def feed(self, stream: str, chunk: bytes) -> None:
        """Take output as it arrives (see `opensage.protocols.OutputHook`)."""
        if stream != "stdout":
            return
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            self._line(line)
        if len(self._rest) > _LONGEST:
            self._rest, self.broken = b"", True

    def _line(self, line: bytes) -> None:
        mark, _, body = line.partition(b" ")
        right = hmac.new(bytes.fromhex(self.key), body, hashlib.sha256).hexdigest().encode()
        if not hmac.compare_digest(mark, right):
            self.forged += 1
            return
        number, kind, *facts = json.loads(body)
        self.broken = self.broken or number != self._next or self.ended is not None
        self._next = number + 1
        self._take(kind, facts)

    def _take(self, kind: str, facts: list[Any]) -> None:
        if kind == "found" and len(self.tests) < _MOST_TESTS:
            self.tests.setdefault(facts[0], "FAILED")
            self.aliases.update({facts[1]: facts[0]} if facts[1] else {})
        elif kind == "test":
            self._phase(*facts)
        elif kind == "uncollected":
            self.uncollected[facts[0]] = facts[1]
        elif kind == "tampered":
            self.tampered = sorted({*self.tampered, *facts[0]})[:100]
        elif kind == "untimed":
            self.untimed = True
        elif kind == "unable":
            self.unable = str(facts[0])
        elif kind == "end":
            self.ended = int(facts[0])

    def _phase(self, id: str, when: str, outcome: str, expected: bool, text: str, seconds: float) -> None:
        """The last word is the worst one: a test that passed and could not clean up is an error."""
        self.seconds[id] = round(self.seconds.get(id, 0.0) + seconds, 6)
        if outcome == "failed":
            self.tests[id], self.texts[id] = ("FAILED" if when == "call" else "ERROR"), text
        elif outcome == "skipped":
            self.tests[id] = "XFAIL" if expected else "SKIPPED"
        elif when == "call":
            self.tests[id] = "PASSED"

    @property
    def ran(self) -> bool:
        """Whether anything at all was reported."""
        return bool(self.tests) or self.ended is not None


def find(id: str, tests: Mapping[str, str], aliases: Mapping[str, str]) -> str | None:
    """The status of a test by its id, as SWE-bench writes ids; None when it did not run.

    Ids may be pytest's, unittest's `test_x (module.Class)`, or pytest's cut off within the brackets, as some of
    SWE-bench Verified are: such a one counts when all that begin with it agree.
    """
    if id in tests:
        return tests[id]
    if id in aliases:
        return tests.get(aliases[id])
    name, _, place = id.partition(" (")
    if place.endswith(f".{name})"):  # as Python 3.11 and later print it
        return find(f"{name} ({place[: -len(name) - 2]})", tests, aliases)
    if id.count("[") > id.count("]"):
        found = [status for other, status in tests.items() if other.startswith(id)]
        if found and len({status in PASSING for status in found}) == 1:
            return found[0]
    return None
