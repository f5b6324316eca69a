"""A program to write or to repair, and how the loop goes about it."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from opensage.errors import ConfigError
from opensage.files import read_text
from opensage_agents.coder.examples import examples_in
from opensage_agents.coder.functions import Place, classes_in, functions_in, source_of
from opensage_agents.pgs.properties import PropertyError
from opensage_agents.pgs.report import Select

MOST_BYTES = 1 << 20
Pair = tuple[tuple[Any, ...], Any]


class TaskError(PropertyError):
    """A task cannot be read or is not of the form that is wanted."""


@dataclass(frozen=True, slots=True)
class Task:
    """What is wanted of one function, or of one class.

    Attributes:
        description: what it should do, for both roles.
        entry_point: its name. A class is judged by machines, which are given; it has no public tests.
        code: the program to start from; None lets the Generator write it.
        public_tests: pairs `(args, result)` that are right and that both roles may see.
        signature: the `def` line, when there is no code to take it from.
        adapter: for functions that take objects, see `PropertySet`.
    """

    description: str
    entry_point: str
    code: str | None = None
    public_tests: Sequence[Pair] = ()
    signature: str | None = None
    adapter: str = ""

    @property
    def head(self) -> str:
        """The function's `def` line, of a class also those of its methods: all that the Tester sees of the code."""
        place = self.place_in(self.code or "")
        if place is None:
            return self.signature or f"def {self.entry_point}(...):"
        return head_of(ast.parse(source_of(self.code or "", place)).body[0])

    @property
    def is_class(self) -> bool:
        """Whether a class is meant."""
        return self.head.startswith("class ")

    @property
    def parameters(self) -> list[str]:
        """Names of the function's parameters, none when they are not known."""
        try:
            node = ast.parse(f"{self.head.rstrip().rstrip(':')}: pass").body[0]
        except SyntaxError:
            return []
        if not isinstance(node, ast.FunctionDef):
            return []
        names = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
        return names[1:] if names[:1] in (["self"], ["cls"]) else names

    def place_in(self, code: str) -> Place | None:
        """Where the function, or class, stands in a version of the program."""
        return place_of(code, self.entry_point)

    @classmethod
    def from_file(cls, path: Path, function: str = "", description: str = "") -> Task:
        """A task of a JSON file with these fields, or of a Python file, whose text says what the function should do.

        Raises:
            TaskError: the file is neither, or no function is meant.
        """
        text = text_of(path)
        if path.suffix == ".json":
            return _from_json(path, text)
        return from_code(text, function or _only(path, text), description)


@dataclass(frozen=True, slots=True)
class PGSConfig:
    """How the loop runs.

    Attributes:
        max_rounds: repairs at most (the paper: 5).
        properties_per_round: that the Tester is asked for, in each round until half as many are kept (the paper: 5 in
            every round).
        inputs_per_round: inputs drawn for each check (the paper: 64).
        feedback: "property"; "io" or "minimal_io", which show a failed public test, the first or the least; "none"
            shows nothing and asks again.
        select: as for `check`; with properties that are given, "sure" is the same as "shrink".
        public_gate: whether a program that fails more public tests than the best one is taken back.
        revert_on_regression: whether one that breaks more properties is.
        vacuity: "mutants" drops properties that no mutant of the program breaks, "off" does not look.
        inputs: where the strategy comes from: the Tester, or "derived" from annotations and public tests.
        ghostwriter: whether properties that need no model stand in when none of the Tester's is kept.
        tester_sees_code: against the method, for comparisons.
        temperature: of both roles (the paper: 0.7).
        max_tokens, max_cost, max_seconds: of the whole repair; checked before each call of a model.
        reply_tokens: of one reply.
    """

    max_rounds: int = 5
    properties_per_round: int = 5
    inputs_per_round: int = 64
    feedback: Literal["property", "io", "minimal_io", "none"] = "property"
    select: Select = "sure"
    public_gate: bool = True
    revert_on_regression: bool = True
    vacuity: Literal["mutants", "off"] = "mutants"
    inputs: Literal["tester", "derived"] = "tester"
    ghostwriter: bool = True
    tester_sees_code: bool = False
    temperature: float = 0.7
    max_tokens: int | None = None
    max_cost: float | None = None
    max_seconds: float = 600.0
    reply_tokens: int = 900
    seed: int = 0
    sandbox: str = "auto"
    call_timeout: float = 1.0


