"""Fuzzes one Python function: `python fuzz_driver.py REQUEST REPORT`.

Inputs that reach new lines are kept and changed further. It runs on the workspace's own Python, so it needs nothing but
the standard library. Each input is written down before the call, so that one that ends the process is known too.
"""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
import json
import os
import random
import resource
import signal
import sys
import time
import typing
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

MEMORY = 4 << 30
CRASHES = 10
_CALL_SECONDS = 1.0
_LONGEST = 4096
_MINIMISING = 2000  # calls, to make one crash smaller
_INTS = (0, 1, -1, 2, 7, 8, 16, 100, 127, 128, 255, 256, 1000, 65535, 2**31 - 1, -(2**31), 2**63, 10**20)
_FLOATS = (0.0, -0.0, 1.0, -1.5, 1e-9, 1e300, float("inf"), float("nan"))
_TEXTS = ("", "a", "0", " ", "\n", "\0", "é", "\U0001f600", "-1", "null", "[]", "{}", '"', "\\", "%s", "../", "<a>")
_FIRST: dict[Any, tuple[Any, ...]] = {int: _INTS, float: _FLOATS, str: _TEXTS, bool: (False, True)}
_FIRST[bytes] = (b"", b"a", b"\0", b"\xff\xfe")
_PLAIN: dict[type, tuple[Any, ...]] = {str: ("a", "0", " "), bytes: (b"a", b"\0")}

Location = tuple[str, str, int]


class Hang(BaseException):
    """A call took too long. No `Exception`, so that the function does not catch it."""


class Values:
    """Makes and changes values of one type, written as a hint."""

    def __init__(self, hint: Any, words: Sequence[Any], dice: random.Random) -> None:
        self.dice = dice
        self.words = words
        origin = typing.get_origin(hint)
        self.kind = origin or hint
        inner = typing.get_args(hint)
        if self.kind in (list, tuple):
            self.inner = Values(inner[0] if inner else int, words, dice)
        elif self.kind not in (str, bytes, int, float, bool):
            raise ValueError(f"no values for the type {hint!r}: str, bytes, int, float, bool and list[...] of them")

    def new(self) -> Any:
        """A value to begin with."""
        dice = self.dice
        if self.kind in (list, tuple):
            return self.kind(self.inner.new() for _ in range(dice.randrange(4)))
        return dice.choice([*_FIRST[self.kind], *self._known(self.kind)])

    def _known(self, kind: type) -> list[Any]:
        return [word for word in self.words if type(word) is kind]

    def changed(self, value: Any) -> Any:
        """The value, a little different."""
        if self.kind is bool:
            return not value
        if self.kind is int:
            return self._number(value)
        tried = [-value, value * 2, value + 1, value / 3, self.new()] if self.kind is float else None
        return self.dice.choice(tried) if tried else self._sequence(value)[:_LONGEST]

    def _number(self, value: int) -> int:
        dice = self.dice
        step = dice.choice([1, 2, 10, 100, 1 << dice.randrange(64)])
        return int(dice.choice([value + step, value - step, -value, value ^ step, value * 2, self.new()]))

    def _sequence(self, value: Any) -> Any:
        dice = self.dice
        at = dice.randrange(len(value) + 1)
        end = min(len(value), at + dice.choice([1, 1, 1, 2, 4, 16]))
        kind = dice.randrange(6)
        if kind == 0:
            return value[:at] + value[end:]
        if kind == 1:
            return value[:at] + value[at:end] * 2 + value[end:]
        if kind == 2:
            return value[:at] + value[: dice.randrange(32)] + value[at:]
        if kind == 3 and at < len(value):
            return value[:at] + self._piece(value[at]) + value[at + 1 :]
        return value[:at] + self._piece(None) + value[end if kind == 4 else at :]

    def _piece(self, old: Any) -> Any:
        """A short sequence of the same kind: one element, or a word of the program."""
        dice = self.dice
        if self.kind in (list, tuple):
            one = self.inner.changed(old) if old is not None and dice.random() < 0.7 else self.inner.new()
            return self.kind([one])
        words = self._known(self.kind)
        if words and dice.random() < 0.4:
            return dice.choice(words)
        if self.kind is bytes:
            return bytes([dice.randrange(256)])
        if old is not None and dice.random() < 0.5:
            return chr(max(0, min(0x10FFFF, ord(old) + dice.choice([-1, 1, 32, -32]))))
        return dice.choice([chr(dice.randrange(32, 127)), dice.choice(_TEXTS)])


