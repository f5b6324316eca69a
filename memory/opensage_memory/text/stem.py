"""The suffix stripping of Porter (1980, "An algorithm for suffix stripping", Program 14:3), for English words."""

from __future__ import annotations

import re

_STEP_2 = (
    "ational:ate tional:tion enci:ence anci:ance izer:ize bli:ble alli:al entli:ent eli:e ousli:ous ization:ize "
    "ation:ate ator:ate alism:al iveness:ive fulness:ful ousness:ous aliti:al iviti:ive biliti:ble logi:log"
)
_STEP_3 = "icate:ic ative: alize:al iciti:ic ical:ic ful: ness:"
_STEP_4 = "al ance ence er ic able ible ant ement ment ent ion ou ism ate iti ous ive ize"


def _rules(text: str) -> list[tuple[str, str]]:
    pairs = [rule.partition(":") for rule in text.split()]
    # The longest ending decides, whether or not its rule then applies.
    return sorted(((old, new) for old, _, new in pairs), key=lambda pair: -len(pair[0]))


_RULES_2, _RULES_3, _RULES_4 = _rules(_STEP_2), _rules(_STEP_3), _rules(_STEP_4)
_HAS_VOWEL = re.compile(r"[aeiou]|.y")
_CONSONANT_VOWEL_CONSONANT = re.compile(r"(?:^|.)[^aeiou][aeiouy][^aeiouwxy]$")


def stem(word: str) -> str:
    """A lower-case word without its English endings; short words and those with other than a-z as they are."""
    if len(word) < 3 or not (word.isascii() and word.isalpha()):
        return word
    word = _past(_plural(word))
    if word[-1] == "y" and _HAS_VOWEL.search(word[:-1]):
        word = word[:-1] + "i"
    for rules in (_RULES_2, _RULES_3):
        word = _replaced(word, rules)
    return _tidied(_derived(word))


def _measure(word: str) -> int:
    """How many times a vowel is followed by a consonant."""
    count, vowel = 0, False
    for place, letter in enumerate(word):
        if letter in "aeiou" or (letter == "y" and place and not vowel):
            vowel = True
        else:
            count += vowel
            vowel = False
    return count


def _plural(word: str) -> str:
    if word.endswith(("sses", "ies")):
        return word[:-2]
    return word[:-1] if word[-1] == "s" and not word.endswith("ss") else word


def _past(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) else word
    ending = next((end for end in ("ed", "ing") if word.endswith(end)), "")
    base = word[: len(word) - len(ending)]
    if not ending or not _HAS_VOWEL.search(base):
        return word
    if base.endswith(("at", "bl", "iz")):
        return base + "e"
    if len(base) > 1 and base[-1] == base[-2] and base[-1] not in "aeioulsz":
        return base[:-1]
    return base + "e" if _measure(base) == 1 and _CONSONANT_VOWEL_CONSONANT.search(base) else base


def _replaced(word: str, rules: list[tuple[str, str]]) -> str:
    for old, new in rules:
        if word.endswith(old):
            base = word[: -len(old)]
            return base + new if _measure(base) else word
    return word


def _derived(word: str) -> str:
    for old, _ in _RULES_4:
        if word.endswith(old):
            base = word[: -len(old)]
            fits = _measure(base) > 1 and (old != "ion" or base[-1] in "st")
            return base if fits else word
    return word


def _tidied(word: str) -> str:
    if word[-1] == "e":
        base = word[:-1]
        measure = _measure(base)
        if measure > 1 or (measure == 1 and not _CONSONANT_VOWEL_CONSONANT.search(base)):
            word = base
    return word[:-1] if word.endswith("ll") and _measure(word) > 1 else word
