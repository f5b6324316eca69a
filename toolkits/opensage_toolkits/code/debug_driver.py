"""Runs a script or a test up to a line and writes what is there as JSON: `python debug_driver.py REQUEST REPORT`.

It runs on the workspace's own Python, so it needs nothing but the standard library.
"""

from __future__ import annotations

import bdb
import dis
import json
import linecache
import os
import reprlib
import runpy
import sys
import threading
from types import CodeType, FrameType, TracebackType
from typing import Any

MOST_NAMES = 60
MOST_FRAMES = 40
_AROUND = 3

_REPR = reprlib.Repr()
_REPR.maxlevel, _REPR.maxstring, _REPR.maxother, _REPR.maxlong = 3, 300, 300, 100
_REPR.maxlist = _REPR.maxdict = _REPR.maxtuple = _REPR.maxset = 12


class Stop(BaseException):
    """Ends the program once what was asked for is known."""


class Debugger(bdb.Bdb):
    """Stops at one line, the `hit`-th time its condition holds."""

    def __init__(self, request: dict[str, Any], report: str) -> None:
        super().__init__()
        self.request, self.report = request, report
        self.hits = 0
        self.done = False

    def user_line(self, frame: FrameType) -> None:
        """At a line: the wanted one, unless it is the first of all."""
        if self.done or not self.break_here(frame):
            return
        self.hits += 1
        if self.hits >= self.request["hit"]:
            self.tell("breakpoint", frame, _stack(frame))
            raise Stop
        self.set_continue()

    def tell(self, stopped: str, frame: FrameType | None, stack: list[dict[str, Any]], **more: Any) -> None:
        """Write the report, once."""
        if self.done:
            return
        self.done = True
        facts: dict[str, Any] = {"stopped": stopped, "hits": self.hits, **more}
        if frame is not None:
            facts.update(_place(frame), stack=stack, locals=_locals(frame))
            facts["expressions"] = {text: _value(text, frame) for text in self.request["expressions"]}
            facts["source"] = _source(frame)
        with open(self.report, "w", encoding="utf-8", errors="replace") as file:
            json.dump(facts, file)

    def tell_error(self, error: BaseException, traceback: TracebackType | None) -> None:
        """What raised, and where: the innermost frame of the workspace."""
        frames: list[tuple[FrameType, int]] = []
        while traceback is not None:
            frames.append((traceback.tb_frame, traceback.tb_lineno))
            traceback = traceback.tb_next
        own = [number for number, (frame, _) in enumerate(frames) if _own(frame)]
        if not own:
            self.tell("exception", None, [], error=_error(error))
            return
        frame, line = frames[own[-1]]
        stack = [{**_place(each), "line": at} for each, at in reversed(frames[: own[-1] + 1]) if _own(each)]
        self.tell("exception", frame, stack[:MOST_FRAMES], error=_error(error), raised_at=line)


def _own(frame: FrameType) -> bool:
    name = frame.f_code.co_filename
    if name.startswith("<"):
        return False
    return os.path.realpath(name).startswith(os.getcwd() + os.sep) and "site-packages" not in name


def _place(frame: FrameType) -> dict[str, Any]:
    here = os.getcwd() + os.sep
    name = os.path.realpath(frame.f_code.co_filename)
    return {"file": name[len(here) :] if name.startswith(here) else name, "line": frame.f_lineno, **_function(frame)}


def _function(frame: FrameType) -> dict[str, str]:
    return {"function": getattr(frame.f_code, "co_qualname", frame.f_code.co_name)}


def _stack(frame: FrameType | None) -> list[dict[str, Any]]:
    frames: list[dict[str, Any]] = []
    while frame is not None and len(frames) < MOST_FRAMES:
        if _own(frame):
            frames.append(_place(frame))
        frame = frame.f_back
    return frames


def _locals(frame: FrameType) -> dict[str, str]:
    names = [name for name in frame.f_locals if not (name.startswith("__") and name.endswith("__"))]
    return {name: _shown(frame.f_locals[name]) for name in names[:MOST_NAMES]}


def _value(text: str, frame: FrameType) -> str:
    try:
        return _shown(eval(text, frame.f_globals, frame.f_locals))
    except BaseException as error:  # noqa: BLE001 an expression may raise anything
        return _error(error)


def _shown(value: Any) -> str:
    try:
        return _REPR.repr(value)[:2000]
    except BaseException as error:  # noqa: BLE001 so may a __repr__
        return f"<{type(value).__name__}: {_error(error)}>"


def _error(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:1000]
    except Exception:  # noqa: BLE001 and a __str__
        return type(error).__name__


def _source(frame: FrameType) -> list[str]:
    name, line = frame.f_code.co_filename, frame.f_lineno
    numbers = range(max(1, line - _AROUND), line + _AROUND + 1)
    rows = [(number, linecache.getline(name, number)) for number in numbers]
    return [f"{'>' if number == line else ' '} {number} {text.rstrip()[:200]}" for number, text in rows if text]


def code_line(path: str, line: int) -> int:
    """The first line from `line` on that has code.

    Raises:
        ValueError: there is none, or the file cannot be compiled.
    """
    with open(path, "rb") as file:
        try:
            code = compile(file.read(), path, "exec", dont_inherit=True)
        except SyntaxError as error:
            raise ValueError(f"{path} line {error.lineno}: {error.msg}") from None
    later = sorted(number for number in _lines(code) if number >= line)
    if not later:
        raise ValueError(f"{path} has no code at line {line} or after it")
    return later[0]


def _lines(code: CodeType) -> set[int]:
    found = {line for _, line in dis.findlinestarts(code) if line}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _lines(constant)
    return found


class Plugin:
    """Tells the debugger what a test raised, while its frames are there."""

    def __init__(self, debugger: Debugger) -> None:
        self.debugger = debugger

    def pytest_exception_interact(self, node: Any, call: Any, report: Any) -> None:
        """A test or a fixture raised."""
        self.debugger.tell_error(call.excinfo.value, call.excinfo.tb)


def _run(words: list[str], debugger: Debugger) -> None:
    if "::" in words[0]:
        import pytest

        words = ["-q", "-p", "no:cacheprovider", "--no-header", "--tb=short", *words]
        pytest.main(words, plugins=[Plugin(debugger)])
    elif words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        sys.path[0] = os.path.dirname(os.path.abspath(words[0]))
        runpy.run_path(words[0], run_name="__main__")


def main(request_file: str, report: str) -> int:
    """Run what the request says; the report is written at its end at the latest."""
    sys.path[0] = os.getcwd()
    with open(request_file, encoding="utf-8") as file:
        request = json.load(file)
    debugger = Debugger(request, report)
    if request["file"]:
        line = code_line(request["file"], request["line"])
        debugger.set_break(os.path.realpath(request["file"]), line, cond=request["condition"] or None)
    threading.settrace(debugger.trace_dispatch)
    try:
        debugger.reset()
        debugger.set_continue()
        sys.settrace(debugger.trace_dispatch)
        _run(request["words"], debugger)
    except Stop:
        pass
    except BaseException as error:  # noqa: BLE001 a foreign program may raise anything
        sys.settrace(None)
        if not isinstance(error, SystemExit):
            debugger.tell_error(error, error.__traceback__)
    finally:
        sys.settrace(None)
    debugger.tell("ended", None, [])
    return 0


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
    sys.stdout.flush()
    os._exit(0)
