import sqlite3
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opensage_memory.text import FTS5_TOKENIZER, index_text, match_any, query_tokens, tokens
from opensage_memory.text.words import LONGEST

ANY_TEXT = st.text(max_size=60)
LETTERS = st.text(
    st.characters(whitelist_categories=("Ll", "Lu", "Lo", "Mn", "Mc", "Nd", "So", "Sk")), min_size=1, max_size=30
)
FACTS = [
    ("昨天我在北京买了一辆自行车。", "自行车"),
    ("明日は東京で寿司を食べます。", "寿司"),
    ("어제 친구와 도서관에 갔습니다.", "도서관"),
    ("ฉันชอบกินข้าวผัดกุ้ง", "ข้าวผัด"),
    ("ذهبتُ إلى المكتبة أمس", "المكتبة"),
    ("मैंने कल एक नई किताब खरीदी", "किताब"),
    ("Вчера я купил красный велосипед", "велосипед"),
    ("Χθες αγόρασα ένα κόκκινο ποδήλατο", "ποδηλατο"),
    ("Wir haben die Brücke über den Fluß gesehen", "BRÜCKE fluss"),
    ("הלכתי אתמול לספרייה", "לספרייה"),
    ("we won 🎉 at last", "🎉"),
]


def test_words_lose_case_accents_and_english_endings():
    assert tokens("The Painters were PAINTING a painted café") == [
        "the",
        "painter",
        "were",
        "paint",
        "a",
        "paint",
        "cafe",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("get_user_name", ["get_user_name", "get", "user", "name"]),
        ("getUserName", ["getusername", "get", "user", "name"]),
        ("HTTPServer", ["httpserver", "http", "server"]),
        ("don't Caroline's o’clock", ["don", "carolin", "o", "clock"]),
        ("a-b C:\\x 3.14", ["a", "b", "c", "x", "3", "14"]),
        ("北京", ["北京", "北", "京"]),
        ("__ a", ["__", "a"]),
        ("", []),
    ],
)
def test_words_of(text, expected):
    assert tokens(text) == expected


@pytest.mark.parametrize(("fact", "word"), FACTS)
@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD"])
def test_a_word_of_any_script_is_found_among_the_facts_composed_or_not(fact, word, form):
    import unicodedata

    with sqlite3.connect(":memory:") as db:
        db.execute(f'CREATE VIRTUAL TABLE facts USING fts5(words, tokenize="{FTS5_TOKENIZER}")')
        db.executemany(
            "INSERT INTO facts(rowid, words) VALUES (?, ?)", ((i, index_text(f)) for i, (f, _) in enumerate(FACTS))
        )
        query = match_any(query_tokens(unicodedata.normalize(form, word)))
        found = db.execute("SELECT rowid FROM facts WHERE facts MATCH ? ORDER BY rank LIMIT 1", (query,)).fetchone()
    assert found == (FACTS.index((fact, word)),)


@given(ANY_TEXT | LETTERS)
def test_full_text_search_keeps_every_token_as_it_is(text):
    with sqlite3.connect(":memory:") as db:
        db.execute(f'CREATE VIRTUAL TABLE words USING fts5(text, tokenize="{FTS5_TOKENIZER}")')
        db.execute("CREATE VIRTUAL TABLE vocabulary USING fts5vocab(words, 'row')")
        db.execute("INSERT INTO words VALUES (?)", (index_text(text),))
        kept = {term for (term,) in db.execute("SELECT term FROM vocabulary")}
        assert kept == set(tokens(text))
        for token in kept:
            assert db.execute("SELECT count(*) FROM words WHERE words MATCH ?", (match_any([token]),)).fetchone() == (
                1,
            )


@given(ANY_TEXT)
def test_composed_and_decomposed_text_has_the_same_tokens(text):
    import unicodedata

    assert tokens(unicodedata.normalize("NFC", text)) == tokens(unicodedata.normalize("NFD", text))


@given(st.lists(st.text(max_size=20), max_size=4))
def test_tokens_are_bounded_and_a_blank_parts_texts(texts):
    parts = [tokens(text) for text in texts]
    assert tokens("\n".join(texts)) == [token for part in parts for token in part]
    assert all(0 < len(token) <= 4 * LONGEST and " " not in token for part in parts for token in part)


def test_a_question_of_stop_words_alone_asks_for_them():
    assert query_tokens("What did Caroline do?") == ["carolin"]
    assert query_tokens("to be or not to be") == ["to", "be", "or", "not"]


HOSTILE = ["a", "A", "a_", "A'", "中", "ก็", "\u0301", "ﷺ", "🎉", " ", "aB", "\ud800", "'", "\x00"]


@pytest.mark.parametrize("unit", HOSTILE)
def test_much_of_one_thing_takes_time_in_proportion_to_it(unit):
    def spent(count):
        start = time.process_time()
        tokens(unit * (count // len(unit.encode(errors="surrogatepass"))))
        return time.process_time() - start

    spent(1 << 10)
    assert spent(1 << 18) < 2 + 50 * spent(1 << 14)
