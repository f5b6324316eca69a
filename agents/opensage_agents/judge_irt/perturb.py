"""Wordings of one instruction that should not matter: typing errors, newlines, a paraphrase."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping

from opensage_agents.judge_irt.scores import ScoreError

TEMPLATE = (
    "You are a careful judge. Rate the {criterion} of the answer to the question below on a scale from 1 to {levels}, "
    "where 1 means very poor and {levels} means excellent. Consider whether the answer is correct, complete and clear. "
    "Reply with one whole number and nothing else."
)
PARAPHRASE = (
    "You are an attentive judge. Grade the {criterion} of the answer to the question below on a scale from 1 to "
    "{levels}, where 1 stands for very bad and {levels} stands for outstanding. Check whether the answer is right, "
    "complete and clear. Respond with one whole number and nothing else."
)
VARIANTS = ("original", "typo", "newline", "paraphrase")
_WORD = re.compile(r"(?<![{\w])[A-Za-z]{5,}(?![}\w])")

Paraphrase = Callable[[str], str]


def with_typos(text: str, seed: int = 0, words: int = 5) -> str:
    """Two neighbouring inner letters of the longest words change places; `{names}` and numbers stay.

    The paper alters the five words that a small model attends to most; the longest stand for them (reconstruction).
    """
    rng = random.Random(f"typo-{seed}")
    found = [match for match in _WORD.finditer(text) if _swaps(match.group())]
    chosen = sorted(found, key=lambda match: (-len(match.group()), match.start()))[:words]
    for match in sorted(chosen, key=lambda each: -each.start()):
        word = match.group()
        at = rng.choice(_swaps(word))
        text = text[: match.start()] + word[:at] + word[at + 1] + word[at] + word[at + 2 :] + text[match.end() :]
    return text


def _swaps(word: str) -> list[int]:
    """Where two different letters stand side by side, not at the ends."""
    return [n for n in range(1, len(word) - 2) if word[n] != word[n + 1]]


def with_newlines(text: str, seed: int = 0, lines: int = 3) -> str:
    """Newlines in the place of some spaces, at places that the seed decides."""
    rng = random.Random(f"newline-{seed}")
    spaces = [n for n, letter in enumerate(text) if letter == " "]
    for at in sorted(rng.sample(spaces, min(lines, len(spaces))), reverse=True):
        text = f"{text[:at]}\n{text[at + 1 :]}"
    return text


def wordings(
    template: str = TEMPLATE, names: tuple[str, ...] = VARIANTS, *, seed: int = 0, paraphrase: Paraphrase | None = None
) -> Mapping[str, str]:
    """The instruction in each of the variants that are named, all different from each other.

    Args:
        template: with `{criterion}` and `{levels}`.
        names: of `VARIANTS`.
        seed: of the typing errors and newlines.
        paraphrase: makes the paraphrase; without it only the shipped template has one.

    Raises:
        ScoreError: a name is unknown, the template cannot be filled in, or there is nothing to paraphrase it.
    """
    unknown = [name for name in names if name not in VARIANTS]
    if unknown or len(set(names)) < 2:
        told = f"unknown variant {unknown[0]!r}" if unknown else "at least 2 different variants are needed"
        raise ScoreError(f"{told}; there are {', '.join(VARIANTS)}")
    makers: dict[str, Paraphrase] = {
        "original": str,
        "typo": lambda text: with_typos(text, seed),
        "newline": lambda text: with_newlines(text, seed),
        "paraphrase": paraphrase or _shipped,
    }
    found = {name: makers[name](template) for name in names}
    for name, text in found.items():
        filled(text, "quality", 5, name)
    if len(set(found.values())) < len(found):
        raise ScoreError("two variants have the same wording: give a longer template or another paraphrase")
    return found


def _shipped(template: str) -> str:
    if template != TEMPLATE:
        raise ScoreError("a template of your own needs a paraphrase: --paraphrase FILE, or leave that variant out")
    return PARAPHRASE


def filled(template: str, criterion: str, levels: int, name: str = "the template") -> str:
    """The instruction for a criterion and a scale.

    Raises:
        ScoreError: it does not name the scale, or has braces that mean nothing.
    """
    if "{levels}" not in template:
        raise ScoreError(f"{name} has no {{levels}}: the judge must be told the scale")
    text = template.replace("{criterion}", criterion).replace("{levels}", str(levels))
    odd = re.search(r"\{\w*\}", text)
    if odd:
        raise ScoreError(f"{name} has {odd.group()}: only {{criterion}} and {{levels}} are filled in")
    return text
