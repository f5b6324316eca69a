"""A model may read what is stored: bounded, resumable, its failures told and harmless."""

from __future__ import annotations

import json

import pytest
from memory.contract.helpers import texts

from opensage_memory import New
from opensage_memory.enrichment import read_answer
from opensage_memory.errors import BadInput

S = "ada/kit"
GOOD = json.dumps({"facts": [{"subject": "Ada", "relation": "moved to", "object": "Paris"}], "topics": ["moving"]})


def waiting(memory, *said):
    items = memory.add_many([New(text, "message", trust="user") for text in said], S)
    memory.enqueue([item.id for item in items], S)
    return items


def test_facts_of_a_model_hang_on_what_it_read(memory):
    (item,) = waiting(memory, "I moved to Paris, says Ada")
    done = memory.enrich(S, lambda prompt: "Sure!\n```json\n" + GOOD + "\n```")
    assert (done.done, done.calls, done.left, done.failed) == (1, 1, 0, {})
    (fact,) = memory.facts("Ada", "moved to", S)
    assert (fact.trust, fact.data["object"]) == ("agent", "Paris")
    assert [source.id for source in memory.why(fact.id, S).items] == [item.id]
    assert memory.get(item.id, S).data["topics"] == ["moving"]
    memory.forget(item.id, S)
    assert memory.facts("Ada", "moved to", S) == []


@pytest.mark.parametrize("answer", ["", "attributes", "{", "[]", '{"facts": 3}', RuntimeError("attributes")], ids=str)
def test_memory_probe_L2_a_failing_model_is_told_and_loses_nothing(memory, answer):
    def ask(prompt):
        if isinstance(answer, Exception):
            raise answer
        return answer

    (item,) = waiting(memory, "A text with the word attributes")
    for tries in range(1, 4):
        done = memory.enrich(S, ask)
        assert list(done.failed) == [item.id]
        (task,) = memory.waiting("enrich")
        assert (task.tries, task.error) == (tries, done.failed[item.id])
    assert memory.enrich(S, ask).calls == 0  # it is left alone after three
    assert texts(memory.search("attributes", S)) == ["A text with the word attributes"]
    memory.enqueue([item.id], S)
    assert memory.enrich(S, lambda prompt: GOOD).done == 1


def test_calls_and_tokens_are_bounded_and_the_rest_goes_on(open_memory):
    memory = open_memory()
    waiting(memory, *(f"Ada says number {n}" for n in range(7)))
    assert memory.enrich(S, lambda prompt: GOOD, max_calls=3).left == 4
    assert memory.enrich(S, lambda prompt: GOOD, max_tokens=10).calls == 0
    memory.close()
    memory = open_memory()
    done = memory.enrich(S, lambda prompt: GOOD)
    assert (done.done, done.left) == (4, 0)


def test_memory_probe_L1_a_prompt_does_not_grow_with_the_graph(memory):
    sizes = []
    for number in (5, 400):
        memory.add_many([New(f"Ada knows Person{n} Longname{n}") for n in range(number)], S)
        waiting(memory, f"Ada met Person3 Longname3 for the {number}th time")
        memory.enrich(S, lambda prompt: sizes.append(len(prompt)) or GOOD)
    assert sizes[1] <= sizes[0] + 1200


def test_untrusted_text_gives_untrusted_facts(memory):
    page = memory.add("The admin is Mallory", S, kind="observation", trust="untrusted")
    memory.enqueue([page.id], S)
    memory.enrich(
        S, lambda prompt: json.dumps({"facts": [{"subject": "admin", "relation": "is", "object": "Mallory"}]})
    )
    assert memory.facts("admin", "is", S)[0].trust == "untrusted"


def test_what_an_answer_may_hold():
    many = {"facts": [{"subject": str(n), "relation": "is", "object": "x"} for n in range(99)] + [None, {"subject": 1}]}
    assert len(read_answer(json.dumps(many))[0]) == 16
    assert read_answer('{"topics": [1, "", "two"]}') == ([], ["1", "two"])
    with pytest.raises(BadInput):
        read_answer("[" * 50_000)
