"""What a `tools.py` offers, read without running it: its functions, their type hints and docstrings."""

from __future__ import annotations

import ast
import inspect
import typing
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import GenericAlias
from typing import Any

from opensage.errors import ConfigError, ToolError
from opensage.tools.docstring import parse_docstring
from opensage.tools.schema import Binding

PLAIN: dict[str, Any] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "list": list,
    "dict": dict[str, Any],
    "tuple": tuple,
    "Any": Any,
    "object": Any,
    **dict.fromkeys(("List", "Sequence", "Iterable", "Collection", "Set", "set"), list),
    **dict.fromkeys(("Dict", "Mapping", "MutableMapping"), dict[str, Any]),
    "Tuple": tuple,
}
_DICTS = ("dict", "Dict", "Mapping", "MutableMapping")
_DEEPEST = 20
_MOST = 1 << 20
USABLE = "str, int, float, bool, None, list[...], dict[str, ...], Literal[...], Optional[...] and unions of them"


class _Later:
    """Stands for a default value that is computed when the module is imported."""

    def __repr__(self) -> str:
        return "..."


@dataclass(frozen=True)
class Function:
    """One function of `tools.py`.

    Attributes:
        title: the tool's name for the model.
        signature: as a person would write it, with type hints.
        documented: whether it has a docstring and a type hint for each parameter.
    """

    name: str
    title: str
    signature: str
    doc: str
    parameters: tuple[inspect.Parameter, ...] = field(repr=False)
    documented: bool = True

    @property
    def description(self) -> str:
        """The docstring without its sections."""
        return parse_docstring(self.doc).description or self.name

    @cached_property
    def binding(self) -> Binding:
        """Its schema, and the check of arguments; built when first asked for."""

        def stub() -> None: ...

        stub.__name__, stub.__doc__ = self.name, self.doc
        stub.__signature__ = inspect.Signature(self.parameters)  # type: ignore[attr-defined]
        stub.__annotations__ = {each.name: each.annotation for each in self.parameters}
        return Binding(self.title, stub)


