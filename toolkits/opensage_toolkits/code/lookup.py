"""Answers about a workspace, bounded, as JSON values: what the tools return."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .files import inside, read_regular
from .graph import CallGraph, Edge
from .index import Index, Symbol
from .languages import language_of, named
from .repo_map import make_map
from .source import identifiers

_CODE_LINES = 80
_CODE_SHOWN = 8000
_REFERENCE_FILES = 1000
_TEXT = 200


class Lookup:
    """The index of a workspace, up to date, and the questions it answers."""

    def __init__(self, root: Path | str = ".", place: Path | None = None) -> None:
        """`root`: the workspace; `place`: of the index's file."""
        self.index = Index(root, place)
        self.index.update()
        self.graph = CallGraph(self.index)

    def __enter__(self) -> Lookup:
        return self

    def __exit__(self, *_error: object) -> None:
        self.index.close()

    def symbols(self, query: str, kind: str, limit: int) -> dict[str, Any]:
        """Definitions whose name holds the query; exact ones first, then beginnings."""
        owner, _, name = re.sub(r"::|#", ".", query.strip()).rpartition(".")
        pattern = _like(name).replace("*", "%") if "*" in name else f"%{_like(name)}%"
        where, values = "s.name LIKE ? ESCAPE '\\'", [pattern]
        if kind:
            where, values = f"{where} AND s.kind = ?", [*values, kind]
        found = self.index.symbols(where, values)
        if owner:
            found = [one for one in found if one.owner.lower().endswith(owner.lower())]
        plain = name.replace("*", "").lower()
        found.sort(key=lambda one: _rank(one, plain))
        return self._answer("symbols", [one.shown() for one in found], limit)

    def definition(self, name: str, limit: int) -> dict[str, Any]:
        """The definitions of a name, with their code."""
        found = self._found(name)
        room, rows = _CODE_SHOWN, []
        for one in found[:limit]:
            code = self._code(one)[:room]
            room -= len(code)
            rows.append({**one.shown(), **({"code": code} if code else {})})
        return {**self._answer("definitions", rows, limit), "found": len(found)}

    def references(self, name: str, limit: int) -> dict[str, Any]:
        """Where an identifier stands, definitions included; not in comments and texts."""
        word = re.split(r"\.|::|#|:", name.strip().removesuffix("()"))[-1]
        if not word:
            raise ValueError(f"{name!r} is no identifier")
        rows: list[dict[str, Any]] = []
        query = (
            "SELECT f.path, c.language FROM file f JOIN content c ON c.id = f.content WHERE instr(c.words, ?)"
            f" ORDER BY f.path LIMIT {_REFERENCE_FILES}"
        )
        for path, language in self.index.rows(query, (f" {word} ",)):
            rows += self._hits(path, language, word)
            if len(rows) > limit:
                break
        return self._answer("references", rows, limit, exact=len(rows) <= limit)

    def callers(self, name: str, limit: int) -> dict[str, Any]:
        """Calls of a definition."""
        edges = (edge for one in self._callable(name) for edge in self.graph.callers(one))
        return self._answer("callers", [_from(edge) for edge in _once(edges)], limit)

    def callees(self, name: str, limit: int) -> dict[str, Any]:
        """Calls in a definition; those of names that the workspace does not define come as `outside`."""
        edges = [edge for one in self._callable(name) for edge in self.graph.callees(one)]
        known = [_to(edge) for edge in _once(edge for edge in edges if edge.target)]
        other = dict.fromkeys(_outer(edge) for edge in edges if edge.target is None)
        return {**self._answer("callees", known, limit), "outside": list(other)[:limit]}

    def call_path(self, source: str, target: str) -> dict[str, Any]:
        """A shortest chain of calls."""
        chain, whole = self.graph.path(self._callable(source), self._callable(target))
        steps = [{**_to(edge), "from": edge.source.full if edge.source else ""} for edge in chain]
        if not chain:
            ended = "no chain of calls was found" + ("" if whole else " among the 4000 nearest functions")
            return {"path": [], "notes": [ended, *self.index.notes]}
        return {"path": steps, "notes": self.index.notes}

    def outline(self, path: str, limit: int) -> dict[str, Any]:
        """The definitions of a file, or of the files of a folder."""
        place = inside(self.index.root, path)
        if language_of(place) is None and not (self.index.root / place).is_dir():
            raise ValueError(f"{path}: no grammar reads files of this kind")
        folder = "" if place == "." else f"{place}/"
        found = self.index.symbols("f.path = ? OR substr(f.path, 1, ?) = ?", (place, len(folder), folder))
        found = [one for one in found if one.path == place or one.path.startswith(folder)]
        broken = self.index.rows(
            "SELECT c.broken FROM file f JOIN content c ON c.id = f.content WHERE f.path = ?", (place,)
        )
        notes = [f"syntax error near line {line}" for (line,) in broken if line]
        return self._answer("outline", [_short(one, place) for one in found], limit, notes=notes)

    def repo_map(self, budget_tokens: int, focus: str) -> dict[str, Any]:
        """The map, its tokens, and how many of the files are in it."""
        made = make_map(self.index, budget_tokens, focus)
        return {
            "map": made.text,
            "tokens": made.tokens,
            "files": len(made.files),
            "of": made.of,
            "notes": self.index.notes,
        }

    def _answer(
        self, key: str, rows: list[Any], limit: int, exact: bool = True, notes: Iterable[str] = ()
    ) -> dict[str, Any]:
        more = len(rows) - limit
        said = [*notes, *self.index.notes]
        if more > 0:
            said.insert(0, f"{more if exact else 'some'} more are not shown: narrow it, or raise limit")
        return {key: rows[:limit], "notes": said}

    def _found(self, name: str) -> list[Symbol]:
        found = self.graph.find(name)
        if not found:
            last = re.split(r"\.|::|#|:", name)[-1]
            like = self.index.symbols("s.name LIKE ? ESCAPE '\\'", (f"%{_like(last)}%",), 200)
            near = ", ".join(dict.fromkeys(one.full for one in like[:5]))
            raise ValueError(f"no definition of {name} in this workspace" + (f"; there is {near}" if near else ""))
        return found

    def one(self, name: str) -> Symbol:
        """The only definition of a name.

        Raises:
            ValueError: there is none, or several.
        """
        found = self._found(name)
        if len(found) > 1:
            places = ", ".join(f"{one.path}:{one.full}" for one in found[:5])
            raise ValueError(f"{name} is defined {len(found)} times: take one of {places}")
        return found[0]

    def _callable(self, name: str) -> list[Symbol]:
        return self._found(name)[:20]

    def _code(self, symbol: Symbol) -> str:
        lines = self._lines(symbol.path)[symbol.line - 1 : symbol.end]
        cut = len(lines) - _CODE_LINES
        return "\n".join([*lines[:_CODE_LINES], *([f"… {cut} more lines"] if cut > 0 else [])])

    def _lines(self, path: str) -> list[str]:
        return (read_regular(self.index.root, path) or b"").decode("utf-8", "replace").split("\n")

    def _hits(self, path: str, language: str, word: str) -> list[dict[str, Any]]:
        data = read_regular(self.index.root, path) or b""
        lines = data.split(b"\n")
        numbers = list(dict.fromkeys(data.count(b"\n", 0, at) for at in identifiers(data, named(language), word)))
        if not numbers:
            return []
        around = self.index.symbols("f.path = ? AND s.kind NOT IN ('variable', 'declaration')", (path,))
        defined = {one.line for one in self.index.symbols("f.path = ? AND s.name = ?", (path, word))}
        rows = []
        for number in numbers:
            text = lines[number].decode("utf-8", "replace").strip()[:_TEXT]
            inner = [one for one in around if one.line <= number + 1 <= one.end]
            row = {"file": path, "line": number + 1, "text": text, "in": inner[-1].full if inner else ""}
            rows.append({**row, **({"definition": True} if number + 1 in defined else {})})
        return rows


def _like(text: str) -> str:
    return re.sub(r"([\\%_])", r"\\\1", text)


def _rank(symbol: Symbol, name: str) -> tuple[int, int, str, int]:
    own = symbol.name.lower()
    return (0 if own == name else 1 if own.startswith(name) else 2), len(own), symbol.path, symbol.line


def _short(symbol: Symbol, place: str) -> dict[str, Any]:
    row = symbol.shown()
    if symbol.path == place:
        del row["file"]
    return row


def _once(edges: Iterable[Edge]) -> list[Edge]:
    return list({(e.path, e.line, e.target and (e.target.id, e.target.path)): e for e in edges}.values())


def _from(edge: Edge) -> dict[str, Any]:
    return {"caller": edge.source.full if edge.source else "", "file": edge.path, "line": edge.line}


def _to(edge: Edge) -> dict[str, Any]:
    assert edge.target is not None
    place = {"call": f"{edge.path}:{edge.line}"}
    return {"callee": edge.target.full, "file": edge.target.path, "line": edge.target.line, **place}


def _outer(edge: Edge) -> str:
    return f"{edge.receiver}.{edge.name}" if edge.receiver else edge.name
