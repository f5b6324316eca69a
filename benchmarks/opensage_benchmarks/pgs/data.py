"""The data, read from a folder: QuixBugs and HumanEvalFix; and the properties that come with the packages."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from opensage.errors import ConfigError
from opensage_agents.pgs.properties import PropertySet
from opensage_agents.pgs.task import TaskError, text_of

BUGGY, CORRECTED = "python_programs", "correct_python_programs"
FIXES = "humanevalfix_python_sample.jsonl"
MOST_BYTES = 64 << 20
Arguments = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Fix:
    """One task of HumanEvalFix: its function with and without the bug, and arguments that its test and text name."""

    name: str
    entry: str
    buggy: str
    canonical: str
    calls: tuple[Arguments, ...]


def shipped(package: str, folder: str) -> dict[str, PropertySet]:
    """The property files that come with a package, by name."""
    files = resources.files(package).joinpath(folder).iterdir()
    texts = {each.name.removesuffix(".txt"): each.read_text("utf-8") for each in files if each.name.endswith(".txt")}
    return {name: PropertySet.from_source(texts[name]) for name in sorted(texts)}


def program(data: Path, folder: str, name: str) -> str:
    """A program of QuixBugs (Lin et al. 2017, MIT).

    Raises:
        ConfigError: it is not there.
    """
    return _text(data / "quixbugs" / folder / f"{name}.py")


def pairs(data: Path, name: str) -> list[tuple[list[Any], Any]]:
    """The public tests of a program: lines `[arguments, result]`, a single argument also without its list.

    Raises:
        ConfigError: there are none, or they are of another form.
    """
    path = data / "quixbugs" / "json_testcases" / f"{name}.json"
    found = []
    for number, line in enumerate(filter(str.strip, _text(path).splitlines()), 1):
        try:
            args, result = json.loads(line)
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{path}, line {number} is no pair of arguments and result: take the original") from error
        found.append((args if isinstance(args, list) else [args], result))
    return found


def fixes(data: Path) -> list[Fix]:
    """The tasks of HumanEvalFix (Muennighoff et al. 2023, MIT); none where the folder has no such file.

    Raises:
        ConfigError: the file is of another form.
    """
    path = data / FIXES
    if not path.exists():
        return []
    found = []
    for number, line in enumerate(_text(path).splitlines(), 1):
        try:
            found.append(_fix(json.loads(line)))
        except (ValueError, KeyError, TypeError, AttributeError, SyntaxError) as error:
            said = f"{path}, line {number} is no task of HumanEvalFix ({error!r}): take the original"
            raise ConfigError(said) from error
    return found


def in_quick(name: str) -> bool:
    """Whether the quick run takes this program or task: about every fourth, by the hash of its name."""
    return hashlib.sha256(name.encode()).digest()[0] % 4 == 0


def _fix(record: dict[str, Any]) -> Fix:
    declared, entry = record["declaration"], record["entry_point"]
    calls = tuple(_calls(record["test"], entry)) + tuple(_calls(_examples(record["docstring"]), entry))
    return Fix(
        name=record["task_id"].replace("Python/", "humaneval_"),
        entry=entry,
        buggy=declared + record["buggy_solution"],
        canonical=declared + record["canonical_solution"],
        calls=tuple({repr(args): args for args in calls}.values()),
    )


def _examples(text: str) -> str:
    """What stands behind `>>>`, as lines that parse."""
    lines = [line.strip()[3:].strip() for line in text.splitlines() if line.strip().startswith(">>>")]
    return "\n".join(line for line in lines if _parses(line))


def _parses(line: str) -> bool:
    try:
        ast.parse(line)
    except (SyntaxError, ValueError):
        return False
    return True


def _calls(text: str, entry: str) -> Iterator[Arguments]:
    """Arguments of the calls of the function in a text, where they are literals."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call) or node.keywords:
            continue
        if isinstance(node.func, ast.Name) and node.func.id in (entry, "candidate"):
            try:
                yield tuple(ast.literal_eval(arg) for arg in node.args)
            except (ValueError, TypeError):
                continue


def _text(path: Path) -> str:
    try:
        return text_of(path, MOST_BYTES)
    except TaskError as error:
        raise ConfigError(f"{error}; name the data's folder with --data") from error
