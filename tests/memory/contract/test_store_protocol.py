"""What every store must do, method by method of its protocol."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from opensage_memory.errors import ReadOnly
from opensage_memory.item import (
    DERIVED_FROM,
    MENTIONS,
    NEXT,
    PART_OF,
    RELATES,
    REPLY_TO,
    SIMILAR,
    Edge,
    Item,
    digest,
    to_micros,
)
from opensage_memory.scope import View
from opensage_memory.store.base import Operation, Outline, Row, Store, Task, Tombstone
from opensage_memory.text.words import index_text

T0 = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
DAY = timedelta(days=1)
EVIL = "nul\0 quote' double\" back`tick }) DETACH DELETE n // \\ $x {a} \n \ud800 half \ue5a6 \U0001f600 日本 e\u0301"


def item(id: str, text: str = "", scope: str = "u/p", kind: str = "fact", **fields: Any) -> Item:
    text = text or f"text of {id}"
    return Item(id, scope, kind, text, digest(text), **{"created_at": T0, **fields})


def rows(*items: Item) -> list[Row]:
    return [Row(each, index_text(each.text)) for each in items]


def words(text: str) -> list[str]:
    return index_text(text).split()


def view(*scopes: str, **options: Any) -> View:
    return View(scopes or ("u/p",), options.pop("now", T0), **options)


ALL = view("*").everything()


def put(store: Store, *items: Item) -> None:
    with store.write() as writer:
        writer.put(rows(*items))


def ids(items: Any) -> list[str]:
    return [each.id for each in items]


def scanned(store: Store, shown: View) -> list[str]:
    with store.read() as reader:
        return [each.id for _, each in reader.scan(shown)]


def test_an_item_comes_back_as_it_was_put(store: Store) -> None:
    full = item(
        "a",
        EVIL,
        key=EVIL,
        kind="document",
        valid_from=T0 - DAY,
        valid_to=T0 + DAY,
        retired_at=T0 + timedelta(microseconds=1),
        archived=True,
        stale=True,
        sources=("s2", EVIL, "s1"),
        trust="untrusted",
        author=EVIL,
        seen=3,
        uses=7,
        data={EVIL: [1, 2.5, None, {"b": EVIL}], "big": 2**60},
    )
    bare = item("b", kind="tool_call")
    put(store, full, bare)
    with store.read() as reader:
        assert reader.get(["b", "a", "b", "none"]) == {"b": bare, "a": full}
        assert list(reader.get(["b", "a"])) == ["b", "a"]
        assert reader.get(["a", "b"], view()) == {"b": bare}
        assert reader.get([]) == {}
        assert reader.tokens(["a", "none"]) == {"a": index_text(EVIL)}


@pytest.mark.parametrize("id", ["x" * 200, EVIL, " ", "a/b*c", "Item", "0"])
def test_any_text_can_be_an_id(store: Store, id: str) -> None:
    id = id.replace("\ud800", "")  # an id is text
    put(store, item(id), item("other"))
    with store.write() as writer:
        writer.put_edges([Edge(id, NEXT, "other"), Edge("other", NEXT, id)])
        writer.put_vectors("m", {id: [1.0, 0.0]})
        writer.put_tasks([Task(id, "embed")])
    with store.read() as reader:
        assert ids(reader.get([id]).values()) == [id]
        assert set(reader.hop([id], ALL)) == {id, "other"}
        assert set(reader.vectors("m", [id])) == {id}
        assert [task.item for task in reader.tasks("embed")] == [id]


def test_put_replaces_properties_and_keeps_place_edges_and_vectors(store: Store) -> None:
    put(store, item("a", "first words", valid_to=T0 + DAY, key="k"), item("b"))
    with store.write() as writer:
        writer.put_edges([Edge("a", NEXT, "b")])
        writer.put_vectors("m", {"a": [1.0, 0.0]})
        writer.put(rows(item("a", "second words", kind="summary")))
    with store.read() as reader:
        assert reader.get(["a"])["a"] == item("a", "second words", kind="summary")
        assert [each.id for _, each in reader.scan(view())] == ["a", "b"]
        assert reader.edges(["a"]) == [Edge("a", NEXT, "b")]
        assert reader.vectors("m", ["a"]) == {"a": [1.0, 0.0]}
        assert reader.lexical(words("first"), view(), 5) == []
        assert [id for id, _ in reader.lexical(words("second"), view(), 5)] == ["a"]
        assert reader.find(view(), "k") == []


def test_the_same_id_twice_in_one_put_is_the_last_one(store: Store) -> None:
    put(store, item("a", "one"), item("b"), item("a", "two"))
    with store.read() as reader:
        assert reader.get(["a"])["a"].text == "two"
        assert reader.counts().items == reader.counts().indexed == 2


def test_scan_goes_on_where_it_ended(store: Store) -> None:
    put(store, *(item(f"{number:02}") for number in range(25)))
    with store.read() as reader:
        found, after = [], 0
        while part := reader.scan(view(), after=after, limit=10):
            assert len(part) <= 10
            found += [each.id for _, each in part]
            after = part[-1][0]
        assert found == [f"{number:02}" for number in range(25)]


def test_numbers_are_never_given_again(store: Store) -> None:
    put(store, item("a"), item("b"))
    with store.write() as writer:
        last = writer.scan(view())[-1][0]
        writer.remove(["a", "b"])
    put(store, item("c"))
    with store.read() as reader:
        assert reader.scan(view())[0][0] > last


def test_find_and_same(store: Store) -> None:
    long = "key " * 5000
    put(
        store,
        item("a", "t", key="k"),
        item("b", "t", key="k", scope="u/q"),
        item("c", "t", key="k", kind="entity"),
        item("d", "t", retired_at=T0),
        item("e", "u", archived=True),
        item("f", "u"),
        item("g", key=long),
    )
    with store.read() as reader:
        assert ids(reader.find(view("*"), "k")) == ["a", "b", "c"]
        assert ids(reader.find(view(kinds=("fact",)), "k")) == ["a"]
        assert ids(reader.find(view("*"), "k", limit=2)) == ["a", "b"]
        assert reader.find(view("*"), "") == reader.find(view("*"), "K") == []
        assert ids(reader.find(view(), long)) == ["g"]
        assert reader.same("u/p", "fact", digest("t")) == item("a", "t", key="k")
        archived = reader.same("u/p", "fact", digest("u"))
        assert archived
        assert archived.id == "e"
        assert reader.same("u", "fact", digest("t")) is None
        assert reader.same("u/p", "turn", digest("t")) is None
    with store.write() as writer:
        writer.put(rows(item("a", "t", retired_at=T0)))
        assert writer.same("u/p", "fact", digest("t")) is None


def test_scopes_of_a_view(store: Store) -> None:
    scopes = ["a", "a/b", "a/b/c", "a/bc", "a/b%", "a/b_", "A/b", "b", "a/b0", "日本/ö'`"]
    put(store, *(item(scope, scope=scope) for scope in scopes))
    assert scanned(store, view("a/b")) == ["a/b"]
    assert scanned(store, view("a/b/*")) == ["a/b", "a/b/c"]
    assert scanned(store, view("a/*")) == ["a", "a/b", "a/b/c", "a/bc", "a/b%", "a/b_", "a/b0"]
    assert scanned(store, view("b", "a/b/*")) == ["a/b", "a/b/c", "b"]
    assert scanned(store, view("*")) == scopes
    assert scanned(store, view("日本/*")) == ["日本/ö'`"]
    assert scanned(store, view("nowhere", "nowhere/*")) == []
    with store.read() as reader:
        assert reader.scopes() == dict.fromkeys(sorted(scopes), 1)
        assert list(reader.scopes()) == sorted(scopes)


def test_times_trusts_kinds_of_a_view(store: Store) -> None:
    put(
        store,
        item("always"),
        item("past", valid_from=T0 - 9 * DAY, valid_to=T0 - DAY),
        item("ends-now", valid_to=T0),
        item("future", valid_from=T0 + DAY),
        item("now", valid_from=T0 - DAY, valid_to=T0 + DAY),
        item("retired", retired_at=T0 - DAY),
        item("archived", archived=True),
        item("web", trust="untrusted", kind="chunk"),
    )
    assert scanned(store, view()) == ["always", "future", "now", "web"]
    assert scanned(store, view(ended=True)) == ["always", "past", "ends-now", "future", "now", "web"]
    assert scanned(store, view(as_of=T0 - 2 * DAY)) == ["always", "past", "ends-now", "web"]
    assert scanned(store, view(as_of=T0 - DAY)) == ["always", "ends-now", "now", "web"]
    assert scanned(store, view(as_of=T0 + DAY)) == ["always", "future", "web"]
    assert scanned(store, view(as_of=T0 - 2 * DAY, ended=True)) == ["always", "past", "ends-now", "web"]
    assert scanned(store, view(retired=True)) == ["always", "future", "now", "retired", "web"]
    assert scanned(store, view(archived=True)) == ["always", "future", "now", "archived", "web"]
    assert scanned(store, view(trusts=("user", "agent"))) == ["always", "future", "now"]
    assert scanned(store, view(trusts=())) == scanned(store, view(kinds=())) == []
    assert scanned(store, view(kinds=("chunk", "turn"))) == ["web"]
    assert len(scanned(store, view().everything())) == 8


def test_lexical_finds_any_of_the_words_best_first(store: Store) -> None:
    put(
        store,
        item("both", "database migration"),
        item("long", "database " + "filler words about nothing at all " * 5),
        item("twice", "database and once more a database"),
        item("none", "gardening"),
        *(item(f"other{number}", "filler") for number in range(8)),
    )
    with store.read() as reader:
        found = reader.lexical(words("migration database"), view(), 10)
        assert found[0][0] == "both"
        assert {id for id, _ in found} == {"both", "long", "twice"}
        assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)
        assert len(reader.lexical(words("database"), view(), 2)) == 2
        assert reader.lexical([], view(), 5) == reader.lexical(words("database"), view(), 0) == []
        assert reader.lexical(["unheard"], view(), 5) == []
        assert reader.frequencies(words("database gardening unheard")) == dict(
            zip(words("database gardening unheard"), (3, 1, 0), strict=True)
        )


def test_lexical_counts_only_what_the_view_shows(store: Store) -> None:
    put(
        store,
        *(item(f"o{number}", "apple apple apple", scope="other") for number in range(300)),
        *(item(f"r{number}", "apple apple", retired_at=T0) for number in range(50)),
        *(item(f"m{number}", f"apple and word{number} " + "pad " * 30) for number in range(5)),
    )
    with store.read() as reader:
        assert sorted(id for id, _ in reader.lexical(words("apple"), view(), 5)) == [
            f"m{number}" for number in range(5)
        ]
        assert len(reader.lexical(words("apple"), view("*"), 500)) == 305
        assert len(reader.lexical(words("apple"), view("*", retired=True), 500)) == 355


@pytest.mark.parametrize("word", ["AND", "or", "not", "near", "to", "*", '"', "(", "a\\b", "col:val", "x~2", "^3", "?"])
def test_every_token_is_literal(store: Store, word: str) -> None:
    with store.write() as writer:
        writer.put([Row(item("a"), f"before {word} after"), Row(item("b"), "before after val col x b")])
        writer.put([Row(item(f"other{number}"), "filler") for number in range(8)])
    with store.read() as reader:
        for terms in ([word], [word, "absent"]):  # a store may leave out what is no word, and must not fail
            assert {id for id, _ in reader.lexical(terms, view(), 5)} <= {"a"}
        assert {id for id, _ in reader.lexical([word, "before"], view(), 5)} == {"a", "b"}


@pytest.mark.parametrize(
    "text",
    [
        "日本語の記憶",
        "Привет мир",
        "안녕하세요",
        "สวัสดี",
        "नमस्ते दुनिया",
        "مرحبا بالعالم",
        "שלום עולם",
        "Καλημέρα",
        "naïve café",
    ],
)
def test_words_of_every_script_are_found(store: Store, text: str) -> None:
    put(store, item("a", text), item("b", "something else"))
    with store.read() as reader:
        for token in words(text):
            assert [id for id, _ in reader.lexical([token], view(), 5)] == ["a"], token


def test_a_question_of_ten_thousand_words(store: Store) -> None:
    put(store, item("a", "needle in here"), item("b"))
    with store.read() as reader:
        terms = [f"word{number}" for number in range(10_000)] + words("needle")
        assert [id for id, _ in reader.lexical(terms, view(), 3)] == ["a"]


def test_nearest_by_cosine_inside_the_view(store: Store) -> None:
    angles = {f"v{number}": number * math.pi / 20 for number in range(20)}
    put(store, *(item(id, scope="u/p" if int(id[1:]) % 4 == 3 else "other") for id in angles), item("bare"))
    with store.write() as writer:
        writer.put_vectors("m", {id: [math.cos(angle), math.sin(angle)] for id, angle in angles.items()})
        writer.put_vectors("m", {"gone": [1.0, 0.0]})
        writer.put_vectors("n", {"v0": [1.0, 0.0]})
    with store.read() as reader:
        best = reader.nearest("m", [2.0, 0.0], view("*"), 3)
        assert [id for id, _ in best] == ["v0", "v1", "v2"]
        assert [score for _, score in best] == pytest.approx([math.cos(angles[id]) for id, _ in best], abs=1e-5)
        assert [id for id, _ in reader.nearest("m", [2.0, 0.0], view(), 9)] == ["v3", "v7", "v11", "v15", "v19"]
        assert [id for id, _ in reader.nearest("n", [1.0, 1.0], view("*"), 9)] == ["v0"]
        assert reader.nearest("m", [1.0, 0.0, 0.0], view("*"), 3) == []
        assert reader.nearest("never", [1.0, 0.0], view("*"), 3) == []
        assert reader.nearest("m", [0.0, 0.0], view("*"), 3) == reader.nearest("m", [1.0, 0.0], view("*"), 0) == []
        assert reader.nearest("m", [-1.0, 0.0], view("*"), 1)[0][0] == "v19"
        assert reader.counts().vectors == {"m": 20, "n": 1}


def test_vectors_are_replaced_and_removed(store: Store) -> None:
    put(store, item("a"), item("b"), item("c", retired_at=T0), item("d"))
    with store.write() as writer:
        writer.put_vectors("m", {"a": [1.0, 0.0], "b": [0.0, 1.0]})
    with store.write() as writer:
        writer.put_vectors("m", {"a": [0.0, 0.5]})
        assert [id for id, _ in writer.nearest("m", [1.0, 0.1], view(), 1)] != ["gone"]
    with store.read() as reader:
        assert reader.vectors("m", ["a", "b", "d", "none"]) == {"a": [0.0, 0.5], "b": [0.0, 1.0]}
        assert ids(each for _, each in reader.without_vector("m")) == ["d"]
        assert ids(each for _, each in reader.without_vector("other")) == ["a", "b", "d"]
        first = reader.without_vector("other", limit=1)
        assert ids(each for _, each in reader.without_vector("other", after=first[0][0])) == ["b", "d"]
    with store.write() as writer:
        writer.put_vectors("m", {"a": [1.0, 0.0, 0.0]})  # another dimension takes the place of the first
        writer.remove(["b"])
    with store.read() as reader:
        assert reader.vectors("m", ["a", "b"]) == {"a": [1.0, 0.0, 0.0]}
        assert reader.nearest("m", [0.0, 1.0], view(), 5) == []
        assert reader.counts().vectors == {"m": 1}
        assert reader.counts().orphans == 0
    with store.write() as writer:
        writer.remove_vectors("m")
        writer.remove_vectors("never")
    with store.read() as reader:
        assert reader.counts().vectors == {}
        assert reader.nearest("m", [1.0, 0.0, 0.0], view(), 5) == []
        assert ids(each for _, each in reader.without_vector("m")) == ["a", "d"]


def test_a_text_that_is_empty_needs_no_vector(store: Store) -> None:
    with store.write() as writer:
        writer.put([Row(Item("a", "u/p", "session", "", digest(""), created_at=T0), ""), *rows(item("b"))])
        assert ids(each for _, each in writer.without_vector("m")) == ["b"]
    with store.read() as reader:
        assert reader.counts().items == reader.counts().indexed == 2
    assert store.check() == []


def edges_of(store: Store) -> list[Edge]:
    with store.read() as reader:
        return sorted(reader.edges(scanned(store, ALL)), key=lambda edge: edge.identity)


def test_edges(store: Store) -> None:
    put(store, *(item(id) for id in "abc"), item("hidden", scope="other"))
    relations = ["non-compliant", "consists of...", "関係", EVIL, "x`]->() DELETE r //"]
    made = [Edge("a", RELATES, "b", relation, 0.5) for relation in relations]
    made += [Edge("a", NEXT, "b"), Edge("b", NEXT, "c"), Edge("c", DERIVED_FROM, "c"), Edge("hidden", MENTIONS, "a")]
    with store.write() as writer:
        writer.put_edges(made)
        writer.put_edges([Edge("a", NEXT, "absent"), Edge("absent", NEXT, "a")])
        writer.put_edges([Edge("a", NEXT, "b", weight=0.25)])
    made[len(relations)] = Edge("a", NEXT, "b", weight=0.25)
    assert edges_of(store) == sorted(made, key=lambda edge: edge.identity)
    with store.read() as reader:
        assert {edge.relation for edge in reader.edges(["a"], types=[RELATES])} == set(relations)
        assert reader.edges(["b"], direction="out") == [Edge("b", NEXT, "c")]
        assert len(reader.edges(["b"], direction="in")) == len(relations) + 1
        assert len(reader.edges(["b"])) == len(relations) + 2
        assert reader.edges(["c"], types=[DERIVED_FROM]) == [Edge("c", DERIVED_FROM, "c")]
        assert Edge("hidden", MENTIONS, "a") in reader.edges(["a"])
        assert Edge("hidden", MENTIONS, "a") not in reader.edges(["a"], view())
        assert reader.edges(["hidden"], view()) == reader.edges(["a"], types=[]) == reader.edges([]) == []
        assert reader.counts().edges == len(made)
        assert reader.counts(view()).edges == len(made) - 1
        assert reader.counts().dangling == 0
    with store.write() as writer:
        writer.remove_edges([*made[: len(relations)], Edge("b", NEXT, "a"), Edge("absent", NEXT, "a")])
        writer.remove(["c"])
    assert edges_of(store) == [Edge("a", NEXT, "b", weight=0.25), Edge("hidden", MENTIONS, "a")]


def test_the_strongest_edges_of_each_item(store: Store) -> None:
    put(store, *(item(f"{number:02}") for number in range(12)), item("hub"), item("lone"))
    with store.write() as writer:
        writer.put_edges([Edge("hub", SIMILAR, f"{number:02}", weight=number / 20) for number in range(10)])
        writer.put_edges([Edge("10", SIMILAR, "hub", weight=0.9), Edge("11", NEXT, "hub", weight=0.45)])
        writer.put_edges([Edge("lone", NEXT, "00", weight=0.01)])
    with store.read() as reader:
        assert reader.edges(["hub"], limit=3) == [
            Edge("10", SIMILAR, "hub", weight=0.9),
            Edge("11", NEXT, "hub", weight=0.45),
            Edge("hub", SIMILAR, "09", weight=0.45),
        ]
        assert reader.edges(["hub"], limit=1, direction="out") == [Edge("hub", SIMILAR, "09", weight=0.45)]
        both = reader.edges(["hub", "lone"], limit=1)
        assert both == [Edge("10", SIMILAR, "hub", weight=0.9), Edge("lone", NEXT, "00", weight=0.01)]


def test_hop_goes_both_ways_and_never_through_what_is_hidden(store: Store) -> None:
    put(store, *(item(id) for id in "abcdef"), item("wall", scope="other"), item("beyond"))
    with store.write() as writer:
        chain = [("a", "b"), ("c", "b"), ("c", "d"), ("d", "e"), ("a", "wall"), ("wall", "beyond"), ("f", "f")]
        writer.put_edges([Edge(source, NEXT, target) for source, target in chain])
    with store.read() as reader:
        assert reader.hop(["a"], view(), hops=3) == {"a": 0, "b": 1, "c": 2, "d": 3}
        assert reader.hop(["a"], view()) == {"a": 0, "b": 1, "c": 2}
        assert reader.hop(["a", "e"], view(), hops=1) == {"a": 0, "e": 0, "b": 1, "d": 1}
        assert reader.hop(["wall", "none"], view()) == reader.hop([], view()) == {}
        assert reader.hop(["f"], view(), hops=5) == {"f": 0}
        assert reader.hop(["a"], view(), hops=0) == {"a": 0}
        assert set(reader.hop(["a"], view("*"))) == {"a", "b", "c", "wall", "beyond"}
        found = reader.hop(["a"], view(), hops=4, limit=3)
        assert found == {"a": 0, "b": 1, "c": 2}
        assert list(found.values()) == sorted(found.values())


def test_a_hub_gives_as_many_as_asked_for(store: Store) -> None:
    put(store, item("hub"), *(item(f"{number}") for number in range(300)))
    with store.write() as writer:
        writer.put_edges([Edge("hub", NEXT, f"{number}") for number in range(300)])
    with store.read() as reader:
        assert len(reader.hop(["hub"], view())) == 200
        assert len(reader.hop(["7"], view(), limit=1000)) == 301


def test_remove_takes_everything_of_an_item(store: Store) -> None:
    put(store, item("a", "apple"), item("b", "apple"))
    with store.write() as writer:
        writer.put_edges([Edge("a", NEXT, "b"), Edge("b", NEXT, "a")])
        writer.put_vectors("m", {"a": [1.0, 0.0], "b": [1.0, 0.0]})
        writer.put_tasks([Task("a", "embed"), Task("b", "embed")])
    with store.write() as writer:
        writer.remove(["a", "absent", "a"])
        assert [id for id, _ in writer.lexical(words("apple"), view(), 5)] == ["b"]
    with store.read() as reader:
        assert reader.get(["a"]) == {}
        assert [id for id, _ in reader.lexical(words("apple"), view(), 5)] == ["b"]
        assert [id for id, _ in reader.nearest("m", [1.0, 0.0], view(), 5)] == ["b"]
        assert reader.hop(["b"], view()) == {"b": 0}
        assert [task.item for task in reader.tasks("embed")] == ["b"]
        counts = reader.counts()
        assert (counts.items, counts.indexed, counts.edges, counts.vectors) == (1, 1, 0, {"m": 1})
    assert store.check() == []


def test_use_counts_recalls(store: Store) -> None:
    put(store, item("a", uses=2), item("b"))
    with store.write() as writer:
        writer.use(["a", "a", "absent"])
        assert writer.get(["a"])["a"].uses == 4
    with store.read() as reader:
        assert reader.get(["b"])["b"].uses == 0


def test_counts(store: Store) -> None:
    put(store, item("a"), item("b", kind="turn"), item("c", scope="other"), item("d", retired_at=T0))
    with store.write() as writer:
        writer.bury([Tombstone("x", "u/p", "fact", T0, "op")])
    with store.read() as reader:
        counts = reader.counts()
        assert (counts.items, counts.indexed, counts.edges, counts.tombstones) == (4, 4, 0, 1)
        assert counts.kinds == {"fact": 3, "turn": 1}
        shown = reader.counts(view())
        assert (shown.items, shown.kinds) == (2, {"fact": 1, "turn": 1})


def test_outlines_and_size(store: Store) -> None:
    put(store, item("a", "apple pie", author=EVIL, valid_from=T0, uses=3), item("b"), item("c", scope="other"))
    micros = to_micros(T0)
    assert micros
    with store.read() as reader:
        found = reader.outlines(["b", "c", "a", "b", "none"], view())
        assert found == [
            Outline("b", index_text("text of b"), "", None, micros, 0),
            Outline("a", index_text("apple pie"), EVIL, micros, micros, 3),
        ]
        assert reader.outlines([], view()) == []
        assert reader.size() == 3


def test_an_outline_names_its_neighbours_and_brings_them(store: Store) -> None:
    turns = [item(f"t{number}", kind="turn") for number in range(5)]
    put(store, item("s", kind="session", scope="u"), *turns, item("hidden", scope="other"))
    with store.write() as writer:
        writer.put_edges([Edge(f"t{number}", NEXT, f"t{number + 1}") for number in range(4)])
        writer.put_edges([Edge(f"t{number}", PART_OF, "s") for number in range(5)])
        writer.put_edges([Edge("t3", REPLY_TO, "t1"), Edge("hidden", NEXT, "t0"), Edge("t4", REPLY_TO, "hidden")])
    with store.read() as reader:
        found = {each.id: each for each in reader.outlines(["t2", "none"], view())}
        assert next(iter(found)) == "t2"
        assert set(found) == {"t1", "t2", "t3"}
        assert found["t2"][6:] == ("t1", "t3", "", "s")
        assert found["t3"][6:] == ("t2", "", "t1", "s")
        assert {each.id for each in reader.outlines(["t1"], view())} == {"t0", "t1", "t2", "t3"}
        assert reader.outlines(["t0"], view())[0][6:] == ("", "t1", "", "s")
        assert reader.outlines(["t4"], view())[0][6:] == ("t3", "", "", "s")
        assert reader.outlines(["t0"], view("*"))[0][6:] == ("hidden", "t1", "", "s")


def test_settings(store: Store) -> None:
    with store.write() as writer:
        assert writer.meta("a") is None
        writer.set_meta("a", "one")
        writer.set_meta("a", "two")
        writer.set_meta("b", "")
        writer.set_meta("gone", "x")
        writer.set_meta("gone", None)
        writer.set_meta("never", None)
    with store.read() as reader:
        assert [reader.meta(name) for name in ("a", "b", "gone", "never")] == ["two", "", None, None]


def operation(id: str, *touched: str, undo: str = "{}", days: int = 0) -> Operation:
    return Operation(id * 32, "add", "u/p", T0 + days * DAY, touched, undo)


def test_history(store: Store) -> None:
    one, two, three = operation("1", "a", EVIL.replace("\ud800", "")), operation("2", "b", days=1), operation("3")
    with store.write() as writer:
        for each in (one, two, three):
            writer.log(each)
    with store.read() as reader:
        assert reader.operations() == [three, two, one]
        assert reader.operations(limit=2) == [three, two]
        assert reader.operations(touching="a") == [one]
        assert reader.operations(touching=one.touched[1]) == [one]
        assert reader.operations(touching="none") == []
        assert reader.operation(two.id) == two
        assert reader.operation("none") is None
    changed = Operation(one.id, "undone", one.scope, one.at, ("a", "c"), "")
    with store.write() as writer:
        writer.log(changed)
        assert writer.forget_undo(T0 + DAY) == 1
        assert writer.forget_undo(T0 + DAY) == 0
    with store.read() as reader:
        assert reader.operations(touching="c") == [changed]
        assert [each.undo for each in reader.operations()] == ["", "{}", ""]


def test_tombstones(store: Store) -> None:
    stones = [Tombstone(id, "u/p", "fact", T0, "1" * 32) for id in "ab"]
    with store.write() as writer:
        writer.bury(stones)
        writer.bury(stones[:1])
        writer.unbury(["b", "absent"])
    with store.read() as reader:
        assert reader.tombstone("a") == stones[0]
        assert reader.tombstone("b") is None
        assert reader.counts().tombstones == 1


def test_tasks_wait_fewest_tries_first(store: Store) -> None:
    put(store, *(item(id) for id in "abc"))
    with store.write() as writer:
        writer.put_tasks([Task("a", "embed", 2, EVIL), Task("b", "embed"), Task("c", "embed"), Task("a", "enrich")])
        writer.put_tasks([Task("c", "embed", 1, "e"), Task("absent", "embed")])
    with store.read() as reader:
        assert reader.tasks("embed") == [Task("b", "embed"), Task("c", "embed", 1, "e"), Task("a", "embed", 2, EVIL)]
        assert reader.tasks("embed", limit=1) == [Task("b", "embed")]
        assert reader.tasks("enrich") == [Task("a", "enrich")]
    with store.write() as writer:
        writer.remove_tasks("embed", ["a", "c", "absent"])
    with store.read() as reader:
        assert reader.tasks("embed") == [Task("b", "embed")]
        assert reader.tasks("enrich") == [Task("a", "enrich")]


def test_a_write_that_fails_leaves_everything_as_it_was(store: Store) -> None:
    put(store, item("a", "apple"))
    with pytest.raises(KeyError), store.write() as writer:
        writer.put(rows(item("a", "pear"), item("b", "apple")))
        writer.put_edges([Edge("a", NEXT, "b")])
        writer.put_vectors("m", {"a": [1.0, 0.0]})
        writer.remove(["a"])
        writer.set_meta("x", "y")
        writer.log(operation("1", "a"))
        raise KeyError("enough")
    with store.read() as reader:
        assert reader.get(["a", "b"]) == {"a": item("a", "apple")}
        assert [id for id, _ in reader.lexical(words("apple"), view(), 5)] == ["a"]
        assert reader.nearest("m", [1.0, 0.0], view(), 5) == []
        assert reader.operations() == []
        assert reader.meta("x") is None
        assert reader.counts().vectors == {}
    put(store, item("c"))
    assert scanned(store, view()) == ["a", "c"]


def test_reads_inside_a_write_see_what_it_wrote(store: Store) -> None:
    put(store, item("old", "apple"))
    with store.write() as writer:
        writer.put(rows(item("new", "apple pie")))
        writer.put_vectors("m", {"new": [1.0, 0.0]})
        writer.put_edges([Edge("new", NEXT, "old")])
        assert set(writer.get(["new", "old"])) == {"new", "old"}
        assert {id for id, _ in writer.lexical(words("apple"), view(), 5)} == {"new", "old"}
        assert [id for id, _ in writer.nearest("m", [1.0, 0.0], view(), 5)] == ["new"]
        assert set(writer.hop(["old"], view())) == {"new", "old"}
        with store.read() as inner:
            assert set(inner.get(["new"])) == {"new"}
        with store.write() as inner_writer:
            inner_writer.put(rows(item("inner")))
    assert scanned(store, view()) == ["old", "new", "inner"]


def test_opened_again_all_is_there(open_store: Callable[..., Store]) -> None:
    first = open_store()
    put(first, item("a", "apple"), item("b"))
    with first.write() as writer:
        writer.put_edges([Edge("a", NEXT, "b")])
        writer.put_vectors("m", {"a": [1.0, 0.0]})
    first.close()
    first.close()
    second = open_store()
    with second.read() as reader:
        assert [id for id, _ in reader.lexical(words("apple"), view(), 5)] == ["a"]
        assert [id for id, _ in reader.nearest("m", [1.0, 0.0], view(), 5)] == ["a"]
        assert reader.hop(["b"], view()) == {"b": 0, "a": 1}
    assert second.check() == []
    second.vacuum()
    assert second.stats()["store"] == second.name


def test_two_openings_see_each_other(open_store: Callable[..., Store]) -> None:
    one, two = open_store(), open_store()
    put(one, item("a"))
    put(two, item("b"))
    with one.write() as writer:
        writer.put_vectors("m", {"a": [1.0, 0.0], "b": [0.0, 1.0]})
    assert scanned(one, view()) == scanned(two, view()) == ["a", "b"]
    with two.read() as reader:
        assert [id for id, _ in reader.nearest("m", [0.0, 1.0], view(), 1)] == ["b"]


def test_read_only(open_store: Callable[..., Store]) -> None:
    put(open_store(), item("a"))
    reading = open_store(read_only=True)
    assert not reading.writable
    assert scanned(reading, view()) == ["a"]
    with pytest.raises(ReadOnly), reading.write():
        pass


def test_check_finds_a_text_that_is_not_what_was_stored(store: Store) -> None:
    put(store, item("a"), Item("b", "u/p", "fact", "changed", digest("as it was"), created_at=T0))
    assert [line for line in store.check() if "b" in line and "a:" not in line]
    with store.write() as writer:
        writer.put(rows(item("b")))
        writer.bury([Tombstone("a", "u/p", "fact", T0, "1")])
    assert any("a" in line and "forgotten" in line for line in store.check())
