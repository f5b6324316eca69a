"""Inputs for a function without a model: from its annotations, and from the public examples of its calls.

Texts of Hypothesis strategies, for a property file. Code is parsed here and never run.
"""

from __future__ import annotations

import ast
import math
import string
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from opensage_agents.pgs.properties import PropertyError
from opensage_agents.pgs.relations import ENOUGH_EXAMPLES, related

LONGEST_LIST = 8
LONGEST_TEXT = 8
"""Some right programs take exponential time, so that the inputs must be small."""
DEEPEST = 12
MOST_VALUES = 2000
"""Values that are looked at for one strategy."""
_SMALL = "st.integers(-20, 20)"
_ANY = f"st.one_of({_SMALL}, st.text('abcxyz', max_size=8), st.lists({_SMALL}, max_size=8))"
_CLASSES = (string.ascii_lowercase, string.ascii_uppercase, string.digits)
_NAMES = {
    "list": "list", "sequence": "list", "mutablesequence": "list", "iterable": "list", "collection": "list",
    "iterator": "list", "set": "set", "abstractset": "set", "mutableset": "set", "frozenset": "frozenset",
    "tuple": "tuple", "dict": "dict", "mapping": "dict", "mutablemapping": "dict", "int": "int", "bool": "bool",
    "float": "float", "str": "str", "bytes": "bytes", "none": "NoneType",
}  # fmt: skip
_FITS: dict[str, tuple[type, ...]] = {
    "list": (list, tuple), "set": (set, list), "frozenset": (frozenset, set, list), "tuple": (tuple, list),
    "dict": (dict,), "int": (int,), "bool": (bool,), "float": (float, int), "str": (str,), "bytes": (bytes,),
    "NoneType": (type(None),),
}  # fmt: skip
"""What an example may show for an annotation: examples that came as JSON have lists only."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What draws the tuple of arguments, and what must hold for it: both as texts for a property file."""

    strategy: str
    preconditions: tuple[str, ...] = ()


def strategy_from(code_or_signature: str, entry: str, examples: Sequence[tuple[Sequence[Any], Any]] = ()) -> Inputs:
    """Small inputs for a function.

    What examples show is generalised: numbers up to three times as large, texts of the same classes of letters,
    lists up to eight elements long; relations among the arguments that at least three examples all have are kept.
    Annotations say the type where no example contradicts them. Without either, anything small is drawn.

    Args:
        code_or_signature: Python with the function, or its signature alone; code that is no Python gives no types.
        entry: the function's name, "Class.method" for a method.
        examples: pairs `(args, result)` of literals.

    Raises:
        PropertyError: there are neither examples nor a function of this name.
    """
    hints = parameters(code_or_signature, entry)
    rows = [tuple(args) for args, _ in examples]
    if not rows and hints is None:
        raise PropertyError(f"nothing is known of {entry}: give its signature or an example")
    letters = Counter("".join(each for each in _leaves(list(map(list, rows))) if isinstance(each, str)))
    write = _Writer(len(rows) >= ENOUGH_EXAMPLES, "".join(each for each, _ in letters.most_common()))
    if not rows:
        return Inputs(_tuple([write.argument(hint, []) for hint in hints or []]))
    by_arity: dict[int, list[tuple[Any, ...]]] = {}
    for row in rows:
        by_arity.setdefault(len(row), []).append(row)
    known = [*(hints or []), *[None] * max(by_arity)]
    texts = [_tuple(list(map(write.argument, known, zip(*group, strict=True)))) for group in by_arity.values()]
    if len(texts) > 1:
        return Inputs(_one_of(texts))
    return Inputs(*related(texts[0], rows))


def parameters(code: str, entry: str) -> list[ast.expr | None] | None:
    """Annotations of a function's positional parameters; None when there is no such function.

    Those that may be left out and say nothing of their type are left out.
    """
    node = _found(code, entry)
    if node is None:
        return None
    given = [each.annotation for each in (*node.args.posonlyargs, *node.args.args)]
    needed = len(given) - len(node.args.defaults)
    while len(given) > needed and given[-1] is None:
        given.pop()
    static = any(isinstance(each, ast.Name) and each.id == "staticmethod" for each in node.decorator_list)
    return given[1:] if "." in entry and not static else given


