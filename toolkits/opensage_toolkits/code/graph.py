"""Who calls whom: calls are resolved by name, by what stands before the dot, and by where both are.

Nothing is run and no type is known, so a call of a method may have several targets. A call on the object itself goes to
its own class where that has the method; one on a module or class of that name goes there; a bare name prefers the same
file.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from functools import cached_property

from .index import Index, Symbol
from .languages import LANGUAGES

CALLABLE = ("function", "method", "class", "macro", "enum", "type", "declaration")
_ITSELF = {word for language in LANGUAGES for word in language.itself}
_CONSTRUCTORS = ("__init__", "constructor")
_MOST_VISITED = 4000


@dataclass(frozen=True, slots=True)
class Edge:
    """A call at `path`:`line`, from `source` (None: from the top of the file) to `target` (None: not defined here)."""

    path: str
    line: int
    name: str
    receiver: str
    source: Symbol | None
    target: Symbol | None


class CallGraph:
    """Calls between the symbols of an index."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self._named: dict[str, list[Symbol]] = {}
        self._words: dict[str, str] = {}

    @cached_property
    def _by_content(self) -> dict[int, dict[int, Symbol]]:
        return {}

    def find(self, name: str) -> list[Symbol]:
        """Definitions that a name means: `name`, `Class.name`, or either after `path:`."""
        path, _, rest = name.strip().rpartition(":")
        parts = [part for part in re.split(r"\.|::|#", rest.strip().removesuffix("()")) if part]
        if not parts:
            raise ValueError(f"{name!r} names no symbol: give name, Class.name or path:name")
        found = [one for one in self.named(parts[-1]) if _within(one.owner, parts[:-1])]
        if not found and len(parts) > 1:  # module.name
            found = [one for one in self.named(parts[-1]) if _stem(one.path) == parts[-2]]
        path = path.rstrip(":")
        found = [one for one in found if not path or one.path == path or one.path.endswith("/" + path)]
        real = [one for one in found if one.kind != "declaration"]
        return real or found

    def named(self, name: str) -> list[Symbol]:
        """Definitions of exactly that name."""
        if name not in self._named:
            self._named[name] = self.index.symbols("s.name = ? COLLATE NOCASE AND s.name = ?", (name, name), 400)
        return self._named[name]

    def callees(self, symbol: Symbol) -> list[Edge]:
        """The calls inside a definition."""
        rows = self.index.rows(
            "SELECT name, line, receiver FROM call WHERE content = ? AND line BETWEEN ? AND ? ORDER BY line, rowid",
            (symbol.content, symbol.line, symbol.end),
        )
        edges = []
        for name, line, receiver in rows:
            targets: list[Symbol | None] = [*self._targets(name, receiver, symbol.path, symbol)]
            edges += [Edge(symbol.path, line, name, receiver, symbol, target) for target in targets or [None]]
        return edges

    def callers(self, symbol: Symbol, most: int = 2000) -> list[Edge]:
        """The calls that may mean this definition."""
        names = [symbol.name]
        if symbol.name in _CONSTRUCTORS and symbol.owner:
            names.append(symbol.owner.rpartition(".")[2])
        edges = []
        for name in names:
            rows = self.index.rows(
                "SELECT f.path, k.line, k.receiver, k.within, k.content"
                " FROM call k JOIN file f ON f.content = k.content"
                f" WHERE k.name = ? ORDER BY f.path, k.line LIMIT {most}",
                (name,),
            )
            for path, line, receiver, within, content in rows:
                source = self._symbol(within, content, path) if within is not None else None
                targets = self._targets(name, receiver, path, source)
                if any(target == symbol or name != symbol.name for target in targets):
                    edges.append(Edge(path, line, name, receiver, source, symbol))
        return edges

    def path(self, sources: list[Symbol], targets: list[Symbol]) -> tuple[list[Edge], bool]:
        """A shortest chain of calls from a source to a target, and whether all that could be was looked at."""
        wanted = {one.id for one in targets}
        came: dict[tuple[int, str], Edge | None] = {(one.id, one.path): None for one in sources}
        queue = deque(sources)
        while queue and len(came) <= _MOST_VISITED:
            for edge in self.callees(queue.popleft()):
                target = edge.target
                if target is None or (target.id, target.path) in came:
                    continue
                came[target.id, target.path] = edge
                if target.id in wanted:
                    return _chain(came, edge), True
                body = self._body(target)
                if body is not None:
                    queue.append(body)
                    came.setdefault((body.id, body.path), edge)
        return [], not queue

    def _body(self, symbol: Symbol) -> Symbol | None:
        """What runs when it is called: of a class its constructor, if it has one."""
        if symbol.kind != "class":
            return symbol
        inner = [one for name in _CONSTRUCTORS for one in self.named(name)]
        return next((one for one in inner if one.parent == symbol.id and one.path == symbol.path), None)

    def _symbol(self, number: int, content: int, path: str) -> Symbol | None:
        if content not in self._by_content:
            found = self.index.symbols("s.content = ?", (content,))
            self._by_content[content] = {one.id: one for one in found}
        one = self._by_content[content].get(number)
        if one is None or one.path == path:
            return one
        return Symbol(one.id, path, *(getattr(one, name) for name in Symbol.__slots__[2:]))

    def _targets(self, name: str, receiver: str, path: str, source: Symbol | None) -> list[Symbol]:
        found = [one for one in self.named(name) if one.kind in CALLABLE or one.kind == "variable"]
        real = [one for one in found if one.kind != "declaration"] or found
        alike = [one for one in real if _family(one.path) == _family(path)]
        last = re.split(r"\.|::|->", receiver)[-1] if receiver else ""
        if receiver in _ITSELF or last == "super()":
            own = _class_of(source)
            return [one for one in alike if own and one.owner == own] or [one for one in alike if one.kind == "method"]
        if receiver:
            of_type = [one for one in alike if one.owner.rpartition(".")[2] == last or _stem(one.path) == last]
            return of_type or [one for one in alike if one.kind in ("method", "declaration")]
        free = [one for one in alike if one.kind != "method"] or [
            one for one in alike if one.owner == _class_of(source)
        ]
        return [one for one in free if one.path == path] or self._mentioned(free, path)

    def _mentioned(self, found: list[Symbol], path: str) -> list[Symbol]:
        """Those in files that this one mentions by name, as in an import; all if it mentions none."""
        if len(found) < 2:
            return found
        if path not in self._words:
            query = "SELECT c.words FROM file f JOIN content c ON c.id = f.content WHERE f.path = ?"
            self._words[path] = next((words for (words,) in self.index.rows(query, (path,))), "")
        return [one for one in found if f" {_stem(one.path)} " in self._words[path]] or found


