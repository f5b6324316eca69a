"""Each row of the probes of other kits' memories, against every store."""

from __future__ import annotations

import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta

import pytest
from memory.contract.helpers import Clock, texts

from opensage_memory import New
from opensage_memory.embed import CallableEmbedder, HashedEmbedder
from opensage_memory.errors import BadInput

S = "ada/kit"


def test_memory_probe_1_the_same_text_twice_is_one_item(memory):
    first = memory.add("Ada likes green tea", S, sources=["log#1"])
    second = memory.add("Ada likes green tea", S, sources=["log#2"])
    assert second.id == first.id
    assert (second.seen, second.sources) == (2, ("log#1", "log#2"))
    assert memory.counts(S).kinds["fact"] == 1
    assert memory.counts(S).kinds.get("entity", 0) == 1


def test_memory_probe_2_the_same_fact_three_times_is_still_there(memory):
    for time in range(1, 4):
        memory.add("The build needs Java 21", S)
        memory.state("build", "needs", "Java 21", S)
        assert [item.seen for item in memory.facts("build", "needs", S)] == [time]
        assert "The build needs Java 21" in texts(memory.search("build Java", S))


def test_memory_probe_4_in_bulk_is_as_one_by_one(open_memory):
    memory = open_memory()
    memory.add_many([New("x marks the spot"), New("x marks the spot")], "bulk")
    for _ in range(2):
        memory.add("x marks the spot", "single")
    bulk, single = (memory.items(scope)[0][1] for scope in ("bulk", "single"))
    assert (bulk.seen, bulk.sources, bulk.text) == (single.seen, single.sources, single.text)
    assert memory.counts("bulk").kinds == memory.counts("single").kinds
    assert memory.counts("bulk").edges == memory.counts("single").edges


def test_memory_probe_5_facts_of_other_subjects_retire_nothing(memory):
    memory.declare("lives in")
    for number in range(50):
        memory.state(f"Person {number}", "lives in", f"Town {number % 7}", S, at="2024-01-01")
    live = [fact for _, fact in memory.items(S, kinds=("fact",))]
    assert len(live) == 50
    assert all(fact.retired_at is None and fact.valid_to is None for fact in live)


def test_memory_probe_8_only_the_survivor_of_a_merge_is_found(memory):
    keep = memory.add("The deploy script is deploy.sh in tools", S)
    gone = memory.add("The deploy script: tools/deploy.sh", S)
    memory.merge(keep.id, gone.id, S)
    assert [hit.item.id for hit in memory.search("deploy script", S)] == [keep.id]
    assert gone.id in memory.get(keep.id, S).sources
    assert memory.get(gone.id, S).retired_at is not None


def test_memory_probe_9_what_was_true_before_is_answered_with_its_interval(memory):
    memory.declare("lives in")
    memory.state("Ada", "lives in", "London", S, at="2020-01-01")
    memory.state("Ada", "lives in", "Paris", S, at="2022-06-01")
    (before,) = memory.facts("Ada", "lives in", S, as_of="2021-01-01")
    assert before.data["object"] == "London"
    assert before.valid_from == datetime(2020, 1, 1, tzinfo=UTC)
    assert before.valid_to == datetime(2022, 6, 1, tzinfo=UTC)
    assert texts(memory.search("Ada lives", S, as_of="2021-01-01")) == ["Ada lives in London"]
    assert texts(memory.search("Ada lives", S)) == ["Ada lives in Paris"]


@pytest.mark.parametrize("again", [False, True])
def test_memory_probe_10_11_forgotten_is_gone_everywhere_after_a_restart_too(open_memory, again):
    memory = open_memory(embedder=HashedEmbedder(64))
    gone = memory.add("The pin of the Zebrafish vault is secret", S)
    near = memory.add("Ada keeps a vault", S)
    memory.link(near.id, "SUPPORTS", gone.id, S)
    memory.forget(gone.id, S)
    if again:
        memory.close()
        memory = open_memory(embedder=HashedEmbedder(64))
    assert "Zebrafish" not in "".join(texts(memory.search("Zebrafish vault", S)))
    with memory.store.read() as reader:
        vector = HashedEmbedder(64).embed([gone.text])[0]
        assert gone.id not in dict(reader.nearest("hashed-64:64", vector, memory.view(S), 10))
    items, edges = memory.neighbours(near.id, S, hops=2)
    assert gone.id not in {item.id for item in items} | {end for e in edges for end in (e.source, e.target)}
    assert gone.id not in {item.id for _, item in memory.items(S, retired=True, archived=True, ended=True)}
    assert memory.get(gone.id, S) is None
    assert memory.why(gone.id, S).tombstone.id == gone.id