class Coverage:
    """Lines and the order of neighbouring lines that calls reached, in files of the workspace."""

    def __init__(self) -> None:
        self.home = os.getcwd() + os.sep
        self.seen: set[tuple[str, int, int]] = set()
        self.new = False
        self._own: dict[str, bool] = {}

    def __call__(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        """A trace function."""
        name = frame.f_code.co_filename
        own = self._own.get(name)
        if own is None:
            full = os.path.realpath(name)
            own = self._own[name] = full.startswith(self.home) and "site-packages" not in full
        if not own:
            return None
        before = 0

        def line(inner: FrameType, event: str, _argument: Any) -> Any:
            nonlocal before
            if event == "line":
                edge = (name, before, inner.f_lineno)
                before = inner.f_lineno
                if edge not in self.seen:
                    self.seen.add(edge)
                    self.new = True
            return line

        return line

    @property
    def lines(self) -> int:
        """How many lines were reached."""
        return len({(name, line) for name, _, line in self.seen})


class Fuzzer:
    """Calls a function with ever new arguments."""

    def __init__(self, request: dict[str, Any], report: str) -> None:
        self.request, self.report = request, report
        self.dice = random.Random(request["seed"])
        self.function = _load(request["file"], request["name"])
        words = _words(request["file"])
        self.values = [Values(hint, words, self.dice) for hint in _hints(self.function, request["types"])]
        self.expected = set(request["expected"])
        self.coverage = Coverage()
        self.corpus: list[list[Any]] = []
        self.crashes: dict[Location, dict[str, Any]] = {}
        self.count = 0
        self.input = os.open(f"{report}.input", os.O_RDWR | os.O_CREAT, 0o600)

    def run(self) -> None:
        """Until the time is over, or there are crashes enough."""
        begun = time.monotonic()
        end = begun + self.request["seconds"]
        while time.monotonic() < end and len(self.crashes) < CRASHES:
            arguments = self._next()
            self.coverage.new = False
            key, error = self.call(arguments, trace=True)
            if key is not None and key not in self.crashes:
                self.crashes[key] = {"error": error, "found": arguments}
                self._save(begun)
                small = self._smaller(arguments, key, end + 0.2 * self.request["seconds"])
                self.crashes[key] = {"error": self.call(small)[1] or error, "found": arguments, "small": small}
            elif key is None and self.coverage.new:
                self.corpus.append(arguments)
        self._save(begun)

    def _next(self) -> list[Any]:
        if not self.corpus or self.dice.random() < 0.05:
            return [values.new() for values in self.values]
        recent = self.corpus[-16:] if self.dice.random() < 0.5 else self.corpus
        arguments = list(self.dice.choice(recent))
        for _ in range(self.dice.choice([1, 1, 2, 4])):
            at = self.dice.randrange(len(arguments))
            arguments[at] = self.values[at].changed(arguments[at])
        return arguments

    def call(self, arguments: list[Any], trace: bool = False) -> tuple[Location | None, str]:
        """Call it; where it crashed and how, or None."""
        self.count += 1
        note = repr(arguments).encode("utf-8", "backslashreplace")[:65536]
        os.pwrite(self.input, len(note).to_bytes(8, "big") + note, 0)
        signal.setitimer(signal.ITIMER_REAL, _CALL_SECONDS)
        try:
            given = copy.deepcopy(arguments)
            if trace:
                sys.settrace(self.coverage)
            self.function(*given)
        except BaseException as error:  # noqa: BLE001 it is looked for
            sys.settrace(None)
            signal.setitimer(signal.ITIMER_REAL, 0)
            if any(each.__name__ in self.expected for each in type(error).__mro__):
                return None, ""
            return _location(error), _text(error)
        finally:
            sys.settrace(None)
            signal.setitimer(signal.ITIMER_REAL, 0)
        return None, ""

    def _smaller(self, arguments: list[Any], key: Location, end: float) -> list[Any]:
        """The arguments, each as small as it can be while the crash stays the same."""
        left = [_MINIMISING if key[0] != "Hang" else 20]

        def same(candidate: list[Any]) -> bool:
            left[0] -= 1
            return left[0] > 0 and time.monotonic() < end and self.call(candidate)[0] == key

        arguments = list(arguments)
        for at in range(len(arguments)):

            def holds(value: Any, at: int = at) -> bool:
                return same([*arguments[:at], value, *arguments[at + 1 :]])

            arguments[at] = minimised(arguments[at], holds)
        return arguments

    def _save(self, begun: float) -> None:
        rows = []
        for (_, file, line), crash in self.crashes.items():
            small = crash.get("small", crash["found"])
            home = os.getcwd() + os.sep
            row = {"error": crash["error"], "file": file[len(home) :] if file.startswith(home) else file, "line": line}
            rows.append({**row, "call": _call(self.request["name"], small), "found_as": repr(crash["found"])[:300]})
        taken = time.monotonic() - begun
        facts = {"calls": self.count, "seconds": round(taken, 2), "lines_reached": self.coverage.lines}
        text = json.dumps({**facts, "kept_inputs": len(self.corpus), "crashes": rows})
        with open(f"{self.report}.new", "w", encoding="utf-8", errors="replace") as file_:
            file_.write(text)
        os.replace(f"{self.report}.new", self.report)


def minimised(value: Any, holds: Callable[[Any], bool]) -> Any:
    """The smallest value that can be reached for which `holds`: shorter sequences by ddmin, then simpler elements.

    ddmin: Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing Input, 2002.
    """
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return _nearer_zero(value, holds)
    if not isinstance(value, str | bytes | list | tuple):
        return 0.0 if value != 0 and holds(0.0) else value
    value = _ddmin(value, holds)
    for at in range(len(value)):
        for simpler in _simpler(value, at):
            if holds(simpler):
                value = simpler
                break
        else:
            if isinstance(value, list) and not isinstance(value[at], float):
                value = _inner(value, at, holds)
    return value


def _inner(value: list[Any], at: int, holds: Callable[[Any], bool]) -> list[Any]:
    small = minimised(value[at], lambda one: holds([*value[:at], one, *value[at + 1 :]]))
    return [*value[:at], small, *value[at + 1 :]]


def _ddmin(value: Any, holds: Callable[[Any], bool]) -> Any:
    parts = 2
    while len(value) >= 1:
        size = max(1, len(value) // parts)
        for start in range(0, len(value), size):
            shorter = value[:start] + value[start + size :]
            if holds(shorter):
                value, parts = shorter, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts = min(parts * 2, len(value))
    return value


def _simpler(value: Any, at: int) -> Iterator[Any]:
    """The sequence with one element made plain."""
    for one in _PLAIN.get(type(value), ()):
        if value[at : at + 1] == one:
            return
        yield value[:at] + one + value[at + 1 :]


def _nearer_zero(value: int, holds: Callable[[Any], bool]) -> int:
    if value == 0 or holds(0):
        return 0
    if value < 0 and holds(-value):
        value = -value
    low, high, sign = 0, abs(value), 1 if value > 0 else -1  # sign * high holds, sign * low does not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(sign * middle) else (middle, high)
    return sign * high


def _location(error: BaseException) -> Location:
    """Kind of the error, and the innermost line of the workspace it came through."""
    if isinstance(error, Hang | RecursionError):
        return type(error).__name__, "", 0
    home = os.getcwd() + os.sep
    file, line = "", 0
    traceback = error.__traceback__
    while traceback is not None:
        name = os.path.realpath(traceback.tb_frame.f_code.co_filename)
        if name.startswith(home) and "site-packages" not in name:
            file, line = name, traceback.tb_lineno
        traceback = traceback.tb_next
    return type(error).__name__, file, line


def _text(error: BaseException) -> str:
    if isinstance(error, Hang):
        return f"it did not end in {_CALL_SECONDS:g} s"
    try:
        return f"{type(error).__name__}: {error}"[:500]
    except Exception:  # noqa: BLE001 a foreign __str__
        return type(error).__name__


def _call(name: str, arguments: list[Any]) -> str:
    text = ", ".join(repr(each) for each in arguments)
    return f"{name}({text})" if len(text) <= 2000 else f"{name}({text[:2000]} [...])"


def _load(path: str, name: str) -> Callable[..., Any]:
    parts = path.removesuffix(".py").split("/")
    if parts[0] == "src":
        sys.path.insert(0, os.path.join(os.getcwd(), parts.pop(0)))
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    value = importlib.import_module(".".join(parts))
    for part in name.split("."):
        value = getattr(value, part)
    return typing.cast("Callable[..., Any]", value)


def _hints(function: Callable[..., Any], given: list[str]) -> list[Any]:
    """The types of the arguments: those given, those of the hints, else of the defaults."""
    names = {"str": str, "bytes": bytes, "int": int, "float": float, "bool": bool, "list": list}
    if given:
        return [eval(text, {"__builtins__": {}}, names) for text in given]
    known = typing.get_type_hints(function)
    hints = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.KEYWORD_ONLY):
            continue
        if parameter.name in known:
            hints.append(known[parameter.name])
        elif parameter.default is not parameter.empty:
            hints.append(type(parameter.default))
        else:
            raise ValueError(f'the type of {parameter.name} is not known: give types, e.g. ["str", "list[int]"]')
    return hints


def _words(path: str) -> list[Any]:
    """The constants of the module: what it compares with."""
    with open(path, "rb") as file:
        tree = ast.parse(file.read())
    constants = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    short = [each for each in constants if isinstance(each, str | bytes) and 0 < len(each) <= 40]
    numbers = [each for each in constants if isinstance(each, int | float) and not isinstance(each, bool)]
    near = [each + step for each in numbers for step in (-1, 0, 1)]
    return list(dict.fromkeys([*short, *[each.encode() for each in short if isinstance(each, str)], *near]))[:2000]


def _hang(_number: int, _frame: FrameType | None) -> None:
    raise Hang


def main(request_file: str, report: str) -> None:
    """Fuzz what the request names."""
    sys.path[0] = os.getcwd()
    with open(request_file, encoding="utf-8") as file:
        request = json.load(file)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGALRM, _hang)
    Fuzzer(request, report).run()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
    sys.stdout.flush()
    os._exit(0)