def _chain(came: dict[tuple[int, str], Edge | None], last: Edge) -> list[Edge]:
    chain: list[Edge] = []
    edge: Edge | None = last
    while edge is not None and edge not in chain:
        chain.append(edge)
        assert edge.source is not None
        edge = came.get((edge.source.id, edge.source.path))
    return chain[::-1]


def _within(owner: str, wanted: list[str]) -> bool:
    return not wanted or owner.split(".")[-len(wanted) :] == wanted


def _class_of(symbol: Symbol | None) -> str:
    """The class a method is in, also for a function inside it."""
    return symbol.owner if symbol is not None else ""


def _stem(path: str) -> str:
    name = path.rpartition("/")[2].split(".")[0]
    return path.split("/")[-2] if name in ("__init__", "index", "mod") and "/" in path else name


_FAMILIES = {
    ending: number
    for number, endings in enumerate((("py", "pyi"), ("js", "jsx", "mjs", "cjs", "ts", "mts", "cts", "tsx")))
    for ending in endings
} | dict.fromkeys(("c", "cc", "cpp", "cxx", "h", "hh", "hpp", "hxx"), 2)


def _family(path: str) -> object:
    """Files that can call each other: those of one language, or of two that are used together."""
    ending = path.rpartition(".")[2].lower()
    return _FAMILIES.get(ending, ending)
