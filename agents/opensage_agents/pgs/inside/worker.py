"""The candidate's process: loads the code, answers calls. It knows no property; who judges is in another process.

Time is bounded twice: the kernel ends this process when a call has used its CPU time, which no C code can put off, and
whoever asks ends the whole sandboxed tree when the wall clock has run out.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import types
from collections.abc import Callable
from typing import Any, BinaryIO

from opensage_agents.pgs.inside import codec

FRAMES = 1000
"""How deep a candidate may recurse."""
_BASE = 8
"""Frames of this file below a call."""
CANDIDATE = "candidate.py"


def main(folder: str) -> None:
    """Serve the lines of `calls` in the folder until it ends."""
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):  # what a candidate prints goes nowhere, be it a hundred megabytes
        os.dup2(nowhere, fd)
    with open(os.path.join(folder, "calls"), "rb") as inbox:
        setup = json.loads(inbox.readline())
        try:
            function = loaded(setup)
        except _Unusable as error:
            _send(out, {"id": 0, "invalid": error.text, "line": error.line})
            return
        _send(out, {"id": 0, "ready": _arity(function) if not setup["adapter"] else None})
        _serve(inbox, out, adapted(function, setup["adapter"]))


def _serve(inbox: BinaryIO, out: BinaryIO, function: Callable[..., Any]) -> None:
    held: list[Any] = []
    for line in inbox:
        asked = json.loads(line)
        for each in asked.get("before", ()):
            _answer(_wanted(function, each, held), {**each, "cpu": asked["cpu"]})
        if not asked.get("fresh"):
            _send(out, {"id": asked["id"], **_answer(_wanted(function, asked, held), asked)})
            continue
        child = os.fork()
        if not child:
            _send(out, {"id": asked["id"], **_answer(function, asked)})
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code:
            os.kill(os.getpid(), -code) if code < 0 else os._exit(code)


def _wanted(function: Callable[..., Any], asked: dict[str, Any], held: list[Any]) -> Callable[..., Any]:
    """What is to be called. A machine has an object made that is held here, and uses it."""
    kind, name = asked.get("object"), asked.get("name", "")
    if kind is None:
        return function
    if kind == "make":
        held.clear()
        return lambda *args, **kwargs: held.append(function(*args, **kwargs))
    return (lambda: getattr(held[0], name)) if kind == "get" else lambda *a, **k: getattr(held[0], name)(*a, **k)


class _Unusable(Exception):
    def __init__(self, text: str, line: int | None) -> None:
        super().__init__(text)
        self.text = text
        self.line = line


def loaded(setup: dict[str, Any]) -> Callable[..., Any]:
    """The function under test, from its code; an error says why there is none."""
    module = types.ModuleType("candidate")
    sys.modules["candidate"] = module
    _arm(setup["cpu"])
    try:
        exec(compile(setup["code"], CANDIDATE, "exec"), module.__dict__)
        found: Any = module
        for name in setup["entry"].split("."):
            found = found() if isinstance(found, type) else found
            found = getattr(found, name)
    except BaseException as error:  # noqa: BLE001 candidates raise anything
        line = error.lineno if isinstance(error, SyntaxError) else _line(error)
        raise _Unusable(f"loading it raises {_said(error)}", line) from None
    finally:
        _arm(0)
    if not callable(found):
        raise _Unusable(f"{setup['entry']} is not a function", None)
    return found  # type: ignore[no-any-return]


def adapted(function: Callable[..., Any], adapter: str) -> Callable[..., Any]:
    """The function behind its adapter, if there is one."""
    if not adapter:
        return function
    space: dict[str, Any] = {"__name__": "adapter"}
    exec(compile(adapter, "adapter.py", "exec"), space)
    call = space["call"]
    return lambda *args: call(function, *args)


def _arity(function: Any) -> list[int | None] | None:
    """The least and the most positional arguments, None for any number; None where it cannot be known.

    Read off the code object: to import `inspect` takes longer than all the rest of the start.
    """
    bound = getattr(function, "__self__", None) is not None
    plain = getattr(function, "__func__", function)
    code = getattr(plain, "__code__", None)
    if not isinstance(plain, types.FunctionType) or code is None or hasattr(plain, "__wrapped__"):
        return None
    most = code.co_argcount - bound
    least = most - len(plain.__defaults__ or ())
    return [max(0, least), None if code.co_flags & 0x04 else most]


def _answer(function: Callable[..., Any], asked: dict[str, Any]) -> dict[str, Any]:
    args, kwargs = codec.decode(asked["args"]), codec.decode(asked.get("kwargs", {"d": []}))
    before = json.dumps(asked["args"])
    sys.setrecursionlimit(_BASE + FRAMES)
    try:
        _arm(asked["cpu"])
        value = codec.encode(function(*args, **kwargs))
        after = codec.encode(args)
        _arm(0)
    except RecursionError as error:
        return {"outcome": "recursion", "message": f"RecursionError: deeper than {FRAMES} calls", "line": _line(error)}
    except codec.TooLarge as error:
        return {"outcome": "crashed", "message": str(error), "line": None}
    except BaseException as error:  # noqa: BLE001 candidates raise anything
        raises = [each.__name__ for each in type(error).__mro__[:20]]
        return {"outcome": "crashed", "message": _said(error), "line": _line(error), "raises": raises}
    finally:
        _arm(0)
        sys.setrecursionlimit(10 * FRAMES)
    answer = {"outcome": "ok", "value": value}
    return answer if json.dumps(after) == before else {**answer, "after": after}


def _arm(seconds: float) -> None:
    """End this process when it has used so much CPU time; zero disarms."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, seconds)


def _line(error: BaseException) -> int | None:
    """The last line of the candidate that the error came through."""
    found, trace = None, error.__traceback__
    while trace is not None:
        found = trace.tb_lineno if trace.tb_frame.f_code.co_filename == CANDIDATE else found
        trace = trace.tb_next
    return found


def _said(error: BaseException) -> str:
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 its __str__ is the candidate's too
        text = ""
    return f"{type(error).__name__}: {text}"[:300].rstrip(": ")


def _send(out: BinaryIO, message: dict[str, Any]) -> None:
    left = memoryview(json.dumps(message).encode() + b"\n")
    while left:
        left = left[out.write(left) :]