def test_memory_probe_13_the_entity_of_a_forgotten_source_goes_too(memory):
    only = memory.add("Grace Hopper wrote a compiler", S)
    memory.add("Ada Lovelace wrote a program", S)
    memory.forget(only.id, S)
    names = {item.text for _, item in memory.items(S, kinds=("entity",))}
    assert "Grace Hopper" not in names
    assert "Ada Lovelace" in names
    assert memory.counts().dangling == 0
    assert memory.check() == []


def test_memory_probe_15_all_indexes_count_the_same_after_many_changes(open_memory):
    import random

    memory, dice = open_memory(embedder=HashedEmbedder(16)), random.Random(15)
    alive: list[str] = []
    for number in range(200):
        step = dice.random()
        if step < 0.6 or len(alive) < 3:
            alive.append(memory.add(f"Note {number} about Topic {number % 9} and {dice.random()}", S).id)
        elif step < 0.8:
            memory.forget(alive.pop(dice.randrange(len(alive))), S)
        else:
            keep, gone = dice.sample(alive, 2)
            memory.merge(keep, gone, S)
            alive.remove(gone)
    counts = memory.counts()
    assert counts.items == counts.indexed == sum(counts.kinds.values())
    assert counts.vectors["hashed-16:16"] == counts.kinds["fact"]
    assert (counts.dangling, counts.orphans) == (0, 0)
    assert memory.check() == []


def test_memory_probe_17_fifty_consolidations_lose_nothing(open_memory):
    clock = Clock()
    memory = open_memory(clock=clock)
    for number in range(12):
        memory.add(
            New(f"Step {number}: the test {number} passed.", "message", f"s#{number}", session="s", at=clock()), S
        )
    notes = [
        memory.add(text, S).id for text in ("Use port 8080", "Use port 8081", "Never use port 80", "use port 8080!")
    ]
    before = {item.text for _, item in memory.items(S, retired=True, archived=True, ended=True)}
    for _ in range(50):
        clock.forward(timedelta(days=30))
        memory.consolidate(S)
    after = {item.text for _, item in memory.items(S, retired=True, archived=True, ended=True)}
    assert before <= after
    assert [memory.get(id, S).retired_at is None for id in notes] == [True, True, True, False]
    assert memory.counts().tombstones == 0
    assert memory.check() == []


def test_memory_probe_17b_what_a_consolidation_did_is_undone(memory):
    one = memory.add("The server listens on port 8080", S)
    two = memory.add("the server listens on port 8080.", S)
    done = memory.consolidate(S)
    assert done.merged == ((one.id, two.id),)
    memory.undo(memory.operations(S)[0].id, S)
    assert {hit.item.id for hit in memory.search("server port", S)} == {one.id, two.id}


def test_memory_probe_18_a_year_later_the_order_is_still_sensible(open_memory):
    clock = Clock()
    memory = open_memory(clock=clock)
    for number in range(10):
        memory.add(New(f"Chat line {number} about lunch", "message", f"c#{number}", session="chat", at=clock()), S)
    best = memory.add("The release key is kept in the blue safe", S)
    memory.consolidate(S)
    before = [hit.item.id for hit in memory.search("release key blue safe", S)]
    clock.forward(timedelta(days=365))
    memory.consolidate(S)
    hits = memory.search("release key blue safe", S)
    assert hits[0].item.id == before[0] == best.id
    assert all(hit.score > 0 for hit in hits)
    assert not any(hit.item.archived for hit in memory.search("chat line about lunch", S))
    assert any(hit.item.archived for hit in memory.search("chat line about lunch", S, archived=True))


def test_memory_probe_19_a_change_of_nothing_but_removals(memory):
    ids = [memory.add(f"Line {number}", S).id for number in range(5)]
    operation = memory.forget(ids, S)
    assert set(ids) <= set(operation.touched)
    assert memory.items(S) == []


def test_memory_probe_21_no_scope_sees_another(memory):
    memory.add("The tenant key is apple", "acme/a")
    memory.add("The tenant key is pear", "acme/b")
    assert texts(memory.search("tenant key", "acme/a")) == ["The tenant key is apple"]
    assert memory.search("tenant key", "acme") == []
    assert memory.search("tenant key", "nobody") == []


