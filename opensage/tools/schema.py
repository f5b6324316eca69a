"""From a Python signature to a JSON schema, and from a model's arguments to Python values.

pydantic does both. It is imported, and the adapter built, when a tool is first shown to a model or called.
"""

from __future__ import annotations

import difflib
import inspect
import json
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from opensage.errors import ConfigError, ToolError
from opensage.tools.base import ToolContext
from opensage.tools.docstring import Docstring, parse_docstring

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_SHOWN = 80
_EXAMPLES: dict[str, Any] = {"integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}, "null": None}


class Binding:
    """Ties a function to its schema: `schema()` for the model, `validate()` for what the model sent.

    Attributes:
        context: name of the parameter that gets the `ToolContext`, or None.
    """

    def __init__(self, name: str, func: Callable[..., Any], namespace: Mapping[str, Any] | None = None) -> None:
        self.name = name
        self.doc: Docstring = parse_docstring(inspect.getdoc(func))
        self._func = func
        self._namespace = dict(namespace or {})
        self._params = _parameters(name, func)
        self._adapter: TypeAdapter[dict[str, Any]] | None = None
        self._schema: dict[str, Any] | None = None
        self.context: str | None = None

    def prepare(self) -> TypeAdapter[dict[str, Any]]:
        """The adapter, built once.

        Raises:
            ConfigError: a type hint cannot be resolved or has no JSON schema.
        """
        if self._adapter is None:
            hints = self._hints()
            self.context = next((name for name, hint in hints.items() if _is_context(hint)), None)
            self._params.pop(self.context or "", None)
            self._adapter = self._build(hints)
        return self._adapter

    def schema(self) -> dict[str, Any]:
        """JSON schema of the arguments: an object, without titles, references inlined where they are not recursive."""
        if self._schema is None:
            adapter = self.prepare()
            try:
                raw = adapter.json_schema()
            except Exception as error:  # pydantic has several families of schema errors
                raise ConfigError(f"tool '{self.name}': a parameter has no JSON schema ({_first(error)})") from error
            self._schema = self._finish(compact_schema(raw))
        return self._schema

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as the function's own types. Small slips are mended ("5" for 5, a JSON string for a list).

        Raises:
            ToolError: naming each wrong field, what was expected, and an example.
        """
        from pydantic import ValidationError

        adapter = self.prepare()
        try:
            return adapter.validate_python(arguments)
        except ValidationError as error:
            mended = self._mend(arguments, error)
        try:
            return adapter.validate_python(mended)
        except ValidationError as error:
            raise ToolError(self._explain(error)) from None

    def _hints(self) -> dict[str, Any]:
        target = inspect.unwrap(self._func)
        while hasattr(target, "func"):  # functools.partial
            target = target.func
        if not (inspect.isfunction(target) or inspect.ismethod(target)):
            target = type(target).__call__
        try:
            hints = typing.get_type_hints(target, localns=self._namespace or None, include_extras=True)
        except (NameError, TypeError, AttributeError, SyntaxError) as error:
            raise ConfigError(f"tool '{self.name}': a type hint cannot be resolved ({_first(error)})") from error
        return {name: hints.get(name, Any) for name in self._params}

    def _build(self, hints: Mapping[str, Any]) -> TypeAdapter[dict[str, Any]]:
        from pydantic import ConfigDict, Field, TypeAdapter
        from pydantic.errors import PydanticUserError
        from typing_extensions import TypedDict

        make_form: Any = TypedDict
        fields: dict[str, Any] = {}
        for name, param in self._params.items():
            text = self.doc.params.get(name)
            hint = typing.Annotated[hints[name], Field(description=text)] if text else hints[name]
            fields[name] = hint if param.default is param.empty else typing.NotRequired[hint]
        # A TypedDict and not a model: any parameter name works, and absent arguments stay absent, so that the
        # function's own defaults hold.
        form = make_form("Arguments", fields)
        form.__pydantic_config__ = ConfigDict(extra="forbid", coerce_numbers_to_str=True)
        try:
            return TypeAdapter(form)
        except (PydanticUserError, TypeError) as error:
            raise ConfigError(f"tool '{self.name}': a type hint cannot be used ({_first(error)})") from error

    def _finish(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Add the defaults that JSON can hold."""
        properties = schema.setdefault("properties", {})
        for name, param in self._params.items():
            if isinstance(param.default, bool | int | float | str) and isinstance(properties.get(name), dict):
                properties[name].setdefault("default", param.default)
        return schema

    def _mend(self, arguments: Mapping[str, Any], error: Any) -> dict[str, Any]:
        mended = dict(arguments)
        for problem in error.errors(include_url=False, include_context=False):
            name = problem["loc"][0] if problem["loc"] else ""
            if name in self._params and name in mended:
                self._mend_one(mended, name, deep=len(problem["loc"]) > 1)
        return mended

    def _mend_one(self, mended: dict[str, Any], name: str, deep: bool) -> None:
        value = mended[name]
        if value is None and self._params[name].default is not inspect.Parameter.empty:
            del mended[name]  # null for "not given"
        elif isinstance(value, str):
            mended[name] = self._from_text(name, value)
        elif isinstance(value, dict | list) and deep:
            mended[name] = [_parsed(item) for item in value] if isinstance(value, list) else value

    def _from_text(self, name: str, value: str) -> Any:
        parsed = _parsed(value)
        kinds = _types(self.schema()["properties"].get(name, {}))
        if "array" in kinds and not isinstance(parsed, list):
            return [value if not isinstance(parsed, dict) else parsed]
        return parsed

    def _explain(self, error: Any) -> str:
        lines, extra = [], []
        for problem in error.errors(include_url=False, include_context=False):
            if problem["type"] == "extra_forbidden" and len(problem["loc"]) == 1:
                extra.append(str(problem["loc"][0]))
            else:
                lines.append(self._problem(problem))
        lines += [self._unknown(name) for name in extra[:5]]
        head = f"{self.name} was not called: " + "; ".join(dict.fromkeys(lines[:8]))
        return f"{head}. Example arguments: {call_schema_example(self.schema())}"

    def _problem(self, problem: Any) -> str:
        field = ".".join(str(part) for part in problem["loc"] if not str(part).startswith("function-"))
        if problem["type"] == "missing":
            return f"'{field}' is missing"
        return f"'{field}': {problem['msg'][:200]}, got {_shown(problem['input'])}"

    def _unknown(self, name: str) -> str:
        near = difflib.get_close_matches(name, self._params, n=1, cutoff=0.5)
        hint = f" (did you mean '{near[0]}'?)" if near else ""
        return f"there is no argument '{name[:_SHOWN]}'{hint}, only: {', '.join(self._params) or 'none'}"


class LazySchema(Mapping[str, Any]):
    """A mapping that is the binding's schema, made when first looked into."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding

    def __getitem__(self, key: str) -> Any:
        return self._binding.schema()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._binding.schema())

    def __len__(self) -> int:
        return len(self._binding.schema())

    def __repr__(self) -> str:
        return repr(self._binding.schema())


def call_schema_example(parameters: Mapping[str, Any]) -> str:
    """Arguments that fit a schema's required properties, as JSON text: what to show to a model that got it wrong."""
    properties = parameters.get("properties", {})
    required = parameters.get("required") or list(properties)[:1]
    return json.dumps({name: _example(name, properties.get(name, {})) for name in required}, ensure_ascii=False)


def compact_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON schema without what costs tokens and says nothing: titles, `null` branches, references used once."""
    definitions = schema.get("$defs", {})
    out = _compact({key: value for key, value in schema.items() if key != "$defs"}, definitions, ())
    left = {name: _compact(definitions[name], definitions, (name,)) for name in _referenced(out)}
    return {**out, "$defs": left} if left else dict(out)


def _compact(node: Any, definitions: Mapping[str, Any], open_refs: tuple[str, ...]) -> Any:
    if isinstance(node, list):
        return [_compact(item, definitions, open_refs) for item in node]
    if not isinstance(node, Mapping):
        return node
    reference = str(node.get("$ref", "")).rpartition("/")[2]
    if reference and reference not in open_refs and not _recursive(reference, definitions):
        rest = {key: value for key, value in node.items() if key != "$ref"}
        return _compact({**definitions[reference], **rest}, definitions, (*open_refs, reference))
    out = {}
    for key, value in node.items():
        if key == "properties" and isinstance(value, Mapping):
            out[key] = {name: _compact(child, definitions, open_refs) for name, child in value.items()}
        elif key != "title" or isinstance(value, Mapping):
            out[key] = _compact(value, definitions, open_refs)
    return _without_null(out)


def _without_null(node: dict[str, Any]) -> dict[str, Any]:
    """`anyOf [X, null]` becomes X: an optional parameter is simply left out."""
    branches = node.get("anyOf")
    if not isinstance(branches, list):
        return node
    kept = [branch for branch in branches if branch != {"type": "null"}]
    rest = {key: value for key, value in node.items() if key != "anyOf"}
    return {**kept[0], **rest} if len(kept) == 1 else {**rest, "anyOf": kept}


def _recursive(name: str, definitions: Mapping[str, Any]) -> bool:
    seen: set[str] = set()
    todo = [name]
    while todo:
        for reference in _referenced(definitions.get(todo.pop(), {})):
            if reference == name:
                return True
            if reference not in seen:
                seen.add(reference)
                todo.append(reference)
    return False


def _referenced(node: Any) -> list[str]:
    if isinstance(node, list):
        return [name for item in node for name in _referenced(item)]
    if not isinstance(node, Mapping):
        return []
    own = [str(node["$ref"]).rpartition("/")[2]] if isinstance(node.get("$ref"), str) else []
    return list(dict.fromkeys(own + [name for value in node.values() for name in _referenced(value)]))


def _parameters(name: str, func: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    try:
        params = dict(inspect.signature(func).parameters)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"tool '{name}': its signature cannot be read ({_first(error)})") from error
    for param in params.values():
        if param.kind in (param.VAR_POSITIONAL, param.VAR_KEYWORD, param.POSITIONAL_ONLY):
            raise ConfigError(f"tool '{name}': parameter '{param}' has no name a model could use; give each a name")
    if next(iter(params), "") in ("self", "cls"):
        raise ConfigError(f"tool '{name}' is a method: make the tool from the object, tool(obj.{name})")
    return params


def _is_context(hint: Any) -> bool:
    if hint is ToolContext:
        return True
    union = typing.get_origin(hint) in (typing.Union, types.UnionType, typing.Annotated)
    return union and any(_is_context(arg) for arg in typing.get_args(hint))


def _types(schema: Mapping[str, Any]) -> set[str]:
    branches = [schema, *schema.get("anyOf", [])]
    return {str(branch.get("type", "")) for branch in branches}


def _parsed(value: Any) -> Any:
    """A string that holds a JSON list, object, number, true, false or null, as that value."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value.strip(), strict=False)
    except (ValueError, RecursionError):
        return value


def _example(name: str, schema: Mapping[str, Any]) -> Any:
    for branch in (schema, *schema.get("anyOf", [])):
        for key in ("enum", "examples"):
            if branch.get(key):
                return branch[key][0]
        if "const" in branch:
            return branch["const"]
        kind = branch.get("type")
        if kind == "object" and branch.get("properties"):
            return json.loads(call_schema_example(branch))
        if kind == "array" and isinstance(branch.get("items"), Mapping):
            return [_example(name, branch["items"])]
        if kind in _EXAMPLES:
            return _EXAMPLES[kind]
    return "…" if name in ("content", "old", "new", "text") else name


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _first(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
