"""Export, import and migration: everything arrives, twice is once, and what is bad is named."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opensage_memory import Memory, New
from opensage_memory.embed import HashedEmbedder
from opensage_memory.errors import BadInput
from opensage_memory.item import Item
from opensage_memory.scope import View
from opensage_memory.store.base import Store
from opensage_memory.store.codec import pack
from opensage_memory.store.sqlite import SqliteStore
from opensage_memory.transfer import export, import_lines, migrate, node_link, parse

ODD = [
    "quotes \" and ' and `",
    "braces {x} }) DETACH DELETE n //",
    "line\nbreak\r\n\u2028",
    "nul \0 inside",
    "日本語 🦉 é",
]


@contextlib.contextmanager
def scratch() -> Iterator[tuple[SqliteStore, SqliteStore]]:
    with tempfile.TemporaryDirectory() as folder:
        one, other = SqliteStore(Path(folder) / "a.db"), SqliteStore(Path(folder) / "b.db")
        with contextlib.closing(one), contextlib.closing(other):
            yield one, other


def fill(memory: Memory) -> None:
    for number, text in enumerate(ODD):
        memory.add(text, "u/p", author=f"a{number}", trust="untrusted" if number % 2 else "user", data={"n": number})
    memory.add_many(
        [New(f"Alice asked Bob about /srv/{n}?", "message", f"s#{n}", session="s") for n in range(3)], "u/p/x"
    )
    memory.declare("lives in")
    memory.state("Ann", "lives in", "Rome", "u/p", at="2020-01-01")
    memory.state("Ann", "lives in", "Oslo", "u/p", at="2024-01-01")
    gone = memory.add("to be forgotten, every word", "u/p")
    memory.forget(gone.id, "u/p")
    first = memory.add("keep this fact", "u/p")
    memory.merge(first.id, memory.add("keep that fact", "u/p").id, "u/p")


def everything(store: Store) -> tuple[dict[str, Any], set[tuple[Any, ...]]]:
    with store.read() as reader:
        view = View(("*",), Memory(store).clock()).everything()
        items = [item for _, item in reader.scan(view, limit=10_000)]
        edges = reader.edges([item.id for item in items], direction="out")
    return {item.id: pack(item) for item in items}, {(*edge.identity, edge.weight) for edge in edges}


@pytest.fixture
def full(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "full.db")
    fill(Memory(store))
    yield store
    store.close()


def test_an_export_taken_in_is_the_same_memory_and_twice_is_once(full: SqliteStore, store: Store) -> None:
    lines = list(export(full))
    done = import_lines(store, lambda: lines)
    assert everything(store) == everything(full)
    assert (done.items, done.kept, done.bad) == (len(everything(full)[0]), 0, {})
    assert done.edges == len(everything(full)[1])
    assert done.tombstones == 1
    again = import_lines(store, lambda: lines)
    assert (again.items, again.edges, again.tombstones) == (0, 0, 0)
    assert everything(store) == everything(full)
    assert [hit.item.text for hit in Memory(store).search("DETACH", "u/p")] == [ODD[1]]
    assert store.check() == []


def test_no_line_holds_what_was_forgotten(full: SqliteStore) -> None:
    lines = list(export(full))
    assert "every word" not in "".join(lines)
    assert all(line.isascii() and "\n" not in line for line in lines)


def test_a_scope_is_exported_alone_and_no_edge_leads_out(full: SqliteStore) -> None:
    items = [found for line in export(full, "u/p/x") if isinstance(found := parse(line), Item)]
    assert {item.scope for item in items} == {"u/p/x"}
    ids = {item.id for item in items}
    edges = [json.loads(line)["edge"] for line in export(full, "u/p/x") if '"edge"' in line]
    assert edges
    assert {end for edge in edges for end in (edge[0], edge[2])} <= ids


BAD = [
    ("[]", "an object is wanted"),
    ("{", "not JSON"),
    ("[" * 100_000, "not JSON"),
    ('{"item": 3}', "no item, edge or tombstone"),
    ('{"item": {"id": "x"}}', "not an item"),
    ('{"edge": ["a", "LIKES", "b", "", 1]}', "none of its types"),
    ('{"edge": 7}', "not an edge"),
    ('{"tombstone": {"id": "x"}}', "not a tombstone"),
    ('{"opensage_memory": 99}', "newer version"),
]


@pytest.mark.parametrize(("line", "said"), BAD)
def test_a_bad_line_is_named_and_nothing_is_taken_in(full: SqliteStore, tmp_path: Path, line: str, said: str) -> None:
    lines = [*export(full), line]
    store = SqliteStore(tmp_path / "target.db")
    with pytest.raises(BadInput, match=f"line {len(lines)}: .*{said}"):
        import_lines(store, lambda: lines)
    assert everything(store) == ({}, set())
    done = import_lines(store, lambda: lines, skip_bad=True)
    assert list(done.bad) == [len(lines)]
    assert everything(store) == everything(full)
    store.close()


def test_a_changed_text_does_not_pass(full: SqliteStore, tmp_path: Path) -> None:
    lines = [line.replace("keep this fact", "keep nothing") for line in export(full)]
    store = SqliteStore(tmp_path / "target.db")
    with pytest.raises(BadInput, match="hash is that of another text"):
        import_lines(store, lambda: lines)
    store.close()


def test_what_is_here_stays_and_what_is_forgotten_here_stays_so(full: SqliteStore, store: Store) -> None:
    mine = Memory(store)
    known = mine.add("keep this fact", "u/p", data={"mine": True})
    lines = list(export(full))
    done = import_lines(store, lambda: lines)
    assert done.kept >= 1
    assert [item.id for _, item in mine.items("u/p") if item.text == "keep this fact"] == [known.id]
    [said] = mine.find("s#1", "u/p/x")
    mine.forget(said.id, "u/p/x")
    again = import_lines(store, lambda: lines)
    assert again.forgotten == 2  # with the name that it alone had mentioned
    assert again.items == 0
    assert mine.find("s#1", "u/p/x") == []
    assert store.check() == []


def test_a_migration_copies_all_and_says_so(full: SqliteStore, store: Store) -> None:
    memory = Memory(full, embedder=HashedEmbedder())
    memory.reindex()
    done = migrate(full, store)
    assert everything(store) == everything(full)
    mine = memory.counts()
    assert (done.items, done.edges, done.vectors) == (mine.items, mine.edges, sum(mine.vectors.values()))
    target = Memory(store, embedder=HashedEmbedder())
    assert target.trouble == ""
    assert target.counts() == mine
    assert migrate(full, store) == done  # again, or after it was broken off
    new = target.state("Ann", "lives in", "Lima", "u/p")  # that it is functional came along
    assert [fact.id for fact in target.facts("Ann", "lives in", "u/p")] == [new.id]
    assert store.check() == []


def test_a_migration_back_is_what_was_there(full: SqliteStore, store: Store, tmp_path: Path) -> None:
    migrate(full, store)
    back = SqliteStore(tmp_path / "back.db")
    migrate(store, back)
    assert everything(back) == everything(full)
    back.close()


def test_the_node_link_form_is_read_by_networkx(full: SqliteStore) -> None:
    data = json.loads(json.dumps(node_link(full)))
    graph = networkx.node_link_graph(data, edges="edges")
    items, edges = everything(full)
    assert set(graph.nodes) == set(items)
    assert graph.number_of_edges() == len(edges)
    assert {kind for _, kind in graph.nodes(data="kind")} >= {"fact", "message", "entity"}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(min_size=1).filter(str.strip), min_size=1, max_size=5), st.data())
def test_any_text_goes_out_and_in(texts: list[str], data: st.DataObject) -> None:
    with scratch() as (one, other):
        memory = Memory(one)
        for text in texts:
            memory.add(text, "u", data={"note": data.draw(st.text(max_size=5))})
        lines = list(export(one))
        import_lines(other, lambda: lines)
        assert everything(other) == everything(one)


@pytest.mark.parametrize("line", [line for line, _ in BAD])
def test_a_line_that_is_none_is_refused_not_crashed_on(line: str) -> None:
    with pytest.raises(BadInput):
        parse(line)