def place_of(code: str, name: str) -> Place | None:
    """Where a function, a method or a class stands in a program."""
    return next((place for place in (*functions_in(code), *classes_in(code)) if place.name == name), None)


def head_of(node: ast.stmt) -> str:
    """The `def` line of a function, or the outline of a class: its own line and those of its methods."""
    if isinstance(node, ast.ClassDef):
        bases = f"({', '.join(map(ast.unparse, node.bases))})" if node.bases else ""
        heads = [head_of(each) for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
        return "\n".join([f"class {node.name}{bases}:", *(f"    {each} ..." for each in heads)])
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"def {node.name}({ast.unparse(node.args)}){returns}:"


def from_code(text: str, function: str, description: str = "", public_tests: Sequence[Pair] = ()) -> Task:
    """The task of a function or class in a program; what it should do is its docstring, or the last text of the file.

    Raises:
        TaskError: there is no such function, or nothing says what it should do.
    """
    place = place_of(text, function)
    if place is None:
        known = ", ".join(each.name for each in (*functions_in(text), *classes_in(text))) or "none, or it is no Python"
        raise TaskError(f"the program has no function or class {function!r}; there are: {known}")
    told = description or _docstring(text, place) or _last_text(text)
    if not told:
        raise TaskError(f"nothing says what {function} should do: give it a docstring, or a description")
    pairs = list(public_tests) or pairs_in(told, place.short)
    return Task(told, function, text, pairs)


def pairs_in(text: str, function: str) -> list[Pair]:
    """The examples of a description whose arguments and results are literals."""
    found = [_pair(each.call, each.expected) for each in examples_in(text, function)]
    return [each for each in found if each is not None]


def _pair(call: str, expected: str) -> Pair | None:
    try:
        node = ast.parse(call.strip(), mode="eval").body
        if not isinstance(node, ast.Call) or node.keywords:
            return None
        return tuple(ast.literal_eval(each) for each in node.args), ast.literal_eval(expected)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None


def _docstring(text: str, place: Place) -> str:
    node = ast.parse(source_of(text, place)).body[0]
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return (ast.get_docstring(node) or "").strip() if isinstance(node, kinds) else ""


def _last_text(text: str) -> str:
    body = ast.parse(text).body
    texts = [node.value.value for node in body if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    return next((each.strip() for each in reversed(texts) if isinstance(each, str)), "")


def _only(path: Path, text: str) -> str:
    names = [each.name for each in functions_in(text)]
    if path.stem in names or len(names) == 1:
        return path.stem if path.stem in names else names[0]
    raise TaskError(f"{path} has {len(names)} functions: name the one that is meant with --function")


def text_of(path: Path, most: int = MOST_BYTES) -> str:
    """The text of a file.

    Raises:
        TaskError: it cannot be read, is no regular file, is larger than that, or is no UTF-8.
    """
    try:
        return read_text(path, most)
    except ConfigError as error:
        raise TaskError(str(error)) from error


def _from_json(path: Path, text: str) -> Task:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TaskError(f"{path} is no JSON: {error}") from error
    known = {"description": str, "entry_point": str, "code": str, "signature": str, "adapter": str}
    if not isinstance(data, dict) or not all(
        isinstance(data.get(name), str) for name in ("description", "entry_point")
    ):
        raise TaskError(f"{path}: an object with the texts description and entry_point is wanted")
    odd = [name for name, kind in known.items() if not isinstance(data.get(name, ""), kind | None)]
    tests = data.get("public_tests", [])
    if odd or not isinstance(tests, list) or not all(isinstance(each, list) and len(each) == 2 for each in tests):
        raise TaskError(f"{path}: {', '.join(odd) or 'public_tests'} cannot be used; tests are pairs [[args], result]")
    if not all(isinstance(each[0], list) for each in tests):
        raise TaskError(f"{path}: the arguments of a public test are a list")
    fields = {name: data[name] for name in known if data.get(name) is not None}
    return Task(**fields, public_tests=[(tuple(args), result) for args, result in tests])


__all__ = ["PGSConfig", "Task", "TaskError", "from_code", "pairs_in"]
