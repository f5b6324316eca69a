"""Whether a file can still be read by what reads it: Python, JSON, TOML and YAML, by what the core install has."""

from __future__ import annotations

import ast
import json
import tomllib
import warnings
from collections.abc import Callable

_MOST = 400_000
_LINE = 160
Problem = tuple[int | None, str]


def newly_broken(name: str, before: str | None, after: str) -> str:
    """What is wrong with the new text of a file, with its line; "" if nothing is, or if it was so before.

    Args:
        name: of the file; its ending says which syntax.
        before: the text until now, or None for a new file.
        after: the text now.
    """
    check = _CHECKS.get(name[name.rfind(".") :].lower()) if "." in name else None
    if check is None or len(after) > _MOST:
        return ""
    problem = check(after)
    if problem is None or (before and check(before) is not None):
        return ""
    line, said = problem
    lines = after.split("\n")
    if line is None or not 1 <= line <= len(lines):
        return said
    return f"line {line}: {said}\n{line:>5} | {lines[line - 1].rstrip()[:_LINE]}"


def _python(text: str) -> Problem | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ast.parse(text)
        except SyntaxError as error:
            return error.lineno, error.msg
        except (ValueError, RecursionError, MemoryError) as error:
            return None, str(error)
    return None


def _json(text: str) -> Problem | None:
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return error.lineno, error.msg
    except (ValueError, RecursionError) as error:
        return None, str(error)
    return None


def _toml(text: str) -> Problem | None:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        said, _, place = str(error).partition(" (at line ")
        return (int(place.split(",")[0]), said) if place[:1].isdigit() else (None, str(error))
    except RecursionError as error:
        return None, str(error)
    return None


def _yaml(text: str) -> Problem | None:
    import yaml  # type: ignore[import-untyped]

    loader = getattr(yaml, "CSafeLoader", None)
    if loader is None and len(text) > _MOST // 20:
        return None  # without libyaml it would take seconds
    try:
        for _ in yaml.parse(text, Loader=loader or yaml.SafeLoader):  # events only, so aliases cost nothing
            pass
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        return (mark.line + 1 if mark else None), error.problem or "not valid YAML"
    except (yaml.YAMLError, UnicodeError, RecursionError) as error:
        return None, str(error)
    return None


_CHECKS: dict[str, Callable[[str], Problem | None]] = {
    ".py": _python,
    ".pyi": _python,
    ".json": _json,
    ".toml": _toml,
    ".yaml": _yaml,
    ".yml": _yaml,
}
