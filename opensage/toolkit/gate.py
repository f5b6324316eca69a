"""The gate: what an agent's toolkit must be before it is registered. Nothing of it runs but in the sandbox."""

from __future__ import annotations

import ast
import json
import keyword
import re
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from opensage.errors import ToolError
from opensage.toolkit.folder import PROVENANCE, Contents
from opensage.toolkit.signature import parse
from opensage.toolkit.spec import ToolkitSpec, key_of, make_spec
from opensage.tools.toolbox import NAME

MOST_FILES = 100
MOST_BYTES = 1 << 20
MOST_TOTAL = 5 << 20
_NAME = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")
_LONGEST_NAME = 40
_SKILL, _TOOLS, _TESTS = "SKILL.md", "tools.py", "tests/test_tools.py"

Texts = Mapping[str, str] | str
"""Files by path, or the text of the one that matters."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A toolkit to be: its name, and its files."""

    name: str
    files: dict[str, bytes]

    def spec(self, version: int) -> ToolkitSpec:
        """Its specification. Raises `ToolError` when SKILL.md or tools.py cannot be read."""
        return make_spec(Contents(self.files), Path(self.name), "session", version)


def draft(name: str, description: str, files: Texts, tests: Texts, *, base: Mapping[str, bytes] | None = None) -> Draft:
    """Bring what a model wrote into the shape of a toolkit's folder.

    Args:
        name: of the toolkit.
        description: one line.
        files: path → text, or the text of tools.py alone.
        tests: path → text, or the text of one file of tests.
        base: files of the version before, kept where the new ones say nothing; an empty text removes one.

    Raises:
        ToolError: the name, a path or a file is not permitted; says what is.
    """
    name = checked_name(name)
    found = dict(base or {})
    texts = _by_path(files, _TOOLS, name)
    texts |= {
        path if path.startswith("tests/") else f"tests/{path}": text
        for path, text in _by_path(tests, _TESTS, name).items()
    }
    for path, text in texts.items():
        if found.pop(_checked_path(path), None) is None or text:
            found[path] = _encoded(path, text)
    _check_size(found)
    _check_places(found)
    found[_SKILL] = _skill(name, description, found.get(_SKILL))
    return Draft(name, dict(sorted(found.items())))


def checked_name(name: str) -> str:
    """The name, if a new toolkit may have it. Raises `ToolError` when not."""
    name = name.strip()
    if not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
        raise ToolError(
            f"the name {name[:80]!r} is not valid: up to {_LONGEST_NAME} lower-case letters, digits and '-', "
            "a letter first, e.g. 'matrix-tools'"
        )
    package = name.replace("-", "_")
    if package in sys.stdlib_module_names or keyword.iskeyword(package):
        raise ToolError(f"'{name}' is the name of a module of Python: choose another, e.g. '{name}-kit'")
    return name


def _by_path(texts: Texts, single: str, name: str) -> dict[str, str]:
    if isinstance(texts, str):
        if texts.lstrip().startswith("{"):  # an object that was written as text
            try:
                read = json.loads(texts, strict=False)
            except ValueError:
                read = None
            if isinstance(read, dict) and all(isinstance(text, str) for text in read.values()):
                return _by_path(read, single, name)
        return {single: texts} if texts.strip() else {}
    return {_relative(path, name): text for path, text in texts.items()}


def _relative(path: str, name: str) -> str:
    """The path within the toolkit, although it may begin with the toolkit's own name."""
    path = path.strip().removeprefix("./")
    first, _, rest = path.partition("/")
    return rest if rest and key_of(first) == key_of(name) else path


def _checked_path(path: str) -> str:
    pure = PurePosixPath(path)
    bad = not path or path != str(pure) or pure.is_absolute() or "\\" in path or not path.isprintable()
    if bad or len(path) > 200 or any(part.startswith(".") or part == "__pycache__" for part in pure.parts):
        raise ToolError(f"the path {path[:100]!r} is not valid: use paths inside the toolkit, like 'market.py'")
    if path == PROVENANCE:
        raise ToolError(f"'{PROVENANCE}' is written by the kit: choose another name")
    return path


def _encoded(path: str, text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise ToolError(f"{path} is not valid Unicode text") from None


def _check_size(files: Mapping[str, bytes]) -> None:
    if len(files) > MOST_FILES:
        raise ToolError(f"{len(files)} files are too many: a toolkit has up to {MOST_FILES}")
    for path, data in files.items():
        if len(data) > MOST_BYTES:
            raise ToolError(f"{path} has {len(data)} bytes: a file of a toolkit has up to {MOST_BYTES}")
    total = sum(map(len, files.values()))
    if total > MOST_TOTAL:
        raise ToolError(f"the files have {total} bytes together: a toolkit has up to {MOST_TOTAL}")


def _check_places(files: Mapping[str, bytes]) -> None:
    for path in files:
        for parent in PurePosixPath(path).parents:
            if str(parent) in files:
                raise ToolError(f"'{parent}' cannot be a file and the folder of {path}")


def _skill(name: str, description: str, given: bytes | None) -> bytes:
    """SKILL.md as it was given when it has front matter, else with one made of name and description."""
    text = "" if given is None else given.decode()
    if text.startswith("---"):
        return text.encode()
    line = " ".join(description.split())
    if not line:
        raise ToolError("the description is empty: say in one line when to use the toolkit")
    return f"---\nname: {name}\ndescription: {json.dumps(line, ensure_ascii=False)}\n---\n{text}".encode()


def check(spec: ToolkitSpec, name: str, *, reserved: Collection[str]) -> None:
    """What must hold before the tests run.

    Args:
        spec: the toolkit as it would be.
        name: that it was asked to have.
        reserved: names of tools and agents.

    Raises:
        ToolError: says what to change.
    """
    if key_of(spec.name) != key_of(name):
        raise ToolError(f"SKILL.md says name: {spec.name}, the call says {name}: make them the same")
    taken = {key_of(each): each for each in reserved}
    if spec.key in taken:
        raise ToolError(f"'{name}' would shadow the tool or agent '{taken[spec.key]}': choose another name")
    if not any(tool.documented for tool in spec.tools):
        raise ToolError(
            "tools.py must have a public function with a docstring and a type hint for each parameter, e.g.\n"
            'def mean(values: list[float]) -> float:\n    """Mean of numbers."""\n    return sum(values) / len(values)'
        )
    for tool in spec.tools:
        if key_of(tool.name) in taken:
            raise ToolError(
                f"the function '{tool.name}' has the name of the tool '{taken[key_of(tool.name)]}': rename it"
            )
        if tool.title in reserved:
            raise ToolError(f"there is a tool '{tool.title}' already: choose another name for the toolkit")
        if not NAME.fullmatch(tool.title):
            raise ToolError(f"'{tool.title}' is longer than 64 characters: shorten it")
        tool.binding.schema()
    if not _has_tests(spec.files):
        raise ToolError(
            "there are no tests: pass tests=, e.g.\n"
            "from ..tools import mean\n\ndef test_mean():\n    assert mean([1, 3]) == 2"
        )


def _has_tests(files: Mapping[str, bytes]) -> bool:
    """Whether there is a test. Raises `ToolError` for a module that is no Python."""
    found = False
    for path, data in files.items():
        if path.endswith(".py"):
            nodes = list(ast.walk(parse(data, path)))
            names = [n.name for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
            is_test = path.startswith("tests/") and path.rpartition("/")[2].startswith("test_")
            found = found or (is_test and any(name.startswith("test") for name in names))
    return found
