"""Starter properties without a model: those of a fixed catalogue that the public examples of a function show.

A property that a model states comes from the task; these come from a few right results, and may hold there by chance.
So each asks for examples on which it could have failed. What needs more calls than one (idempotent, symmetric, there
and back) cannot be a property of one call, and is not here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from opensage_agents.pgs.properties import Kind, Property, PropertySet
from opensage_agents.pgs.strategies import strategy_from

LONGEST = 500
"""Elements of a value that is looked at: some tests take their square."""
Pair = tuple[Sequence[Any], Any]


@dataclass(frozen=True, slots=True)
class Idea:
    """One entry of the catalogue. Its texts are expressions of `args` and `result`, where `X` is one argument.

    Attributes:
        test: what must hold.
        telling: on which pairs it could have failed.
        least: how many such pairs there must be.
        said: the message.
        weaker: ideas that it makes needless.
    """

    name: str
    kind: Kind
    reason: str
    test: str
    telling: str
    said: str
    least: int = 2
    weaker: tuple[str, ...] = ()

    def of(self, at: int, alone: bool) -> Idea:
        """The idea about one argument."""
        ending = "" if alone else f"_{at}"
        test, telling, said = (each.replace("X", f"args[{at}]") for each in (self.test, self.telling, self.said))
        weaker = tuple(name + ending for name in self.weaker)
        return replace(self, name=self.name + ending, test=test, telling=telling, said=said, weaker=weaker)

    def shown(self, pairs: Sequence[Pair]) -> bool:
        """Whether it holds on all pairs, and could have failed on enough of them."""
        telling = sum(_true(self.telling, pair) for pair in pairs)
        return telling >= self.least and all(_true(self.test, pair) for pair in pairs)

    def property(self, typed: str) -> Property:
        """As a property of a file. A result of another type must not break the test, so `typed` comes first.

        None is accepted: many right functions return it where there is nothing to return, and no example shows it.
        """
        first = "" if typed == self.test else f"    assert {typed}, {_OTHER_TYPE}\n"
        none = "    if result is None:\n        return\n"
        text = f"def {self.name}(args, result):\n{none}{first}    assert {self.test}, {self.said}\n"
        return Property(self.name, text, self.kind, self.reason, "ghostwriter")


_OTHER_TYPE = 'f"{result!r:.200} is of another type than the results of the examples"'
_COPIED = "list(result) in [list(each) for each in args if isinstance(each, (list, tuple, str))]"

_NUMBERS = (
    "(each for arg in args for each in (arg if isinstance(arg, (list, tuple)) else [arg])"
    " if isinstance(each, (int, float)))"
)

_ORDERED = (
    Idea("is_ascending", "output", "the results of all examples ascend",
         "all(low <= high for low, high in zip(result, result[1:]))", f"len(result) > 2 and not {_COPIED}",
         'f"{result!r:.200} does not ascend"'),
    Idea("is_descending", "output", "the results of all examples descend",
         "all(low >= high for low, high in zip(result, result[1:]))", f"len(result) > 2 and not {_COPIED}",
         'f"{result!r:.200} does not descend"'),
)  # fmt: skip
_SERIES = (
    Idea("holds_the_same_elements", "relation", "the result of each example holds the elements of the argument",
         "len(result) == len(X) and all(result.count(each) == X.count(each) for each in X)",
         "len(X) > 1 and list(result) != list(X)", 'f"{result!r:.200} does not hold the elements of {X!r:.200}"',
         weaker=("has_the_same_length", "takes_elements_of", "has_elements_of", "is_not_longer")),
    Idea("is_a_subsequence", "relation", "each example's result leaves elements of the argument out, and no more",
         "all(each in rest for rest in [iter(X)] for each in result)", "1 < len(result) < len(X)",
         'f"{result!r:.200} is not {X!r:.200} with some left out"',
         weaker=("takes_elements_of", "has_elements_of", "is_not_longer")),
    Idea("takes_elements_of", "relation", "each example's result has no element more often than the argument",
         "all(result.count(each) <= X.count(each) for each in result)", "0 < len(result) and 1 < len(X)",
         'f"{result!r:.200} has elements that {X!r:.200} lacks"', weaker=("has_elements_of", "is_not_longer")),
    Idea("has_elements_of", "relation", "each example's result has only elements of the argument",
         "all(each in list(X) for each in result)", "len(result) > 1",
         'f"{result!r:.200} has elements that {X!r:.200} lacks"'),
    Idea("has_the_same_length", "relation", "each example's result is as long as the argument",
         "len(result) == len(X)", "len(X) > 1", 'f"{len(result)} elements, must be {len(X)}"', 3, ("is_not_longer",)),
    Idea("is_not_longer", "relation", "no example's result is longer than the argument",
         "len(result) <= len(X)", "len(result) > 0", 'f"{len(result)} elements, {X!r:.200} has {len(X)}"', 3),
    Idea("has_each_element_once", "output", "no example's result has an element twice",
         "all(result.count(each) == 1 for each in result)",
         "len(result) > 1 and any(X.count(each) > 1 for each in X)", 'f"{result!r:.200} has an element twice"'),
)  # fmt: skip
_PARTS = (
    Idea("joins_to_the_argument", "relation", "the parts of each example's result make the argument",
         "[each for part in result for each in part] == list(X)", "len(result) > 1",
         'f"the parts {result!r:.200} do not make {X!r:.200}"', weaker=("is_not_longer", "has_each_element_once")),
)  # fmt: skip
_MEMBER = (
    Idea("is_an_element", "relation", "each example's result is an element of the argument",
         "not X or result in X", "len(X) > 2", 'f"{result!r:.200} is not in {X!r:.200}"', 3,
         ("lies_within",)),
)  # fmt: skip
_NUMBER = (
    Idea("is_not_negative", "output", "no example's result is negative, though some numbers of the arguments may be",
         "result >= 0", f"result != 0 and min({_NUMBERS}, default=-1) < 0", 'f"{result} is negative"'),
    Idea("is_at_most_the_length", "relation", "no example's result is more than there are elements",
         "result <= max(len(each) for each in args if isinstance(each, (list, tuple, str)))", "result > 0",
         'f"{result} is more than there are elements"'),
)  # fmt: skip
_NUMBER_OF = (
    Idea("lies_within", "relation", "each example's result lies between the least and the greatest element",
         "not X or min(X) <= result <= max(X)", "len(X) > 2", 'f"{result} is not within {X!r:.200}"', 3),
)  # fmt: skip


def ghostwritten(entry: str, signature_or_code: str, examples: Sequence[tuple[Sequence[Any], Any]] = ()) -> PropertySet:
    """A property set without any model: inputs from `strategy_from`, and what of the catalogue the examples show.

    With fewer than two examples there are no properties: a check then finds crashes and wrong answers alone.

    Raises:
        PropertyError: there are neither examples nor a function of this name.
    """
    pairs = [(tuple(args), result) for args, result in examples]
    inputs = strategy_from(signature_or_code, entry, pairs)
    properties = _properties([pair for pair in pairs if not _large(pair)])
    return PropertySet(entry, inputs.strategy, properties, list(inputs.preconditions), pairs)


def _properties(pairs: Sequence[Pair]) -> list[Property]:
    if len(pairs) < 2 or len({len(args) for args, _ in pairs}) > 1:
        return []
    typed = _typed("result", [result for _, result in pairs])
    kept = [idea for idea in _ideas(pairs) if idea.shown(pairs)]
    needless = {name for idea in kept for name in idea.weaker}
    if any(idea.name.startswith(("is_an_element", "lies_within")) for idea in kept):  # a value, so it counts nothing
        needless.add("is_at_most_the_length")
    if {"is_ascending", "is_descending"} <= {idea.name for idea in kept}:  # all elements are the same
        needless |= {"is_ascending", "is_descending"}
    first = Idea("is_of_the_type", "output", "the results of all examples are of this type", typed, "True", _OTHER_TYPE)
    return [idea.property(typed) for idea in (first, *kept) if idea.name not in needless]


def _ideas(pairs: Sequence[Pair]) -> Iterator[Idea]:
    """What might hold, by the types of the results and of the arguments."""
    results = [result for _, result in pairs]
    of_text, of_list = (all(isinstance(each, kind) for each in results) for kind in (str, (list, tuple)))
    of_number = all(isinstance(each, (int, float)) and not isinstance(each, bool) for each in results)
    flat = of_text or not any(isinstance(each, (list, tuple, dict)) for result in results if of_list for each in result)
    if flat and (of_text or of_list):
        yield from _ORDERED
    if of_number:
        yield from _NUMBER
    lists, texts = (_columns(pairs, kind) for kind in ((list, tuple), str))
    about: list[tuple[int, tuple[Idea, ...]]] = [
        (at, _SERIES) for at in (lists if of_list else texts if of_text else ())
    ]
    about += [(at, _PARTS) for at in (lists + texts if of_list and results else ())]
    about += [(at, _MEMBER) for at in lists]
    about += [(at, _NUMBER_OF) for at in (lists + texts if of_number else ())]
    for at, ideas in about:
        yield from (idea.of(at, len(lists) + len(texts) == 1) for idea in ideas)


def _columns(pairs: Sequence[Pair], kind: type | tuple[type, ...]) -> list[int]:
    return [at for at in range(len(pairs[0][0])) if all(isinstance(args[at], kind) for args, _ in pairs)]


def _true(text: str, pair: Pair) -> bool:
    """Evaluate a text of this catalogue on plain data."""
    try:
        return bool(eval(text, {"args": tuple(pair[0]), "result": pair[1]}))
    except (TypeError, ValueError):  # values that this idea is not about
        return False


def _large(pair: Pair) -> bool:
    return any(hasattr(each, "__len__") and len(each) > LONGEST for each in (*pair[0], pair[1]))


def _typed(name: str, values: Sequence[Any], depth: int = 0) -> str:
    """Is it of the type of these values? An expression. Lists and tuples are one: results that came as JSON."""
    numbers = [each for each in values if type(each) in (int, float)]
    series = [each for each in values if isinstance(each, (list, tuple))]
    parts = [f"{name} is None"] if None in values else []
    if numbers:
        whole = all(type(each) is int for each in numbers)
        parts.append(f"isinstance({name}, (int, float)) and type({name}) is not bool" + f" and {name} % 1 == 0" * whole)
    if series:
        inside = [each for every in series for each in every]
        each = f"each{depth}" if depth else "each"
        inner = f" and all({_typed(each, inside, depth + 1)} for {each} in {name})" if inside and depth < 3 else ""
        parts.append(f"isinstance({name}, (list, tuple)){inner}")
    others = {type(each) for each in values} - {int, float, list, tuple, type(None)}
    parts += [f"isinstance({name}, {kind})" for kind in sorted(kind.__name__ for kind in others)]
    return parts[0] if len(parts) == 1 else " or ".join(f"({part})" for part in parts)
