"""Runs in the sandbox: evaluates calls in a module and prints one JSON line. Plain Python, no package is needed."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
import json
import math
import os
import signal
import sys
import types
from collections.abc import Iterator


def main(path: str, checks: list[list[object]], seconds: float) -> None:
    """Print `OPENSAGE` and a list of `{ok, got}`, one for each `[call, expected, printed]`."""
    sys.path[:0] = [os.getcwd(), os.path.dirname(os.path.abspath(path))]
    sys.dont_write_bytecode = True
    sys.setrecursionlimit(3000)
    out, module = io.StringIO(), None
    try:
        with contextlib.redirect_stdout(out), _limit(seconds):
            spec = importlib.util.spec_from_file_location("opensage_checked", path)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules["opensage_checked"] = module
            spec.loader.exec_module(module)
    except BaseException as error:  # noqa: BLE001 - candidates raise anything
        _report([{"ok": False, "got": _said(error)} for _ in checks])
        return
    _report([_check(module, str(call), str(want), bool(printed), seconds) for call, want, printed in checks])


def _report(rows: list[dict[str, object]]) -> None:
    sys.__stdout__.write("OPENSAGE " + json.dumps(rows) + "\n")  # type: ignore[union-attr]
    sys.__stdout__.flush()  # type: ignore[union-attr]


class _Late(BaseException):
    pass


@contextlib.contextmanager
def _limit(seconds: float) -> Iterator[None]:
    def late(*_args: object) -> None:
        raise _Late

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _check(module: types.ModuleType, call: str, want: str, printed: bool, seconds: float) -> dict[str, object]:
    shown = io.StringIO()
    try:
        with contextlib.redirect_stdout(shown), _limit(seconds):
            value = eval(call, dict(vars(module)))
            if isinstance(value, types.GeneratorType):
                value = list(value)
            ok = _equal(value, want, printed, shown.getvalue())
            got = repr(value)[:200]
    except BaseException as error:  # noqa: BLE001 - candidates raise anything
        return {"ok": want.startswith("Traceback") and type(error).__name__ in want, "got": _said(error)}
    return {"ok": ok, "got": got if value is not None else shown.getvalue().strip()[:200] or "None"}


def _said(error: BaseException) -> str:
    return "does not end" if isinstance(error, _Late) else f"raises {type(error).__name__}: {error}"[:200]


def _equal(value: object, want: str, printed: bool, output: str) -> bool:
    if printed and " ".join((output + (repr(value) if value is not None else "")).split()) == " ".join(want.split()):
        return True
    try:
        expected = ast.literal_eval(want)
    except (ValueError, SyntaxError):
        return False
    if isinstance(expected, float) and isinstance(value, (int, float)):
        return math.isclose(value, expected, rel_tol=1e-6, abs_tol=1e-9)
    return bool(type(value) is type(expected) and value == expected) or bool(
        not isinstance(value, bool) and not isinstance(expected, bool) and value == expected
    )


if __name__ == "__main__":
    main(*json.loads(sys.argv[1]))