def _found(code: str, entry: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    text = code.strip()
    for source in (text, text.rstrip(":") + ": ...", f"def {text.rstrip(':')}: ..."):
        try:
            body: list[ast.stmt] = ast.parse(source).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        found: Any = None
        for name in entry.split("."):
            found = next((each for each in reversed(body) if getattr(each, "name", None) == name), None)
            body = getattr(found, "body", [])
        if isinstance(found, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return found
    return None


@dataclass(frozen=True, slots=True)
class _Writer:
    """Texts of strategies.

    Attributes:
        sure: there are enough examples to take what they lack for impossible.
        often: the letters of all arguments, those that came most first.
    """

    sure: bool
    often: str = ""

    def argument(self, hint: ast.expr | None, values: Sequence[Any]) -> str:
        """For one argument."""
        values = list(values)[:MOST_VALUES]
        return self.annotated(hint, values) or (self.seen(values) if values else _ANY)

    # --- annotations ---------------------------------------------------------------------------------------------

    def annotated(self, hint: ast.expr | None, values: list[Any]) -> str | None:
        """For an annotation; None where it says nothing, or where the values are of another type."""
        if isinstance(hint, ast.Constant) and isinstance(hint.value, str):
            try:
                hint = ast.parse(hint.value, mode="eval").body
            except (SyntaxError, ValueError, RecursionError):
                return None
        if isinstance(hint, ast.BinOp) and isinstance(hint.op, ast.BitOr):
            return self._union([hint.left, hint.right], values)
        name, inner = _parts(hint)
        if name in ("union", "optional"):
            return self._union([*inner, *([ast.Constant(None)] if name == "optional" else [])], values)
        if name in ("annotated", "final") and inner:
            return self.annotated(inner[0], values)
        if name == "literal":
            return f"st.sampled_from([{', '.join(map(ast.unparse, inner))}])"
        kind = _NAMES.get(name)
        fixed = kind == "tuple" and bool(inner) and not _is_ellipsis(inner[-1])
        if kind is None or not _fit(kind, values) or (fixed and any(len(each) != len(inner) for each in values)):
            return None
        if fixed:
            columns = zip(*values, strict=True) if values else [()] * len(inner)
            return _tuple([self.argument(*pair) for pair in zip(inner, columns, strict=True)])
        return self._of_kind(kind, values, inner)

    def _union(self, hints: list[ast.expr], values: list[Any]) -> str | None:
        left, texts = values, []
        for hint in hints:
            mine = [each for each in left if self.annotated(hint, [each])]
            left = [each for each in left if not any(each is other for other in mine)]
            texts.append(self.annotated(hint, mine))
        return None if left or None in texts else _one_of([text for text in texts if text])

    def _of_kind(self, kind: str, values: list[Any], inner: list[ast.expr]) -> str:
        def element(at: int) -> Callable[[list[Any]], str]:
            return lambda inside: self.argument(inner[at] if at < len(inner) else None, inside)

        if kind in ("list", "tuple", "set", "frozenset"):
            return self.collection(kind, [list(each) for each in values], element(0))
        if kind == "dict":
            return self.dictionary(values, element(0), element(1))
        return self.leaf(kind, values)

    # --- examples ------------------------------------------------------------------------------------------------

    def seen(self, values: list[Any], depth: int = 0) -> str:
        """For values like these, of which there is one at least."""
        kinds: dict[str, list[Any]] = {}
        for each in values:
            kinds.setdefault(type(each).__name__, []).append(each)
        if depth > DEEPEST or not kinds.keys() <= _FITS.keys():
            return f"st.sampled_from({values[:20]!r})"
        if kinds.keys() == {"list", "tuple"}:  # what came as JSON beside what was written in Python
            return self.seen([list(each) for each in values], depth)
        if "list" in kinds and len(kinds) > 1:
            return self._nested(values, depth + 1)
        return _one_of([self._seen_kind(kind, group, depth) for kind, group in sorted(kinds.items())])

    def _seen_kind(self, kind: str, values: list[Any], depth: int) -> str:
        def element(inside: list[Any]) -> str:
            return self.seen(inside, depth + 1) if inside else _SMALL

        def columns() -> str:
            return _tuple([element(list(each)) for each in zip(*values, strict=True)])

        lengths = {len(each) for each in values} if kind in ("tuple", "list") else set()
        if kind == "tuple" and len(lengths) == 1:
            return columns()
        if kind == "list":
            if depth and len(values) >= ENOUGH_EXAMPLES and len(lengths) == 1 and lengths < {0, 1, 2, 3, 4}:
                return f"{columns()}.map(list)"
            return _rectangular(values, element) or self._tokens(values) or self.collection(kind, values, element)
        if kind in ("tuple", "set", "frozenset"):
            return self.collection(kind, [list(each) for each in values], element)
        if kind == "dict":
            return _record(values, element) or self.dictionary(values, element, element)
        return self.leaf(kind, values)

    def _nested(self, values: list[Any], depth: int) -> str:
        """Lists within lists, to any depth, with something else in them."""
        leaves = _leaves(values)
        leaf = self.seen(leaves, depth) if leaves else _SMALL
        return f"st.recursive({leaf}, lambda inner: st.lists(inner, max_size=3), max_leaves=8)"

    def _tokens(self, lists: list[list[Any]]) -> str | None:
        """For lists of words and numbers: what stands where is a grammar that is not known, so only values change."""
        pool = [each for inside in lists for each in inside]
        words = [each for each in pool if isinstance(each, str)]
        numbers = [each for each in pool if isinstance(each, (int, float))]
        if not words or not numbers or len(words) + len(numbers) < len(pool):
            return None
        word, number = f"st.sampled_from({sorted(set(words))[:50]!r})", self.seen(numbers)
        forms = {tuple(isinstance(each, str) for each in inside) for inside in sorted(lists, key=len)[:6]}
        texts = [_tuple([word if each else number for each in form]) + ".map(list)" for form in sorted(forms)]
        return _one_of(texts)

    # --- both ----------------------------------------------------------------------------------------------------

    def collection(self, kind: str, lists: list[list[Any]], element: Callable[[list[Any]], str]) -> str:
        """Of any length."""
        inside = element([each for every in lists for each in every][:MOST_VALUES])
        maker = {"set": "sets", "frozenset": "frozensets"}.get(kind, "lists")
        text = f"st.{maker}({inside}, {self._sizes(lists, LONGEST_LIST)})"
        return f"{text}.map(tuple)" if kind == "tuple" else text

    def dictionary(self, values: list[Any], key: Callable[[list[Any]], str], value: Callable[[list[Any]], str]) -> str:
        """Of any keys."""
        keys = key([each for every in values for each in every][:MOST_VALUES])
        inside = value([each for every in values for each in every.values()][:MOST_VALUES])
        return f"st.dictionaries({keys}, {inside}, {self._sizes(values, LONGEST_LIST)})"

    def leaf(self, kind: str, values: list[Any]) -> str:
        """What holds no other values."""
        if kind == "int":
            return self._integers(values)
        if kind == "float":
            return self._floats([float(each) for each in values if math.isfinite(each)])
        if kind == "str":
            return self._texts(values)
        if kind == "bytes":
            return f"st.binary({self._sizes(values, LONGEST_TEXT)})"
        return "st.booleans()" if kind == "bool" else "st.none()"

    def _integers(self, values: list[int]) -> str:
        if not values:
            return _SMALL
        low, high = (max(-(10**18), min(10**18, each)) for each in (min(values), max(values)))
        least = self._further(low, 5) if low < 0 else int(self._least(low, values))
        most = self._further(max(0, high), 5)
        wide = f"st.integers({least}, {most})"
        return wide if most - least <= 100 else f"st.one_of(st.integers({least}, {least + 20}), {wide})"

    def _floats(self, values: list[float]) -> str:
        low, high = (min(values), max(values)) if values else (-20.0, 20.0)
        least = self._further(low, 1.0) if low < 0 else float(self._least(low, values))
        least, most = max(-1e18, least), min(1e18, self._further(max(0.0, high), 1.0))
        return f"st.floats({least!r}, {most!r}, allow_nan=False, allow_subnormal=False)"

    def _least(self, low: float, values: Sequence[float]) -> float:
        """The lower bound: 0, but below 2 nothing that many examples do not show, as where 1 has no logarithm."""
        return min(low, 2) if self.sure and len(set(values)) >= ENOUGH_EXAMPLES else 0

    def _further(self, bound: Any, step: Any) -> Any:
        """Beyond a bound that was seen, away from zero: half as far again, with few examples three times as far."""
        more = max(step, abs(bound) // 2 if self.sure else 2 * abs(bound))
        return bound - more if bound < 0 else bound + more

    def _texts(self, values: list[str]) -> str:
        letters = "".join(values)
        shown = set(letters)
        alphabet = ""
        for members in _CLASSES:
            mine = [each for each in letters if each in members]
            alphabet += members if mine and not _all_seen(mine) else "".join(sorted(set(mine)))
        alphabet += "".join(sorted(shown - set("".join(_CLASSES)))[:100])
        letter = self.sure and len(values) >= ENOUGH_EXAMPLES and {len(each) for each in values} == {1}
        sizes = "min_size=1, max_size=1" if letter else f"max_size={_most(values, LONGEST_TEXT)}"
        wide = f"st.text({alphabet or 'abcxyz'!r}, {sizes})"
        if letter or len(alphabet) <= 4:
            return wide
        often = "".join([each for each in self.often if each in alphabet][:2]) or alphabet[:2]
        return f"st.one_of(st.text({often!r}, {sizes}), {wide})"  # letters that come again are where many faults are

    def _sizes(self, values: Sequence[Any], longest: int) -> str:
        """Empty ones too, unless enough examples show none."""
        least = "min_size=1, " if values and self.sure and all(values) else ""
        return f"{least}max_size={_most(values, longest)}"


def _parts(hint: ast.expr | None) -> tuple[str, list[ast.expr]]:
    """Name and arguments of a type: "list", [int]."""
    if isinstance(hint, ast.Subscript):
        inner = hint.slice.elts if isinstance(hint.slice, ast.Tuple) else [hint.slice]
        return _parts(hint.value)[0], list(inner)
    if isinstance(hint, ast.Attribute):
        return hint.attr.lower(), []
    if isinstance(hint, ast.Constant) and hint.value is None:
        return "none", []
    return (hint.id.lower(), []) if isinstance(hint, ast.Name) else ("", [])


def _fit(kind: str, values: list[Any]) -> bool:
    return all(isinstance(each, _FITS[kind]) and (kind == "bool" or type(each) is not bool) for each in values)


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is Ellipsis


def _tuple(texts: Sequence[str]) -> str:
    return f"st.tuples({', '.join(texts)})"


def _one_of(texts: Sequence[str]) -> str:
    different = list(dict.fromkeys(texts))
    return different[0] if len(different) == 1 else f"st.one_of({', '.join(different)})"


def _leaves(values: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    left = list(values)
    while left and len(found) < MOST_VALUES:
        each = left.pop()
        if isinstance(each, list):
            left += each
        else:
            found.append(each)
    return found


def _most(values: Sequence[Any], longest: int) -> int:
    """More only where all examples are longer."""
    return min(100, max(longest, min(map(len, values), default=0)))


def _all_seen(letters: list[str]) -> bool:
    """Whether these few letters came so often that there are no others: as the I, V and X of Roman numbers."""
    different = len(set(letters))
    return different <= 10 and len(letters) >= 2.5 * different


def _rectangular(values: list[list[Any]], element: Callable[[list[Any]], str]) -> str | None:
    """For tables: rows of one length."""
    if not all(inside and all(type(row) is list for row in inside) for inside in values):
        return None
    shapes = [{len(row) for row in inside} for inside in values]
    if any(len(shape) != 1 for shape in shapes) or len({*map(tuple, shapes)}) < 2 or max(map(len, values)) < 2:
        return None
    square = all(shape == {len(inside)} for shape, inside in zip(shapes, values, strict=True))
    cell = element([each for inside in values for row in inside for each in row][:MOST_VALUES])
    row = f"st.lists({cell}, min_size=n, max_size=n)"
    rows = "min_size=n, max_size=n" if square else "min_size=1, max_size=4"
    return f"st.integers(1, 4).flatmap(lambda n: st.lists({row}, {rows}))"


def _record(values: list[Any], element: Callable[[list[Any]], str]) -> str | None:
    """For dictionaries that all have the same keys."""
    keys = list(values[0])
    if len(values) < ENOUGH_EXAMPLES or not keys or any(set(each) != set(keys) for each in values):
        return None
    return (
        f"st.fixed_dictionaries({{{', '.join(f'{key!r}: {element([each[key] for each in values])}' for key in keys)}}})"
    )
