"""One function in a Python file: found, shown, and put back changed."""

from __future__ import annotations

import ast
import re
import textwrap
from dataclasses import dataclass

Function = ast.FunctionDef | ast.AsyncFunctionDef
_FENCE = re.compile(r"```[a-zA-Z0-9+_-]*[ \t]*\n(.*?)(?:\n```|\Z)", re.S)


@dataclass(frozen=True, slots=True)
class Place:
    """A function in a text: its name (`Class.method` for a method), first and last line from 1, decorators included."""

    name: str
    first: int
    last: int

    @property
    def short(self) -> str:
        """The name without its class."""
        return self.name.rpartition(".")[2]


def functions_in(text: str) -> list[Place]:
    """The functions and methods of a file, in order; none when it is no Python."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    found = [_place(node, "") for node in tree.body if isinstance(node, Function)]
    for owner in tree.body:
        if isinstance(owner, ast.ClassDef):
            found += [_place(node, f"{owner.name}.") for node in owner.body if isinstance(node, Function)]
    return sorted(found, key=lambda place: place.first)


def classes_in(text: str) -> list[Place]:
    """The classes at the top of a file, in order; none when it is no Python."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return [_place(node, "") for node in tree.body if isinstance(node, ast.ClassDef)]


def _place(node: Function | ast.ClassDef, owner: str) -> Place:
    first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
    return Place(owner + node.name, first, node.end_lineno or node.lineno)


def source_of(text: str, place: Place) -> str:
    """The function's lines, without the indentation of a method."""
    return textwrap.dedent("\n".join(text.split("\n")[place.first - 1 : place.last]))


def code_in(reply: str) -> str:
    """The code of a reply: its last fenced block, else the reply itself."""
    blocks = _FENCE.findall(reply)
    return blocks[-1] if blocks else reply


def replaced(text: str, place: Place, reply: str) -> str:
    """The file with the function, or class, as a reply writes it, and with the helpers and imports that come with it.

    A docstring that the reply leaves out stays. "" when the reply has none of that name, or changes nothing.
    """
    code = textwrap.dedent(code_in(reply))
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    old = source_of(text, place)
    kind = ast.ClassDef if isinstance(ast.parse(old).body[0], ast.ClassDef) else Function
    found = [node for node in ast.walk(tree) if isinstance(node, kind) and node.name == place.short]
    if not found:
        return ""
    new = _with_docstring(old, _lines(code, found[-1]))
    if _same(old, new):
        return ""
    lines = text.split("\n")
    indent = re.match(r"\s*", lines[place.first - 1])
    body = textwrap.indent(new, indent.group() if indent else "", lambda line: bool(line.strip()))
    lines[place.first - 1 : place.last] = body.split("\n")
    return _with_company("\n".join(lines), text, code, tree, found[-1])


def _lines(code: str, node: ast.stmt) -> str:
    decorators = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(item.lineno for item in decorators)])
    return textwrap.dedent("\n".join(code.split("\n")[first - 1 : node.end_lineno]))


def _with_docstring(old: str, new: str) -> str:
    """What is new with the docstring of what is old, if it has none."""
    before, after = ast.parse(old).body[0], ast.parse(new).body[0]
    assert isinstance(before, Function | ast.ClassDef)
    assert isinstance(after, Function | ast.ClassDef)
    if (
        ast.get_docstring(before) is None
        or ast.get_docstring(after) is not None
        or after.body[0].lineno == after.lineno
    ):
        return new
    said, lines = before.body[0], new.split("\n")
    block = old.split("\n")[said.lineno - 1 : said.end_lineno]
    at = after.body[0].lineno - 1
    return "\n".join([*lines[:at], *block, *lines[at:]])


def _with_company(text: str, before: str, code: str, tree: ast.Module, chosen: Function | ast.ClassDef) -> str:
    """Imports, functions and classes of the reply that the file does not have, put after the file's own imports."""
    module = ast.parse(before)
    known = {node.name for node in module.body if isinstance(node, Function | ast.ClassDef)}
    imports = {ast.dump(node) for node in ast.walk(module) if isinstance(node, ast.Import | ast.ImportFrom)}
    extra = [
        _lines(code, node)
        for node in tree.body
        if node is not chosen
        and (
            (isinstance(node, ast.Import | ast.ImportFrom) and ast.dump(node) not in imports)
            or (isinstance(node, Function | ast.ClassDef) and node.name not in known)
        )
    ]
    if not extra:
        return text
    at = _after_head(module)
    lines = text.split("\n")
    return "\n".join([*lines[:at], *"\n".join(extra).split("\n"), *lines[at:]])


def _after_head(module: ast.Module) -> int:
    """The number of lines of a docstring and the imports at the top."""
    at = 0
    for node in module.body:
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and at == 0
        if not docstring and not isinstance(node, ast.Import | ast.ImportFrom):
            break
        at = node.end_lineno or at
    return at


def _same(old: str, new: str) -> bool:
    return ast.dump(ast.parse(old)) == ast.dump(ast.parse(new))


def signature_of(text: str, place: Place) -> str:
    """A key under which functions that differ in layout alone are the same."""
    return ast.dump(ast.parse(source_of(text, place)))
