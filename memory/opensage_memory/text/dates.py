"""Dates that a text names: days, months, years, and days told from today."""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from typing import NamedTuple

MOST = 256
"""Dates read from one text; later ones stay findable as words."""


class DateSpan(NamedTuple):
    """A day, a run of days, a month or a year, as far as told; `start` and `end` are places in the text."""

    start: int
    end: int
    year: int | None = None
    month: int | None = None
    day: int | None = None
    days: int = 1

    def covers(self, day: date) -> bool:
        """Whether that day lies in the span; what the text leaves open fits any day."""
        if self.days > 1 and self.year and self.month and self.day:
            first = date(self.year, self.month, self.day)
            return 0 <= (day - first).days < self.days
        told = ((self.year, day.year), (self.month, day.month), (self.day, day.day))
        return all(mine is None or mine == other for mine, other in told)

    @property
    def name(self) -> str:
        """As in ISO 8601 as far as told: `2023-05-08`, `2023-05`, `2023`, `--05-08`; a run as `2023-05-08/P7D`."""
        year = f"{self.year:04}" if self.year else "-"
        rest = [f"{part:02}" for part in (self.month, self.day) if part]
        return "-".join((year, *rest)) + (f"/P{self.days}D" if self.days > 1 else "")


_MONTH_NAMES = (
    "january jan januar jänner janvier enero gennaio janeiro январь января",
    "february feb februar février febrero febbraio fevereiro февраль февраля",
    "march mar märz mars marzo março март марта",
    "april apr avril abril aprile апрель апреля",
    "may mai mayo maggio maio май мая",
    "june jun juni juin junio giugno junho июнь июня",
    "july jul juli juillet julio luglio julho июль июля",
    "august aug août agosto август августа",
    "september sep sept septembre septiembre settembre setembro сентябрь сентября",
    "october oct oktober okt octobre octubre ottobre outubro октябрь октября",
    "november nov novembre noviembre novembro ноябрь ноября",
    "december dec dezember dez décembre diciembre dicembre dezembro декабрь декабря",
)
_MONTHS = {name: number for number, names in enumerate(_MONTH_NAMES, 1) for name in names.split()}
_WEEKDAYS = {name.lower(): number for number, name in enumerate(calendar.day_name)}
_UNITS = {"day": 1, "week": 7, "month": 30, "year": 365}
_COUNTS = {"a": 1, "an": 1, "one": 1, "two": 2, "couple": 2, "three": 3, "few": 3, "four": 4, "five": 5, "six": 6}
_COUNTS |= {"seven": 7, "eight": 8, "nine": 9, "ten": 10}
# Words that make a text worth a closer look: most texts hold none, and pay one pass.
_TELLING = {"today", "yesterday", "tomorrow", "ago", "last", "next", "this"}
_LETTERS = re.compile(r"[^\W\d_]++")
_DIGIT = re.compile(r"\d")
_CALENDAR = re.compile(
    r"(?<![\d.])(?P<iso>\d{4})[-/.](?P<iso_m>\d{1,2})(?:[-/.](?P<iso_d>\d{1,2}))?(?![\d])"
    r"|(?<![\d./-])(?P<n1>\d{1,2})(?P<sep>[./-])(?P<n2>\d{1,2})(?P=sep)(?P<n_y>\d{4})(?!\d)"
    r"|(?P<c_y>\d{4})\s?[年년]\s?(?:(?P<c_m>\d{1,2})\s?[月월]\s?(?:(?P<c_d>\d{1,2})\s?[日일])?)?"
    r"|(?<!\d)(?P<c_m2>\d{1,2})\s?[月월]\s?(?P<c_d2>\d{1,2})\s?[日일]"
)
_MONTH = "(?i:" + "|".join(sorted(_MONTHS, key=len, reverse=True)) + ")"
_NAMED = re.compile(
    rf"(?<![\w.])(?P<d1>\d{{1,2}})(?:st|nd|rd|th|er|º|\.)?\s{{1,2}}(?:of\s|de\s)?(?P<m1>{_MONTH})(?![^\W_])\.?"
    r"(?:,?\s{1,2}(?:de\s)?(?P<y1>\d{4})(?!\d))?"
    rf"|(?<![^\W_])(?P<m2>{_MONTH})(?![^\W_])\.?,?\s{{1,2}}(?:(?P<d2>\d{{1,2}})(?:st|nd|rd|th)?(?!\d)"
    r"(?:,?\s{1,2}(?P<y2>\d{4})(?!\d))?|(?:of\s|de\s)?(?P<y3>\d{4})(?!\d))"
    # A month alone only after a word that leads to one: "may" and "march" are verbs.
    r"|\b(?:[Ii]n|[Ss]ince|[Uu]ntil|[Bb]y|[Ll]ast|[Nn]ext|[Tt]his|[Oo]f|[Ee]arly|[Ll]ate|[Mm]id|[Dd]uring)[\s-]"
    rf"(?=[A-Z])(?P<m3>{_MONTH})(?!\w|\.?,?\s{{1,2}}(?:of\s|de\s)?\d)"
)
_YEAR = re.compile(r"(?<![\w.,$€£:/-])(?:19|20)\d\d(?![\w:/%-]|[.,]\d)")
_TOLD = re.compile(
    r"\b(?P<word>today|yesterday|tomorrow)\b"
    r"|\b(?P<count>\d{1,4}|[a-z]{1,6})\s(?:of\s)?(?P<unit>day|week|month|year)s?\sago\b"
    r"|\b(?P<side>last|next|this)\s(?P<what>week|month|year|monday|tuesday|wednesday|thursday|friday|saturday|sunday)\b",
    re.IGNORECASE,
)