def test_memory_probe_22_threads_that_write_two_scopes_cross_nothing(memory):
    errors: list[BaseException] = []

    def work(scope):
        try:
            for number in range(200):
                memory.add(f"{scope} says {number}", scope)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(scope,)) for scope in ("left", "right")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    for scope in ("left", "right"):
        found = [item.text for _, item in memory.items(scope, kinds=("fact",))]
        assert sorted(found) == sorted(f"{scope} says {number}" for number in range(200))


def test_memory_probe_23_a_new_client_reads_what_was_written(open_memory):
    open_memory().add("Written by the first", S)
    assert texts(open_memory().search("written first", S)) == ["Written by the first"]


def test_memory_probe_25_an_untrusted_claim_is_told_from_a_trusted_one(memory):
    memory.add("Acme Corp pays on Fridays", S, trust="user")
    memory.add("Acme Corp pays to account 666", S, trust="untrusted")
    found = {hit.item.text: hit.item.trust for hit in memory.search("Acme Corp pays", S)}
    assert found == {"Acme Corp pays on Fridays": "user", "Acme Corp pays to account 666": "untrusted"}
    assert texts(memory.search("Acme Corp pays", S, trusts=["user", "agent"])) == ["Acme Corp pays on Fridays"]
    assert "untrusted" in memory.context("Acme Corp pays", S).text
    memory.declare("lives in")
    memory.state("Ada", "lives in", "London", S, trust="user", at="2020-01-01")
    memory.state("Ada", "lives in", "Mallory Town", S, trust="untrusted", at="2021-01-01")
    assert memory.facts("Ada", "lives in", S)[0].data["object"] == "London"
    assert memory.facts("Ada", "lives in", S)[0].valid_to is None


def test_memory_probe_25b_private_never_gets_shared_by_itself(memory):
    private = memory.add("Acme Corp is our client", "ada/kit/agent")
    shared = memory.add("Acme Corp sells anvils", "ada/kit")
    assert len(memory.items("ada/kit", kinds=("entity",))) == 1
    with memory.store.read() as reader:
        ends = {end for edge in reader.edges([shared.id]) for end in (edge.source, edge.target)}
    assert private.id not in ends
    copy = memory.publish(private.id, "ada/kit/agent", "ada/kit")
    assert (copy.scope, copy.data["published_from"]) == ("ada/kit", private.id)
    with pytest.raises(BadInput, match="not around"):
        memory.publish(copy.id, "ada/kit", "other")


def test_memory_probe_27_everything_is_read_only_when_asked_for(memory):
    memory.add("Same words here", "one/a")
    memory.add("Same words there", "two/b")
    assert len(memory.search("same words", "*")) == 2
    assert len(memory.search("same words", "one/*")) == 1
    for scope in ("", (), "one/", "/one", "one//a", "..", "*/a", 7, "a" * 600):
        with pytest.raises(BadInput):
            memory.search("same words", scope)


@pytest.mark.parametrize(
    "relation", ["non-compliant", "consists of...", "位于", "is `a` \"b\" 'c' {d}", "x\ny", "a\x00b"]
)
def test_memory_probe_29_any_name_of_a_relation(memory, relation):
    memory.state("Kit", relation, "Part", S)
    (fact,) = memory.facts("Kit", relation, S)
    assert fact.data["relation"] == relation
    _, edges = memory.neighbours(fact.id, S, hops=2)
    assert relation in {edge.relation for edge in edges}


LITERAL = [
    "a-b",
    "C:\\x\\y",
    "a/b",
    "a|b",
    "AND",
    "OR",
    "NOT",
    "NEAR",
    "col:val",
    "don't",
    "x^2",
    "f(y)",
    "{z}",
    "~w",
    "main",
]


@pytest.mark.parametrize("query", LITERAL)
def test_memory_probe_30_a_query_is_literal_text(memory, query):
    memory.add(f"before {query} after", S)
    memory.add("nothing of the kind", S)
    assert texts(memory.search(query, S))[0] == f"before {query} after"


@pytest.mark.parametrize(
    "query", ["", " ", "*", '"', "(", "-", "\\", "x" * 10_000, "word " * 2000, "\x00", "\ud800", "' OR 1=1 --"]
)
def test_memory_probe_30b_no_query_fails(memory, query):
    memory.add("Something is there", S)
    assert isinstance(memory.search(query, S), list)


