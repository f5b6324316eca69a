"""Relations among the arguments of a call that all public examples have: inputs without them are no inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

ENOUGH_EXAMPLES = 3
"""With fewer, a relation may hold by chance."""
LONGEST = 500
"""Elements of an argument that are looked at: some tests take their square."""
Row = Sequence[Any]


@dataclass(frozen=True, slots=True)
class Relation:
    """Something that holds for one argument, or between two.

    Attributes:
        test: an expression of `args`.
        mends: expressions of `args` by position, which make it hold, so that few drawn inputs must be thrown away.
        telling: an expression of `args`: could an example also have been without it?
    """

    test: str
    mends: dict[int, str]
    telling: str = "True"

    def count(self, rows: Sequence[Row]) -> int:
        """In how many rows it holds."""
        return sum(_true(self.test, row) for row in rows)

    def shown(self, rows: Sequence[Row]) -> bool:
        """Whether it holds in all rows, and in two of them not of necessity."""
        return self.count(rows) == len(rows) and sum(_true(self.telling, row) for row in rows) >= 2

    def mended(self, strategy: str, arity: int) -> str:
        """The strategy with the relation."""
        parts = [self.mends.get(at, f"args[{at}]") for at in range(arity)]
        return f"{strategy}.map(lambda args: ({', '.join(parts)}{',' * (arity == 1)}))"


def related(strategy: str, rows: Sequence[Row]) -> tuple[str, tuple[str, ...]]:
    """The strategy with the relations that the rows of arguments show, and their tests as preconditions."""
    if len(rows) < ENOUGH_EXAMPLES or any(_large(each) for row in rows for each in row):
        return strategy, ()
    arity = len(rows[0])
    kept = [relation for relation in _candidates(rows) if relation.shown(rows)]
    for relation in kept:
        strategy = relation.mended(strategy, arity)
    taken = {at for relation in kept for at in relation.mends}
    for i, j in _pairs(rows, list, int):
        present = _present(i, j)
        if j in taken or not present.count(rows):
            continue
        if present.shown(rows):
            kept.append(present)
            strategy = present.mended(strategy, arity)
        else:  # a search that finds, and one that does not
            strategy = f"st.one_of({present.mended(strategy, arity)}, {strategy})"
    return strategy, tuple(f"lambda args: {relation.test}" for relation in kept)


def _true(test: str, row: Row) -> bool:
    """Evaluate a text of this module on plain data."""
    try:
        return bool(eval(test, {"args": row}))
    except TypeError:  # elements that cannot be compared
        return False


def _large(value: Any) -> bool:
    return isinstance(value, (list, str)) and len(value) > LONGEST


def _candidates(rows: Sequence[Row]) -> Iterator[Relation]:
    """In the order in which one can be mended without breaking those before."""
    lists = [at for at in range(len(rows[0])) if all(type(row[at]) is list for row in rows)]
    for i, j in _pairs(rows, list, int):
        yield _below(i, j)
    yield from map(_distinct, lists)
    for i, j in [*_pairs(rows, list, list), *_pairs(rows, str, str)]:
        if i < j:
            yield _same_length(i, j)
    yield from map(_ascending, lists)
    for i, j in _pairs(rows, list, int):
        yield _index(i, j, rows)


def _pairs(rows: Sequence[Row], first: type, second: type) -> list[tuple[int, int]]:
    def of(at: int, kind: type) -> bool:
        return all(type(row[at]) is kind for row in rows)

    return [(i, j) for i, j in permutations(range(len(rows[0])), 2) if of(i, first) and of(j, second)]


def _ascending(i: int) -> Relation:
    return Relation(f"args[{i}] == sorted(args[{i}])", {i: f"sorted(args[{i}])"}, f"len(args[{i}]) > 2")


def _distinct(i: int) -> Relation:
    return Relation(
        f"all(args[{i}].count(each) == 1 for each in args[{i}])",
        {i: f"[each for at, each in enumerate(args[{i}]) if each not in args[{i}][:at]]"},
        f"len(args[{i}]) > 2",
    )


def _same_length(i: int, j: int) -> Relation:
    mends = {i: f"args[{i}][:len(args[{j}])]", j: f"args[{j}][:len(args[{i}])]"}
    return Relation(f"len(args[{i}]) == len(args[{j}])", mends, f"len(args[{i}]) > 1")


def _below(i: int, j: int) -> Relation:
    """Elements that are less than a number, as keys below the number of buckets."""
    mend = {i: f"[each % max(1, args[{j}]) for each in args[{i}]]"}
    return Relation(f"all(0 <= each < args[{j}] for each in args[{i}])", mend, f"len(args[{i}]) > 1")


def _index(i: int, j: int, rows: Sequence[Row]) -> Relation:
    """A number that counts elements or points to one: from 0 or 1, up to the length or short of it."""
    low = 0 if any(row[j] == 0 for row in rows) else 1
    short = 1 if all(row[j] < len(row[i]) for row in rows) else 0
    places = 1 - short - low
    number = f"max(1, len(args[{i}]){places:+d})" if places else f"max(1, len(args[{i}]))"
    mend = {j: f"1 + (args[{j}] - 1) % {number}" if low else f"args[{j}] % {number}"}
    return Relation(f"{low} <= args[{j}] {'<' if short else '<='} len(args[{i}])", mend, f"len(args[{i}]) > 1")


def _present(i: int, j: int) -> Relation:
    mend = {j: f"args[{i}][args[{j}] % len(args[{i}])] if args[{i}] else args[{j}]"}
    return Relation(f"args[{j}] in args[{i}]", mend)
