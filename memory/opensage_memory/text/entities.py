"""Things a text names, found by how they are written."""

from __future__ import annotations

import re
import unicodedata
from typing import Literal, NamedTuple

from opensage_memory.text.dates import dates
from opensage_memory.text.words import STOP_WORDS

Kind = Literal["name", "quoted", "code", "path", "url", "date", "number"]

MOST = 256
"""Distinct mentions taken from one text; what else it names stays findable as words."""

LONGEST = 200
"""Characters in a mention."""


class Mention(NamedTuple):
    """A thing named: `name` as written, composed (NFC), a date as in ISO 8601."""

    name: str
    kind: Kind


_URL = re.compile(
    r"\b(?:https?|ftp|file)://[^\s<>\"'“”`]++|(?<![\w.+-])[\w.+-]{1,64}+@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}"
)
_TICKS = re.compile(r"`([^`\n]{1,200}+)`")
_QUOTES = re.compile(
    r"\"([^\"\n]{2,200}+)\"|“([^“”\n]{2,200}+)”|„([^“”\n]{2,200}+)[“”]|«([^«»\n]{2,200}+)»|「([^「」\n]{2,200}+)」"
)
_ENDINGS = (
    "py|js|ts|tsx|jsx|c|h|cc|cpp|hpp|rs|go|java|kt|rb|php|sh|md|txt|rst|json|jsonl|toml|yml|yaml|xml|html|css|csv|tsv|pdf|"
    "sql|db|ipynb|lock|cfg|ini|log|png|jpg|jpeg|gif|svg|zip|gz|docx?|xlsx?"
)
_PATH = re.compile(
    r"(?<![\w/:\\.~-])(?:[A-Za-z]:\\[^\s\"'<>|]{1,200}+|(?:~|\.{1,2})?/[\w.@+-]{1,100}+(?:/[\w.@+-]{1,100}+)*+"
    rf"|(?=[^\s]{{1,200}}?\.(?:{_ENDINGS})\b)[\w@+-][\w.@+-]*+(?:/[\w.@+-]++)*+)"
)
_DOTTED = re.compile(r"\.\w")
_CODE = re.compile(r"\b[A-Za-z_]\w*+(?:\(\))?")
_HUMP = re.compile(r"[a-z][A-Z]")
_NUMBER = re.compile(r"(?<![\w.,])[$€£¥]?\d++(?:[.,]\d++)*+%?(?!\w)")
# A capital of the alphabets that have them; what else these ranges hold is sorted out by `isupper`.
_WIDE = "A-ZÀ-ÖØ-ÞĀ-ɏΆ-ΫΎΏЀ-Я"


def _names(upper: str) -> re.Pattern[str]:
    word = rf"[{upper}][\w&]*+(?:['’-][{upper}][\w&]*+)*+"
    return re.compile(rf"\b{word}(?: (?:(?:of|of the|de|da|du|la|van|von|der|bin) )?{word}){{0,6}}")


_NAME, _WIDE_NAME = _names("A-Z"), _names(_WIDE)
_DIGIT = re.compile(r"\d")
# Words that open a sentence or a chat turn, so that their capital says nothing.
_OPENING = """
absolutely actually again agreed ah aha all also alright although always amazing another anyway awesome aw aww because
before best both btw bye check cheers come congrats congratulations cool dear definitely each either especially even
ever every everyone everything exactly excited finally first for found fun glad go good goodbye got gotcha great guess
haha happy hello here hey hi hmm hope hopefully keep last lately let like lol look looking looks lots love lucky many
maybe more most much need never new next nice nope nothing now oh ok okay omg once one only other people perhaps
please pretty probably really right same see seems several since sometimes soon sorry sounds still sure take talk
thank thanks then though thx today tomorrow totally tough true try two wait welcome well whatever whoa whether within
without wonderful wow yay yeah yep yes yesterday yet yup
"""
_OPENERS = STOP_WORDS | frozenset(_OPENING.split())


# Adjectives that are part of names too: New York, Great Britain.
_NAMED_SO = frozenset(("all", "best", "first", "great", "new", "one", "right", "two"))
_FRONT = _OPENERS - _NAMED_SO


class _Found:
    """Mentions with their places, out of a text in which what is taken turns into blanks."""

    def __init__(self) -> None:
        self.at: dict[Mention, int] = {}

    def add(self, name: str, kind: Kind, place: int) -> None:
        name = name.rstrip(".,;:!?)") if kind in ("url", "path") else " ".join(name.split())
        if 0 < len(name) <= LONGEST and len(self.at) < MOST:
            self.at.setdefault(Mention(name, kind), place)

    def take(self, pattern: re.Pattern[str], kind: Kind, text: str) -> str:
        def blank(match: re.Match[str]) -> str:
            self.add(match.group(match.lastindex or 0), kind, match.start())
            return "\n" * len(match.group())

        return pattern.sub(blank, text)


def entities(text: str) -> list[Mention]:
    """Distinct mentions in order of appearance, at most `MOST`; linear in the text's length.

    Capitalised names (but no lone word that usually opens a sentence), quotations, code identifiers, paths, addresses,
    dates with a year, numbers. Scripts without capitals give the other kinds only.
    """
    plain = text.isascii()
    if not plain:
        text = unicodedata.normalize("NFC", text)
    found = _Found()
    text = _marked(text, plain, found)
    if _DIGIT.search(text):
        text = _counted(text, found)
    for match in (_NAME if plain else _WIDE_NAME).finditer(text):
        if name := _name(match.group()):
            found.add(name, "name", match.start())
    return sorted(found.at, key=found.at.__getitem__)


def _marked(text: str, plain: bool, found: _Found) -> str:
    """Takes what its own signs set apart; each pattern runs only over a text with its sign, since most have none."""
    if "://" in text or "@" in text:
        text = found.take(_URL, "url", text)
    if "`" in text:
        text = found.take(_TICKS, "code", text)
    if '"' in text or not plain:
        text = found.take(_QUOTES, "quoted", text)
    if "/" in text or "\\" in text or _DOTTED.search(text):
        text = found.take(_PATH, "path", text)
    if "_" in text or "()" in text or _HUMP.search(text):
        for match in _CODE.finditer(text):
            word = match.group()
            if "_" in word.strip("_") or word.endswith("()") or (word[0].islower() and _HUMP.search(word)):
                found.add(word.removesuffix("()"), "code", match.start())
    return text


def _counted(text: str, found: _Found) -> str:
    pieces, done = [], 0
    for span in dates(text):
        if span.year is None:
            continue
        found.add(span.name, "date", span.start)
        if span.start >= done:
            pieces += [text[done : span.start], "\n" * (span.end - span.start)]
            done = span.end
    return found.take(_NUMBER, "number", "".join([*pieces, text[done:]]))


def _name(written: str) -> str:
    """A capitalised run without the words that only open a sentence; empty if nothing is left."""
    words = written.split(" ")
    if len(words) == 1:
        lower = written.lower()
        plain = lower in _OPENERS or len(written) < 2 or lower.endswith(("ing", "ly")) or not written[0].isupper()
        return "" if plain else written
    if words[0].lower() in _FRONT or not words[0][0].isupper():
        return _name(" ".join(words[1:])) if words[1][0].isupper() else ""
    return written