def test_memory_probe_32_words_need_not_stand_together(memory):
    memory.add("The migration of our main database is on Monday", S)
    memory.add("Lunch is on Monday", S)
    assert "migration" in texts(memory.search("database migration", S))[0]


SCRIPTS = {
    "Latin": ("Café Müller öffnet früh", "cafe muller"),
    "Greek": ("Η Αθήνα είναι πρωτεύουσα", "ΑΘΗΝΑ"),
    "Cyrillic": ("Москва стоит на реке", "москва"),
    "Arabic": ("القاهرة مدينة كبيرة", "القاهرة"),
    "Hindi": ("दिल्ली बहुत बड़ी है", "दिल्ली"),
    "Chinese": ("数据库迁移在星期一", "迁移"),
    "Japanese": ("東京タワーは高い", "東京タワー"),
    "Korean": ("서울은 큰 도시입니다", "서울"),
    "Thai": ("กรุงเทพเป็นเมืองใหญ่", "กรุงเทพ"),
    "emoji": ("Deployed 🚀 at last", "🚀"),
}


def test_memory_probe_33_every_script_is_found_by_words(memory):
    for text, _ in SCRIPTS.values():
        memory.add(text, S)
    for name, (text, query) in SCRIPTS.items():
        assert texts(memory.search(query, S))[:1] == [text], name
    assert texts(memory.search("Cafe\u0301", S))[:1] == ["Café Müller öffnet früh"]


def test_memory_probe_35_one_rule_for_times(memory):
    given = {
        "naive": datetime(2024, 5, 1, 12),
        "utc": datetime(2024, 5, 1, 12, tzinfo=UTC),
        "tokyo": "2024-05-01T21:00:00+09:00",
        "date": "2024-05-01",
    }
    items = {name: memory.get(memory.add(f"At {name}", S, at=at).id, S) for name, at in given.items()}
    noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    assert [items[name].valid_from for name in ("naive", "utc", "tokyo")] == [noon] * 3
    assert items["date"].valid_from == datetime(2024, 5, 1, tzinfo=UTC)
    assert texts(memory.search("at", S, as_of=datetime(2024, 5, 1, 6))) == ["At date"]
    with pytest.raises(BadInput, match="not a time"):
        memory.add("never", S, at="yesterday-ish")


def test_memory_probe_37_between_two_dates(memory):
    memory.add("No bounds holds", S)
    memory.add("From May holds", S, at="2024-05-01")
    memory.add("Till June holds", S, until="2024-06-01")
    memory.add("May to June holds", S, at="2024-05-01", until="2024-06-01")
    found = lambda day: {text.split(" holds")[0] for text in texts(memory.search("holds", S, as_of=day))}  # noqa: E731
    assert found("2024-04-01") == {"No bounds", "Till June"}
    assert found("2024-05-01") == {"No bounds", "From May", "Till June", "May to June"}
    assert found("2024-06-01") == {"No bounds", "From May"}
    with pytest.raises(BadInput, match="before it begins"):
        memory.add("backwards", S, at="2024-05-02", until="2024-05-01")


def test_memory_probe_38_what_is_over_does_not_crowd_out_what_is_true(memory):
    memory.declare("version")
    for number in range(20):
        memory.state("Kit", "version", f"1.{number}", S, at=datetime(2024, 1, 1 + number, tzinfo=UTC))
    assert texts(memory.search("Kit version", S, k=5)) == ["Kit version 1.19"]
    assert len(memory.search("Kit version", S, k=50, history=True)) == 20
    assert len(memory.facts("Kit", "version", S, history=True)) == 20


def test_memory_probe_39_a_tag_changes_no_time(open_memory):
    clock = Clock()
    memory = open_memory(clock=clock)
    old = memory.add("An old note", S, at="2020-01-01")
    clock.forward(timedelta(days=9))
    memory.annotate(old.id, S, tag="important")
    tagged = memory.get(old.id, S)
    assert (tagged.valid_from, tagged.created_at, tagged.data) == (old.valid_from, old.created_at, {"tag": "important"})


def test_memory_probe_41_42_another_embedder_is_noticed_and_words_still_found(open_memory):
    memory = open_memory(embedder=HashedEmbedder(384))
    memory.add("The harbour opens at six", S)
    memory.close()
    others = [HashedEmbedder(256), CallableEmbedder("other", 384, HashedEmbedder(384).embed)]
    for other in others:
        again = open_memory(embedder=other)
        assert "hashed-384:384" in again.trouble
        assert f"{other.name}:{other.dimension}" in again.trouble
        assert texts(again.search("harbour", S)) == ["The harbour opens at six"]
        again.add(f"Noted under {other.name}", S)
        again.close()
    again = open_memory(embedder=others[0])
    assert again.reindex() == again.counts().items - again.counts().kinds.get("session", 0)
    assert again.trouble == ""
    assert again.counts().vectors == {"hashed-256:256": again.counts().items}


