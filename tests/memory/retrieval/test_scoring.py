import math
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opensage_memory.retrieval.scoring import Candidate, Weights, read_question, score
from opensage_memory.text import index_text


def conversation(*turns, session="s"):
    """Candidates of one session out of (author, text); a turn after another's question answers it."""
    found = []
    for place, (author, text) in enumerate(turns):
        before = turns[place - 1] if place else ("", "")
        found.append(
            Candidate(
                f"{session}{place}",
                index_text(text),
                author,
                session,
                f"{session}{place - 1}" if place else "",
                f"{session}{place + 1}" if place + 1 < len(turns) else "",
                f"{session}{place - 1}" if place and "?" in before[1] and before[0] != author else "",
            )
        )
    return found


def ranked(text, candidates, today=None, **kept):
    question = read_question(text, today)
    counts = {term: sum(term in each.tokens.split() for each in candidates) for term in question.terms}
    return score(question, candidates, counts, 100, **kept)


def test_a_rare_word_tells_more_than_a_common_one():
    texts = ["the red violin", "the red bicycle", "a red house", "red wine", "nothing"]
    hits = ranked("red violin", [Candidate(text, index_text(text)) for text in texts])
    assert hits[0].id == "the red violin"
    assert hits[0].total > 2 * hits[1].total > 2 * hits[-1].total == 0


def test_repeated_words_count_each_time_and_parts_of_words_never():
    texts = ["tea tea tea", "tea", "teas teapot steam"]
    hits = ranked("tea", [Candidate(text, text) for text in texts], weights=Weights(length=0))
    k1 = Weights().saturation
    assert {hit.id: hit.total for hit in hits} == pytest.approx(
        {texts[0]: 3 / (3 + k1), texts[1]: 1 / (1 + k1), texts[2]: 0}
    )


def test_an_answer_is_found_by_the_question_that_it_answers():
    turns = conversation(("A", "Which instrument do you play?"), ("B", "The violin, since school"), ("A", "How lovely"))
    hits = {hit.id: hit for hit in ranked("instrument", turns)}
    assert hits["s0"].total > hits["s1"].total > hits["s2"].total > 0
    assert hits["s1"].parts["words"] == 0 < hits["s1"].parts["around"]


def test_a_session_about_a_thing_lends_to_its_turns():
    far = [("A", "the violin"), *[("B", "well")] * 6, ("A", "it was a gift")]
    hits = ranked("violin", conversation(*far) + conversation(*[("A", "it was a gift")] * 2, session="t"))
    totals = {hit.id: hit.total for hit in hits}
    assert totals["s7"] > totals["t0"] == 0


def test_who_is_asked_about_counts_unless_all_are():
    turns = conversation(("Caroline Smith", "I like tea"), ("Melanie", "I like tea"), ("Jon", "I like tea"))
    assert ranked("What does Caroline like?", turns)[0].parts["author"] == Weights().author
    assert {hit.id for hit in ranked("Do Caroline, Melanie and Jon like tea?", turns) if "author" in hit.parts} == set()


def test_dates_of_the_question_and_of_the_items_meet():
    days = [date(2023, 5, 8), date(2023, 6, 9), None]
    items = [Candidate(str(day), index_text("we met"), at=day) for day in days]
    assert ranked("Who met in June 2023?", items)[0].id == "2023-06-09"
    assert ranked("Who met last month?", items, date(2023, 6, 20))[0].id == "2023-05-08"


def test_who_asks_when_wants_a_time():
    texts = ["we went to Rome", "we went to Rome last week", "we went to Rome in 2019"]
    hits = ranked("When did you go to Rome?", [Candidate(text, index_text(text)) for text in texts])
    assert hits[-1].id == texts[0]
    assert "time" not in ranked("Did you go to Rome?", [Candidate("a", index_text(texts[1]))])[0].parts


def test_an_item_without_a_vector_is_not_found_worse_for_it():
    items = [Candidate(name, "tea", similarity=value) for name, value in (("near", 0.9), ("none", None), ("far", 0.1))]
    hits = ranked("tea", items)
    assert [hit.id for hit in hits] == ["near", "none", "far"]
    assert hits[0].parts["vector"] - hits[2].parts["vector"] == pytest.approx(0.8 * Weights().vector)


def test_the_best_are_a_beginning_of_all():
    turns = conversation(*[("A", f"tea {place}") for place in range(9)])
    assert ranked("tea", turns, best=3) == ranked("tea", turns)[:3]
    assert score(read_question("tea"), [], {}, 0) == []


WORDS = st.lists(st.sampled_from(["tea", "Rome", "May", "2023", "A", "when", "北京", "?"]), max_size=6).map(" ".join)


@given(WORDS, st.lists(st.tuples(st.sampled_from(["A", "B"]), WORDS), min_size=1, max_size=8), st.randoms())
def test_scores_are_finite_add_up_and_do_not_depend_on_the_order(question, turns, random):
    candidates = conversation(*turns)
    hits = ranked(question, candidates)
    assert sorted(hit.id for hit in hits) == sorted(each.id for each in candidates)
    assert [hit.total for hit in hits] == sorted((hit.total for hit in hits), reverse=True)
    for hit in hits:
        assert math.isfinite(hit.total)
        assert hit.total == pytest.approx(sum(hit.parts.values()))
        assert 0 <= hit.parts.get("words", 0) + hit.parts.get("around", 0) <= 1 + 1e-9
    random.shuffle(candidates)
    again = {hit.id: hit.total for hit in ranked(question, candidates)}
    assert again == pytest.approx({hit.id: hit.total for hit in hits})
