"""Random sequences of changes against a model in plain Python: equal answers, in every store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from memory.contract.helpers import Clock

from opensage_memory import Memory

SCOPES = ("a", "a/b", "a/b/c", "z")
WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord")
DAYS = [datetime(2024, 1, day, tzinfo=UTC) for day in range(1, 8)]


class Plain:
    """What a memory should say, without any index: items by id, and snapshots to undo."""

    def __init__(self) -> None:
        self.items: dict[str, dict[str, Any]] = {}

    def live(self, scope: str) -> dict[str, dict[str, Any]]:
        return {id: item for id, item in self.items.items() if item["scope"] == scope and not item["gone"]}

    def texts(self, scope: str, word: str) -> set[str]:
        return {item["text"] for item in self.live(scope).values() if word in item["text"].split() and not item["over"]}

    def facts(self, scope: str, subject: str) -> list[dict[str, Any]]:
        found = [item for item in self.live(scope).values() if item.get("subject") == subject]
        return sorted(found, key=lambda fact: fact["at"])


class Machine(RuleBasedStateMachine):
    """Does the same to a memory and to the model."""

    open: Any = None

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.plain = Plain()
        self.past: list[tuple[str, str, dict[str, dict[str, Any]]]] = []
        self.memory: Memory = self.open(clock=self.clock)

    @initialize()
    def declared(self) -> None:
        self.memory.declare("is")

    def did(self, scope: str, before: dict[str, dict[str, Any]]) -> None:
        """Note what was just done, to undo it."""
        newest = self.memory.operations("*", 1)
        if newest and (not self.past or self.past[-1][0] != newest[0].id):
            self.past.append((newest[0].id, scope, before))

    def copy(self) -> dict[str, dict[str, Any]]:
        return {id: dict(item) for id, item in self.plain.items.items()}

    @rule(scope=st.sampled_from(SCOPES), words=st.lists(st.sampled_from(WORDS), min_size=1, max_size=3))
    def add(self, scope: str, words: list[str]) -> None:
        before, text = self.copy(), " ".join(words)
        item = self.memory.add(text, scope)
        same = [id for id, old in self.plain.live(scope).items() if old["text"] == text and not old["over"]]
        assert (item.id in same) == bool(same)
        if not same:
            self.plain.items[item.id] = {"scope": scope, "text": text, "gone": False, "over": False, "from": {}}
        self.did(scope, before)

    @rule(
        scope=st.sampled_from(SCOPES),
        subject=st.sampled_from("PQ"),
        object=st.sampled_from("XYZ"),
        at=st.sampled_from(DAYS),
    )
    def state(self, scope: str, subject: str, object: str, at: datetime) -> None:
        before = self.copy()
        line = self.plain.facts(scope, subject)
        earlier = [fact for fact in line if fact["at"] <= at]
        holding = earlier[-1] if earlier else None
        item = self.memory.state(subject, "is", object, scope, at=at)
        if holding is not None and holding["object"] == object:
            assert item.data["object"] == object
        else:
            if holding is not None and holding["at"] == at:
                self.plain.items[holding["id"]]["gone"] = True
            self.plain.items[item.id] = {
                "scope": scope,
                "text": f"{subject} is {object}",
                "gone": False,
                "over": False,
                "from": {},
                "subject": subject,
                "object": object,
                "at": at,
                "id": item.id,
            }
            line = self.plain.facts(scope, subject)
            for fact in line:
                fact["over"] = fact is not line[-1]
        self.did(scope, before)

    def pick(self, data: Any, scope: str) -> str | None:
        ids = sorted(id for id, item in self.plain.live(scope).items() if "subject" not in item and not item["over"])
        return data.draw(st.sampled_from(ids)) if ids else None

    @rule(data=st.data(), scope=st.sampled_from(SCOPES), word=st.sampled_from(WORDS))
    def supersede(self, data: Any, scope: str, word: str) -> None:
        old = self.pick(data, scope)
        if old is None or self.plain.items[old]["from"]:
            return
        before, text = self.copy(), f"{word} {len(self.plain.items)}"
        item = self.memory.supersede(old, text, scope)
        self.plain.items[old]["over"] = True
        self.plain.items[item.id] = {"scope": scope, "text": text, "gone": False, "over": False, "from": {}}
        self.did(scope, before)

    @rule(data=st.data(), scope=st.sampled_from(SCOPES))
    def merge(self, data: Any, scope: str) -> None:
        keep, gone = self.pick(data, scope), self.pick(data, scope)
        if keep is None or gone is None or keep == gone:
            return
        before = self.copy()
        self.memory.merge(keep, gone, scope)
        self.plain.items[gone]["gone"] = True
        self.plain.items[gone]["merged"] = keep
        for item in self.plain.items.values():  # copies of the one are copies of the other now
            if gone in item["from"]:
                item["from"] = {source: None for source in item["from"] if source != gone} | {keep: None}
        self.plain.items[keep]["from"] |= {id: None for id in self.plain.items[gone]["from"] if id != keep}
        self.did(scope, before)

    @rule(data=st.data(), scope=st.sampled_from(SCOPES))
    def forget(self, data: Any, scope: str) -> None:
        id = self.pick(data, scope)
        if id is None or self.tangled(id):
            return
        before = self.copy()
        self.memory.forget(id, scope)
        gone = {id}
        while more := {
            other
            for other, item in self.plain.items.items()
            if other not in gone and (item.get("merged") in gone or (item["from"] and set(item["from"]) <= gone))
        }:
            gone |= more
        for other in gone:
            del self.plain.items[other]
        self.did(scope, before)

    def tangled(self, id: str) -> bool:
        """Copies that were merged or have two originals: what goes with what is tested elsewhere."""
        return any(
            item["from"] and ("merged" in item or len(item["from"]) > 1) for item in self.plain.items.values()
        ) or any("merged" in item for item in self.plain.items.values() if id in item["from"])

    @rule(data=st.data(), scope=st.sampled_from(("a/b", "a/b/c")))
    def publish(self, data: Any, scope: str) -> None:
        id = self.pick(data, scope)
        if id is None:
            return
        before, text = self.copy(), self.plain.items[id]["text"]
        same = [old for old, item in self.plain.live("a").items() if item["text"] == text and not item["over"]]
        if same:
            return
        copy = self.memory.publish(id, scope, "a")
        self.plain.items[copy.id] = {"scope": "a", "text": text, "gone": False, "over": False, "from": {id: None}}
        self.did(scope, before)

    @precondition(lambda self: self.past)
    @rule()
    def undo(self) -> None:
        operation, scope, before = self.past.pop()
        self.memory.undo(operation, scope)
        self.plain.items = before

    @rule()
    def reopen(self) -> None:
        self.memory.close()
        self.memory = self.open(clock=self.clock)

    @rule()
    def wait(self) -> None:
        self.clock.forward(timedelta(hours=1))

    @rule(word=st.sampled_from(WORDS), scope=st.sampled_from(SCOPES))
    def searched(self, word: str, scope: str) -> None:
        found = {hit.item.text for hit in self.memory.search(word, scope, k=1000) if word in hit.item.text.split()}
        assert found == self.plain.texts(scope, word)

    @rule(subject=st.sampled_from("PQ"), scope=st.sampled_from(SCOPES), at=st.sampled_from(DAYS))
    def asked_as_of(self, subject: str, scope: str, at: datetime) -> None:
        held = [fact["object"] for fact in self.plain.facts(scope, subject) if fact["at"] <= at][-1:]
        assert [fact.data["object"] for fact in self.memory.facts(subject, "is", scope, as_of=at)] == held

    @invariant()
    def same_items(self) -> None:
        for scope in SCOPES:
            facts = {item.id: item.text for _, item in self.memory.items(scope, kinds=("fact",), ended=True)}
            assert facts == {id: item["text"] for id, item in self.plain.live(scope).items()}

    def teardown(self) -> None:
        counts = self.memory.counts()
        assert counts.items == counts.indexed
        assert (counts.dangling, counts.orphans) == (0, 0)
        assert self.memory.check() == []
        with self.memory.store.write() as writer:
            writer.remove(
                [item.id for _, item in self.memory.items("*", retired=True, ended=True, archived=True, limit=100_000)]
            )
        self.memory.close()


@pytest.mark.slow
def test_random_changes_answer_as_a_plain_model(open_memory, open_store):
    class Here(Machine):
        open = staticmethod(open_memory)

    slow = type(open_store()).__name__ != "SqliteStore"
    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples=8 if slow else 60,
            stateful_step_count=25 if slow else 40,
            phases=[Phase.explicit, Phase.reuse, Phase.generate],
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