@pytest.mark.parametrize("bad", ["nan", "zeros", "short", "empty", "raises"])
def test_memory_probe_44_a_bad_vector_or_blank_text_harms_nothing(open_memory, bad):
    good = HashedEmbedder(8)

    def embed(batch):
        if "poison" not in batch[0]:
            return good.embed(batch)
        if bad == "raises":
            raise RuntimeError("out of memory")
        return {"nan": [[float("nan")] * 8], "zeros": [[0.0] * 8], "short": [[1.0]], "empty": []}[bad]

    memory = open_memory(embedder=CallableEmbedder("flaky", 8, embed))
    kept = memory.add("A healthy note", S)
    for blank in ("", "   ", "\n\t"):
        with pytest.raises(BadInput, match="empty"):
            memory.add(blank, S)
    queued = memory.add("poison note", S)
    assert {hit.item.id for hit in memory.search("note", S)} == {kept.id, queued.id}
    (task,) = memory.waiting("embed")
    assert task.item == queued.id
    assert "flaky" in task.error
    assert {hit.item.id for hit in memory.search("poison", S)} >= {queued.id}


def test_memory_probe_48_opened_twice_in_one_process(open_memory):
    one, two = open_memory(), open_memory()
    one.add("From one", S)
    two.add("From two", S)
    assert set(texts(one.search("from", S))) == set(texts(two.search("from", S))) == {"From one", "From two"}


def test_memory_probe_53_no_turn_is_dropped_from_a_long_session(memory):
    count = 150
    memory.add_many([New(f"Turn {n} word{n}", "message", f"t#{n}", session="long") for n in range(count)], S)
    memory.add(New("Turn last wordlast", "message", "t#last", session="long"), S)
    for n in (0, 1, count // 2, count - 1, "last"):
        assert f"Turn {n} word{n}" in texts(memory.search(f"word{n}", S, k=3))


MODELS = {"litellm", "torch", "sentence_transformers"}


def test_memory_probe_57_a_write_calls_no_model(memory):
    before = set(sys.modules)  # other tests of this process may have loaded them
    memory.add("Plain text about Ada Lovelace", S)
    memory.state("Ada", "wrote", "notes", S)
    assert memory.embedder is None
    assert not MODELS & (set(sys.modules) - before)


def test_memory_probe_57_a_write_loads_no_model(tmp_path):
    code = (
        "import sys\nfrom opensage_memory import Memory\n"
        f"with Memory({str(tmp_path / 'm.db')!r}) as memory:\n"
        f"    memory.add('Plain text about Ada Lovelace', {S!r})\n    memory.state('Ada', 'wrote', 'notes', {S!r})\n"
        f"print(sorted({MODELS!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_memory_probe_59_scopes_share_one_database(memory):
    for number in range(20):
        memory.add(f"In scope {number}", f"tenant{number}/x")
    with memory.store.read() as reader:
        assert set(reader.scopes()) == {f"tenant{number}/x" for number in range(20)}


def test_memory_probe_60_61_opening_again_keeps_and_finds_all(open_memory):
    for number in range(3):
        memory = open_memory()
        memory.add(f"Round {number} of many", S)
        assert len(memory.search("round many", S)) == number + 1
        memory.close()


def test_memory_probe_L1_work_of_a_write_does_not_grow_with_the_graph(open_memory):
    memory = open_memory()
    memory.add_many([New(f"Node {n} about Theme {n % 40}", "message", f"n#{n}") for n in range(2000)], S)
    reads: list[int] = []
    sizes = {}
    for name, scope in (("big", S), ("small", "empty/one")):
        before = _reads(memory, reads, scope)
        sizes[name] = before
    assert sizes["big"] <= sizes["small"] + 60


def _reads(memory, reads, scope):
    """How many items the store hands out while one fact is added."""
    from opensage_memory.store.sqlite import reader as module

    count = 0
    real = module.to_item

    def counting(row):
        nonlocal count
        count += 1
        return real(row)

    module.to_item = counting
    try:
        memory.state("Theme 3", "is", f"new in {scope}", scope)
    finally:
        module.to_item = real
    return count
