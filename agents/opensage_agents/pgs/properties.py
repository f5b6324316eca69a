"""Properties of a function, as text: it is run in a sandbox alone, so it is read here and never executed."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeGuard

from opensage.errors import OpenSageError

Kind = Literal["relation", "output", "metamorphic", "model", "stateful"]
Source = Literal["tester", "human", "ghostwriter"]
_MACHINES = ("StatefulMachine", "RuleBasedStateMachine")
_VALUES = {"TARGET": "target", "STRATEGY": "strategy", "PRECONDITIONS": "", "EXAMPLES": "", "ADAPTER": "adapter"}


class PropertyError(OpenSageError):
    """A property file or a property is not of the form that is wanted."""


@dataclass(frozen=True, slots=True)
class Property:
    """A statement about one call. `check` is a function `(args, result)`, or `(args, result, after)`, or its source.

    It returns true or false, or raises AssertionError; `after` are the arguments as the call left them. `args` is a
    tuple. A decorator `@prop(when=lambda args: ...)` says for which inputs it holds.

    Of the kind "stateful" it is a class `name(StatefulMachine)`, whose rules and invariants are those of Hypothesis and
    use one object of the class under test: `self.make(...)`, `self.call("push", 3)`, `self.attribute("size")`,
    `self.raises(IndexError, "pop")`. Arguments and results are data.
    """

    name: str
    check: str | Callable[..., Any]
    kind: Kind = "relation"
    reason: str = ""
    source: Source = "tester"

    @property
    def text(self) -> str:
        """The source of the check.

        Raises:
            PropertyError: a callable whose source is not a function of a file.
        """
        text = self.check if isinstance(self.check, str) else _source(self.check)
        node = _defined(text, self.name, self.kind)
        if node.name != self.name:
            raise PropertyError(f"property {self.name!r} defines {node.name!r}: give both one name")
        return text

    @property
    def sees_after(self) -> bool:
        """Whether it is also given the arguments as the call left them."""
        node = _defined(self.text, self.name, self.kind)
        return isinstance(node, ast.FunctionDef) and len(node.args.args) == 3


@dataclass(frozen=True, slots=True)
class PropertySet:
    """What is known of one function, and the inputs to try it on.

    Attributes:
        target: name of the function, "Class.method" for a method; a module may stand before it ("module:function").
        strategy: an expression that draws the tuple of arguments; a strategy object is taken by its repr. Machines
            (properties of the kind "stateful") draw their own, so a set of them has none, and holds nothing else.
        preconditions: functions of `args`, as text; inputs that one rejects are not tried.
        examples: public pairs `(args, result)` of literals.
        adapter: code that runs in the candidate's process and defines `call(function, *args)`, for functions that take
            objects which cannot be sent. It must hold no property.
        setup: imports and functions that the properties need.
    """

    target: str
    strategy: Any = ""
    properties: Sequence[Property] = ()
    preconditions: Sequence[str] = ()
    examples: Sequence[tuple[tuple[Any, ...], Any]] = ()
    adapter: str = ""
    setup: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        """Refuse a mixture."""
        if not self.stateful:
            return
        plain = [each.name for each in self.properties if each.kind != "stateful"]
        other = {"STRATEGY": self.strategy, "PRECONDITIONS": self.preconditions, "EXAMPLES": self.examples}
        found = [*plain, *(name for name, value in other.items() if value)]
        if found:
            raise PropertyError(
                f"{', '.join(found)} beside a machine: properties of calls and machines need a file each"
            )

    @property
    def stateful(self) -> bool:
        """Whether the properties are machines."""
        return any(each.kind == "stateful" for each in self.properties)

    @property
    def entry(self) -> str:
        """The function's name in its module."""
        return self.target.rpartition(":")[2]

    @property
    def names(self) -> list[str]:
        """Of the properties."""
        return [each.name for each in self.properties]

    @classmethod
    def from_source(cls, text: str) -> PropertySet:
        """Read a property file. Nothing in it is run.

        Raises:
            PropertyError: no Python, or TARGET or STRATEGY is missing.
        """
        tree, values, properties, setup = _parse(text), {}, [], []
        for node in tree.body:
            name = _assigned(node)
            if name in _VALUES:
                assert isinstance(node, ast.Assign)
                values[name] = node.value
            elif (isinstance(node, ast.FunctionDef) and _is_property(node)) or _is_machine(node):
                properties.append(_read(node, text))
            else:
                setup.append(_segment(text, node))
        wanted = ("TARGET", *(() if any(each.kind == "stateful" for each in properties) else ("STRATEGY",)))
        missing = [name for name in wanted if name not in values]
        if missing:
            raise PropertyError(f"the properties have no {' and no '.join(missing)}: assign it at the top level")
        return cls(
            target=_literal(values["TARGET"], "TARGET", str),
            strategy=ast.unparse(values["STRATEGY"]) if "STRATEGY" in values else "",
            properties=properties,
            preconditions=[ast.unparse(each) for each in getattr(values.get("PRECONDITIONS"), "elts", ())],
            examples=[_pair(each) for each in _literal(values.get("EXAMPLES"), "EXAMPLES", list)],
            adapter=_literal(values.get("ADAPTER"), "ADAPTER", str),
            setup="\n".join(setup),
        )

    def to_source(self) -> str:
        """The property file; `from_source` of it is this set again.

        Raises:
            PropertyError: a property's source cannot be found.
        """
        parts = [self.setup.strip()] if self.setup.strip() else []
        strategy = self.strategy if isinstance(self.strategy, str) else repr(self.strategy)
        parts += [f"TARGET = {self.target!r}" + (f"\nSTRATEGY = {strategy}" if strategy else "")]
        if self.preconditions:
            parts.append(f"PRECONDITIONS = [{', '.join(self.preconditions)}]")
        if self.examples:
            rows = "".join(f"    {(tuple(args), result)!r},\n" for args, result in self.examples)
            parts.append(f"EXAMPLES = [\n{rows}]")
        if self.adapter:
            parts.append(f"ADAPTER = {_quoted(self.adapter)}")
        return "\n\n".join([*parts, *(_marked(each) for each in self.properties)]) + "\n"

    def only(self, names: Iterable[str]) -> PropertySet:
        """The set with these properties alone."""
        kept = set(names)
        return replace(self, properties=[each for each in self.properties if each.name in kept])

    def validate(self, public_tests: Sequence[tuple[Sequence[Any], Any]], **options: Any) -> Any:
        """Run the properties on pairs `(args, result)` that are right: `FilterReport(kept, dropped, undecided)`.

        `options` are those of `check` about the sandbox. Not within an event loop; `avalidate` is for that.
        """
        import asyncio

        from opensage_agents.pgs.filtering import avalidate

        return asyncio.run(avalidate(self, public_tests, **options))


