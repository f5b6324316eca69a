"""Small changes of a program, by five operators, to see whether properties notice them."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator

_COMPARE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.BitXor: ast.BitOr, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip


_STUBS = (
    "not r if isinstance(r, bool) else r",
    "r * 2 if isinstance(r, (list, str, int, float)) else r",
    "r + r[:1] if isinstance(r, (list, str)) else r",
    "type(r)()",
    "r[::-1] if isinstance(r, (list, str, tuple)) else r - 1 if isinstance(r, int) else r",
)


def mutants(code: str, entry: str, most: int = 12) -> list[str]:
    """Different programs, spread over the operators; those of values returned come last. At most `most`.

    Operators: another comparison, another arithmetic sign, another constant, a condition turned round, a changed
    result.
    """
    tree = ast.parse(code)
    places = list(enumerate(ast.walk(tree)))
    kinds = [[new for at, node in places if (new := _changed(tree, at, node, kind))] for kind in range(5)]
    found: list[str] = []
    seen = {ast.unparse(tree)}
    while any(kinds) and len(found) < most:
        for queue in kinds:
            text = queue.pop(0) if queue else ""
            if text and text not in seen and len(found) < most:
                seen.add(text)
                found.append(text)
    return [*found, *_stubs(code, entry, seen)][: max(most, len(found))]


def _changed(tree: ast.Module, at: int, node: ast.AST, kind: int) -> str:
    """The program with the node changed, or "" where this operator does not apply."""
    fits = (
        isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARE,
        isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _ARITHMETIC,
        isinstance(node, ast.Constant) and type(node.value) is int,
        isinstance(node, ast.If | ast.While | ast.IfExp),
        isinstance(node, ast.Return) and node.value is not None,
    )
    if not fits[kind]:
        return ""
    other = copy.deepcopy(tree)
    _change(next(each for number, each in enumerate(ast.walk(other)) if number == at))
    if kind == 3:
        other = copy.deepcopy(tree)
        _turn(next(each for number, each in enumerate(ast.walk(other)) if number == at))
    return ast.unparse(ast.fix_missing_locations(other))


def _change(node: ast.AST) -> None:
    if isinstance(node, ast.Compare):
        node.ops[0] = _COMPARE[type(node.ops[0])]()
    elif isinstance(node, ast.BinOp | ast.AugAssign):
        node.op = _ARITHMETIC[type(node.op)]()
    elif isinstance(node, ast.Constant):
        node.value = int(str(node.value)) + 1
    elif isinstance(node, ast.Return) and node.value is not None:
        node.value = _other_result(node.value)


def _turn(node: ast.AST) -> None:
    assert isinstance(node, ast.If | ast.While | ast.IfExp)
    node.test = ast.UnaryOp(ast.Not(), node.test)


def _other_result(value: ast.expr) -> ast.expr:
    """Something of the same type, where that can be: a list without its first element, a number plus one."""
    text = (
        "(lambda _r: not _r if isinstance(_r, bool) else _r + 1 if isinstance(_r, (int, float)) else"
        " _r[1:] if isinstance(_r, (list, str, tuple)) else type(_r)())"
    )
    return ast.Call(ast.parse(text, mode="eval").body, [value], [])


def _stubs(code: str, entry: str, seen: set[str]) -> Iterator[str]:
    """The program with its result replaced: for code too small to have enough mutants."""
    if not entry.isidentifier():
        return
    for change in _STUBS:
        text = (
            f"{code}\n\n_whole = {entry}\n\n\ndef {entry}(*args):\n    r = _whole(*args)\n"
            f"    r = list(r) if hasattr(r, '__next__') else r\n    return {change}\n"
        )
        if text not in seen:
            yield text
