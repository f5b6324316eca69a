"""The names that a property file sees, and how one property judges one result."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable
from typing import Any

CHECK_SECONDS = 2.0
"""CPU time for one evaluation of one property."""


class BadProperty(Exception):
    """A property, the strategy or their file cannot be used; `name` is the property's, or ""."""

    def __init__(self, text: str, name: str = "") -> None:
        super().__init__(text)
        self.name = name


class NotApplicable(Exception):
    """The property says nothing about this input."""


class Slow(BaseException):
    """The time box of an evaluation has run out."""


def prop(
    kind: str = "relation", reason: str = "", source: str = "tester", when: Callable[[Any], bool] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Mark a function `(args, result)` as a property. `when(args)` says for which inputs it holds."""

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        if not isinstance(function, type):  # a machine may have a rule of that name
            function.when = when  # type: ignore[attr-defined]
        return function

    return mark


def approx(left: Any, right: Any, rel: float = 1e-9, abs: float = 1e-12) -> bool:
    """Equality of numbers and of lists and tuples of them, with a tolerance; two NaN are equal here."""
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(approx(*pair, rel, abs) for pair in zip(left, right, strict=True))
    if isinstance(left, float) or isinstance(right, float):
        try:
            return math.isclose(left, right, rel_tol=rel, abs_tol=abs) or (left != left and right != right)
        except (TypeError, OverflowError):
            return False
    return bool(left == right)


def load(text: str, names: dict[str, Any] | None = None) -> dict[str, Any]:
    """Run a property file, which sees these names too.

    Raises:
        BadProperty: it does not run.
    """
    import hypothesis
    from hypothesis import strategies

    space: dict[str, Any] = {name: getattr(strategies, name) for name in strategies.__all__}
    space |= {"st": strategies, "strategies": strategies, "assume": hypothesis.assume}
    space |= {"prop": prop, "approx": approx, "__name__": "properties", **(names or {})}
    try:
        with time_box(5 * CHECK_SECONDS):
            exec(compile(text, "properties.py", "exec"), space)
    except (Exception, Slow, SystemExit) as error:
        line = getattr(error, "lineno", None) or line_of(error)
        raise BadProperty(f"line {line} of the properties: {said(error)}") from error
    return space


def line_of(error: BaseException) -> int | None:
    """The last line of the property file that an error came through."""
    trace, found = error.__traceback__, None
    while trace is not None:
        found = trace.tb_lineno if trace.tb_frame.f_code.co_filename == "properties.py" else found
        trace = trace.tb_next
    return found


def said(error: BaseException) -> str:
    """Type and text of an error, bounded."""
    return f"{type(error).__name__}: {error}"[:400].rstrip(": ")


class time_box:
    """Raise `Slow` when the block has used so much CPU time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __enter__(self) -> None:
        signal.signal(signal.SIGPROF, _late)
        signal.setitimer(signal.ITIMER_PROF, self.seconds)

    def __exit__(self, *_error: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _late(*_args: object) -> None:
    raise Slow("uses too much CPU time")


def judge(name: str, function: Callable[..., Any], args: Any, result: Any, after: Any) -> str | None:
    """What a property says against a result; None when it accepts it.

    Raises:
        NotApplicable: it says nothing about this input.
        BadProperty: it raises something other than AssertionError, or takes too long.
    """
    from hypothesis.errors import UnsatisfiedAssumption

    when = getattr(function, "when", None)
    try:
        with time_box(CHECK_SECONDS):
            if when is not None and not when(args):
                raise NotApplicable
            wanted = function.__code__.co_argcount if hasattr(function, "__code__") else 2
            verdict = function(args, result, after) if wanted == 3 else function(args, result)
    except AssertionError as error:
        return str(error)[:500] or "does not hold"
    except (NotApplicable, UnsatisfiedAssumption):
        raise NotApplicable from None
    except (Exception, Slow, SystemExit) as error:
        where = f" (line {line})" if (line := line_of(error)) else ""
        raise BadProperty(f"{said(error)}{where}, given {args!r:.200} and {result!r:.200}", name) from error
    return None if verdict is None or verdict else "does not hold"
