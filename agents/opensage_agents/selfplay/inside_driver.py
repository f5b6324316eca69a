"""Runs in the sandbox: evaluates calls in a program and prints what they give. Knows no expected value."""

from __future__ import annotations

import contextlib
import io
import json
import signal
import sys
from collections.abc import Iterator

MOST = 20_000


def main() -> None:
    """Read `{code, calls, seconds, mark}` from stdin; print the mark and a list of `[ok, text]`, one for each call."""
    job = json.loads(sys.stdin.buffer.read())
    sys.setrecursionlimit(3000)
    out, spare = sys.stdout, io.StringIO()
    space: dict[str, object] = {"__name__": "candidate"}
    rows: list[list[object]]
    with contextlib.redirect_stdout(spare):
        try:
            with _limit(job["seconds"]):
                exec(compile(job["code"], "candidate.py", "exec"), space)
            rows = [_called(call, space, job["seconds"]) for call in job["calls"]]
        except BaseException as error:  # noqa: BLE001 - candidates raise anything
            rows = [[False, _said(error)] for _ in job["calls"]]
    out.write("\n" + job["mark"] + json.dumps(rows) + "\n")
    out.flush()


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


def _called(call: str, space: dict[str, object], seconds: float) -> list[object]:
    try:
        with _limit(seconds):
            text = repr(eval(call, dict(space)))
    except BaseException as error:  # noqa: BLE001 - candidates raise anything
        return [False, _said(error)]
    return [len(text) <= MOST, text[:MOST]]


def _said(error: BaseException) -> str:
    try:
        return "does not end" if isinstance(error, _Late) else f"raises {type(error).__name__}: {error}"[:200]
    except BaseException:  # noqa: BLE001 - and so does its text
        return f"raises {type(error).__name__}"


if __name__ == "__main__":
    main()
