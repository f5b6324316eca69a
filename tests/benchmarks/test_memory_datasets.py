import json
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opensage_benchmarks.memory import locomo, longmemeval
from opensage_benchmarks.memory.metrics import by_category, measure


@pytest.fixture
def write(tmp_path):
    def write(content):
        path = tmp_path / "data.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return path

    return write


def said(id, author="A", **more):
    return {"dia_id": id, "speaker": author, "text": f"text of {id}", **more}


def conversation(evidence, category=1):
    sessions = {f"session_{n}": [said(f"D{n}:{turn}") for turn in range(1, 28)] for n in (2, 8, 9, 11, 30)}
    times = {"session_2_date_time": "1:56 pm on 8 May, 2023", "session_8_date_time": "someday"}
    return {
        "sample_id": "c",
        "conversation": {**sessions, **times},
        "qa": [{"question": "?", "category": category, "evidence": evidence}],
    }


@pytest.mark.parametrize(
    ("evidence", "ids"),
    [
        (["D8:6; D9:17"], {"D8:6", "D9:17"}),
        (["D:11:26"], {"D11:26"}),
        (["D30:05"], {"D30:5"}),
        (["D8:6", "D8:6", "D99:1", "D"], {"D8:6"}),
    ],
)
def test_malformed_evidence_names_its_turns(write, evidence, ids):
    (found,) = locomo.load(write([conversation(evidence)]))
    assert [question.evidence for question in found.questions] == [ids]


def test_evidence_that_is_no_turn_is_told_and_a_question_without_any_left_out(write):
    found = locomo.load(write([conversation(["D99:1", "D"]), conversation([]), conversation(["D8:1"], 5)]))
    assert [each.unknown for each in found] == [("D99:1", "D"), (), ()]
    assert [len(each.questions) for each in found] == [0, 0, 1]


def test_turns_come_in_order_with_time_and_caption(write):
    entry = conversation([])
    entry["conversation"]["session_2"][0]["blip_caption"] = "a photo of a dog"
    (found,) = locomo.load(write([entry]))
    assert [turn.session for turn in found.turns[::27]] == ["2", "8", "9", "11", "30"]
    assert found.turns[0].text == "text of D2:1\na photo of a dog"
    assert found.turns[0].at == datetime(2023, 5, 8, 13, 56)
    assert found.turns[27].at is None


ENTRY = {
    "question_id": "q1",
    "question_type": "multi-session",
    "question": "How many?",
    "answer": "2",
    "question_date": "2023/05/30 (Tue) 23:40",
    "haystack_session_ids": ["s1", "s2"],
    "haystack_dates": ["2023/05/20 (Sat) 02:21"],
    "haystack_sessions": [
        [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho", "has_answer": True}],
        [{"role": "user", "content": "so"}],
    ],
    "answer_session_ids": ["s1"],
}


def test_longmemeval_gives_one_question_with_its_own_haystack(write):
    (found,) = longmemeval.load(write([ENTRY]))
    (question,) = found.questions
    assert [(turn.author, turn.text) for turn in found.turns] == [("user", "hi"), ("assistant", "ho"), ("user", "so")]
    assert question.evidence == {found.turns[1].id}
    assert (question.asked_at, found.turns[0].at, found.turns[2].at) == (
        datetime(2023, 5, 30, 23, 40),
        datetime(2023, 5, 20, 2, 21),
        None,
    )


def test_longmemeval_without_marks_takes_the_sessions_and_without_sessions_asks_nothing(write):
    bare = {**ENTRY, "haystack_sessions": [[{"role": "user", "content": text}] * 2 for text in ("hi", "so")]}
    named, none = longmemeval.load(write([bare, {**bare, "answer_session_ids": ["s9"]}]))
    assert named.questions[0].evidence == {turn.id for turn in named.turns[:2]}
    assert (none.questions, none.unknown) == ((), ("s9",))


@pytest.mark.parametrize(
    "content", ["", "{", "{}", "[1]", "[{}]", '[{"sample_id": 1, "conversation": {"session_1": [{}]}, "qa": []}]']
)
@pytest.mark.parametrize("load", [locomo.load, longmemeval.load])
def test_another_file_is_refused_by_name(write, load, content):
    path = write(content)
    with pytest.raises(ValueError, match=r"data\.json"):
        list(load(path))
    with pytest.raises(ValueError, match="cannot read"):
        list(load(path.with_name("none.json")))


def test_recall_and_rank_of_evidence():
    ranking = [f"t{n}" for n in range(30)]
    assert measure(ranking, {"t3", "t8"}) == {"recall@5": 0.5, "recall@10": 1.0, "recall@20": 1.0, "mrr": 0.25}
    assert measure(ranking, {"gone"}) == {"recall@5": 0.0, "recall@10": 0.0, "recall@20": 0.0, "mrr": 0.0}


def test_means_by_category_count_their_questions():
    table = by_category([("2", {"mrr": 1.0}), ("1", {"mrr": 0.0}), ("2", {"mrr": 0.5})])
    assert table == {"1": {"n": 1, "mrr": 0.0}, "2": {"n": 2, "mrr": 0.75}, "all": {"n": 3, "mrr": 0.5}}


@given(st.permutations(range(30)), st.sets(st.integers(0, 40), min_size=1))
def test_recall_grows_with_the_cut_and_rank_is_the_first(order, evidence):
    found = measure([str(n) for n in order], {str(n) for n in evidence})
    assert 0 <= found["recall@5"] <= found["recall@10"] <= found["recall@20"] <= 1
    first = next((place for place, n in enumerate(order, 1) if n in evidence), None)
    assert found["mrr"] == (1 / first if first else 0)
