"""Words of a text: what the index holds and what a query asks for."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import cache, lru_cache

from opensage_memory.text.stem import stem

LONGEST = 64
"""Characters in one token. A longer word becomes several, so that any part of it is bounded and none is lost."""

FTS5_TOKENIZER = "ascii tokenchars '_'"
"""FTS5's `tokenize=` under which each token of `index_text` comes back as one token, unchanged."""

_ASCII_WORD = re.compile(r"\w+(?:'\w+)*")
_CAMEL = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_CONTRACTED = frozenset(("s", "t", "d", "m", "re", "ve", "ll"))
_APOSTROPHES = str.maketrans("’ʼ＇", "'''")
_EMOJI = "\u2190-\u2bff\U0001f000-\U0001faff"
# Scripts that write no spaces, or join particles to words: Thai, Lao, Myanmar, Khmer, kana, Han, Hangul.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
_HAN = re.compile("[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_PIECES = re.compile(f"[{_UNSPACED}]+|[{_EMOJI}]|[^{_UNSPACED}{_EMOJI}]+")
# Accents over Latin and Greek letters, and the marks that Arabic and Hebrew writing leaves out at will.
_LATIN_GREEK = re.compile("[a-z\u00aa-\u024f\u0370-\u03ff\u1e00-\u1fff]")
_OPTIONAL = re.compile("[\u0591-\u05bd\u05bf-\u05c7\u0640\u064b-\u0652\u0670]")
_ACCENT = re.compile("[\u0300-\u036f]")

_STOP_WORDS = """
a about am an and any are as at be been being but by can could did do does doing for from had has have having he her
hers him his how i if in into is it its just me my no not of on or our ours she should so some than that the their
them then there these they this those to too up us was we were what when where which while who whom whose why will
with would you your yours don doesn didn isn wasn
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""English words that say nothing about a topic, as they stand before stemming."""


def tokens(text: str) -> list[str]:
    """Tokens of a text in order, with repeats; the same for composed and decomposed accents.

    A word is folded (NFKC, case, accents of Latin and Greek) and stemmed; an identifier gives itself whole, then its
    parts; text in a script without spaces gives character pairs (and each Han character). Linear in the text's length.
    """
    found: list[str] = []
    if text.isascii():
        words = _ASCII_WORD.findall(text)
    else:
        words = _wide_word().findall(unicodedata.normalize("NFKC", text).translate(_APOSTROPHES))
    for word in words:
        found += _analysed(word) if len(word) <= LONGEST else _long(word)
    return found


def index_text(text: str) -> str:
    """The tokens with spaces between, for a full-text column under `FTS5_TOKENIZER`."""
    return " ".join(tokens(text))


def query_tokens(text: str) -> list[str]:
    """What to look for: the distinct tokens of a question without its stop words, or with them if it has no other."""
    telling = dict.fromkeys(token for token in tokens(text) if token not in _stop_tokens())
    return list(telling) or list(dict.fromkeys(tokens(text)))


def match_any(words: Iterable[str]) -> str:
    """The FTS5 expression that finds any of these tokens, each taken literally."""
    return " OR ".join('"' + word.replace('"', '""') + '"' for word in words)


@cache
def _wide_word() -> re.Pattern[str]:
    # `\\w` leaves out combining marks, and with them half of each word in Hindi or Thai.
    marks = [code for code in range(0x300, 0x20000) if unicodedata.category(chr(code)) in ("Mn", "Mc")]
    ranges: list[list[int]] = []
    for code in marks:
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    letter = r"\w" + "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)
    return re.compile(f"[{letter}]+(?:'[{letter}]+)*|[{_EMOJI}]")


@cache
def _stop_tokens() -> frozenset[str]:
    return frozenset(token for word in STOP_WORDS for token in tokens(word))


def _long(word: str) -> list[str]:
    pieces = [word[start : start + LONGEST] for start in range(0, len(word), LONGEST)]
    return [token for piece in pieces for token in _analyse(piece)]


def _analyse(word: str) -> tuple[str, ...]:
    if word.isascii():
        return _spaced(word)
    found: list[str] = []
    for piece in _PIECES.findall(word):
        if re.match(f"[{_UNSPACED}]", piece):
            found += _unspaced(piece)
        else:
            found += _spaced(piece)
    return tuple(found)


_analysed = lru_cache(maxsize=1 << 16)(_analyse)


def _spaced(word: str) -> tuple[str, ...]:
    if "'" in word:
        head, *rest = word.split("'")
        parts = [head, *(part for part in rest if part.lower() not in _CONTRACTED)]
        return tuple(token for part in parts for token in _spaced(part))
    whole = _fold(word)
    parts = _parts(word)
    if len(parts) < 2:
        return (stem(whole.strip("_")) or whole,) if whole else ()
    return (whole, *(stem(_fold(part)) for part in parts))


def _parts(word: str) -> list[str]:
    parts = [part for part in word.split("_") if part]
    if len(parts) < 2 and (word.islower() or word.isupper() or word.istitle()):
        return parts
    return [piece for part in parts for piece in (_CAMEL.findall(part) if part.isascii() else [part])]


def _fold(word: str) -> str:
    if word.isascii():
        return word.lower()
    word = unicodedata.normalize("NFKC", word.casefold())
    word = _OPTIONAL.sub("", word)
    if _LATIN_GREEK.search(word):
        word = unicodedata.normalize("NFC", _ACCENT.sub("", unicodedata.normalize("NFD", word)))
    return word


def _unspaced(run: str) -> list[str]:
    if len(run) == 1:
        return [run]
    pairs = [run[place : place + 2] for place in range(len(run) - 1)]
    return pairs + _HAN.findall(run)
