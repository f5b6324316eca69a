import time
from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opensage_memory.text import dates, entities
from opensage_memory.text.dates import MOST as MOST_DATES
from opensage_memory.text.entities import LONGEST, MOST

TODAY = date(2023, 6, 1)  # a Thursday


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hey Mel! I met Caroline's aunt in New York City.", [("Mel", "name"), ("Caroline", "name"), ("New York City", "name")]),
        ("Yesterday Zoë read “The Lion King”", [("Zoë", "name"), ("The Lion King", "quoted")]),
        ("Zoe\u0308 knows Bank of America", [("Zoë", "name"), ("Bank of America", "name")]),
        ("Вчера Иван Петров поехал", [("Вчера Иван Петров", "name")]),
        ("it's in get_user_name() and readAll, or `x + 1`", [("get_user_name", "code"), ("readAll", "code"), ("x + 1", "code")]),
        ("see src/a/main.py, C:\\x\\y.txt, ~/notes or e.g. /etc/hosts.", [("src/a/main.py", "path"), ("C:\\x\\y.txt", "path"), ("~/notes", "path"), ("/etc/hosts", "path")]),
        ("mail a.b@c.org or http://x.org/a?b=1.", [("a.b@c.org", "url"), ("http://x.org/a?b=1", "url")]),
        ("on 5 May 2023 it was 20% or $1,200.50, not 3", [("2023-05-05", "date"), ("20%", "number"), ("$1,200.50", "number"), ("3", "number")]),
        ("2023年5月8日 「紅楼夢」", [("2023-05-08", "date"), ("紅楼夢", "quoted")]),
        ("Thanks! That's cool. I may go.", []),
        ("", []),
    ],
)  # fmt: skip
def test_mentions_of(text, expected):
    found = entities(text)
    assert sorted((mention.name, mention.kind) for mention in found) == sorted(expected)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("on 8 May 2023, May 9th and 2022-12", ["2023-05-08", "--05-09", "2022-12"]),
        ("8th of May 2023; le 3 août 2022; 3 мая 2021; 3. März 2020; 3 de marzo de 2019", ["2023-05-08", "2022-08-03", "2021-05-03", "2020-03-03", "2019-03-03"]),
        ("2023年5月8日、5月9日、2022年; 2023년 5월 8일", ["2023-05-08", "--05-09", "2022", "2023-05-08"]),
        ("in March I may march in May, 2023", ["--03", "2023-05"]),
        ("03/04/2023 and 13/04/2023", ["2023-03-04", "2023-04-03", "2023-04-13"]),
        ("31 February 2023, 2023-13-01, 99.99.2023, $2000, v2.2020, 2020 items", ["2023", "2020"]),
        ("Москву 3 мая", ["--05-03"]),
        ("yesterday", []),
    ],
)  # fmt: skip
def test_dates_of(text, names):
    assert [span.name for span in dates(text)] == names


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("yesterday", "2023-05-31"),
        ("two weeks ago", "2023-05-18/P7D"),
        ("3 months ago", "2023-03"),
        ("a year ago", "2022"),
        ("last week", "2023-05-22/P7D"),
        ("last Thursday", "2023-05-25"),
        ("last Monday", "2023-05-29"),
        ("next Friday", "2023-06-02"),
        ("next month", "2023-07"),
        ("in December", "2022-12"),
        ("on May 9", "2023-05-09"),
        ("July 9", None),
    ],
)
def test_dates_told_from_today(text, name):
    expected = name or "2022-07-09"
    assert [span.name for span in dates(text, TODAY)] == [expected]


@given(st.dates(), st.sampled_from(["%Y-%m-%d", "%d %B %Y", "%B %d, %Y", "%b %d %Y"]))
def test_a_written_day_is_read_and_covers_itself_alone(day, form):
    text = f"it was {day.strftime(form)} or so"
    if day.year < 1000:
        return
    (span,) = dates(text)
    assert span.covers(day)
    assert day == date.max or not span.covers(day + timedelta(days=1))
    assert text[span.start : span.end].strip() == day.strftime(form)


def test_a_run_covers_its_days():
    (span,) = dates("last week", TODAY)
    days = [date(2023, 5, 20) + timedelta(days=n) for n in range(14)]
    assert [day.day for day in days if span.covers(day)] == [22, 23, 24, 25, 26, 27, 28]


@given(
    st.text(max_size=200)
    | st.lists(st.sampled_from(["May ", "2023", "12", "/", "last ", "week", "-", "A", "b_", '"', "`", "."])).map(
        "".join
    ),
    st.none() | st.dates(),
)
def test_any_text_is_read(text, today):
    assert all(0 <= span.start < span.end <= len(text) and span.name for span in dates(text, today))
    found = entities(text)
    assert len(set(found)) == len(found) <= MOST
    assert all(0 < len(mention.name) <= LONGEST for mention in found)


HOSTILE = [
    *(
        "a",
        "A",
        "A ",
        "a_",
        '"',
        "/a",
        "1.",
        "1/",
        "a.",
        "May ",
        "1 May ",
        "'",
        "«",
        "a-",
        "@a",
        "a@",
        "http://",
        "\u0301",
        "A'",
        "`a",
    ),
    *(
        "A-",
        ".",
        "2023年",
        "last ",
        "of ",
        "A of the ",
        "/",
        "x.pz ",
        "\\",
        "C:\\",
        "12 abcdefghij ",
        "A&",
        "~",
        "2023-",
        "-1",
        "1,",
    ),
]


@pytest.mark.parametrize("unit", HOSTILE)
def test_much_of_one_thing_takes_time_in_proportion(unit):
    text = unit * ((1 << 17) // len(unit))
    start = time.process_time()
    assert len(entities(text)) <= MOST
    assert len(dates(text, TODAY)) <= MOST_DATES + 1
    assert time.process_time() - start < 4