def _parse(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f"line {error.lineno}: " if isinstance(error, SyntaxError) else ""
        raise PropertyError(f"the properties are no Python: {line}{getattr(error, 'msg', error)}") from error


def _assigned(node: ast.stmt) -> str:
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return ""


def _decorator(node: ast.FunctionDef | ast.ClassDef) -> ast.Call | None:
    for each in node.decorator_list:
        name = each.func if isinstance(each, ast.Call) else each
        if isinstance(name, ast.Name) and name.id == "prop":
            return each if isinstance(each, ast.Call) else ast.Call(func=name, args=[], keywords=[])
    return None


def _is_property(node: ast.FunctionDef) -> bool:
    names = [each.arg for each in node.args.args]
    return not node.name.startswith("_") and (names[:2] == ["args", "result"] or _decorator(node) is not None)


def _is_machine(node: ast.stmt) -> TypeGuard[ast.ClassDef]:
    """A class of machines, whose name is public."""
    if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
        return False
    return any(ast.unparse(base).rpartition(".")[2] in _MACHINES for base in node.bases)


def _read(node: ast.FunctionDef | ast.ClassDef, text: str) -> Property:
    mark = _decorator(node)
    said: dict[str, Any] = {}
    for keyword in mark.keywords if mark else []:
        if keyword.arg in ("kind", "reason", "source") and isinstance(keyword.value, ast.Constant):
            said[keyword.arg] = keyword.value.value
    if mark and mark.args and isinstance(mark.args[0], ast.Constant):
        said["kind"] = mark.args[0].value
    if isinstance(node, ast.ClassDef):
        said["kind"] = "stateful"
    said.setdefault("reason", (ast.get_docstring(node) or "").strip())
    return Property(node.name, _segment(text, node), **said)


def _segment(text: str, node: ast.stmt) -> str:
    first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
    return "\n".join(text.splitlines()[first - 1 : node.end_lineno])


def _literal(node: ast.expr | None, name: str, kind: type[Any]) -> Any:
    if node is None:
        return kind()
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise PropertyError(f"{name} must be a literal: {error}") from error
    if not isinstance(value, kind):
        raise PropertyError(f"{name} must be a {kind.__name__}, not {type(value).__name__}")
    return value


def _pair(value: Any) -> tuple[tuple[Any, ...], Any]:
    if not isinstance(value, tuple) or len(value) != 2 or not isinstance(value[0], (tuple, list)):
        raise PropertyError(f"EXAMPLES has {value!r:.80}, which is no pair (args, result)")
    return tuple(value[0]), value[1]


def _source(check: Callable[..., Any]) -> str:
    try:
        return textwrap.dedent(inspect.getsource(check)).strip()
    except (OSError, TypeError) as error:
        raise PropertyError(f"the source of {check!r} cannot be found: give the property as text") from error


def _defined(text: str, name: str, kind: Kind) -> ast.FunctionDef | ast.ClassDef:
    body = _parse(text).body
    if kind == "stateful":
        if len(body) != 1 or not _is_machine(body[0]):
            raise PropertyError(f"property {name!r} must be one class, `class {name}(StatefulMachine): ...`")
        return body[0]
    if len(body) != 1 or not isinstance(body[0], ast.FunctionDef):
        raise PropertyError(f"property {name!r} must be one function, `def {name}(args, result): ...`")
    return body[0]


def _marked(each: Property) -> str:
    """The source with a mark that holds what the function does not say."""
    text = each.text
    node = _defined(text, each.name, each.kind)
    plain = isinstance(node, ast.ClassDef) or (_is_property(node) and each.kind == "relation")
    if _decorator(node) is not None or (plain and each.source == "tester"):
        return text
    return f"@prop(kind={each.kind!r}, reason={each.reason!r}, source={each.source!r})\n{text}"


def _quoted(text: str) -> str:
    return repr(text) if '"""' in text or "\\" in text else f'"""{text}"""'
