"""Questions of T2: two steps of arithmetic, number theory, geometry, sequences or probability, in words."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
THAT = "that number"
"""How the second step names what the first gave."""
NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gia", "Hugo", "Iris", "Jon")


@dataclass(frozen=True, slots=True)
class Skill:
    """One operation on two numbers, and three ways to ask for it."""

    name: str
    phrases: tuple[str, str, str]
    call: Callable[[Any, Any], Any]


def _least(y: Any) -> Any:
    return np.maximum(np.abs(y), 1)


SKILLS = (
    Skill(
        "sum",
        ("the sum of {a} and {b}", "{a} plus {b}", "the coins of {name}, who has {a} and gets {b} more"),
        lambda x, y: x + y,
    ),
    Skill(
        "difference",
        ("the difference {a} minus {b}", "{a} less {b}", "the coins left to {name}, who has {a} and spends {b}"),
        lambda x, y: x - y,
    ),
    Skill(
        "product",
        ("the product of {a} and {b}", "{a} times {b}", "the eggs in {a} boxes of {b} eggs each"),
        lambda x, y: x * y,
    ),
    Skill(
        "quotient",
        (
            "the whole quotient of {a} and {b}",
            "{a} divided by {b} without rest",
            "how many full teams of {b} come from {a} players",
        ),
        lambda x, y: x // _least(y),
    ),
    Skill(
        "remainder",
        (
            "the remainder of {a} divided by {b}",
            "{a} modulo {b}",
            "the players left over when {a} players make teams of {b}",
        ),
        lambda x, y: x % _least(y),
    ),
    Skill(
        "maximum",
        (
            "the larger of {a} and {b}",
            "the maximum of {a} and {b}",
            "the better score when {name} scores {a} and then {b}",
        ),
        np.maximum,
    ),
    Skill(
        "minimum",
        ("the smaller of {a} and {b}", "the minimum of {a} and {b}", "the lower price of two shops asking {a} and {b}"),
        np.minimum,
    ),
    Skill(
        "gcd",
        (
            "the greatest common divisor of {a} and {b}",
            "the gcd of {a} and {b}",
            "the largest tile that fills a floor of {a} by {b}",
        ),
        np.gcd,
    ),
    Skill(
        "lcm",
        (
            "the least common multiple of {a} and {b}",
            "the lcm of {a} and {b}",
            "when two bells ringing every {a} and {b} minutes meet",
        ),
        np.lcm,
    ),
    Skill(
        "distance",
        (
            "the distance between {a} and {b} on a line",
            "the absolute difference of {a} and {b}",
            "how far apart the houses {a} and {b} stand",
        ),
        lambda x, y: np.abs(x - y),
    ),
    Skill(
        "mean",
        (
            "the mean of {a} and {b}, rounded down",
            "the average of {a} and {b}, rounded down",
            "the stop halfway between the stops {a} and {b}",
        ),
        lambda x, y: (x + y) // 2,
    ),
    Skill(
        "perimeter",
        (
            "the perimeter of a rectangle with sides {a} and {b}",
            "the boundary of a field {a} long and {b} wide",
            "the fence around a garden of {a} by {b}",
        ),
        lambda x, y: 2 * (x + y),
    ),
    Skill(
        "triangle",
        (
            "the area of a triangle with base {a} and height {b}, rounded down",
            "half the rectangle {a} by {b}, rounded down",
            "the cloth for a sail of base {a} and height {b}, rounded down",
        ),
        lambda x, y: x * y // 2,
    ),
    Skill(
        "sequence",
        (
            "the fifth term of a sequence from {a} with step {b}",
            "the term four steps of {b} after {a}",
            "the seats in row five when row one has {a} and each row {b} more",
        ),
        lambda x, y: x + 4 * y,
    ),
    Skill(
        "squares",
        (
            "the sum of the squares of {a} and {b}",
            "{a} squared plus {b} squared",
            "the square of the diagonal of a screen of {a} by {b}",
        ),
        lambda x, y: x * x + y * y,
    ),
    Skill(
        "percent",
        (
            "the chance in percent of red among {a} red and {b} blue balls, rounded down",
            "the percentage of {a} in {a} plus {b}, rounded down",
            "the share in percent of wins when {name} wins {a} games and loses {b}, rounded down",
        ),
        lambda x, y: 100 * x // _least(x + y),
    ),
)
NUMBER = len(SKILLS)
SHAPE = (NUMBER + 1, NUMBER + 1, 3, 3)
"""Cells: first skill (the last is nonsense), second skill (the last is none), phrases of the first and the second."""
_WORDS = "moss lamp quickly under seven of blue because river not the chair thinks loud was and green"


def clause(skill: int, phrase: int, a: str, b: str, name: str = "Ada") -> str:
    """One step in words."""
    return SKILLS[skill].phrases[phrase].format(a=a, b=b, name=name)


def rendered(cell: int, rng: random.Random) -> str:
    """A question of a cell with fresh numbers and names."""
    first, second, p1, p2 = (int(each) for each in np.unravel_index(cell, SHAPE))
    if first == NUMBER:
        return nonsense(p1, rng)
    a, b, c = (str(rng.randint(2, 40)) for _ in range(3))
    opening = clause(first, p1, a, b, rng.choice(NAMES))
    if second == NUMBER:
        return f"What is {opening}?"
    return f"Take {opening}. What is {clause(second, p2, THAT, c, rng.choice(NAMES))}?"


def nonsense(kind: int, rng: random.Random) -> str:
    """0: words in no order. 1: characters. 2: a question that nothing answers."""
    if kind == 0:
        return " ".join(rng.choices(_WORDS.split(), k=12)) + "?"
    if kind == 1:
        return " ".join("".join(rng.choices("qxzvkjwpyfgb", k=rng.randint(3, 8))) for _ in range(9)) + "?"
    thing = rng.choice(("triangle", "Tuesday", "river", "colour", "prime number"))
    return f"Which {thing} did {rng.choice(NAMES)} think of when nobody looked, and how heavy was its shadow?"


def results(x: Ints, y: Ints) -> Ints:
    """All skills on arrays: (..., number of skills)."""
    return np.stack([np.asarray(skill.call(x, y), dtype=np.int64) for skill in SKILLS], axis=-1)