def parse(source: bytes, name: str) -> ast.Module:
    """The syntax tree of a module.

    Raises:
        ToolError: it is no Python; says where.
    """
    if len(source) > _MOST:
        raise ToolError(f"{name} has {len(source)} bytes: a module of a toolkit has up to {_MOST}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except SyntaxError as error:
        where = f" line {error.lineno}" if error.lineno else ""
        raise ToolError(f"{name}{where}: {error.msg}: {(error.text or '').strip()[:200]}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ToolError(f"{name} is not a Python module: {str(error) or type(error).__name__}") from None


def read_functions(source: bytes, prefix: str) -> tuple[Function, ...]:
    """The functions that are tools: those in `__all__`, else all that are public.

    Args:
        source: of `tools.py`.
        prefix: put before each name, with `__` between.

    Raises:
        ToolError: it is no Python, names in `__all__` are not functions of it, or a hint cannot come from JSON.
    """
    module = parse(source, "tools.py")
    defined = {n.name: n for n in module.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}
    listed = _all(module)
    missing = [name for name in listed or () if name not in defined]
    if missing:
        raise ToolError(f"tools.py: __all__ names {', '.join(missing)}, but the tools must be functions of tools.py")
    names = [name for name in defined if not name.startswith("_")] if listed is None else listed
    hints = _Hints(module)
    return tuple(_function(defined[name], prefix, hints) for name in dict.fromkeys(names))


def _all(module: ast.Module) -> list[str] | None:
    for node in module.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            try:
                return [str(name) for name in ast.literal_eval(node.value)]
            except (ValueError, TypeError):
                raise ToolError("tools.py: __all__ must be a list of names, written out") from None
    return None


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef, prefix: str, hints: _Hints) -> Function:
    if node.args.vararg or node.args.kwarg or node.args.posonlyargs:
        raise ToolError(f"tools.py: {node.name} has parameters without a name (*args, **kwargs or '/'): name each")
    given = [*node.args.args, *node.args.kwonlyargs]
    late = [None] * (len(node.args.args) - len(node.args.defaults))
    defaults = [*late, *node.args.defaults, *node.args.kw_defaults]
    parameters = tuple(_parameter(node.name, a, d, hints) for a, d in zip(given, defaults, strict=True))
    doc = ast.get_docstring(node) or ""
    returned = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    signature = f"{node.name}({ast.unparse(node.args)}){returned}"
    annotated = all(each.annotation for each in given)
    return Function(node.name, f"{prefix}__{node.name}", signature, doc, parameters, bool(doc) and annotated)


def _parameter(function: str, arg: ast.arg, default: ast.expr | None, hints: _Hints) -> inspect.Parameter:
    try:
        hint = hints.of(arg.annotation) if arg.annotation else Any
    except ConfigError as error:
        raise ToolError(f"tools.py: parameter '{arg.arg}' of {function}: {error}; use {USABLE}") from None
    value: Any = inspect.Parameter.empty
    if default is not None:
        try:
            value = ast.literal_eval(default)
        except (ValueError, TypeError):
            value = _Later()
    return inspect.Parameter(arg.arg, inspect.Parameter.KEYWORD_ONLY, default=value, annotation=hint)


class _Hints:
    """Type hints as types, from their syntax alone; names that the module gives to types are known."""

    def __init__(self, module: ast.Module) -> None:
        self._aliases: dict[str, ast.expr] = {}
        for node in module.body:
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                self._aliases[node.targets[0].id] = node.value
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
                self._aliases[node.target.id] = node.value

    def of(self, node: ast.expr, depth: int = 0) -> Any:
        """The type; `ConfigError` for one whose values JSON cannot hold."""
        if depth > _DEEPEST:
            raise ConfigError("the type is nested too deeply")
        if isinstance(node, ast.Constant):
            return self._constant(node, depth)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return typing.Union[self.of(node.left, depth + 1), self.of(node.right, depth + 1)]  # noqa: UP007
        if isinstance(node, ast.Subscript):
            return self._subscript(_name(node.value), _items(node.slice), depth + 1)
        name = _name(node)
        if isinstance(node, ast.Name) and name in self._aliases and name not in PLAIN:
            return self.of(self._aliases[name], depth + 1)
        if name not in PLAIN:
            raise ConfigError(f"the type '{ast.unparse(node)[:80]}' cannot come from JSON")
        return PLAIN[name]

    def _constant(self, node: ast.Constant, depth: int) -> Any:
        if node.value is None:
            return type(None)
        if not isinstance(node.value, str):
            raise ConfigError(f"{node.value!r} is no type")
        try:
            return self.of(ast.parse(node.value, mode="eval").body, depth + 1)
        except (SyntaxError, ValueError):
            raise ConfigError(f"{node.value[:80]!r} is no type") from None

    def _subscript(self, name: str, items: list[ast.expr], depth: int) -> Any:
        if name == "Literal":
            return typing.Literal[tuple(_literal(item) for item in items)]
        if name == "Annotated":
            return self.of(items[0], depth)
        inner = [self.of(item, depth) for item in items if not _is_dots(item)]
        make = _GENERIC.get(name)
        if make is None:
            raise ConfigError(f"the type '{name}[...]' cannot come from JSON")
        if name in _DICTS and inner[0] is not str:
            raise ConfigError("the keys of a JSON object are text: dict[str, ...]")
        return make(tuple(inner), any(map(_is_dots, items)))


def _tuple(inner: tuple[Any, ...], dots: bool) -> Any:
    return _list(inner, dots) if dots else GenericAlias(tuple, inner)


def _list(inner: tuple[Any, ...], _dots: bool) -> Any:
    return GenericAlias(list, inner[:1])


def _dict(inner: tuple[Any, ...], _dots: bool) -> Any:
    return GenericAlias(dict, (str, inner[-1]))


_GENERIC: Mapping[str, Callable[[tuple[Any, ...], bool], Any]] = {
    "Optional": lambda inner, _dots: typing.Optional[inner[0]],  # noqa: UP045
    "Union": lambda inner, _dots: typing.Union[inner],  # noqa: UP007
    **dict.fromkeys(_DICTS, _dict),
    **dict.fromkeys([name for name, hint in PLAIN.items() if hint is list], _list),
    **dict.fromkeys(("tuple", "Tuple"), _tuple),
}


def _name(node: ast.expr) -> str:
    """The last part of `typing.List`, or the name itself."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _items(node: ast.expr) -> list[ast.expr]:
    return list(node.elts) if isinstance(node, ast.Tuple) else [node]


def _is_dots(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        raise ConfigError("the values of a Literal must be written out") from None
