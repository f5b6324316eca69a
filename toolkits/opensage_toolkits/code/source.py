"""One source file: its definitions and calls, from its syntax tree."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .languages import Language, grammar

if TYPE_CHECKING:
    from tree_sitter import Node, Tree

OWNERS = ("class", "interface", "enum", "module", "type", "scope")
"""Kinds whose members are named after them."""
_SIGNATURE = 160
_RECEIVER = 40
_WORD = re.compile(rb"[A-Za-z_$\x80-\xff][A-Za-z0-9_$\x80-\xff]*")
_SECONDS = 3.0
"""Of a file, for its tree."""
_DEPTH = 256
_RUINS = 10_000
"""Pieces of what could not be parsed at all."""
_PIECE = 1 << 16


@dataclass(slots=True)
class Definition:
    """A definition.

    Lines are 1-based, `end` included; `owner` is the dotted chain of what it is in; `parent` the index of that.
    """

    name: str
    kind: str
    line: int
    end: int
    owner: str
    signature: str
    parent: int | None = None


@dataclass(slots=True)
class Call:
    """A call of `name`; `within` is the index of the innermost function or class around it."""

    name: str
    line: int
    receiver: str
    within: int | None


@dataclass(slots=True)
class Source:
    """What a file holds. `words` are its identifiers, also those in comments; `broken` the line of a syntax error."""

    definitions: list[Definition]
    calls: list[Call]
    words: set[str]
    lines: int
    broken: int | None


def read_source(data: bytes, language: Language) -> Source:
    """Read a file; broken syntax gives what can be made out, and what takes too long its words alone.

    Raises:
        LookupError: the grammar is not installed.
    """
    try:
        tree = parse(data, language)
        matches = _matches(tree, language)
    except TimeoutError:
        return Source([], [], _words(data), data.count(b"\n") + 1, 1)
    found: dict[tuple[int, int], _Found] = {}
    calls: list[tuple[Node, Node | None]] = []
    for match in matches:
        if "call" in match:
            calls += [(node, match["receiver"][0] if "receiver" in match else None) for node in match["call"]]
        elif "name" in match:
            one = _definition(match, data)
            before = found.get((one.start, one.at))
            if before is None or before.kind == "variable":  # `const f = () => ...` is both, and a function
                found[one.start, one.at] = one
    ordered = sorted(found.values(), key=lambda one: (one.start, -one.end, one.at))
    definitions = _nested(ordered)
    placed = _placed(ordered, definitions, calls, data)
    kept, calls_kept = _without_scopes(definitions, placed)
    return Source(kept, calls_kept, _words(data), data.count(b"\n") + 1, _error_line(tree))


def parse(data: bytes, language: Language) -> Tree:
    """The syntax tree.

    Raises:
        LookupError: the grammar is not installed.
        TimeoutError: it takes longer than a file should.
    """
    loaded = grammar(language)
    if loaded is None:
        raise LookupError(f"no grammar for {language.name}: install {language.package}")
    end = time.monotonic() + _SECONDS
    try:
        return loaded[0].parse(
            lambda at, _point: data[at : at + _PIECE], progress_callback=lambda _at, _error: time.monotonic() > end
        )
    except ValueError:
        loaded[0].reset()
        raise TimeoutError("the file cannot be parsed in time") from None


def _matches(tree: Tree, language: Language) -> list[dict[str, list[Node]]]:
    """What the language's query finds, but not where nesting or ruins would take time that grows with their square."""
    from tree_sitter import QueryCursor

    loaded = grammar(language)
    assert loaded is not None
    if tree.root_node.is_error and tree.root_node.child_count > _RUINS:
        raise TimeoutError("the file is no source")
    cursor = QueryCursor(loaded[1])
    cursor.set_max_start_depth(_DEPTH)
    return [match for _, match in cursor.matches(tree.root_node)]


def _words(data: bytes) -> set[str]:
    return {word.decode("utf-8", "replace") for word in _WORD.findall(data)}


def identifiers(data: bytes, language: Language, name: str) -> Iterator[int]:
    """Byte offsets at which the identifier `name` stands, not in comments and texts."""
    root = parse(data, language).root_node
    wanted = name.encode()
    for hit in re.finditer(rb"(?<![A-Za-z0-9_$\x80-\xff])" + re.escape(wanted) + rb"(?![A-Za-z0-9_$\x80-\xff])", data):
        node = root.descendant_for_byte_range(hit.start(), hit.end())
        if node is not None and node.type.endswith("identifier"):
            yield hit.start()