def dates(text: str, today: date | None = None) -> list[DateSpan]:
    """Dates named in a text, in order; `yesterday` and the like only with `today`, and years left out then too.

    English in full; month names also of German, French, Spanish, Italian, Portuguese and Russian; Chinese, Japanese
    and Korean numerals with their signs. `03/04/2023` gives both readings. Linear in the text's length.
    """
    words = set(_LETTERS.findall(text.lower()))
    readers: list[Callable[[str, date | None], Iterator[DateSpan]]] = []
    if _DIGIT.search(text):
        readers += [_in_digits]
    if not _MONTHS.keys().isdisjoint(words):
        readers += [_in_words]
    if today and not _TELLING.isdisjoint(words):
        readers += [_from_today]
    if not readers:
        return []
    found: list[DateSpan] = []
    taken = 0
    for span in sorted(span for reader in readers for span in reader(text, today)):
        if span.start >= taken or (found and (span.start, span.end) == (found[-1].start, found[-1].end)):
            found.append(span)
            taken = span.end
            if len(found) >= MOST:
                break
    return found


def _in_digits(text: str, _today: date | None) -> Iterator[DateSpan]:
    for match in _CALENDAR.finditer(text):
        yield from _calendar(match)
    for match in _YEAR.finditer(text):
        yield DateSpan(match.start(), match.end(), int(match.group()))


def _in_words(text: str, today: date | None) -> Iterator[DateSpan]:
    for match in _NAMED.finditer(text):
        yield from _named(match, today)


def _from_today(text: str, today: date | None) -> Iterator[DateSpan]:
    for match in _TOLD.finditer(text):
        yield from _told(match, today or date.today())


def _span(match: re.Match[str], year: int | None, month: int | None, day: int | None) -> Iterator[DateSpan]:
    """The span, if the calendar has such a day."""
    longest = calendar.monthrange(year or 2000, month)[1] if month and 1 <= month <= 12 else 0
    if year == 0 or (month is not None and not longest) or (day is not None and not 1 <= day <= longest):
        return
    yield DateSpan(match.start(), match.end(), year, month, day)


def _calendar(match: re.Match[str]) -> Iterator[DateSpan]:
    part = {name: int(value) for name, value in match.groupdict().items() if value and name != "sep"}
    if "n_y" in part:
        yield from _span(match, part["n_y"], part["n1"], part["n2"])
        if part["n1"] != part["n2"]:
            yield from _span(match, part["n_y"], part["n2"], part["n1"])
        return
    year = part.get("iso", part.get("c_y"))
    month = part.get("iso_m", part.get("c_m", part.get("c_m2")))
    yield from _span(match, year, month, part.get("iso_d", part.get("c_d", part.get("c_d2"))))


def _named(match: re.Match[str], today: date | None) -> Iterator[DateSpan]:
    part = match.groupdict()
    month = _MONTHS.get((part["m1"] or part["m2"] or part["m3"]).lower())
    if month is None:
        return
    year, day = part["y1"] or part["y2"] or part["y3"], part["d1"] or part["d2"]
    known = int(year) if year else None
    if known is None and today is not None:
        known = today.year - ((month, int(day or 1)) > (today.month, today.day))
    yield from _span(match, known, month, int(day) if day else None)


def _told(match: re.Match[str], today: date) -> Iterator[DateSpan]:
    part = {name: value.lower() for name, value in match.groupdict().items() if value}
    first, days = today, 1
    if "word" in part:
        first = today + timedelta(days=("yesterday", "today", "tomorrow").index(part["word"]) - 1)
    elif "unit" in part:
        count = int(part["count"]) if part["count"].isdecimal() else _COUNTS.get(part["count"], 0)
        if not count or count * _UNITS[part["unit"]] >= (today - date.min).days:
            return
        first = today - timedelta(days=count * _UNITS[part["unit"]])
        days = {"day": 1, "week": 7}.get(part["unit"], 1)
        if part["unit"] in ("month", "year"):
            yield DateSpan(match.start(), match.end(), first.year, first.month if part["unit"] == "month" else None)
            return
    else:
        yield from _beside(match, today, part["what"], ("last", "this", "next").index(part["side"]) - 1)
        return
    yield DateSpan(match.start(), match.end(), first.year, first.month, first.day, days)


def _beside(match: re.Match[str], today: date, what: str, step: int) -> Iterator[DateSpan]:
    if what == "year":
        yield DateSpan(match.start(), match.end(), today.year + step)
    elif what == "month":
        months = today.year * 12 + today.month - 1 + step
        yield DateSpan(match.start(), match.end(), months // 12, months % 12 + 1)
    else:
        monday = today - timedelta(days=today.weekday())
        first = monday + timedelta(days=7 * step)
        if what != "week":
            ahead = _WEEKDAYS[what] - today.weekday()
            first = today + timedelta(days=ahead + (7 if step > 0 >= ahead else -7 if step < 0 <= ahead else 0))
        yield DateSpan(match.start(), match.end(), first.year, first.month, first.day, 7 if what == "week" else 1)
