"""What a server says of its tools, made fit for a model: bounded, valid, without references.

A server may say anything. A schema that a provider refuses would end every request of the session, so whatever is
wrong in one is left out, and the server checks the arguments in the end.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

DESCRIPTION = 1024
"""Characters of a description; some providers allow no more."""
MOST_CHARS = 20_000
"""Characters of a whole schema, as JSON."""
_MOST_NODES = 2_000
_MOST_DEPTH = 16
_MOST_ITEMS = 500
_LONGEST_NAME = 64
_LONGEST_PATTERN = 500
_ONE = frozenset({"items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else"})
_LIST = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_MAP = frozenset({"properties", "patternProperties", "dependentSchemas"})
_LARGEST = 1 << 63
_TYPES = frozenset({"string", "number", "integer", "boolean", "array", "object", "null"})
_NUMBERS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
_COUNTS = frozenset({"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"})
_ANY = frozenset({"default", "const", "enum", "examples"})
_TOP_ONLY_PROPERTIES = ("allOf", "anyOf", "oneOf")


def clean(text: object, limit: int) -> str:
    """Text without control, format and private characters (which can hide what is said), at most `limit` long."""
    shown = "".join(c for c in str(text)[: 2 * limit] if c in "\n\t" or unicodedata.category(c)[0] != "C").strip()
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def bounded_schema(schema: object) -> tuple[dict[str, Any], str]:
    """A JSON schema of an object that any provider takes, and what to add to the description ("" if nothing)."""
    for described in (True, False):
        made = _top(_Walk(schema, described).node(schema))
        if len(json.dumps(made, ensure_ascii=False)) <= MOST_CHARS:
            return made, ""
    return {"type": "object", "properties": {}}, "(Its schema cannot be shown: any arguments are passed on.)"


class _Walk:
    """Copies a schema: references in their place, but for those that lead back into themselves."""

    def __init__(self, root: object, described: bool) -> None:
        self._root = root
        self._described = described
        self._left = _MOST_NODES

    def node(self, node: object, open_refs: tuple[str, ...] = (), depth: int = 0) -> dict[str, Any]:
        self._left -= 1
        if not isinstance(node, Mapping) or self._left < 0 or depth > _MOST_DEPTH:
            return {}
        reference = node.get("$ref")
        if reference is not None:
            rest = {key: value for key, value in node.items() if key != "$ref"}
            if not isinstance(reference, str) or reference in open_refs or len(open_refs) > _MOST_DEPTH:
                return self.node(rest, open_refs, depth + 1)
            found = self._found(reference)
            return self.node({**found, **rest}, (*open_refs, reference), depth + 1)
        made = {}
        for key, value in node.items():
            if (part := self._part(key, value, open_refs, depth + 1)) is not None:
                made["prefixItems" if key == "items" and isinstance(part, list) else key] = part
        return made

    def _part(self, key: object, value: object, open_refs: tuple[str, ...], depth: int) -> Any:
        """What becomes of a keyword's value; None leaves it out."""
        if key in _LIST or (key == "items" and isinstance(value, list)):
            items = value if isinstance(value, list) else []
            return [self.node(item, open_refs, depth) for item in items[:_MOST_ITEMS]] or None
        if key in _ONE:
            return value if isinstance(value, bool) else self.node(value, open_refs, depth)
        if key in _MAP:
            pairs = list(value.items())[:_MOST_ITEMS] if isinstance(value, Mapping) else []
            return {name: self.node(part, open_refs, depth) for name, part in pairs if _is_name(name)}
        if key == "description":
            return clean(value, DESCRIPTION) if self._described and isinstance(value, str) else None
        return _data(value) if isinstance(key, str) and _is_valid(key, value) else None

    def _found(self, reference: str) -> dict[str, Any]:
        """The schema a local reference names; nothing for any other."""
        at: Any = self._root
        path = reference.removeprefix("#").removeprefix("/")
        if not reference.startswith("#"):
            return {}
        for part in path.split("/")[:_MOST_DEPTH] if path else ():
            name = part.replace("~1", "/").replace("~0", "~")
            at = at.get(name) if isinstance(at, Mapping) else None
        return dict(at) if isinstance(at, Mapping) else {}


def _top(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema as an object's: providers refuse a choice at the top, so its branches' properties are gathered."""
    properties = dict(schema.get("properties") or {})
    for key in _TOP_ONLY_PROPERTIES:
        for branch in schema.get(key) or ():
            properties = {**branch.get("properties", {}), **properties}
    kept = {k: v for k, v in schema.items() if k in ("description", "required", "additionalProperties")}
    required = kept.get("required")
    names = [n for n in required if isinstance(n, str) and n in properties] if isinstance(required, list) else []
    kept.pop("required", None)
    return {"type": "object", "properties": properties, **kept, **({"required": names} if names else {})}


def _is_valid(key: str, value: Any) -> bool:
    """Whether a keyword that holds no schema is one that is kept, and holds what it must."""
    if key == "type":
        kinds = value if isinstance(value, list) else [value]
        return kinds != [] and all(isinstance(kind, str) and kind in _TYPES for kind in kinds) and _differ(kinds)
    if key == "required":
        return isinstance(value, list) and all(isinstance(name, str) for name in value) and _differ(value)
    if key == "pattern":
        return _is_pattern(value)
    if key in _NUMBERS or key == "multipleOf":
        return _is_number(value) and (key != "multipleOf" or value > 0)
    if key in _COUNTS:
        return _is_number(value) and isinstance(value, int) and value >= 0
    if key in ("enum", "examples"):
        return isinstance(value, list) and value != []
    if key in ("format", "uniqueItems"):
        return isinstance(value, str if key == "format" else bool)
    return key in _ANY


def _is_number(value: object) -> bool:
    """Whether every reader of JSON has this number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST


def _differ(values: list[Any]) -> bool:
    return len(set(values)) == len(values)


def _is_name(name: object) -> bool:
    """Whether a parameter may have this name; one named "$ref" would be read as a reference."""
    return isinstance(name, str) and 0 < len(name) <= _LONGEST_NAME and name.isprintable() and name != "$ref"


def _is_pattern(value: object) -> bool:
    if not isinstance(value, str) or len(value) > _LONGEST_PATTERN:
        return False
    try:
        re.compile(value)
    except (re.error, RecursionError, OverflowError):
        return False
    return True


def _data(value: object, depth: int = 0) -> Any:
    """Plain data with clean strings; None where it is too deep."""
    if isinstance(value, str):
        return clean(value, DESCRIPTION)
    if isinstance(value, list):
        return [_data(item, depth + 1) for item in value[:_MOST_ITEMS]] if depth < _MOST_DEPTH else None
    if isinstance(value, Mapping):
        items = list(value.items())[:_MOST_ITEMS]
        return (
            {str(key): _data(item, depth + 1) for key, item in items if key != "$ref"} if depth < _MOST_DEPTH else None
        )
    return value if isinstance(value, bool) or _is_number(value) else None