@dataclass(slots=True)
class _Found:
    """A definition before its place among the others is known; bytes `start` to `end`, its name at `at`."""

    name: str
    owner: str
    kind: str
    start: int
    end: int
    at: int
    line: int
    last: int
    signature: str


def _definition(match: dict[str, list[Node]], data: bytes) -> _Found:
    kind = next(key for key in match if key not in ("name", "owner"))
    node, name = match[kind][0], match["name"][0]
    owner, _, last = _text(name, data).rpartition("::")
    if "owner" in match:
        owner = _text(match["owner"][0], data)
    line = node.start_point[0] + 1
    signature = "" if kind == "scope" else _signature(node, data)
    owner = owner.replace("::", ".")
    return _Found(
        last, owner, kind, node.start_byte, node.end_byte, name.start_byte, line, node.end_point[0] + 1, signature
    )


def _signature(node: Node, data: bytes) -> str:
    """The head of a definition on one line, without its body."""
    body = node.child_by_field_name("body")
    if body is None and (value := node.child_by_field_name("value")) is not None:
        body = value.child_by_field_name("body")
    end = min(body.start_byte if body is not None else node.end_byte, node.start_byte + 4 * _SIGNATURE)
    text = " ".join(data[node.start_byte : end].decode("utf-8", "replace").split())
    text = text.removesuffix("{").rstrip()
    return text if len(text) <= _SIGNATURE else text[: _SIGNATURE - 1] + "…"


def _nested(ordered: list[_Found]) -> list[Definition]:
    definitions: list[Definition] = []
    open_: list[int] = []
    for one in ordered:
        while open_ and ordered[open_[-1]].end <= one.start:
            open_.pop()
        parent = open_[-1] if open_ else None
        chain = [one.owner] if one.owner else []
        if parent is not None:
            above = definitions[parent]
            chain = [*filter(None, (above.owner, above.name)), *chain]
        kind = one.kind
        owned = (
            parent is not None and ordered[parent].kind in OWNERS and ordered[parent].kind != "module"
        ) or one.owner
        if kind == "function" and owned:
            kind = "method"
        definitions.append(Definition(one.name, kind, one.line, one.last, ".".join(chain), one.signature, parent))
        if kind not in ("variable", "declaration"):
            open_.append(len(definitions) - 1)
    return definitions


def _placed(
    ordered: list[_Found], definitions: list[Definition], calls: list[tuple[Node, Node | None]], data: bytes
) -> list[Call]:
    """The calls, each with the innermost definition around it: both are walked in the order of the file."""
    placed: list[Call] = []
    open_: list[int] = []
    following = 0
    for node, receiver in sorted(calls, key=lambda pair: pair[0].start_byte):
        at = node.start_byte
        while following < len(ordered) and ordered[following].start <= at:
            if definitions[following].kind not in ("variable", "declaration"):
                open_.append(following)
            following += 1
        while open_ and ordered[open_[-1]].end <= at:
            open_.pop()
        before = "" if receiver is None else _text(receiver, data, _RECEIVER)
        placed.append(Call(_text(node, data), node.start_point[0] + 1, before, open_[-1] if open_ else None))
    return placed


def _without_scopes(definitions: list[Definition], calls: list[Call]) -> tuple[list[Definition], list[Call]]:
    """Scopes name their members, and are no definitions themselves."""
    new: dict[int, int] = {}
    kept: list[Definition] = []
    for index, one in enumerate(definitions):
        if one.kind != "scope":
            new[index] = len(kept)
            kept.append(one)
    for one in kept:
        one.parent = new.get(one.parent) if one.parent is not None else None
    for call in calls:
        call.within = new.get(call.within) if call.within is not None else None
    return kept, calls


def _text(node: Node, data: bytes, most: int = 200) -> str:
    """The text of a node on one line; "?" for one that is longer."""
    if node.end_byte - node.start_byte > most:
        return "?"
    return " ".join(data[node.start_byte : node.end_byte].decode("utf-8", "replace").split())


def _error_line(tree: Tree) -> int | None:
    """The first line of a syntax error, found by going down only where there is one."""
    node = tree.root_node
    if not node.has_error:
        return None
    while True:
        if node.is_error or node.is_missing:
            return node.start_point[0] + 1
        below = next((child for child in node.children if child.has_error or child.is_missing), None)
        if below is None:
            return node.start_point[0] + 1
        node = below
